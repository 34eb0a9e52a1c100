#include "mdav.hpp"

#include <cmath>
#include <limits>

#include "exact_sum.hpp"
#include "kd_tree.hpp"

namespace dpmicro {
namespace {

void check_cluster_size(index_t k, index_t n) {
  if (k < 1)
    throw InputError("k must be at least 1, not " + std::to_string(k) +
                     "; it is the smallest cluster size");
  if (k > n)
    throw InputError("k = " + std::to_string(k) + " is larger than the number of records (" +
                     std::to_string(n) + "); choose a smaller k");
}

// The mean of a changing set of records: the correctly rounded sums, divided by the count.
class Mean {
 public:
  explicit Mean(index_t d) : sums_(static_cast<std::size_t>(d)) {}
  void add(const MatrixView& X, index_t record) {
    for (index_t j = 0; j < X.cols; ++j) sums_[j].add(X(record, j));
    ++count_;
  }
  void subtract(const double* row) {
    for (std::size_t j = 0; j < sums_.size(); ++j) sums_[j].subtract(row[j]);
    --count_;
  }
  void value(double* out) const {
    for (std::size_t j = 0; j < sums_.size(); ++j)
      out[j] = sums_[j].value() / static_cast<double>(count_);
  }

 private:
  std::vector<ExactSum> sums_;
  index_t count_ = 0;
};

Mean mean_of_all(const MatrixView& X, Control& control) {
  Mean mean(X.cols);
  for (index_t i = 0; i < X.rows; ++i) {
    mean.add(X, i);
    if ((i & 0xFFF) == 0) control.poll();
  }
  return mean;
}

// Whether the tree pays: where boxes overlap every query's ball (many dimensions, no structure) it
// visits nearly all leaves, and then one pass over all of them is cheaper. Tried anew after every
// rebuild. Counts what was visited, never the time, so that a run can be repeated; labels do not
// depend on it.
class TreeTrial {
 public:
  bool by_scan(const KdTree& tree) {
    if (tree.built() != built_) *this = TreeTrial(tree);
    if (tree.leaves() < kFewLeaves) return true;
    if (scan_ || iterations_ < kIterations) return scan_;
    const index_t visited = tree.visited() - visited_;
    const index_t by_scan = kIterations * 2 * tree.leaves();
    scan_ = static_cast<double>(visited) > kShare * static_cast<double>(by_scan);
    iterations_ = 0;
    visited_ = tree.visited();
    return scan_;
  }
  void count() { ++iterations_; }

  TreeTrial() = default;

 private:
  explicit TreeTrial(const KdTree& tree) : built_(tree.built()), visited_(tree.visited()) {}

  static constexpr index_t kFewLeaves = 16;
  static constexpr index_t kIterations = 16;
  static constexpr double kShare =
      0.2;  // a visit costs the tree several times what it costs a scan

  index_t built_ = 0;
  index_t visited_ = 0;
  index_t iterations_ = 0;
  bool scan_ = false;
};

// After this share of the records is gone, what they shaped is renewed: the mean has moved away
// from the reference, the leaves have emptied.
constexpr double kReferenceShare = 1.0 / 16;
constexpr double kRebuildShare = 0.35;
constexpr double kPackShare = 0.75;  // a scan pays for every lane that is empty

}  // namespace

void mdav(const MatrixView& X, index_t k, int threads, Control& control, label_t* labels,
          MdavPath path) {
  const index_t n = X.rows, d = X.cols;
  check_cluster_size(k, n);
  resolve_threads(threads);
  Mean mean = mean_of_all(X, control);
  KdTree tree(X, threads, control);
  Nearest cluster(k);
  std::vector<double> centre(d), r(d), s(d), row(d);
  label_t next = 0;
  TreeTrial trial;
  index_t referenced = 0;  // records left when the reference was set; 0 when there is none

  const auto from_mean = [&] {
    mean.value(centre.data());
    if (path == MdavPath::scan) return tree.farthest_by_scan(centre.data());
    if (referenced == 0 || static_cast<double>(referenced - tree.size()) >
                               kReferenceShare * static_cast<double>(referenced)) {
      tree.set_reference(centre.data());
      referenced = tree.size();
    }
    return tree.farthest(centre.data());
  };
  const auto by_scan = [&] {
    if (path != MdavPath::automatic) return path == MdavPath::scan;
    return trial.by_scan(tree);
  };
  const auto close_cluster = [&] {
    for (const Found& found : cluster.found()) {
      labels[found.record] = next;
      tree.coordinates(found.slot, row.data());  // not from X, whose row is in no cache
      mean.subtract(row.data());
    }
    tree.erase(cluster.found());
    ++next;
  };

  while (tree.size() >= 3 * k) {
    control.progress(1 - static_cast<double>(tree.size()) / static_cast<double>(n));
    if (static_cast<double>(tree.size()) <
        (by_scan() ? kPackShare : kRebuildShare) * static_cast<double>(tree.built()))
      tree.rebuild(control);
    tree.coordinates(from_mean().slot, r.data());
    if (by_scan()) {
      Found farthest{-1, 0, -1};
      tree.nearest_by_scan(r.data(), cluster, &farthest);
      tree.coordinates(farthest.slot, s.data());
      close_cluster();
      tree.nearest_by_scan(s.data(), cluster);
      close_cluster();
    } else {
      trial.count();
      tree.coordinates(tree.farthest(r.data()).slot, s.data());
      tree.nearest(r.data(), cluster);
      close_cluster();
      tree.nearest(s.data(), cluster);
      close_cluster();
    }
  }
  if (tree.size() >= 2 * k) {
    tree.coordinates(from_mean().slot, r.data());
    tree.nearest(r.data(), cluster);
    close_cluster();
  }
  tree.for_each([&](std::int32_t record, std::int32_t) { labels[record] = next; });
  control.progress(1);
}

void vmdav(const MatrixView& X, index_t k, double gamma, int threads, Control& control,
           label_t* labels) {
  const index_t n = X.rows, d = X.cols;
  check_cluster_size(k, n);
  resolve_threads(threads);
  if (!(gamma >= 0) || !std::isfinite(gamma))
    throw InputError("gamma must be 0 or a positive number; 0 gives groups of exactly k");
  std::vector<double> centre(d), point(d);
  mean_of_all(X, control).value(centre.data());
  KdTree tree(X, threads, control);
  tree.set_reference(centre.data());
  Nearest cluster(k), closest(1), two(2);
  label_t next = 0;
  std::vector<double> means;  // of the groups
  std::vector<index_t> members;
  std::vector<Found> beside;  // of each member, the unassigned record nearest to it

  const auto row = [&](index_t record) {
    for (index_t j = 0; j < d; ++j) point[j] = X(record, j);
    return point.data();
  };
  const auto unassigned_beside = [&](index_t record) {
    tree.nearest(row(record), closest);
    return closest.found().front();
  };

  while (tree.size() >= k) {
    control.progress(1 - static_cast<double>(tree.size()) / static_cast<double>(n));
    if (static_cast<double>(tree.size()) < kRebuildShare * static_cast<double>(tree.built()))
      tree.rebuild(control);
    tree.coordinates(tree.farthest(centre.data()).slot, point.data());
    tree.nearest(point.data(), cluster);
    members.clear();
    for (const Found& found : cluster.found()) members.push_back(found.record);
    tree.erase(cluster.found());

    beside.clear();
    std::int32_t absorbed = -1;
    while (std::ssize(members) < 2 * k - 1 && tree.size() > 0) {
      // Erasing moves slots, so what is kept beside a member is the record; its slot is found anew.
      for (std::size_t m = 0; m < members.size(); ++m) {
        if (m == beside.size())
          beside.push_back(unassigned_beside(members[m]));
        else if (beside[m].record == absorbed)
          beside[m] = unassigned_beside(members[m]);
      }
      const Found e = *std::min_element(beside.begin(), beside.end(), nearer);
      tree.nearest(row(e.record), two);
      double out = std::numeric_limits<double>::infinity();
      std::vector<Found> itself;
      for (const Found& found : two.found()) {
        if (found.record == e.record)
          itself.push_back(found);
        else
          out = std::min(out, found.distance);
      }
      if (itself.empty()) {
        // Two records of lower index lie on the very same spot.
        out = 0;
      }
      if (!(std::sqrt(e.distance) < gamma * std::sqrt(out))) break;
      tree.erase(itself);
      members.push_back(e.record);
      absorbed = e.record;
    }

    Mean mean(d);
    for (const index_t record : members) {
      labels[record] = next;
      mean.add(X, record);
    }
    means.resize(means.size() + d);
    mean.value(means.data() + next * d);
    ++next;
  }
  std::vector<double> distances(static_cast<std::size_t>(next));
  tree.for_each([&](std::int32_t record, std::int32_t) {
    squared_distances({means.data(), next, d, d, 1}, row(record), distances.data(), 1, control);
    labels[record] = static_cast<label_t>(std::min_element(distances.begin(), distances.end()) -
                                          distances.begin());
  });
  control.progress(1);
}

}  // namespace dpmicro
