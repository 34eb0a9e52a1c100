// Records again, from the moments of their clusters. Never looks at the data.
#pragma once

#include "moments.hpp"
#include "random.hpp"

namespace dpmicro {

// Moments to sample from; null pointers for what an order does not have.
struct ClusterMoments {
  const double* mean = nullptr;        // c x d
  const double* covariance = nullptr;  // c x d x d, or c x d variances
  const double* skewness = nullptr;    // c x d third central moments
  bool marginal = false;               // variances only: the attributes are independent
};

// Draws a record for every record of every cluster and writes it to that record's row of out (n x
// d, C order), truncated to [0, 1].
//
// Guarantee: order 0 repeats the mean; order 1 draws from the normal distribution; order 2 from
//   Azzalini's skew-normal, mean + s (|U| - sqrt(2/pi)) + A W (see feasible_skewness), with one U
//   per record, or one per value if the terms are marginal. Before truncation the distribution has
//   exactly the given moments. The same for every number of threads under a seed.
// Requires: positive semidefinite covariances and feasible skewness, InputError otherwise.
// Source: Azzalini (1985); Azzalini & Dalla Valle (1996); CM, section 5.2.
// Cost: one or two normal draws per value, one eigendecomposition per cluster.
void sample_records(const Clusters& clusters, index_t d, const ClusterMoments& moments, double* out,
                    const RandomSource& source, int threads, Control& control);

}  // namespace dpmicro
