#include "sample.hpp"

#include <Eigen/Dense>
#include <cmath>
#include <numbers>

#include "repair.hpp"

namespace dpmicro {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Fills out with independent standard normal draws (Box & Muller 1958): two uniform words give two.
void fill_normal(Generator& generator, double* out, index_t count) {
  constexpr double kUnit = 0x1p-53;
  for (index_t i = 0; i < count; i += 2) {
    // The first lies in (0, 1], so its logarithm is finite.
    const double u = static_cast<double>((generator.bits64() >> 11) + 1) * kUnit;
    const double v = static_cast<double>(generator.bits64() >> 11) * kUnit;
    const double radius = std::sqrt(-2 * std::log(u));
    const double angle = 2 * std::numbers::pi * v;
    out[i] = radius * std::cos(angle);
    if (i + 1 < count) out[i + 1] = radius * std::sin(angle);
  }
}

// What a cluster's records are made with.
struct Mixer {
  VectorXd skew;   // s
  MatrixXd root;   // A
  VectorXd sigma;  // the diagonal of A where the terms are marginal
};

void prepare(const ClusterMoments& moments, index_t cluster, index_t d, Mixer& mixer) {
  constexpr double kTolerance = 1e-9;  // relative: what rounding in the repair may leave
  mixer.skew.setZero(d);
  if (moments.skewness != nullptr)
    for (index_t i = 0; i < d; ++i)
      mixer.skew(i) = std::cbrt(moments.skewness[cluster * d + i] / kThirdHalfNormal);
  const auto refuse = [] {
    throw InputError(
        "moments that no distribution has (covariance or skewness); repair them first");
  };
  if (moments.marginal) {
    mixer.sigma.resize(d);
    for (index_t i = 0; i < d; ++i) {
      const double variance = moments.covariance[cluster * d + i];
      const double left = variance - (1 - kTwoOverPi) * mixer.skew(i) * mixer.skew(i);
      if (left < -kTolerance * variance || variance < 0) refuse();
      mixer.sigma(i) = std::sqrt(std::max(left, 0.0));
    }
    return;
  }
  const MatrixXd Q = Eigen::Map<const RowMajor>(moments.covariance + cluster * d * d, d, d);
  const Eigen::SelfAdjointEigenSolver<MatrixXd> eigen(Q - (1 - kTwoOverPi) * mixer.skew *
                                                              mixer.skew.transpose());
  if (eigen.eigenvalues()(0) < -kTolerance * Q.trace() || Q.trace() < 0) refuse();
  mixer.root = eigen.eigenvectors() * eigen.eigenvalues().cwiseMax(0.0).cwiseSqrt().asDiagonal();
}

double truncate(double x) { return std::min(std::max(x, 0.0), 1.0); }

}  // namespace

void sample_records(const Clusters& clusters, index_t d, const ClusterMoments& moments, double* out,
                    const RandomSource& source, int threads, Control& control) {
  const index_t n = static_cast<index_t>(clusters.records.size());
  // Work is cut by record, not by cluster: one cluster may hold them all. A cluster that spans
  // chunks is prepared once in each.
  constexpr index_t kRecordsPerChunk = 8192;
  parallel_for(n, kRecordsPerChunk, threads, control, [&](index_t first, index_t last) {
    Stream stream = source.stream(first / kRecordsPerChunk);
    const bool skewed = moments.skewness != nullptr;
    const index_t halves = skewed ? (moments.marginal ? d : 1) : 0;
    const index_t draws = moments.covariance != nullptr ? d + halves : 0;
    std::vector<double> normal(draws);
    Mixer mixer;
    index_t cluster = std::upper_bound(clusters.start.begin(), clusters.start.end(), first) -
                      clusters.start.begin() - 1;
    for (index_t position = first; position < last; ++cluster) {
      if (draws > 0) prepare(moments, cluster, d, mixer);
      const double* mean = moments.mean + cluster * d;
      const index_t end = std::min(last, clusters.start[cluster + 1]);
      for (; position < end; ++position) {
        double* record = out + clusters.records[position] * d;
        fill_normal(stream, normal.data(), draws);
        const double* half = normal.data() + d;
        for (index_t i = 0; i < d; ++i) {
          double x = mean[i];
          if (skewed)
            x += mixer.skew(i) * (std::abs(half[moments.marginal ? i : 0]) - kMeanHalfNormal);
          if (draws > 0 && moments.marginal)
            x += mixer.sigma(i) * normal[i];
          else if (draws > 0)
            for (index_t j = 0; j < d; ++j) x += mixer.root(i, j) * normal[j];
          record[i] = truncate(x);
        }
      }
    }
  });
}

}  // namespace dpmicro
