// Nearest and farthest records among those that are left: a k-d tree with deletion.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels.hpp"
#include "parallel.hpp"
#include "types.hpp"

namespace dpmicro {

// A record that a query found. The slot says where it lies; it holds until the next erase().
struct Found {
  double distance;  // squared
  std::int32_t record;
  std::int32_t slot;
};

// Which of two records is nearer; the lower row index of two that are equally far.
inline bool nearer(const Found& a, const Found& b) {
  return a.distance < b.distance || (a.distance == b.distance && a.record < b.record);
}

// The k nearest records offered so far. Among some more, so that each offer costs the same for
// every k: selecting the k takes time in proportion to k, and is put off until as many again have
// come.
class Nearest {
 public:
  explicit Nearest(index_t k)
      : k_(static_cast<std::size_t>(k)), most_(k <= 4 * kLanes ? k_ : 2 * k_) {
    found_.reserve(most_ + kLanes);
  }
  void clear() {
    found_.clear();
    worst_ = kNothing;
  }
  // Only records nearer than this one can still matter.
  const Found& worst() const { return worst_; }
  void offer(const Found& candidate) {
    if (nearer(candidate, worst_)) found_.push_back(candidate);
  }
  // Drops what is not among the k nearest, if that pays; call after at most kLanes offers.
  void settle() {
    if (found_.size() >= (worst_.slot < 0 ? k_ : most_)) select();
  }
  // The k nearest, in no order.
  std::vector<Found>& found() {
    if (found_.size() > k_) select();
    return found_;
  }

 private:
  void select() {
    std::nth_element(found_.begin(), found_.begin() + (k_ - 1), found_.end(), nearer);
    found_.resize(k_);
    worst_ = found_.back();
  }

  static constexpr Found kNothing{std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<std::int32_t>::max(), -1};
  std::size_t k_, most_;
  std::vector<Found> found_;
  Found worst_ = kNothing;
};

// Records in blocks of kLanes (the leaves), and above them a balanced tree of tight boxes.
//
// Guarantee: queries return what a scan over all records with the key (squared distance, row index)
//   would, to the last bit: a box's bound is computed in the same order of operations as a
//   distance, and rounding is monotone, so no record in a box is nearer or farther than its bound
//   says. The bound by the reference point (triangle inequality) is widened by more than its
//   rounding error.
// Requires: finite values; fewer than 2^31 records.
// Source: PAPERS.md, "Partitioners".
// Cost: build n d log n; memory for a copy of the table, one index per record, and 2/kLanes nodes
//   per record.
class KdTree {
 public:
  KdTree(const MatrixView& X, int threads, Control& control)
      : d_(X.cols),
        threads_(threads),
        rows_(static_cast<std::size_t>(leaves_of(X.rows) * kLanes * X.cols)) {
    if (X.rows > std::numeric_limits<std::int32_t>::max())
      throw InputError("more than 2^31 - 1 records; split the table");
    records_.resize(static_cast<std::size_t>(leaves_of(X.rows) * kLanes));
    for (index_t i = 0; i < X.rows; ++i) {
      for (index_t j = 0; j < d_; ++j) rows_[i * d_ + j] = X(i, j);
      records_[i] = static_cast<std::int32_t>(i);
    }
    reference_.assign(d_, 0.0);
    build(X.rows, control);
  }

  index_t size() const { return nodes_[0].count; }
  // Number of records when the tree was last built.
  index_t built() const { return built_; }

  index_t leaves() const { return leaves_; }
  // Number of leaves that queries of the tree have looked into so far.
  index_t visited() const { return visited_; }

  // Packs the records that are left and builds the tree anew. Slots change.
  void rebuild(Control& control) {
    index_t next = 0;
    std::vector<double> block(static_cast<std::size_t>(kLanes * d_));
    for (index_t leaf = 0; leaf < leaves_; ++leaf) {
      std::copy_n(rows_.data() + leaf * kLanes * d_, kLanes * d_, block.data());
      for (index_t lane = 0; lane < leaf_count(leaf); ++lane, ++next) {
        for (index_t j = 0; j < d_; ++j) rows_[next * d_ + j] = block[j * kLanes + lane];
        records_[next] = records_[leaf * kLanes + lane];
      }
    }
    build(next, control);
  }

  // Makes farthest() fast for points near this one. Changes no answer.
  void set_reference(const double* point) {
    std::copy_n(point, d_, reference_.begin());
    refit_reach(0, 0, leaves_);
    measure_extent();
  }

  void coordinates(std::int32_t slot, double* out) const {
    const double* block = rows_.data() + slot / kLanes * kLanes * d_;
    for (index_t j = 0; j < d_; ++j) out[j] = block[j * kLanes + slot % kLanes];
  }

  // The record farthest from the point; the lowest row index of several.
  Found farthest(const double* point) const {
    Farthest query{point, towards(point), squared_reference_distance(point), 0, {-1, 0, -1}};
    query.slack = slack() * (query.to_reference + squared_extent_) + kUnderflow;
    if (size() > 0) farthest(0, 0, leaves_, query);
    return query.best;
  }

  // The k nearest, or all where fewer are left, in no particular order.
  void nearest(const double* point, Nearest& result) const {
    result.clear();
    if (size() > 0) nearest(0, 0, leaves_, point, result);
  }

  // The same without the tree: one pass over all blocks.
  Found farthest_by_scan(const double* point) const {
    Found best{-1, 0, -1};
    scan(point, &best, nullptr);
    return best;
  }
  void nearest_by_scan(const double* point, Nearest& result, Found* farthest = nullptr) const {
    result.clear();
    scan(point, farthest, &result);
  }

  // Removes records by their slots. Reorders the list, and slots found before no longer hold.
  void erase(std::span<Found> records) {
    std::sort(records.begin(), records.end(),
              [](const Found& a, const Found& b) { return a.slot > b.slot; });
    erase(0, 0, leaves_, records);
  }

  // Calls visit(record, slot) for every record that is left.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (index_t leaf = 0; leaf < leaves_; ++leaf)
      for (index_t lane = 0; lane < leaf_count(leaf); ++lane)
        visit(records_[leaf * kLanes + lane], static_cast<std::int32_t>(leaf * kLanes + lane));
  }

 private:
  // A subtree over the leaves [a, b) has 2 (b - a) - 1 nodes in preorder, so children need no
  // pointers: the left one is the next node, the right one follows the left subtree.
  struct Node {
    double reach;         // greatest squared distance to the reference
    std::int32_t count;   // records left
    std::int32_t lowest;  // lowest row index among them
  };
  struct Farthest {
    const double* point;
    std::vector<double> towards;  // from the point to the reference
    double to_reference;          // squared distance between the two
    double slack;                 // more than the rounding error of the bound by reach
    Found best;
  };

  static index_t leaves_of(index_t n) { return (n + kLanes - 1) / kLanes; }
  static index_t middle(index_t a, index_t b) { return a + (b - a) / 2; }
  static index_t right(index_t node, index_t a, index_t b) { return node + 2 * (middle(a, b) - a); }

  // Boxes lie apart from the nodes: least values of the d attributes, then greatest.
  double* box(index_t node) { return boxes_.data() + node * 2 * d_; }
  const double* box(index_t node) const { return boxes_.data() + node * 2 * d_; }
  index_t leaf_count(index_t leaf) const { return leaf_counts_[leaf]; }

  void build(index_t n, Control& control) {
    built_ = n;
    leaves_ = leaves_of(n);
    nodes_.resize(static_cast<std::size_t>(2 * leaves_ - 1));
    boxes_.resize(static_cast<std::size_t>((2 * leaves_ - 1) * 2 * d_));
    leaf_counts_.resize(static_cast<std::size_t>(leaves_));
    // The first splits one after the other, then the subtrees below them side by side.
    struct Subtree {
      index_t node, a, b;
    };
    std::vector<Subtree> subtrees{{0, 0, leaves_}};
    std::vector<Subtree> above;
    for (std::size_t i = 0; i < subtrees.size() && subtrees.size() < kSubtrees;) {
      const auto [node, a, b] = subtrees[i];
      if (b - a < kSubtreeLeaves) {
        ++i;
        continue;
      }
      above.push_back(subtrees[i]);
      split(a, b);
      control.poll();
      subtrees.erase(subtrees.begin() + static_cast<index_t>(i));
      subtrees.push_back({node + 1, a, middle(a, b)});
      subtrees.push_back({right(node, a, b), middle(a, b), b});
    }
    parallel_for(std::ssize(subtrees), 1, threads_, control, [&](index_t i, index_t) {
      std::vector<double> scratch(static_cast<std::size_t>(kLanes * d_));
      build(subtrees[i].node, subtrees[i].a, subtrees[i].b, scratch);
    });
    for (auto it = above.rbegin(); it != above.rend(); ++it) refit_node(it->node, it->a, it->b);
    measure_extent();
  }

  // Puts the records of the leaves [a, b) on their side of the middle.
  void split(index_t a, index_t b) {
    const index_t begin = a * kLanes, end = std::min(built_, b * kLanes);
    select(begin, end, middle(a, b) * kLanes, widest(begin, end));
  }

  void build(index_t node, index_t a, index_t b, std::vector<double>& scratch) {
    const index_t begin = a * kLanes;
    const index_t end = std::min(built_, b * kLanes);
    if (b - a == 1) {
      double* block = rows_.data() + begin * d_;
      std::copy_n(block, (end - begin) * d_, scratch.data());
      std::fill_n(block, kLanes * d_, std::numeric_limits<double>::quiet_NaN());
      for (index_t i = 0; i < end - begin; ++i)
        for (index_t j = 0; j < d_; ++j) block[j * kLanes + i] = scratch[i * d_ + j];
      leaf_counts_[a] = static_cast<std::int32_t>(end - begin);
      refit_leaf(node, a);
      return;
    }
    split(a, b);
    build(node + 1, a, middle(a, b), scratch);
    build(right(node, a, b), middle(a, b), b, scratch);
    refit_node(node, a, b);
  }

  index_t widest(index_t begin, index_t end) const {
    std::vector<double> least(rows_.begin() + begin * d_, rows_.begin() + (begin + 1) * d_);
    std::vector<double> greatest = least;
    for (index_t i = begin + 1; i < end; ++i) {
      for (index_t j = 0; j < d_; ++j) {
        least[j] = std::min(least[j], rows_[i * d_ + j]);
        greatest[j] = std::max(greatest[j], rows_[i * d_ + j]);
      }
    }
    index_t best = 0;
    for (index_t j = 1; j < d_; ++j)
      if (greatest[j] - least[j] > greatest[best] - least[best]) best = j;
    return best;
  }

  // Puts the records of [begin, end) with the lowest keys (attribute j, row index) before position
  // m. The row index makes keys distinct, and lets the tree tell duplicates apart.
  void select(index_t begin, index_t end, index_t m, index_t j) {
    using Key = std::pair<double, std::int32_t>;
    const auto key = [&](index_t i) { return Key(rows_[i * d_ + j], records_[i]); };
    while (end - begin > 1) {
      const Key a = key(begin), b = key(begin + (end - begin) / 2), c = key(end - 1);
      const Key pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
      index_t low = begin, high = end - 1;
      while (low <= high) {
        while (key(low) < pivot) ++low;
        while (pivot < key(high)) --high;
        if (low > high) break;
        std::swap_ranges(rows_.begin() + low * d_, rows_.begin() + (low + 1) * d_,
                         rows_.begin() + high * d_);
        std::swap(records_[low], records_[high]);
        ++low;
        --high;
      }
      // [begin, high] <= pivot, [low, end) >= pivot, and at most the pivot itself in between.
      if (m <= high)
        end = high + 1;
      else if (m >= low)
        begin = low;
      else
        return;
    }
  }

  void refit_leaf(index_t node, index_t leaf) {
    const double* block = rows_.data() + leaf * kLanes * d_;
    const index_t count = leaf_count(leaf);
    double* least = box(node);
    double* greatest = least + d_;
    for (index_t j = 0; j < d_ && count > 0; ++j) {
      least[j] = greatest[j] = block[j * kLanes];
      for (index_t lane = 1; lane < count; ++lane) {
        least[j] = std::min(least[j], block[j * kLanes + lane]);
        greatest[j] = std::max(greatest[j], block[j * kLanes + lane]);
      }
    }
    std::int32_t lowest = std::numeric_limits<std::int32_t>::max();
    for (index_t lane = 0; lane < count; ++lane)
      lowest = std::min(lowest, records_[leaf * kLanes + lane]);
    nodes_[node] = {leaf_reach(leaf), static_cast<std::int32_t>(count), lowest};
  }

  // Erasing records only makes it smaller.
  void measure_extent() {
    squared_extent_ = 0;
    for (index_t j = 0; j < d_; ++j) {
      const double extent = std::max(reference_[j] - box(0)[j], box(0)[d_ + j] - reference_[j]);
      squared_extent_ += extent * extent;
    }
  }

  double leaf_reach(index_t leaf) const {
    double distances[kLanes];
    return block_distances(rows_.data() + leaf * kLanes * d_, d_, reference_.data(), distances)
        .greatest;
  }

  void refit_node(index_t node, index_t a, index_t b) {
    const index_t left = node + 1, second = right(node, a, b);
    const Node &l = nodes_[left], &r = nodes_[second];
    nodes_[node] = {std::max(l.reach, r.reach), l.count + r.count, std::min(l.lowest, r.lowest)};
    if (l.count == 0 || r.count == 0) {
      std::copy_n(box(l.count == 0 ? second : left), 2 * d_, box(node));
      return;
    }
    for (index_t j = 0; j < d_; ++j) {
      box(node)[j] = std::min(box(left)[j], box(second)[j]);
      box(node)[d_ + j] = std::max(box(left)[d_ + j], box(second)[d_ + j]);
    }
  }

  void refit_reach(index_t node, index_t a, index_t b) {
    if (nodes_[node].count == 0) return;
    if (b - a == 1) {
      nodes_[node].reach = leaf_reach(a);
      return;
    }
    refit_reach(node + 1, a, middle(a, b));
    refit_reach(right(node, a, b), middle(a, b), b);
    nodes_[node].reach = std::max(nodes_[node + 1].reach, nodes_[right(node, a, b)].reach);
  }

  // The lower of two upper bounds of the squared distances from the point to the records of a node.
  // The first is the distance to the far corner of the box. The second takes
  //   |x - p|^2 = |x - c|^2 + |c - p|^2 + 2 (x - c)(c - p),  c the reference,
  // bounds the first term by the node's reach and the last one over the box. A round cloud leaves
  // the corners of its outer boxes empty, so that the second is much the tighter there; the first
  // is exact, which tells duplicates apart.
  double farthest_bound(index_t node, const Farthest& query) const {
    const double* least = box(node);
    const double* greatest = least + d_;
    double corner = 0, along = 0;
    for (index_t j = 0; j < d_; ++j) {
      const double below = query.point[j] - least[j], above = greatest[j] - query.point[j];
      const double difference = std::max(below, above);
      corner += difference * difference;
      const double towards = query.towards[j];
      along += towards * ((towards > 0 ? greatest[j] : least[j]) - reference_[j]);
    }
    const double by_reach = nodes_[node].reach + query.to_reference + 2 * along + query.slack;
    return by_reach < corner ? by_reach : corner;
  }

  double nearest_bound(index_t node, const double* point) const {
    const double* least = box(node);
    double total = 0;
    for (index_t j = 0; j < d_; ++j) {
      const double below = least[j] - point[j], above = point[j] - least[d_ + j];
      const double difference = std::max(std::max(below, above), 0.0);
      total += difference * difference;
    }
    return total;
  }

  // Sums of d + 4 terms have a relative error below (d + 4) 2^-53 of the sum of their magnitudes,
  // and an absolute one of d 2^-1074 where products underflow; this covers both several times.
  double slack() const { return static_cast<double>(d_ + 16) * 0x1p-48; }
  static constexpr double kUnderflow = 0x1p-1000;

  std::vector<double> towards(const double* point) const {
    std::vector<double> difference(reference_);
    for (index_t j = 0; j < d_; ++j) difference[j] -= point[j];
    return difference;
  }

  double squared_reference_distance(const double* point) const {
    double total = 0;
    for (index_t j = 0; j < d_; ++j)
      total += (point[j] - reference_[j]) * (point[j] - reference_[j]);
    return total;
  }

  static void improve(Found& best, const Found& candidate) {
    if (candidate.distance > best.distance ||
        (candidate.distance == best.distance && candidate.record < best.record))
      best = candidate;
  }

  bool may_be_farther(index_t node, double bound, const Found& best) const {
    return bound > best.distance || (bound == best.distance && nodes_[node].lowest < best.record);
  }

  void farthest(index_t node, index_t a, index_t b, Farthest& query) const {
    if (b - a == 1) {
      ++visited_;
      scan_leaf(
          a, query.point, [&](const Found& f) { improve(query.best, f); }, &query.best, nullptr);
      return;
    }
    index_t child[2] = {node + 1, right(node, a, b)};
    double bound[2];
    for (int c = 0; c < 2; ++c)
      bound[c] = nodes_[child[c]].count == 0 ? -1 : farthest_bound(child[c], query);
    const int first = bound[1] > bound[0] ? 1 : 0;
    for (const int c : {first, 1 - first}) {
      if (!may_be_farther(child[c], bound[c], query.best)) continue;
      if (c == 0)
        farthest(child[0], a, middle(a, b), query);
      else
        farthest(child[1], middle(a, b), b, query);
    }
  }

  void nearest(index_t node, index_t a, index_t b, const double* point, Nearest& result) const {
    if (b - a == 1) {
      ++visited_;
      scan_leaf(a, point, [&](const Found& f) { result.offer(f); }, nullptr, &result);
      return;
    }
    index_t child[2] = {node + 1, right(node, a, b)};
    double bound[2];
    for (int c = 0; c < 2; ++c)
      bound[c] = nodes_[child[c]].count == 0 ? std::numeric_limits<double>::infinity()
                                             : nearest_bound(child[c], point);
    const int first = bound[1] < bound[0] ? 1 : 0;
    for (const int c : {first, 1 - first}) {
      if (nodes_[child[c]].count == 0) continue;
      if (!nearer({bound[c], nodes_[child[c]].lowest, 0}, result.worst())) continue;
      if (c == 0)
        nearest(child[0], a, middle(a, b), point, result);
      else
        nearest(child[1], middle(a, b), b, point, result);
    }
  }

  // Offers the lanes of a leaf that may change the farthest or the nearest.
  template <class Offer>
  void scan_leaf(index_t leaf, const double* point, Offer&& offer, const Found* farthest,
                 Nearest* nearest) const {
    double distances[kLanes];
    const Extremes extremes =
        block_distances(rows_.data() + leaf * kLanes * d_, d_, point, distances);
    const bool far = farthest != nullptr && extremes.greatest >= farthest->distance;
    const bool near = nearest != nullptr && extremes.least <= nearest->worst().distance;
    if (!far && !near) return;
    for (index_t lane = 0; lane < leaf_count(leaf); ++lane)
      offer(Found{distances[lane], records_[leaf * kLanes + lane],
                  static_cast<std::int32_t>(leaf * kLanes + lane)});
    if (near) nearest->settle();
  }

  void scan(const double* point, Found* farthest, Nearest* nearest) const {
    for (index_t leaf = 0; leaf < leaves_; ++leaf) {
      if (leaf_count(leaf) == 0) continue;
      scan_leaf(
          leaf, point,
          [&](const Found& f) {
            if (nearest != nullptr) nearest->offer(f);
            if (farthest != nullptr) improve(*farthest, f);
          },
          farthest, nearest);
    }
  }

  void erase(index_t node, index_t a, index_t b, std::span<Found> records) {
    if (records.empty()) return;
    if (b - a == 1) {
      double* block = rows_.data() + a * kLanes * d_;
      // From the last lane down, so that the lane moved into the gap is never one to be removed.
      for (const Found& found : records) {
        const index_t lane = found.slot % kLanes;
        const index_t last = --leaf_counts_[a];
        records_[a * kLanes + lane] = records_[a * kLanes + last];
        for (index_t j = 0; j < d_; ++j) {
          block[j * kLanes + lane] = block[j * kLanes + last];
          block[j * kLanes + last] = std::numeric_limits<double>::quiet_NaN();
        }
      }
      refit_leaf(node, a);
      return;
    }
    const auto split = std::partition_point(
        records.begin(), records.end(),
        [&](const Found& found) { return found.slot >= middle(a, b) * kLanes; });
    const auto ahead = static_cast<std::size_t>(split - records.begin());
    erase(right(node, a, b), middle(a, b), b, records.first(ahead));
    erase(node + 1, a, middle(a, b), records.subspan(ahead));
    refit_node(node, a, b);
  }

  static constexpr index_t kSubtreeLeaves = 256;  // below that, threads cost more than they save
  static constexpr std::size_t kSubtrees = 16;

  index_t d_;
  int threads_;
  mutable index_t visited_ = 0;
  index_t built_ = 0;
  index_t leaves_ = 0;
  std::vector<double> rows_;           // row by row while building, then block by block
  std::vector<std::int32_t> records_;  // row index of each slot
  std::vector<std::int32_t> leaf_counts_;
  std::vector<Node> nodes_;
  std::vector<double> boxes_;
  std::vector<double> reference_;
  double squared_extent_ = 0;  // squared distance from the reference to the far corner of all boxes
};

}  // namespace dpmicro
