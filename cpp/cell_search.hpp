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

// A cell that a contested record may sit in, and weight ||x - centroid||^2 there, without the cost.
struct Rival {
  label_t cell;
  double value;
};

// Records for which another cell comes within the best one's margin of it. Record r of `records`
// has the rivals [begin[r], begin[r + 1]), its own cell among them, by ascending cell.
struct Contested {
  std::vector<std::int32_t> records;
  std::vector<std::int32_t> begin{0};
  std::vector<Rival> rivals;
};

// The outcome of a search. Records are counted by their position in the search's own order.
struct Assignment {
  std::vector<label_t> labels;
  std::vector<index_t> sizes;        // records per cell
  std::vector<Contested> contested;  // one per chunk, in order of position
};

// The records of a table in k-d order, ready to be assigned to cells again and again.
//
// Guarantee: the assignment is that of an exhaustive search (ties to the lowest cell), the same for
//   every number of threads. A cell is left out for a box of records only if the linear function
//   "its distance + cost minus that of another cell" exceeds every margin that matters on the whole
//   box.
// Cost: building n log n; a search some n times the few cells that meet a leaf's box.
class CellSearch {
 public:
  // Requires: finite values; weights is null or X.rows positive numbers that outlive the search.
  CellSearch(const MatrixView& X, const double* weights, int threads, Control& control);

  index_t records() const { return static_cast<index_t>(order_.size()); }
  index_t dims() const { return dims_; }
  // Row of the table at each position.
  const std::vector<std::int32_t>& order() const { return order_; }

  // Labels every record and lists the contested ones: all cells within the margin of the best one,
  // which is that cell's own, since records are dense in one place and sparse in another.
  void assign(const Quantizer& quantizer, const std::vector<double>& margins, int threads,
              Control& control, Assignment& out) const;
  // Where some records lie: grows to hold the record at a position.
  struct Region {
    std::vector<double> low, high;
    double lightest = 0, heaviest = 0;  // weights
  };
  void extend(Region& region, std::int32_t position) const;
  // How far cell `own` is ahead of every cell at least, for any record in the region.
  void leads(const Quantizer& quantizer, const Region& region, label_t own,
             std::vector<double>& out) const;
  // Appends the rivals of the record at a position: cell `own` and those of the candidates within
  // `margin` of it, by ascending cell.
  void rivals(const Quantizer& quantizer, std::int32_t position, label_t own, double margin,
              const std::vector<label_t>& candidates, std::vector<Rival>& out) const;

  // Weighted means of the cells, cells x dims; a cell of identical records gets exactly that
  // record. Requires: no empty cell.
  std::vector<double> means(const std::vector<label_t>& labels, index_t cells,
                            Control& control) const;
  // Mean of weight ||x - centroid||^2 over the records of each cell, 0 for an empty one.
  std::vector<double> mean_values(const std::vector<label_t>& labels,
                                  const std::vector<double>& centroids, Control& control) const;
  // sum weight ||x - centroid of its cell||^2.
  double distortion(const std::vector<label_t>& labels, const std::vector<double>& centroids,
                    int threads, Control& control) const;

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
  // A record's first value and the step to its next.
  struct Point {
    const double* values;
    index_t stride;
    double weight;
  };

  Point point(std::int32_t position) const;
  double least_lead(const Quantizer& quantizer, const Box& box, label_t z, double z_distance,
                    label_t r, double r_distance) const;

  void arrange(std::int32_t node, const MatrixView& X, const double* weights);
  void visit(std::int32_t node, const Quantizer& quantizer, const std::vector<double>& margins,
             index_t depth, Scratch& scratch, label_t* labels, Contested& contested) const;
  void visit_leaf(const Node& node, const Quantizer& quantizer, const std::vector<double>& margins,
                  const std::vector<label_t>& cells, Scratch& scratch, label_t* labels,
                  Contested& contested) const;

  index_t dims_;
  bool weighted_;
  std::vector<std::int32_t> order_;
  std::vector<Node> nodes_;
  std::vector<double> middle_, width_;       // of each node's box, nodes x dims
  std::vector<double> lightest_, heaviest_;  // weights in each node
  std::vector<std::int32_t> chunks_;         // roots of the subtrees that are searched in parallel
  std::vector<double> points_;               // leaf by leaf, attribute by attribute
  std::vector<double> weights_;              // by position; empty when all are 1
};

}  // namespace dpmicro
