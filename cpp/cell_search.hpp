// Which cell of a quantiser each record falls in, and which other cells come close.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel.hpp"
#include "types.hpp"

namespace dpmicro {

// Record x belongs to the cell q that minimises weight(x) ||x - centroid_q||^2 + cost_q (PCL, eq.
// 4; the paper's weights are all 1).
struct Quantizer {
  index_t cells = 0;
  index_t dims = 0;
  std::vector<double> centroids;  // cells x dims, row by row
  std::vector<double> costs;

  const double* centroid(index_t q) const { return centroids.data() + q * dims; }
};

// A cell that a contested point may sit in, and weight ||x - centroid||^2 there, without the cost.
struct Rival {
  label_t cell;
  double value;
};

// Points for which another cell comes within the best one's margin of it. Point r of `points`
// has the rivals [begin[r], begin[r + 1]), its own cell among them, by ascending cell.
struct Contested {
  std::vector<std::int32_t> points;
  std::vector<std::int32_t> begin{0};
  std::vector<Rival> rivals;
};

// Records in a cell.
struct Holding {
  label_t cell;
  std::int32_t count;
};

// Some of a point's records, in another cell than the rest of them.
struct Part {
  std::int32_t point;
  label_t cell;
  std::int32_t count;
};

// The outcome of a search. Points are counted by their position in the search's own order.
struct Assignment {
  std::vector<label_t> labels;       // where most of a point's records are, all without parts
  std::vector<Part> parts;           // by ascending point; a search makes none
  std::vector<index_t> sizes;        // records per cell
  std::vector<Contested> contested;  // one per chunk, in order of position

  // Says where a point's records are; `held` has all of them, no cell twice. By ascending point.
  void hold(std::int32_t point, const std::vector<Holding>& held);
};

// The points of a table in k-d order, ready to be assigned to cells again and again. A point is a
// record, or as many identical ones as its count says (distinct.hpp).
//
// Guarantee: the assignment is that of an exhaustive search (ties to the lowest cell), the same for
//   every number of threads. A cell is left out for a box of records only if the linear function
//   "its distance + cost minus that of another cell" exceeds every margin that matters on the whole
//   box.
// Cost: building n log n; a search some n times the few cells that meet a leaf's box.
class CellSearch {
 public:
  // Requires: finite values; weights (of single records) and counts are null for all 1, or have
  // X.rows positive numbers.
  CellSearch(const MatrixView& X, const double* weights, const std::int32_t* counts, int threads,
             Control& control);

  index_t points() const { return static_cast<index_t>(order_.size()); }
  index_t records() const { return records_; }
  index_t dims() const { return dims_; }
  bool counted() const { return !counts_.empty(); }
  // Records of the point at a position.
  std::int32_t count(index_t position) const { return counts_.empty() ? 1 : counts_[position]; }
  // Row of the point at each position.
  const std::vector<std::int32_t>& order() const { return order_; }

  // Labels every point and lists the contested ones: all cells within the margin of the best one,
  // which is that cell's own, since records are dense in one place and sparse in another.
  void assign(const Quantizer& quantizer, const std::vector<double>& margins, int threads,
              Control& control, Assignment& out) const;
  // Where some points lie: grows to hold the one at a position.
  struct Region {
    std::vector<double> low, high;
    double lightest = 0, heaviest = 0;  // weights
  };
  void extend(Region& region, std::int32_t position) const;
  // How far cell `own` is ahead of every cell at least, for any point in the region.
  // `columns` has the centroids attribute by attribute.
  void leads(const Quantizer& quantizer, const std::vector<double>& columns, const Region& region,
             label_t own, std::vector<double>& out) const;
  // Appends the rivals of the point at a position: cell `own` and those of the candidates within
  // `margin` of it, by ascending cell.
  void rivals(const Quantizer& quantizer, std::int32_t position, label_t own, double margin,
              const std::vector<label_t>& candidates, std::vector<Rival>& out) const;

  // Weighted means of the cells, cells x dims; a cell of identical records gets exactly that
  // record. Requires: no empty cell.
  std::vector<double> means(const Assignment& assignment, index_t cells, Control& control) const;
  // Mean of weight ||x - centroid||^2 over the records of each cell, 0 for an empty one.
  std::vector<double> mean_values(const Assignment& assignment,
                                  const std::vector<double>& centroids, Control& control) const;
  // sum weight ||x - centroid of its cell||^2.
  double distortion(const Assignment& assignment, const std::vector<double>& centroids, int threads,
                    Control& control) const;
  // Records of each point that are at its label; empty if each point is one record.
  std::vector<std::int32_t> at_label(const Assignment& assignment) const;

 private:
  struct Node {
    std::int32_t begin, end;
    std::int32_t left = -1;  // the right child follows the left one; -1: a leaf
  };
  struct Scratch;
  struct Box {
    const double* middle;
    const double* width;
    double lightest, heaviest;  // weights in it
  };
  // A point's first value and the step to its next.
  struct Point {
    const double* values;
    index_t stride;
    double weight;
  };

  Point point(std::int32_t position) const;
  double least_lead(const Quantizer& quantizer, const Box& box, label_t z, double z_distance,
                    label_t r, double r_distance) const;
  double bounded_lead(const Box& box, double z_distance, double r_distance, double swing,
                      double z_cost, double r_cost) const;

  template <class Act>
  void for_each_holding(const Node& leaf, const Assignment& assignment,
                        const std::vector<std::int32_t>& at_label, Act&& act) const;
  void arrange(std::int32_t node, const MatrixView& X, const double* weights);
  void visit(std::int32_t node, const Quantizer& quantizer, const std::vector<double>& margins,
             index_t depth, Scratch& scratch, label_t* labels, Contested& contested) const;
  void visit_leaf(const Node& node, const Quantizer& quantizer, const std::vector<double>& margins,
                  const std::vector<label_t>& cells, Scratch& scratch, label_t* labels,
                  Contested& contested) const;

  index_t dims_;
  index_t records_;
  bool weighted_;
  std::vector<std::int32_t> order_;
  std::vector<Node> nodes_;
  std::vector<double> middle_, width_;       // of each node's box, nodes x dims
  std::vector<double> lightest_, heaviest_;  // weights in each node
  std::vector<std::int32_t> chunks_;         // roots of the subtrees that are searched in parallel
  std::vector<double> points_;               // leaf by leaf, attribute by attribute
  std::vector<double> weights_;              // by position; empty when all are 1
  std::vector<std::int32_t> counts_;         // likewise
};

}  // namespace dpmicro
