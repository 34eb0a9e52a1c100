// PCL: the probability-constrained Lloyd algorithm, with exact cell sizes at every k.
#pragma once

#include <cstdint>
#include <vector>

#include "cell_search.hpp"
#include "transport.hpp"

namespace dpmicro {

struct PclOptions {
  Targets targets;                  // one size per cell
  const double* weights = nullptr;  // one per record, positive; null: all 1
  int max_iter = 100;
  double speed = 1.7;      // of the centroids, 0 < speed < 2; the paper's is 1/2, Lloyd's is 1
  std::uint64_t seed = 0;  // for seeding empty cells anew
  int threads = 0;
};

// A partition, or centroids (cells x dims); the other one is empty.
struct PclStart {
  std::vector<label_t> partition;
  std::vector<double> centroids;
};

struct PclResult {
  std::vector<label_t> labels;
  Quantizer quantizer;
  // sum weight ||x - mean of its cell||^2 after each improvement; first that of the initial
  // partition, if there is one with the target sizes.
  std::vector<double> distortions;
};

// k-anonymous quantisation: the best of what several starts lead to. Of many, the few
// that are ahead after some iterations go on.
//
// Guarantee: the cells have exactly the target sizes (at least, with targets.at_least). The labels
//   are the best there are for quantizer.centroids, and each record's cell minimises weight ||x -
//   centroid||^2 + cost, both up to rounding (ties are split to get the sizes right). Distortions
//   never increase by more than rounding. The same result for every number of threads.
// Requires: finite X; targets.sizes >= 1 that sum to X.rows (at most, with at_least); one start at
//   least, partitions without empty cells. InputError otherwise.
// Source: PCL, section 6 and appendix A (cost_adjustment.hpp). Beyond the paper: exact sizes in
//   every iteration (transport.hpp), centroids that overshoot instead of lagging behind, and
//   competing starts.
// Cost: about three searches (cell_search.hpp) and one transport per iteration. max_iter = 0 only
//   assigns the records to the initial centroids.
PclResult pcl(const MatrixView& X, std::vector<PclStart> starts, const PclOptions& options,
              Control& control);

// Centroids by k-means++ (Arthur & Vassilvitskii 2007): each next one is a record drawn with
// probability proportional to its squared distance to the nearest centroid so far.
// Cost: n d cells.
std::vector<double> kmeans_plus_plus(const MatrixView& X, index_t cells, std::uint64_t seed,
                                     int threads, Control& control);

// The cell of each record of another table: argmin ||x - centroid||^2 + cost, ties to the lowest.
void assign(const MatrixView& X, const Quantizer& quantizer, int threads, Control& control,
            label_t* labels);

}  // namespace dpmicro
