#include "lloyd.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "cost_adjustment.hpp"
#include "distinct.hpp"
#include "kernels.hpp"

namespace dpmicro {
namespace {

constexpr double kStalled = 1e-5;         // relative improvement of an iteration that is too small
constexpr double kContestedShare = 0.25;  // of a cell's records; its margin is steered towards it
constexpr int kMaxDoublings = 6;          // of the first margins
constexpr int kMaxSettling = 10;          // rounds to bring given centroids near the targets
constexpr double kSettled = 0.05;         // share of misplaced records
constexpr int kHeat = 15;      // iterations after which the best of many starts are known,
constexpr int kFinalists = 4;  // and how many of them go on

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

// Position of each point in the search's order.
std::vector<std::int32_t> positions(const CellSearch& search) {
  std::vector<std::int32_t> position(search.order().size());
  for (std::size_t i = 0; i < position.size(); ++i)
    position[search.order()[i]] = static_cast<std::int32_t>(i);
  return position;
}

// A partition of the rows as one of the points.
Assignment to_points(const CellSearch& search, const Distinct& distinct,
                     const std::vector<label_t>& rows) {
  Assignment assignment;
  assignment.labels.resize(search.order().size());
  if (!search.counted()) {
    for (std::size_t i = 0; i < assignment.labels.size(); ++i)
      assignment.labels[i] = rows[search.order()[i]];
    return assignment;
  }
  const auto position = positions(search);
  std::vector<std::pair<std::int32_t, label_t>> placed;
  placed.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    placed.emplace_back(position[distinct.point[i]], rows[i]);
  std::sort(placed.begin(), placed.end());
  std::vector<Holding> held;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    if (held.empty() || held.back().cell != placed[i].second) held.push_back({placed[i].second, 0});
    ++held.back().count;
    if (i + 1 < placed.size() && placed[i + 1].first == placed[i].first) continue;
    assignment.hold(placed[i].first, held);
    held.clear();
  }
  return assignment;
}

// A partition of the points as one of the rows.
std::vector<label_t> to_rows(const CellSearch& search, const Distinct& distinct,
                             Assignment assignment) {
  if (!search.counted()) {
    std::vector<label_t> rows(search.order().size());
    for (std::size_t i = 0; i < rows.size(); ++i) rows[search.order()[i]] = assignment.labels[i];
    return rows;
  }
  const auto position = positions(search);
  auto left = search.at_label(assignment);
  std::vector<std::size_t> next(left.size());  // part of each point
  for (std::size_t i = assignment.parts.size(); i-- > 0;) next[assignment.parts[i].point] = i;
  std::vector<label_t> rows;
  rows.reserve(distinct.point.size());
  for (const std::int32_t point : distinct.point) {
    const std::int32_t i = position[point];
    if (left[i] > 0) {
      --left[i];
      rows.push_back(assignment.labels[i]);
    } else {
      Part& part = assignment.parts[next[i]];
      rows.push_back(part.cell);
      if (--part.count == 0) ++next[i];
    }
  }
  return rows;
}

bool meets(const Targets& targets, const std::vector<label_t>& partition) {
  std::vector<index_t> sizes(targets.sizes.size(), 0);
  for (const label_t q : partition) ++sizes[q];
  return targets.at_least
             ? std::equal(sizes.begin(), sizes.end(), targets.sizes.begin(), std::greater_equal<>())
             : sizes == targets.sizes;
}

// Whether the best cells are known to be intervals.
bool is_line(const MatrixView& X, const PclOptions& options) {
  return X.cols == 1 && options.weights == nullptr && !options.targets.at_least;
}

// The way down from one start: Lloyd iterations with exact sizes.
class Descent {
 public:
  Descent(const MatrixView& X, const Distinct& distinct, const CellSearch& search,
          const PclOptions& options)
      : X_(X),
        distinct_(distinct),
        search_(search),
        options_(options),
        speed_(options.speed),
        uniform_(options.seed) {}

  void start(const PclStart& from, int threads, Control& control) {
    const auto cells = static_cast<index_t>(options_.targets.sizes.size());
    const bool has_partition = !from.partition.empty();
    quantizer_ = {cells, X_.cols, from.centroids, std::vector<double>(cells, 0.0)};
    Assignment assignment;
    if (!has_partition) {
      search_.assign(quantizer_, std::vector<double>(cells, 0.0), threads, control, assignment);
    } else {
      assignment = to_points(search_, distinct_, from.partition);
      quantizer_.centroids = search_.means(assignment, cells, control);
    }
    const double initial = search_.distortion(assignment, quantizer_.centroids, threads, control);
    if (!is_line()) set_margins(assignment, initial, threads, control);
    if (has_partition && meets(options_.targets, from.partition))
      best_.distortions.push_back(initial);
    else if (!has_partition && options_.max_iter > 0 && !is_line())
      settle(assignment, threads, control);
    fit(assignment, threads, control);
    keep(assignment, measure(assignment, threads, control));
  }

  // Goes on until it has done so many iterations in all, or they no longer help.
  void iterate(int iterations, int threads, Control& control) {
    Assignment assignment;
    while (iteration_ < iterations && !stalled_) {
      control.progress(static_cast<double>(iteration_) / options_.max_iter);
      ++iteration_;
      for (std::size_t i = 0; i < means_.size(); ++i)
        quantizer_.centroids[i] =
            speed_ == 1 ? means_[i]
                        : quantizer_.centroids[i] + speed_ * (means_[i] - quantizer_.centroids[i]);
      fit(assignment, threads, control);
      auto latest = measure(assignment, threads, control);
      const double before = distortion();
      // A plain iteration gets worse by rounding only, and its labels are the best for the means.
      const bool better = latest.distortion < before;
      const bool stalls = before - latest.distortion <= kStalled * before;
      if (better || speed_ == 1)
        keep(assignment, std::move(latest));
      else
        quantizer_ = best_.quantizer;
      // Centroids that overshoot the means get farther down in fewer iterations, but may lead
      // astray; then plain Lloyd iterations, which cannot, go on from the best.
      if (stalls) stalled_ = std::exchange(speed_, 1.0) == 1;
    }
  }

  double distortion() const { return best_.distortions.back(); }

  PclResult result() && {
    best_.labels = to_rows(search_, distinct_, std::move(best_cells_));
    return std::move(best_);
  }

 private:
  // From a small fraction of a typical squared distance to the centroid (where a centroid hits all
  // its records exactly, something smaller still) up to what makes enough of a cell's records
  // contested. Not down to it: with margins that are wide for a cell's shape, every cell is a
  // rival.
  void set_margins(const Assignment& assignment, double distortion, int threads, Control& control) {
    Assignment one_cell;
    one_cell.labels.assign(assignment.labels.size(), 0);
    const double spread =
        search_.distortion(one_cell, search_.means(one_cell, 1, control), threads, control);
    const double small =
        std::max({1e-3 * distortion, 1e-6 * spread, std::numeric_limits<double>::min() * 1e16}) /
        static_cast<double>(search_.records());
    margins_ = search_.mean_values(assignment, quantizer_.centroids, control);
    for (double& margin : margins_) margin = 0.02 * (margin > 0 ? margin : small);
    Assignment trial;
    for (int doubling = 0; doubling < kMaxDoublings; ++doubling) {
      search_.assign(quantizer_, margins_, threads, control, trial);
      const auto share = contested_share(trial);
      bool enough = true;
      for (std::size_t q = 0; q < share.size(); ++q) {
        if (trial.sizes[q] == 0 || share[q] >= 0.5 * kContestedShare) continue;
        margins_[q] *= 2;
        enough = false;
      }
      if (enough) return;
    }
  }

  // Of each cell's records, before any is moved.
  std::vector<double> contested_share(const Assignment& assignment) const {
    std::vector<double> share(assignment.sizes.size(), 0.0);
    for (const Contested& chunk : assignment.contested)
      for (const std::int32_t point : chunk.points)
        share[assignment.labels[point]] += search_.count(point);
    for (std::size_t q = 0; q < share.size(); ++q)
      share[q] /= std::max(1.0, static_cast<double>(assignment.sizes[q]));
    return share;
  }

  struct Measured {
    std::vector<double> means;
    double distortion;
  };
  Measured measure(const Assignment& assignment, int threads, Control& control) const {
    auto means = search_.means(assignment, quantizer_.cells, control);
    const double distortion = search_.distortion(assignment, means, threads, control);
    return {std::move(means), distortion};
  }
  void keep(const Assignment& assignment, Measured latest) {
    means_ = std::move(latest.means);
    best_cells_.labels = assignment.labels;
    best_cells_.parts = assignment.parts;
    best_.quantizer = quantizer_;
    best_.distortions.push_back(latest.distortion);
  }

  // The best labels for the centroids, with the targets' sizes; adjusts the costs.
  void fit(Assignment& assignment, int threads, Control& control) {
    if (is_line()) {
      fit_line(assignment);
      return;
    }
    label_t groups = 0;
    const auto group = group_by_centroid(quantizer_, groups);
    if (groups == quantizer_.cells) {
      fit(options_.targets, quantizer_, margins_, assignment, threads, control);
      return;
    }
    Targets targets{std::vector<index_t>(groups, 0), options_.targets.at_least};
    Quantizer merged{groups, quantizer_.dims, {}, {}};
    std::vector<double> margins;
    for (index_t q = 0; q < quantizer_.cells; ++q) {
      targets.sizes[group[q]] += options_.targets.sizes[q];
      if (group[q] < static_cast<label_t>(merged.costs.size())) continue;
      merged.costs.push_back(quantizer_.costs[q]);
      merged.centroids.insert(merged.centroids.end(), quantizer_.centroid(q),
                              quantizer_.centroid(q) + quantizer_.dims);
      margins.push_back(margins_[q]);
    }
    fit(targets, merged, margins, assignment, threads, control);
    for (index_t q = 0; q < quantizer_.cells; ++q) {
      quantizer_.costs[q] = merged.costs[group[q]];
      margins_[q] = margins[group[q]];
    }
    share_out(group, groups, assignment);
  }

  void fit(const Targets& targets, Quantizer& quantizer, std::vector<double>& margins,
           Assignment& assignment, int threads, Control& control) {
    adjust_costs(search_, targets, margins, threads, control, quantizer, assignment);
    const auto share = contested_share(assignment);
    const index_t listings = transport(search_, targets, margins, control, quantizer, assignment);
    // Wider if the transport had to list many cells anew, but never so wide that the search is
    // slow.
    for (std::size_t q = 0; q < share.size(); ++q)
      if (listings <= quantizer.cells)
        margins[q] *= std::clamp(kContestedShare / std::max(share[q], 1e-3), 0.5, 2.0);
      else if (share[q] < 2 * kContestedShare)
        margins[q] *= 2;
  }

  bool is_line() const { return dpmicro::is_line(X_, options_); }

  // On a line the best cells of given sizes are intervals in the order of their centroids (Fisher
  // 1958); the costs put a border halfway between two records. The general way gets there, too, but
  // has to move records along chains of all cells.
  void fit_line(Assignment& assignment) {
    const auto value = [&](std::int32_t position) { return X_(search_.order()[position], 0); };
    if (line_.empty()) {
      line_.resize(static_cast<std::size_t>(X_.rows));
      std::iota(line_.begin(), line_.end(), 0);
      std::sort(line_.begin(), line_.end(), [&](std::int32_t a, std::int32_t b) {
        return value(a) < value(b) || (value(a) == value(b) && a < b);
      });
    }
    std::vector<label_t> cells(static_cast<std::size_t>(quantizer_.cells));
    std::iota(cells.begin(), cells.end(), 0);
    std::stable_sort(cells.begin(), cells.end(), [&](label_t a, label_t b) {
      return quantizer_.centroids[a] < quantizer_.centroids[b];
    });
    assignment.labels.resize(line_.size());
    auto record = line_.begin();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const label_t q = cells[i];
      double cost = 0;
      if (i > 0) {
        const double before = quantizer_.centroids[cells[i - 1]], after = quantizer_.centroids[q];
        const double border = value(record[-1]) + 0.5 * (value(record[0]) - value(record[-1]));
        cost = quantizer_.costs[cells[i - 1]] + (after - before) * (2 * border - before - after);
      }
      quantizer_.costs[q] = cost;
      for (index_t left = options_.targets.sizes[q]; left > 0; --left)
        assignment.labels[*record++] = q;
    }
    assignment.sizes = options_.targets.sizes;
  }

  // Gives a group's records to its cells, neighbours together; any way is as good as any other.
  void share_out(const std::vector<label_t>& group, label_t groups, Assignment& assignment) const {
    std::vector<std::vector<label_t>> members(groups);
    for (index_t q = quantizer_.cells; q-- > 0;)
      members[group[q]].push_back(static_cast<label_t>(q));  // the first cell comes last
    std::vector<index_t> room(options_.targets.sizes);
    std::vector<Holding> held;
    const auto deal_out = [&](label_t from, std::int32_t count) {
      auto& cells = members[from];
      while (count > 0) {
        while (cells.size() > 1 && room[cells.back()] == 0) cells.pop_back();
        const label_t q = cells.back();
        const auto taken =
            cells.size() > 1 ? static_cast<std::int32_t>(std::min<index_t>(count, room[q])) : count;
        held.push_back({q, taken});
        room[q] -= taken;
        count -= taken;
      }
    };
    const auto left = search_.at_label(assignment);
    const auto parts = std::exchange(assignment.parts, {});
    auto part = parts.begin();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(search_.points()); ++i) {
      held.clear();
      deal_out(assignment.labels[i], left.empty() ? 1 : left[i]);
      for (; part != parts.end() && part->point == i; ++part) deal_out(part->cell, part->count);
      assignment.hold(i, held);
    }
  }

  // Given centroids may be far from the targets. The paper's iteration (rough sizes, half a step
  // towards the means, empty cells seeded anew) brings them near enough for exact sizes.
  void settle(Assignment& assignment, int threads, Control& control) {
    for (int round = 0; round < kMaxSettling; ++round) {
      adjust_costs(search_, options_.targets, margins_, threads, control, quantizer_, assignment);
      const index_t wrong = misplaced(options_.targets, quantizer_, assignment);
      if (static_cast<double>(wrong) <= kSettled * static_cast<double>(search_.records())) return;
      reseed_empty(assignment);
      const auto means = search_.means(assignment, quantizer_.cells, control);
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
      const auto left = search_.at_label(assignment);
      std::int32_t position = -1;
      while (skip >= 0) {
        ++position;
        if (assignment.labels[position] == largest) skip -= left.empty() ? 1 : left[position];
      }
      for (index_t j = 0; j < X_.cols; ++j)
        quantizer_.centroids[q * X_.cols + j] = X_(search_.order()[position], j);
      quantizer_.costs[q] = quantizer_.costs[largest];
      const Part moved{position, static_cast<label_t>(q), 1};
      if (left.empty() || left[position] == 1)
        assignment.labels[position] = moved.cell;
      else
        assignment.parts.insert(
            std::upper_bound(assignment.parts.begin(), assignment.parts.end(), moved,
                             [](const Part& a, const Part& b) { return a.point < b.point; }),
            moved);
      assignment.sizes[q] = 1;
      --assignment.sizes[largest];
    }
  }

  const MatrixView& X_;  // the points
  const Distinct& distinct_;
  const CellSearch& search_;
  const PclOptions& options_;
  Quantizer quantizer_;
  std::vector<double> means_;  // of the best labels
  PclResult best_;             // without its labels,
  Assignment best_cells_;      // which are here
  std::vector<double> margins_;
  std::vector<std::int32_t> line_;  // positions by value, if there is one attribute
  double speed_;
  int iteration_ = 0;
  bool stalled_ = false;
  UniformGenerator uniform_;
};

// The distinct records, or the table itself where there are none to speak of.
struct Points {
  std::vector<double> values, own_weights;
  MatrixView view;
  const double* weights;

  Points(const MatrixView& X, const double* given, const Distinct& distinct)
      : view(X), weights(given) {
    if (distinct.first.empty()) return;
    for (const std::int32_t row : distinct.first) {
      for (index_t j = 0; j < X.cols; ++j) values.push_back(X(row, j));
      if (given != nullptr) own_weights.push_back(given[row]);
    }
    view = {values.data(), static_cast<index_t>(distinct.first.size()), X.cols, X.cols, 1};
    if (given != nullptr) weights = own_weights.data();
  }
};

void check(const MatrixView& X, const PclOptions& options) {
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
  if (options.weights != nullptr && !std::all_of(options.weights, options.weights + X.rows,
                                                 [](double w) { return w > 0 && w <= 1e50; }))
    throw InputError("weights must be positive and at most 1e50; leave out records of no weight");
}

void check(const MatrixView& X, const std::vector<index_t>& sizes, const PclStart& start) {
  const auto& [partition, centroids] = start;
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

PclResult pcl(const MatrixView& X, std::vector<PclStart> starts, const PclOptions& options,
              Control& control) {
  check(X, options);
  if (starts.empty()) throw InputError("an initial partition or initial centroids are needed");
  for (const PclStart& start : starts) check(X, options.targets.sizes, start);
  // On a line, where cells are runs of the sorted records, duplicates are no burden.
  const Distinct distinct = is_line(X, options) ? Distinct() : distinct_records(X, options.weights);
  control.poll();
  const Points points(X, options.weights, distinct);
  const CellSearch search(points.view, points.weights,
                          distinct.counts.empty() ? nullptr : distinct.counts.data(),
                          options.threads, control);
  std::vector<std::unique_ptr<Descent>> descents;
  for (std::size_t i = 0; i < starts.size(); ++i)
    descents.push_back(std::make_unique<Descent>(points.view, distinct, search, options));
  const auto each = [&](auto&& act) {
    parallel_each(static_cast<index_t>(descents.size()), options.threads, control, act);
  };
  const auto go_on = [&](int iterations) {
    each([&](index_t i, int threads, Control& own) {
      descents[i]->iterate(iterations, threads, own);
    });
    std::stable_sort(descents.begin(), descents.end(), [](const auto& a, const auto& b) {
      return a->distortion() < b->distortion();
    });
  };
  each([&](index_t i, int threads, Control& own) {
    descents[i]->start(starts[i], threads, own);
    starts[i] = {};  // memory: a partition is as large as the labels
  });
  if (descents.size() > kFinalists) {
    go_on(std::min(options.max_iter, kHeat));
    descents.resize(kFinalists);
  }
  go_on(options.max_iter);
  return std::move(*descents.front()).result();
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
  const CellSearch search(X, nullptr, nullptr, threads, control);
  Assignment assignment;
  const std::vector<double> no_margins(static_cast<std::size_t>(quantizer.cells), 0.0);
  search.assign(quantizer, no_margins, threads, control, assignment);
  for (index_t i = 0; i < X.rows; ++i) labels[search.order()[i]] = assignment.labels[i];
}

}  // namespace dpmicro
