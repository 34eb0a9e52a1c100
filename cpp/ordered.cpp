#include "ordered.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <deque>
#include <limits>

namespace dpmicro {
namespace {

void check_cluster_size(index_t k, index_t n, const char* name) {
  if (k < 1)
    throw InputError(std::string(name) + " must be at least 1, not " + std::to_string(k) +
                     "; it is the smallest cluster size");
  if (k > n)
    throw InputError(std::string(name) + " = " + std::to_string(k) +
                     " is larger than the number of records (" + std::to_string(n) +
                     "); choose a smaller one");
  if (n > std::numeric_limits<label_t>::max())
    throw InputError("more than 2^31 - 1 records; split the table");
}

struct Keyed {
  double key;
  std::int32_t record;
  std::int32_t start = 0;  // of the last cluster when this is the last value; used by the optimum
};

// In ascending order of key, then of record. In place: parts are split off by selection, then
// sorted side by side. Keys and records together are distinct, so the order is the same for every
// split.
void sort_by_key(std::vector<Keyed>& keyed, Control& control) {
  const auto before = [](const Keyed& a, const Keyed& b) {
    return a.key < b.key || (a.key == b.key && a.record < b.record);
  };
  const index_t n = std::ssize(keyed);
  const auto at = [&](index_t part, index_t parts) { return keyed.begin() + n * part / parts; };
  index_t parts = 1;
  for (; n / parts > 65536 && parts < 16; parts *= 2) {
    parallel_for(parts, 1, 0, control, [&](index_t p, index_t) {
      std::nth_element(at(p, parts), at(2 * p + 1, 2 * parts), at(p + 1, parts), before);
    });
  }
  parallel_for(parts, 1, 0, control,
               [&](index_t p, index_t) { std::sort(at(p, parts), at(p + 1, parts), before); });
}

std::vector<Keyed> keyed_by_value(std::span<const double> x) {
  std::vector<Keyed> keyed(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) keyed[i] = {x[i], static_cast<std::int32_t>(i)};
  return keyed;
}

void cut_into_runs(const std::vector<Keyed>& order, index_t k, label_t* labels) {
  const auto last = static_cast<label_t>(std::ssize(order) / k - 1);
  label_t run = 0;
  index_t in_run = 0;
  for (const Keyed& entry : order) {
    labels[entry.record] = run;
    if (++in_run == k && run < last) {
      ++run;
      in_run = 0;
    }
  }
}

}  // namespace

void individual_ranking(std::span<const double> x, index_t k, Control& control, label_t* labels) {
  check_cluster_size(k, std::ssize(x), "k");
  std::vector<Keyed> order = keyed_by_value(x);
  sort_by_key(order, control);
  cut_into_runs(order, k, labels);
}

void insensitive_ranking(const MatrixView& U, index_t k, Control& control, label_t* labels) {
  check_cluster_size(k, U.rows, "k");
  std::vector<Keyed> order(static_cast<std::size_t>(U.rows));
  for (index_t i = 0; i < U.rows; ++i) {
    double norm = 0;
    for (index_t j = 0; j < U.cols; ++j) {
      const double u = U(i, j);
      if (!(u >= 0 && u <= 1))
        throw InputError("column " + std::to_string(j) +
                         " has values outside [0, 1]; map the table to the unit cube first");
      norm += u * u;
    }
    order[i] = {norm, static_cast<std::int32_t>(i)};
    if ((i & 0xFFFF) == 0) control.poll();
  }
  sort_by_key(order, control);
  // Among equal distances the rows themselves decide.
  for (auto begin = order.begin(); begin != order.end();) {
    auto end = begin + 1;
    while (end != order.end() && end->key == begin->key) ++end;
    if (end - begin > 1) {
      std::sort(begin, end, [&](const Keyed& a, const Keyed& b) {
        for (index_t j = 0; j < U.cols; ++j)
          if (U(a.record, j) != U(b.record, j)) return U(a.record, j) < U(b.record, j);
        return a.record < b.record;
      });
      control.poll();
    }
    begin = end;
  }
  cut_into_runs(order, k, labels);
}

namespace {

// SSE + noise_cost/length of any run of the sorted values, in constant time.
//
// Differences of prefix sums over all values would drown the spread of a short run among many
// values. So sums are taken within blocks of 64 values, within blocks of 64 such blocks, and so on,
// each about a middle value of its block and outwards from it, so that outliers spoil no run but
// their own. A run is seen at the lowest level where it touches at most two blocks: there its
// spread is a good part of theirs. Where it is not (values far apart in one block) it is put
// together from the level below.
class RunCost {
 public:
  struct Sums {
    double first = 0;   // of the values less the anchor
    double second = 0;  // of their squares
    friend Sums operator+(Sums a, Sums b) { return {a.first + b.first, a.second + b.second}; }
    friend Sums operator-(Sums a, Sums b) { return {a.first - b.first, a.second - b.second}; }
  };
  static constexpr int kLevels = 5;  // two blocks of 64^5 values hold all there can be
  // A position between two values, with the sums from its block's middle to there at each level.
  struct Edge {
    index_t position;
    std::array<Sums, kLevels> sums;
  };

  RunCost(const std::vector<Keyed>& sorted, double noise_cost)
      : values_(sorted.data()), n_(std::ssize(sorted)), noise_cost_(noise_cost) {
    knots_.resize(static_cast<std::size_t>(n_ / kKnot + 1));
    blocks_.emplace_back(static_cast<std::size_t>((n_ - 1) / kBlock + 1));
    for (std::size_t b = 0; b < blocks_[0].size(); ++b) sum_values(static_cast<index_t>(b));
    while (blocks_.back().size() > 2) {
      blocks_.emplace_back((blocks_.back().size() - 1) / kBlock + 1);
      for (std::size_t b = 0; b < blocks_.back().size(); ++b) sum_blocks(static_cast<index_t>(b));
    }
  }

  // With the sums that a run from this start to a position needs, and those of later starts.
  Edge end(index_t position, index_t start) const {
    return edge(position, level_of(start, position));
  }
  // With the sums for any end.
  Edge start(index_t position) const { return edge(position, blocks_.size() - 1); }

  double operator()(const Edge& begin, const Edge& end) const {
    return spread(begin, end) + noise_cost_ / static_cast<double>(end.position - begin.position);
  }

 private:
  Edge edge(index_t position, std::size_t highest) const {
    Edge edge;
    edge.position = position;
    index_t b = block_of(position, 0);
    edge.sums[0] = sums_in_block(b, position);
    for (std::size_t level = 1; level <= highest; ++level) {
      const Block& child = blocks_[level - 1][b];
      b /= kBlock;
      edge.sums[level] = child.from_parent + shifted(edge.sums[level - 1], position - child.middle,
                                                     child.anchor - blocks_[level][b].anchor);
    }
    return edge;
  }

  static constexpr index_t kBlock = 64;
  static constexpr index_t kKnot = 16;  // sums are stored at every sixteenth value, to save memory
  static constexpr index_t kFew = 4;
  static constexpr double kTrust = 0x1p-20;  // 33 of 53 bits are left

  struct Block {
    double anchor;       // the value at the middle
    index_t middle;      // where its sums begin
    Sums start, end;     // at its ends
    Sums from_parent{};  // from the middle of the block above to this one's, about the one above's
                         // anchor
  };
  // Some values: their number, their mean less an anchor, and the squares about their mean.
  struct Part {
    double count;
    double offset;
    double spread;
  };

  static index_t size(std::size_t level) { return index_t{1} << 6 * (level + 1); }
  // Block of a position; the last end belongs to the last block.
  index_t block_of(index_t position, std::size_t level) const {
    return std::min(position, n_ - 1) >> 6 * (level + 1);
  }

  // The lowest level at which the values [i, j) touch at most two blocks.
  std::size_t level_of(index_t i, index_t j) const {
    std::size_t level = 0;
    while (block_of(j, level) > block_of(i, level) + 1) ++level;
    return level;
  }

  // The same values about an anchor that is less by delta; count may be negative, as the sums.
  static Sums shifted(const Sums& sums, index_t count, double delta) {
    const double all = static_cast<double>(count) * delta;
    return {sums.first + all, sums.second + delta * (2 * sums.first + all)};
  }

  void add(Sums& sums, index_t i, double anchor) const {
    const double v = values_[i].key - anchor;
    sums.first += v;
    sums.second += v * v;
  }

  void sum_values(index_t b) {
    const index_t begin = b * kBlock, end = std::min(n_, begin + kBlock);
    Block& block = blocks_[0][b];
    block.middle = begin + (end - begin) / 2 / kKnot * kKnot;
    block.anchor = values_[block.middle].key;
    Sums sums;
    for (index_t i = block.middle; i < end; ++i) {
      if (i % kKnot == 0) knots_[i / kKnot] = sums;
      add(sums, i, block.anchor);
    }
    block.end = sums;
    sums = {};
    for (index_t i = block.middle - 1; i >= begin; --i) {
      add(sums, i, block.anchor);
      if (i % kKnot == 0) knots_[i / kKnot] = Sums{} - sums;
    }
    block.start = Sums{} - sums;
  }

  // Outwards from the nearest knot on the side of the middle.
  Sums sums_in_block(index_t b, index_t position) const {
    const Block& block = blocks_[0][b];
    Sums sums;
    if (position >= block.middle) {
      if (position == std::min(n_, (b + 1) * kBlock)) return block.end;
      for (index_t i = position - position % kKnot; i < position; ++i) add(sums, i, block.anchor);
      return knots_[position / kKnot] + sums;
    }
    const index_t knot = (position + kKnot - 1) / kKnot;
    for (index_t i = position; i < knot * kKnot; ++i) add(sums, i, block.anchor);
    return knots_[knot] - sums;
  }

  void sum_blocks(index_t b) {
    const std::size_t level = blocks_.size() - 1;
    std::vector<Block>& children = blocks_[level - 1];
    Block& block = blocks_[level][b];
    const index_t begin = b * kBlock, end = std::min(std::ssize(children), begin + kBlock);
    const index_t middle = begin + (end - begin) / 2;
    block.middle = children[middle].middle;
    block.anchor = children[middle].anchor;
    const auto to_start = [&](index_t c) {
      return shifted(children[c].start, c * size(level - 1) - children[c].middle,
                     children[c].anchor - block.anchor);
    };
    const auto to_end = [&](index_t c) {
      return shifted(children[c].end, std::min(n_, (c + 1) * size(level - 1)) - children[c].middle,
                     children[c].anchor - block.anchor);
    };
    for (index_t c = middle + 1; c < end; ++c)
      children[c].from_parent = children[c - 1].from_parent + (to_end(c - 1) - to_start(c));
    for (index_t c = middle - 1; c >= begin; --c)
      children[c].from_parent = children[c + 1].from_parent - (to_end(c) - to_start(c + 1));
    block.start = children[begin].from_parent + to_start(begin);
    block.end = children[end - 1].from_parent + to_end(end - 1);
  }

  double spread(const Edge& begin, const Edge& end) const {
    const index_t i = begin.position, j = end.position;
    if (j - i <= kFew) return summed(i, j);
    const std::size_t level = level_of(i, j);
    const index_t bi = block_of(i, level), bj = block_of(j, level);
    if (bi == bj) return part(level, bi, i, j, begin.sums[level], end.sums[level]).spread;
    const Block &left = blocks_[level][bi], &right = blocks_[level][bj];
    const index_t border = bj * size(level);
    const Part first = part(level, bi, i, border, begin.sums[level], left.end);
    if (j == border) return first.spread;
    return merged(first, part(level, bj, border, j, right.start, end.sums[level]),
                  right.anchor - left.anchor)
        .spread;
  }

  // The values [i, j) of one block, from the sums at i and at j.
  Part part(std::size_t level, index_t b, index_t i, index_t j, const Sums& at_i,
            const Sums& at_j) const {
    const auto count = static_cast<double>(j - i);
    const Sums sums = at_j - at_i;
    const double offset = sums.first / count;
    const double squares = sums.second - sums.first * offset;
    if (squares > kTrust * std::max(std::abs(at_i.second), std::abs(at_j.second)))
      return {count, offset, squares};
    if (values_[i].key == values_[j - 1].key) return {count, offset, 0};
    if (level == 0) return {count, offset, summed(i, j)};
    return from_below(level, b, i, j);
  }

  Part from_below(std::size_t level, index_t b, index_t i, index_t j) const {
    Part all{0, 0, 0};
    const Edge at_i = edge(i, level - 1), at_j = edge(j, level - 1);
    for (index_t c = block_of(i, level - 1); c <= block_of(j - 1, level - 1); ++c) {
      const Block& child = blocks_[level - 1][c];
      const index_t from = std::max(i, c * size(level - 1));
      const index_t to = std::min(j, (c + 1) * size(level - 1));
      const Part next =
          part(level - 1, c, from, to, from == i ? at_i.sums[level - 1] : child.start,
               to == j && block_of(j, level - 1) == c ? at_j.sums[level - 1] : child.end);
      all = merged(all, next, child.anchor - blocks_[level][b].anchor);
    }
    return all;
  }

  // b's anchor is greater than a's by delta; the result is about a's.
  static Part merged(const Part& a, const Part& b, double delta) {
    const double count = a.count + b.count;
    const double difference = b.offset + delta - a.offset;
    const double share = b.count / count;
    return {count, a.offset + difference * share,
            a.spread + b.spread + difference * difference * a.count * share};
  }

  double summed(index_t i, index_t j) const {
    double mean = 0;
    for (index_t t = i; t < j; ++t) mean += values_[t].key - values_[i].key;
    mean /= static_cast<double>(j - i);
    double squares = 0;
    for (index_t t = i; t < j; ++t) {
      const double v = values_[t].key - values_[i].key - mean;
      squares += v * v;
    }
    return squares;
  }

  const Keyed* values_;
  index_t n_;
  double noise_cost_;
  std::vector<Sums> knots_;
  std::vector<std::vector<Block>> blocks_;  // by level
};

// A total to which small costs can still be added when it has grown large.
struct Total {
  double high = 0;
  double low = 0;

  Total plus(double cost) const {
    const double sum = high + cost;
    const double part = sum - high;
    return {sum, low + ((high - (sum - part)) + (cost - part))};
  }
  double minus(const Total& other) const { return (high - other.high) + (low - other.low); }
};

// A place where a cluster may start, and the least cost of the values before it.
struct Start {
  RunCost::Edge edge;
  Total before;
  index_t from;  // the first end for which this start is the best
};

}  // namespace

void optimal_univariate(std::span<const double> x, double noise_cost, index_t min_size,
                        Control& control, label_t* labels) {
  const index_t n = std::ssize(x);
  check_cluster_size(min_size, n, "min_size");
  if (!(noise_cost >= 0) || !std::isfinite(noise_cost))
    throw InputError("noise_cost must be 0 or a positive number");
  std::vector<Keyed> order = keyed_by_value(x);
  sort_by_key(order, control);
  const RunCost cost(order, noise_cost);

  // A start serves the ends min_size and more after it, and a later start that is better than an
  // earlier one for some end stays better for all later ends (the quadrangle inequality). So the
  // starts worth keeping form a queue, in order of start and of the ends they are best for.
  std::deque<Start> queue;
  // Least cost of the values before a position, for the last min_size positions.
  std::vector<Total> before(static_cast<std::size_t>(min_size));

  const auto append = [&](Start start, index_t end) {
    // Costs before are compared by their difference: they may be large and the runs cheap.
    const auto better = [&](const Start& old, index_t at) {
      const RunCost::Edge edge = cost.end(at, old.edge.position);
      return start.before.minus(old.before) + cost(start.edge, edge) < cost(old.edge, edge);
    };
    index_t high = n + 1;  // better here, or n + 1
    while (!queue.empty() && queue.back().from >= end && better(queue.back(), queue.back().from)) {
      high = queue.back().from;
      queue.pop_back();
    }
    start.from = end;
    if (!queue.empty()) {
      // The first end for which the new start is better than the last one kept: gallop, bisect.
      const Start& old = queue.back();
      index_t low = std::max(old.from, end - 1);  // not better here, or before the new start's ends
      for (index_t step = 1; low + step < high; step *= 2) {
        if (better(old, low + step)) {
          high = low + step;
          break;
        }
        low += step;
        if (step == 8 && high > n && !better(old, n)) return;  // long ties: never better
      }
      while (high - low > 1) {
        const index_t middle = low + (high - low) / 2;
        (better(old, middle) ? high : low) = middle;
      }
      if (high > n) return;
      start.from = high;
    }
    queue.push_back(start);
  };

  for (index_t end = min_size; end <= n; ++end) {
    const index_t start = end - min_size;
    if (start == 0 || start >= min_size)
      append({cost.start(start), before[start % min_size], 0}, end);
    while (queue.size() > 1 && queue[1].from <= end) queue.pop_front();
    const Start& best = queue.front();
    before[end % min_size] = best.before.plus(cost(best.edge, cost.end(end, best.edge.position)));
    order[end - 1].start = static_cast<std::int32_t>(best.edge.position);
    if ((end & 0xFFF) == 0) control.progress(static_cast<double>(end) / static_cast<double>(n));
  }

  label_t clusters = 0;
  for (index_t end = n; end > 0; end = order[end - 1].start) ++clusters;
  for (index_t end = n; end > 0; end = order[end - 1].start) {
    --clusters;
    for (index_t i = order[end - 1].start; i < end; ++i) labels[order[i].record] = clusters;
  }
  control.progress(1);
}

}  // namespace dpmicro
