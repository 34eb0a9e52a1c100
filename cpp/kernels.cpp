#include "kernels.hpp"

#include <cmath>

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(DPMICRO_SANITIZED)
#define DPMICRO_CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define DPMICRO_CLONES  // sanitizers start after the loader's resolvers; elsewhere there are none
#endif

namespace dpmicro {
namespace {

constexpr index_t kGrain = 16384;

// One attribute's contribution to the distances of a run of records.
DPMICRO_CLONES void add_squares_unit(const double* x, double c, double* out, index_t n) {
  for (index_t i = 0; i < n; ++i) {
    const double difference = x[i] - c;
    out[i] += difference * difference;
  }
}

DPMICRO_CLONES void add_squares_strided(const double* x, index_t stride, double c, double* out,
                                        index_t n) {
  for (index_t i = 0; i < n; ++i) {
    const double difference = x[i * stride] - c;
    out[i] += difference * difference;
  }
}

DPMICRO_CLONES bool all_finite(const double* x, index_t stride, index_t n) {
  // x - x is 0 for finite x and NaN otherwise; a sum of such terms vectorises, isfinite does not.
  double total = 0;
  for (index_t i = 0; i < n; ++i) total += x[i * stride] - x[i * stride];
  return total == 0;
}

// Eight lanes at once. The compiler splits them where registers are narrower; each lane's
// arithmetic stays the same.
using Lanes = double __attribute__((vector_size(64)));
constexpr int kVectors = static_cast<int>(kLanes * sizeof(double) / sizeof(Lanes));

DPMICRO_CLONES void block_distances_clone(const double* block, index_t d, const double* point,
                                          double* out, Extremes* extremes) {
  Lanes total[kVectors] = {};
  for (index_t j = 0; j < d; ++j) {
    for (int v = 0; v < kVectors; ++v) {
      Lanes x;
      __builtin_memcpy(&x, block + j * kLanes + v * 8, sizeof x);
      x -= point[j];
      total[v] += x * x;
    }
  }
  // A comparison with NaN is false, so lanes of NaN leave these as they are.
  Lanes least = {};
  least += __builtin_inf();
  Lanes greatest = {};
  greatest -= 1;
  for (int v = 0; v < kVectors; ++v) {
    least = total[v] < least ? total[v] : least;
    greatest = total[v] > greatest ? total[v] : greatest;
  }
  __builtin_memcpy(out, total, sizeof total);
  *extremes = {least[0], greatest[0]};
  for (int l = 1; l < 8; ++l) {
    extremes->least = least[l] < extremes->least ? least[l] : extremes->least;
    extremes->greatest = greatest[l] > extremes->greatest ? greatest[l] : extremes->greatest;
  }
}

}  // namespace

Extremes block_distances(const double* block, index_t d, const double* point, double* out) {
  Extremes extremes;
  block_distances_clone(block, d, point, out, &extremes);
  return extremes;
}

void squared_distances(const MatrixView& X, const double* point, double* out, int threads,
                       Control& control) {
  parallel_for(X.rows, kGrain, threads, control, [&](index_t begin, index_t end) {
    constexpr index_t kBlock = 1024;  // stays in the first-level cache over all attributes
    for (index_t b = begin; b < end; b += kBlock) {
      const index_t n = std::min(kBlock, end - b);
      std::fill_n(out + b, n, 0.0);
      for (index_t j = 0; j < X.cols; ++j) {
        const double* column = X.data + b * X.row_stride + j * X.col_stride;
        if (X.row_stride == 1)
          add_squares_unit(column, point[j], out + b, n);
        else
          add_squares_strided(column, X.row_stride, point[j], out + b, n);
      }
    }
  });
}

double sse(const MatrixView& X, const label_t* labels, int threads, Control& control) {
  const index_t d = X.cols;
  const index_t chunks = (X.rows + kGrain - 1) / kGrain;
  std::vector<label_t> largest(chunks);
  parallel_for(X.rows, kGrain, threads, control, [&](index_t begin, index_t end) {
    const auto [low, high] = std::minmax_element(labels + begin, labels + end);
    if (*low < 0) throw InputError("labels must be 0 or larger; number the clusters 0, 1, 2, ...");
    if (*high >= X.rows)
      throw InputError(
          "labels name more clusters than there are records; number the clusters 0, 1, 2, ...");
    largest[begin / kGrain] = *high;
  });
  const label_t last = *std::max_element(largest.begin(), largest.end());

  std::vector<double> mean(static_cast<std::size_t>(last + 1) * d, 0.0);
  std::vector<index_t> size(static_cast<std::size_t>(last + 1), 0);
  for (index_t i = 0; i < X.rows; ++i) {
    ++size[labels[i]];
    double* m = mean.data() + labels[i] * d;
    for (index_t j = 0; j < d; ++j) m[j] += X(i, j);
    if ((i & 0xFFFF) == 0)
      control.progress(0.5 * static_cast<double>(i) / static_cast<double>(X.rows));
  }
  for (label_t c = 0; c <= last; ++c)
    for (index_t j = 0; j < d && size[c] > 0; ++j) mean[c * d + j] /= static_cast<double>(size[c]);

  std::vector<double> partial(chunks, 0.0);
  parallel_for(X.rows, kGrain, threads, control, [&](index_t begin, index_t end) {
    double total = 0;
    for (index_t i = begin; i < end; ++i) {
      const double* m = mean.data() + labels[i] * d;
      for (index_t j = 0; j < d; ++j) {
        const double difference = X(i, j) - m[j];
        total += difference * difference;
      }
    }
    partial[begin / kGrain] = total;
  });
  double total = 0;
  for (const double p : partial) total += p;
  return total;
}

void require_finite(const MatrixView& X) {
  for (index_t j = 0; j < X.cols; ++j)
    if (!all_finite(X.data + j * X.col_stride, X.row_stride, X.rows))
      throw InputError("column " + std::to_string(j) +
                       " has NaN or infinite values; fill or drop them first");
}

void require_measurable(const MatrixView& X) {
  for (index_t j = 0; j < X.cols; ++j)
    for (index_t i = 0; i < X.rows; ++i)
      if (!(std::abs(X(i, j)) <= 1e100))
        throw InputError("column " + std::to_string(j) +
                         " has values beyond 1e100, too large for distances; scale it first");
}

}  // namespace dpmicro
