#include "lloyd.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "cost_adjustment.hpp"
#include "kernels.hpp"

namespace dpmicro {
namespace {

constexpr double kStalled = 1e-5;         // relative improvement of an iteration that is too small
constexpr double kContestedShare = 0.25;  // of the records; the margin is steered towards it
constexpr int kMaxSettling = 10;          // rounds to bring given centroids near the targets
constexpr double kSettled = 0.05;         // share of misplaced records

class UniformGenerator {
 public:
  explicit UniformGenerator(std::uint64_t seed) : generator_(seed) {}
  double operator()() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 generator_;  // its numbers are fixed by the standard, its distributions are not
};

// Cells with one and the same centroid (duplicated records make them) are one cell to any cost
// adjustment. Gives each cell the number of its group, groups numbered by their first cell.
std::vector<label_t> group_by_centroid(const Quantizer& quantizer, label_t& groups) {
  const index_t d = quantizer.dims;
  std::vector<label_t> cells(static_cast<std::size_t>(quantizer.cells));
  std::iota(cells.begin(), cells.end(), 0);
  std::sort(cells.begin(), cells.end(), [&](label_t a, label_t b) {
    const double *x = quantizer.centroid(a), *y = quantizer.centroid(b);
    const auto [u, v] = std::mismatch(x, x + d, y);
    return u == x + d ? a < b : *u < *v;
  });
  std::vector<label_t> first(cells.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const double* x = quantizer.centroid(cells[i]);
    const bool same = i > 0 && std::equal(x, x + d, quantizer.centroid(cells[i - 1]));
    first[cells[i]] = same ? first[cells[i - 1]] : cells[i];
  }
  std::vector<label_t> group(cells.size());
  groups = 0;
  for (std::size_t q = 0; q < cells.size(); ++q)
    group[q] = first[q] == static_cast<label_t>(q) ? groups++ : group[first[q]];
  return group;
}

bool meets(const Targets& targets, const std::vector<label_t>& partition) {
  std::vector<index_t> sizes(targets.sizes.size(), 0);
  for (const label_t q : partition) ++sizes[q];
  return targets.at_least
             ? std::equal(sizes.begin(), sizes.end(), targets.sizes.begin(), std::greater_equal<>())
             : sizes == targets.sizes;
}

class Pcl {
 public:
  Pcl(const MatrixView& X, const PclOptions& options, Control& control)
      : X_(X),
        options_(options),
        control_(control),
        search_(X, options.weights, options.threads, control),
        uniform_(options.seed) {}

  PclResult run(const std::vector<label_t>& partition, const std::vector<double>& centroids) {
    const auto cells = static_cast<index_t>(options_.targets.sizes.size());
    quantizer_ = {cells, X_.cols, centroids, std::vector<double>(cells, 0.0)};
    PclResult best;
    Assignment assignment;
    if (partition.empty()) {
      search_.assign(quantizer_, 0, options_.threads, control_, assignment);
    } else {
      assignment.labels.resize(partition.size());
      for (index_t i = 0; i < X_.rows; ++i) assignment.labels[i] = partition[search_.order()[i]];
      quantizer_.centroids = search_.means(assignment.labels, cells, control_);
    }
    const double start =
        search_.distortion(assignment.labels, quantizer_.centroids, options_.threads, control_);
    set_margin(start);
    if (!partition.empty() && meets(options_.targets, partition))
      best.distortions.push_back(start);
    else if (partition.empty() && options_.max_iter > 0)
      settle(assignment);

    std::vector<double> means;  // of the best labels
    double distortion = 0;      // of the latest labels
    const auto fit_and_measure = [&] {
      fit(assignment);
      auto latest = search_.means(assignment.labels, cells, control_);
      distortion = search_.distortion(assignment.labels, latest, options_.threads, control_);
      return latest;
    };
    const auto keep = [&](std::vector<double> latest) {
      means = std::move(latest);
      best.labels = assignment.labels;
      best.quantizer = quantizer_;
      best.distortions.push_back(distortion);
    };
    keep(fit_and_measure());

    // Centroids that overshoot the means get farther down in fewer iterations, but may lead astray;
    // then plain Lloyd iterations, which cannot, go on from the best.
    double speed = options_.speed;
    for (int iteration = 0; iteration < options_.max_iter; ++iteration) {
      control_.progress(static_cast<double>(iteration) / options_.max_iter);
      for (std::size_t i = 0; i < means.size(); ++i)
        quantizer_.centroids[i] =
            speed == 1 ? means[i]
                       : quantizer_.centroids[i] + speed * (means[i] - quantizer_.centroids[i]);
      auto latest = fit_and_measure();
      const double before = best.distortions.back();
      // A plain iteration gets worse by rounding only, and its labels are the best for the means.
      if (distortion < before || speed == 1)
        keep(std::move(latest));
      else
        quantizer_ = best.quantizer;
      if (before - distortion > kStalled * before) continue;
      if (speed == 1) break;
      speed = 1;
    }
    std::vector<label_t> labels(best.labels.size());
    for (std::size_t i = 0; i < labels.size(); ++i) labels[search_.order()[i]] = best.labels[i];
    best.labels = std::move(labels);
    return best;
  }

 private:
  void set_margin(double distortion) {
    // A fraction of a typical squared distance; never 0, which would prove nothing.
    margin_ = std::max(0.3 * distortion / static_cast<double>(X_.rows),
                       std::numeric_limits<double>::min() * 1e16);
  }

  // The best labels for the centroids, with the targets' sizes; adjusts the costs.
  void fit(Assignment& assignment) {
    label_t groups = 0;
    const auto group = group_by_centroid(quantizer_, groups);
    if (groups == quantizer_.cells) {
      fit(options_.targets, quantizer_, assignment);
      return;
    }
    Targets targets{std::vector<index_t>(groups, 0), options_.targets.at_least};
    Quantizer merged{groups, quantizer_.dims, {}, {}};
    for (index_t q = 0; q < quantizer_.cells; ++q) {
      targets.sizes[group[q]] += options_.targets.sizes[q];
      if (group[q] < static_cast<label_t>(merged.costs.size())) continue;
      merged.costs.push_back(quantizer_.costs[q]);
      merged.centroids.insert(merged.centroids.end(), quantizer_.centroid(q),
                              quantizer_.centroid(q) + quantizer_.dims);
    }
    fit(targets, merged, assignment);
    share_out(group, groups, merged, assignment);
  }

  void fit(const Targets& targets, Quantizer& quantizer, Assignment& assignment) {
    adjust_costs(search_, targets, margin_, options_.threads, control_, quantizer, assignment);
    index_t contested = 0;
    for (const Contested& chunk : assignment.contested)
      contested += static_cast<index_t>(chunk.records.size());
    const index_t widenings = transport(search_, targets, margin_, control_, quantizer, assignment);
    const double share = static_cast<double>(contested) / static_cast<double>(X_.rows);
    // Wider if the transport had to list many cells anew, but never so wide that the search is
    // slow.
    if (widenings > quantizer.cells)
      margin_ *= share < 2 * kContestedShare ? 2 : 1;
    else
      margin_ *= std::clamp(kContestedShare / std::max(share, 1e-3), 0.5, 2.0);
  }

  // Gives a group's records to its cells, neighbours together; any way is as good as any other.
  void share_out(const std::vector<label_t>& group, label_t groups, const Quantizer& merged,
                 Assignment& assignment) {
    std::vector<std::vector<label_t>> members(groups);
    for (index_t q = quantizer_.cells; q-- > 0;)
      members[group[q]].push_back(static_cast<label_t>(q));  // the first cell comes last
    std::vector<index_t> room(options_.targets.sizes);
    for (label_t& label : assignment.labels) {
      auto& cells = members[label];
      while (cells.size() > 1 && room[cells.back()] == 0) cells.pop_back();
      label = cells.back();
      --room[label];
    }
    for (index_t q = 0; q < quantizer_.cells; ++q) quantizer_.costs[q] = merged.costs[group[q]];
  }

  // Given centroids may be far from the targets. The paper's iteration (rough sizes, half a step
  // towards the means, empty cells seeded anew) brings them near enough for exact sizes.
  void settle(Assignment& assignment) {
    for (int round = 0; round < kMaxSettling; ++round) {
      adjust_costs(search_, options_.targets, margin_, options_.threads, control_, quantizer_,
                   assignment);
      const index_t wrong = misplaced(options_.targets, quantizer_, assignment);
      if (static_cast<double>(wrong) <= kSettled * static_cast<double>(X_.rows)) return;
      reseed_empty(assignment);
      const auto means = search_.means(assignment.labels, quantizer_.cells, control_);
      for (std::size_t i = 0; i < means.size(); ++i)
        quantizer_.centroids[i] += 0.5 * (means[i] - quantizer_.centroids[i]);
    }
  }

  // Moves the centroid of an empty cell to some record of the largest cell, at the same cost.
  void reseed_empty(Assignment& assignment) {
    for (index_t q = 0; q < quantizer_.cells; ++q) {
      if (assignment.sizes[q] > 0) continue;
      const auto largest =
          static_cast<label_t>(std::max_element(assignment.sizes.begin(), assignment.sizes.end()) -
                               assignment.sizes.begin());
      auto skip = static_cast<index_t>(uniform_() * static_cast<double>(assignment.sizes[largest]));
      index_t position = 0;
      while (assignment.labels[position] != largest || skip-- > 0) ++position;
      for (index_t j = 0; j < X_.cols; ++j)
        quantizer_.centroids[q * X_.cols + j] = X_(search_.order()[position], j);
      quantizer_.costs[q] = quantizer_.costs[largest];
      assignment.labels[position] = static_cast<label_t>(q);
      assignment.sizes[q] = 1;
      --assignment.sizes[largest];
    }
  }

  const MatrixView& X_;
  const PclOptions& options_;
  Control& control_;
  const CellSearch search_;
  UniformGenerator uniform_;
  Quantizer quantizer_;
  double margin_ = 0;
};

void check(const MatrixView& X, const std::vector<label_t>& partition,
           const std::vector<double>& centroids, const PclOptions& options) {
  const auto& sizes = options.targets.sizes;
  index_t sum = 0;
  for (const index_t size : sizes) {
    if (size < 1 || size > X.rows)
      throw InputError("every cell needs at least one record and no more than there are");
    sum += size;
  }
  if (sizes.empty() || sum > X.rows || (sum < X.rows && !options.targets.at_least))
    throw InputError("the cell sizes must add up to the number of records");
  if (X.rows > std::numeric_limits<std::int32_t>::max())
    throw InputError("more than 2^31 - 1 records; split the table");
  if (!(options.speed > 0 && options.speed < 2))
    throw InputError("speed must lie between 0 and 2, both excluded; 1/2 is the paper's");
  if (options.max_iter < 0) throw InputError("max_iter must be 0 or larger");
  if (options.weights != nullptr &&
      !std::all_of(options.weights, options.weights + X.rows, [](double w) { return w > 0; }))
    throw InputError("weights must be positive; leave out records of no weight");
  if (partition.empty()) {
    if (centroids.size() != sizes.size() * static_cast<std::size_t>(X.cols))
      throw InputError("initial centroids need one row per cell and one column per attribute");
    return;
  }
  std::vector<index_t> found(sizes.size(), 0);
  for (const label_t q : partition) {
    if (q < 0 || q >= static_cast<label_t>(sizes.size()))
      throw InputError(
          "the initial partition must number its clusters 0, 1, 2, ... as the sizes do");
    ++found[q];
  }
  for (std::size_t q = 0; q < sizes.size(); ++q)
    if (found[q] < 1)
      throw InputError("the initial partition has an empty cluster; number them without gaps");
}

}  // namespace

PclResult pcl(const MatrixView& X, const std::vector<label_t>& partition,
              const std::vector<double>& centroids, const PclOptions& options, Control& control) {
  check(X, partition, centroids, options);
  return Pcl(X, options, control).run(partition, centroids);
}

std::vector<double> kmeans_plus_plus(const MatrixView& X, index_t cells, std::uint64_t seed,
                                     int threads, Control& control) {
  UniformGenerator uniform(seed);
  std::vector<double> centroids;
  std::vector<double> nearest(static_cast<std::size_t>(X.rows),
                              std::numeric_limits<double>::infinity());
  std::vector<double> distance(nearest.size());
  auto chosen = static_cast<index_t>(uniform() * static_cast<double>(X.rows));
  for (index_t q = 0; q < cells; ++q) {
    for (index_t j = 0; j < X.cols; ++j) centroids.push_back(X(chosen, j));
    squared_distances(X, centroids.data() + q * X.cols, distance.data(), threads, control);
    double total = 0;
    for (std::size_t i = 0; i < nearest.size(); ++i) {
      nearest[i] = std::min(nearest[i], distance[i]);
      total += nearest[i];
    }
    double rest = uniform() * total;
    chosen = 0;
    while (chosen + 1 < X.rows && (rest -= nearest[chosen]) >= 0) ++chosen;
  }
  return centroids;
}

void assign(const MatrixView& X, const Quantizer& quantizer, int threads, Control& control,
            label_t* labels) {
  const CellSearch search(X, nullptr, threads, control);
  Assignment assignment;
  search.assign(quantizer, 0, threads, control, assignment);
  for (index_t i = 0; i < X.rows; ++i) labels[search.order()[i]] = assignment.labels[i];
}

}  // namespace dpmicro
