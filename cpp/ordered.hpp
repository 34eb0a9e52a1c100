// Partitions that read an order of the records: individual ranking, insensitive, optimal
// univariate.
#pragma once

#include "parallel.hpp"
#include "types.hpp"

namespace dpmicro {

// IR(k): runs of k in the order of x, ties by row index; the last run takes the remainder.
//
// Guarantee: every cluster has k records, the last one k to 2k-1; labels ascend with x. Replacing
// one
//   value moves the sums of the runs by at most the change of that value in all (L1).
// Requires: finite values, 1 <= k <= n (InputError otherwise).
// Source: IR, section 3; PAPERS.md, "Partitioners".
// Cost: one sort.
void individual_ranking(std::span<const double> x, index_t k, Control& control, label_t* labels);

// IN(k): runs of k in the order of distance to the lower corner of the unit cube (squared Euclidean
// norm, attributes summed in order), ties lexicographic, then by row index.
//
// Guarantee: replacing one record changes every cluster by at most one record, since the order is
//   total and does not depend on the other records.
// Requires: values in [0, 1], 1 <= k <= n (InputError otherwise).
// Source: OPT, section 6 (the insensitive baseline); PAPERS.md, "Partitioners".
// Cost: one sort.
void insensitive_ranking(const MatrixView& U, index_t k, Control& control, label_t* labels);

// The partition of x into clusters of at least min_size values that minimises
// sum over clusters of SSE(C) + noise_cost/|C|.
//
// Guarantee: the optimum over all partitions (an optimal one has clusters of consecutive values),
//   up to rounding of the clusters' costs: relative 1e-9 at worst (33 bits are kept where sums
//   cancel), whatever the offset of the values and however far the outliers. Of several equally
//   good last clusters, as computed, the longest is taken, at every step of the program. Labels
//   ascend with x.
// Requires: finite values, noise_cost >= 0 and finite, 1 <= min_size <= n (InputError otherwise).
// Source: OPT, section 5 (the shortest path, there in n^2); the quadrangle inequality of the costs
//   is in PAPERS.md, "Partitioners".
// Cost: n log n.
void optimal_univariate(std::span<const double> x, double noise_cost, index_t min_size,
                        Control& control, label_t* labels);

}  // namespace dpmicro
