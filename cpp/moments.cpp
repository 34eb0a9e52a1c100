#include "moments.hpp"

#include <Eigen/Dense>
#include <limits>
#include <string>

namespace dpmicro {
namespace {

// Records are summed in blocks: the work of one block fits the cache, and blocks of one large
// cluster are shared among threads and added up in their order.
constexpr index_t kBlock = 1024;
constexpr index_t kRecordsPerChunk = 16384;

struct Block {
  index_t cluster;
  index_t begin, end;  // into Clusters::records
};

std::vector<Block> split_into_blocks(const Clusters& clusters) {
  std::vector<Block> blocks;
  for (index_t c = 0; c < clusters.count(); ++c)
    for (index_t b = clusters.start[c]; b < clusters.start[c + 1]; b += kBlock)
      blocks.push_back({c, b, std::min(b + kBlock, clusters.start[c + 1])});
  return blocks;
}

// The sums over a cluster that its moments are made of: d of the deviations, then those of the
// products of pairs, then of triples, each with indices i <= j <= l in lexicographic order.
class Sums {
 public:
  Sums(index_t d, const MomentTerms& terms)
      : d_(d),
        order_(terms.order),
        all_pairs_(!terms.marginal_covariance || (terms.order >= 2 && !terms.marginal_skewness)),
        all_triples_(!terms.marginal_skewness) {}

  index_t length() const {
    const index_t pairs = all_pairs_ ? d_ * (d_ + 1) / 2 : d_;
    const index_t triples = all_triples_ ? d_ * (d_ + 1) * (d_ + 2) / 6 : d_;
    return d_ + (order_ >= 1 ? pairs : 0) + (order_ >= 2 ? triples : 0);
  }

  // Calls body(i, j) or body(i, j, l) in the order of the sums.
  template <class Body>
  void for_pairs(Body&& body) const {
    for (index_t i = 0; i < d_; ++i)
      for (index_t j = i; j < (all_pairs_ ? d_ : i + 1); ++j) body(i, j);
  }
  template <class Body>
  void for_triples(Body&& body) const {
    for (index_t i = 0; i < d_; ++i)
      for (index_t j = i; j < (all_triples_ ? d_ : i + 1); ++j)
        for (index_t l = j; l < (all_triples_ ? d_ : j + 1); ++l) body(i, j, l);
  }

  // Position of the pair i <= j among the pairs.
  index_t pair(index_t i, index_t j) const {
    return all_pairs_ ? i * d_ - i * (i - 1) / 2 + (j - i) : i;
  }

  // deviations: kBlock x d, column by column, of which the first n rows count.
  void add(const Eigen::ArrayXXd& deviations, index_t n, Eigen::ArrayXd& product,
           double* sums) const {
    const auto column = [&](index_t j) { return deviations.col(j).head(n); };
    for (index_t i = 0; i < d_; ++i) *sums++ = column(i).sum();
    if (order_ >= 1)
      for_pairs([&](index_t i, index_t j) { *sums++ = (column(i) * column(j)).sum(); });
    if (order_ < 2) return;
    index_t last_i = -1, last_j = -1;
    for_triples([&](index_t i, index_t j, index_t l) {
      if (i != last_i || j != last_j) product.head(n) = column(i) * column(j);
      last_i = i, last_j = j;
      *sums++ = (product.head(n) * column(l)).sum();
    });
  }

  bool all_pairs() const { return all_pairs_; }

 private:
  index_t d_;
  int order_;
  bool all_pairs_, all_triples_;
};

// Turns a cluster's sums of deviations y from a centre near its mean into its moments. With m = sum
// y / k: sum (y_i-m_i)(y_j-m_j) = S_ij - k m_i m_j, and sum (y_i-m_i)(y_j-m_j)(y_l-m_l) = S_ijl -
// m_i S_jl - m_j S_il - m_l S_ij + 2 k m_i m_j m_l.
void finish(const double* sums, const Sums& layout, const MomentTerms& terms, index_t d,
            index_t size, double* mean, double* covariance, double* skewness) {
  const double k = static_cast<double>(size);
  const auto m = [&](index_t i) { return sums[i] / k; };
  const double* pairs = sums + d;
  const auto second = [&](index_t i, index_t j) { return pairs[layout.pair(i, j)]; };

  if (terms.order >= 1) {
    layout.for_pairs([&](index_t i, index_t j) {
      double q = size < 2 ? 0.0 : (second(i, j) - k * m(i) * m(j)) / (k - 1);
      if (i == j) q = std::max(q, 0.0);
      if (!terms.marginal_covariance)
        covariance[i * d + j] = covariance[j * d + i] = q;
      else if (i == j)
        covariance[i] = q;
    });
  }
  if (terms.order >= 2) {
    const double* third = pairs + (layout.all_pairs() ? d * (d + 1) / 2 : d);
    layout.for_triples([&](index_t i, index_t j, index_t l) {
      const double central = *third++ - m(i) * second(j, l) - m(j) * second(i, l) -
                             m(l) * second(i, j) + 2 * k * m(i) * m(j) * m(l);
      const double phi = size < 3 ? 0.0 : k / ((k - 1) * (k - 2)) * central;
      if (terms.marginal_skewness) {
        skewness[i] = phi;
        return;
      }
      const index_t index[3] = {i, j, l};
      constexpr int kPermutations[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                           {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
      for (const auto& p : kPermutations)
        skewness[(index[p[0]] * d + index[p[1]]) * d + index[p[2]]] = phi;
    });
  }
  for (index_t i = 0; i < d; ++i) mean[i] += m(i);
}

}  // namespace

Clusters group_records(std::span<const label_t> labels) {
  const index_t n = static_cast<index_t>(labels.size());
  label_t last = -1;
  for (const label_t label : labels) {
    if (label < 0) throw InputError("labels must be 0 or larger; number the clusters 0, 1, 2, ...");
    last = std::max(last, label);
  }
  if (last >= n)
    throw InputError(
        "labels name more clusters than there are records; number the clusters 0, 1, 2, ...");
  Clusters clusters{std::vector<index_t>(static_cast<std::size_t>(last) + 2, 0),
                    std::vector<index_t>(labels.size())};
  for (const label_t label : labels) ++clusters.start[label + 1];
  for (label_t c = 0; c <= last; ++c) {
    if (clusters.start[c + 1] == 0)
      throw InputError("cluster " + std::to_string(c) +
                       " has no record; number the clusters 0, 1, 2, ... without gaps");
    clusters.start[c + 1] += clusters.start[c];
  }
  std::vector<index_t> next(clusters.start.begin(), clusters.start.end() - 1);
  for (index_t i = 0; i < n; ++i) clusters.records[next[labels[i]]++] = i;
  return clusters;
}

void cluster_moments(const MatrixView& X, const Clusters& clusters, const MomentTerms& terms,
                     double* mean, double* covariance, double* skewness, int threads,
                     Control& control) {
  const index_t d = X.cols;
  const std::vector<Block> blocks = split_into_blocks(clusters);
  const index_t count = static_cast<index_t>(blocks.size());
  const index_t grain = 1 + kRecordsPerChunk * count / X.rows;

  // First pass: the mean, rounded, is the centre from which deviations are taken.
  std::vector<double> sums(static_cast<std::size_t>(count) * d);
  parallel_for(count, grain, threads, control, [&](index_t first, index_t last) {
    for (index_t b = first; b < last; ++b) {
      double* sum = sums.data() + b * d;
      for (index_t r = blocks[b].begin; r < blocks[b].end; ++r)
        for (index_t j = 0; j < d; ++j) sum[j] += X(clusters.records[r], j);
    }
  });
  std::fill_n(mean, clusters.count() * d, 0.0);
  for (index_t b = 0; b < count; ++b)
    for (index_t j = 0; j < d; ++j) mean[blocks[b].cluster * d + j] += sums[b * d + j];
  for (index_t c = 0; c < clusters.count(); ++c)
    for (index_t j = 0; j < d; ++j) mean[c * d + j] /= static_cast<double>(clusters.size(c));

  // Second pass: sums of products of deviations. A cluster of one block is finished on the spot;
  // the blocks of larger ones are kept and added up below.
  const Sums layout(d, terms);
  const index_t length = layout.length();
  std::vector<index_t> slot(blocks.size(), -1);
  index_t slots = 0;
  for (index_t b = 0; b < count; ++b)
    if (clusters.size(blocks[b].cluster) > kBlock) slot[b] = slots++;
  std::vector<double> kept(static_cast<std::size_t>(slots) * length);

  const auto finish_cluster = [&](index_t c, const double* total) {
    const index_t entries = terms.marginal_covariance ? d : d * d;
    const index_t cubes = terms.marginal_skewness ? d : d * d * d;
    finish(total, layout, terms, d, clusters.size(c), mean + c * d,
           terms.order >= 1 ? covariance + c * entries : nullptr,
           terms.order >= 2 ? skewness + c * cubes : nullptr);
  };
  parallel_for(count, grain, threads, control, [&](index_t first, index_t last) {
    Eigen::ArrayXXd deviations(kBlock, d);
    Eigen::ArrayXd product(kBlock);
    std::vector<double> single(length);
    for (index_t b = first; b < last; ++b) {
      const Block& block = blocks[b];
      const double* centre = mean + block.cluster * d;
      for (index_t r = block.begin; r < block.end; ++r)
        for (index_t j = 0; j < d; ++j)
          deviations(r - block.begin, j) = X(clusters.records[r], j) - centre[j];
      double* total = slot[b] < 0 ? single.data() : kept.data() + slot[b] * length;
      layout.add(deviations, block.end - block.begin, product, total);
      if (slot[b] < 0) finish_cluster(block.cluster, total);
    }
  });
  for (index_t b = 0; b < count;) {
    if (slot[b] < 0) {
      ++b;
      continue;
    }
    const index_t cluster = blocks[b].cluster;
    double* total = kept.data() + slot[b] * length;
    for (++b; b < count && blocks[b].cluster == cluster; ++b)
      for (index_t e = 0; e < length; ++e) total[e] += kept[slot[b] * length + e];
    finish_cluster(cluster, total);
  }
}

void symmetric_eigen(const double* matrices, index_t count, index_t d, double* values,
                     double* vectors, double* gaps, int threads, Control& control) {
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const index_t grain = 1 + 65536 / (d * d * d);
  parallel_for(count, grain, threads, control, [&](index_t first, index_t last) {
    Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(d);
    for (index_t m = first; m < last; ++m) {
      // A symmetric matrix is its own transpose, so the storage order does not matter.
      solver.compute(Eigen::Map<const RowMajor>(matrices + m * d * d, d, d));
      if (solver.info() != Eigen::Success)
        throw InputError("an eigenvalue iteration did not converge; are the matrices finite?");
      double* value = values + m * d;
      for (index_t i = 0; i < d; ++i) value[i] = solver.eigenvalues()(d - 1 - i);
      Eigen::Map<RowMajor>(vectors + m * d * d, d, d) =
          solver.eigenvectors().rowwise().reverse().transpose();
      for (index_t i = 0; i < d; ++i)
        gaps[m * d + i] = std::min(i > 0 ? value[i - 1] - value[i] : kInfinity,
                                   i + 1 < d ? value[i] - value[i + 1] : kInfinity);
    }
  });
}

}  // namespace dpmicro
