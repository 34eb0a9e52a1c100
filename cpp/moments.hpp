// The first cross moments of every cluster, and their spectra.
#pragma once

#include <vector>

#include "parallel.hpp"
#include "types.hpp"

namespace dpmicro {

// The records of each cluster: those of cluster c are records[start[c]] .. records[start[c + 1]-1],
// in ascending order.
struct Clusters {
  std::vector<index_t> start;
  std::vector<index_t> records;

  index_t count() const { return static_cast<index_t>(start.size()) - 1; }
  index_t size(index_t cluster) const { return start[cluster + 1] - start[cluster]; }
};

// Guarantee: a stable counting sort of the records by label.
// Requires: labels 0 .. c-1, every one of them used; InputError otherwise.
// Cost: 2 n, and one index per record.
Clusters group_records(std::span<const label_t> labels);

// Which central cross moments to compute. "Marginal" keeps the entries with equal indices only.
struct MomentTerms {
  int order = 0;  // 0: mean; 1: and covariance; 2: and coskewness
  bool marginal_covariance = false;
  bool marginal_skewness = false;
};

// Per cluster of k records: the mean; the unbiased covariance q_ij = sum (x_i - mean_i)(x_j -
// mean_j) / (k-1); Fisher's unbiased coskewness phi_ijl = k / ((k-1)(k-2)) sum (x_i - mean_i)(x_j -
// mean_j)(x_l - mean_l).
//
// Guarantee: deviations are taken from the rounded mean and the sums corrected for its rounding, so
//   there is no cancellation however far the data lie from zero. The same for every number of
//   threads. A moment that k records cannot have (covariance for k < 2, coskewness for k < 3) is 0:
//   a constant, whose sensitivity is 0.
// Requires: mean holds c d doubles, covariance c d d (marginal: c d), skewness c d d d (marginal:
// c d);
//   the last two are not read for lower orders.
// Source: CM, equations (1) and (2).
// Cost: two passes over the records; n d(d+1)/2 products for the covariance, n d(d+1)(d+2)/6 for
//   the coskewness.
void cluster_moments(const MatrixView& X, const Clusters& clusters, const MomentTerms& terms,
                     double* mean, double* covariance, double* skewness, int threads,
                     Control& control);

// Eigenvalues (not increasing), eigenvectors (vectors[m][i] is the i-th, as a row) and eigengaps of
// `count` symmetric d x d matrices. gaps[m][i] is the distance of eigenvalue i to the nearest other
// one, infinite for d = 1.
//
// Requires: symmetric matrices (the lower triangle is read).
// Source: CM, section 4.2 before Proposition 9.
// Cost: some 9 d^3 per matrix.
void symmetric_eigen(const double* matrices, index_t count, index_t d, double* values,
                     double* vectors, double* gaps, int threads, Control& control);

}  // namespace dpmicro
