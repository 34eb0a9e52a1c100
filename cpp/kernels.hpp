// The innermost loops, compiled once per instruction set and picked at load time. The only
// multiversioned code: no Eigen here (it and per-function targets break the one-definition rule).
#pragma once

#include "parallel.hpp"
#include "types.hpp"

namespace dpmicro {

// out[i] = sum_j (X(i,j) - point[j])^2, summed in the order j = 0..d-1.
//
// Guarantee: bit-identical on every instruction set and for C and F order, since each record is
//   summed in one lane in the same order and nothing is fused.
// Cost: n d.
void squared_distances(const MatrixView& X, const double* point, double* out, int threads,
                       Control& control);

// Sum over all records and attributes of (x - mean of its cluster)^2.
//
// Guarantee: two passes, so no cancellation; the same for every number of threads.
// Requires: labels has X.rows entries, each >= 0; InputError otherwise.
// Source: OPT, section 2; the within-cluster sum of squares of microaggregation.
// Cost: 2 n d, and one mean vector per cluster.
double sse(const MatrixView& X, const label_t* labels, int threads, Control& control);

// A block holds kLanes records attribute by attribute: attribute j of lane l is block[j kLanes +
// l].
inline constexpr index_t kLanes = 32;

struct Extremes {
  double least;
  double greatest;
};

// out[l] = squared distance of lane l to the point, and the least and greatest of them.
//
// Guarantee: as squared_distances, bit by bit. Lanes of NaN give NaN and do not count; where all
// do,
//   least is infinite and greatest is -1.
// Cost: kLanes d.
Extremes block_distances(const double* block, index_t d, const double* point, double* out);

// Refuses NaN and infinite entries: the message names the column, never the value.
void require_finite(const MatrixView& X);
// Refuses entries beyond 1e100 in size, for whatever adds up distances or moments: sums of their
// squares and cubes may overflow, and infinite distances are all alike.
void require_measurable(const MatrixView& X);

}  // namespace dpmicro
