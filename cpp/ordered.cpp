#include "ordered.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
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
};

// In ascending order of key, then of record.
void sort_by_key(std::vector<Keyed>& keyed) {
  std::sort(keyed.begin(), keyed.end(), [](const Keyed& a, const Keyed& b) {
    return a.key < b.key || (a.key == b.key && a.record < b.record);
  });
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
  sort_by_key(order);
  control.poll();
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
  sort_by_key(order);
  control.poll();
  // Among equal distances the rows themselves decide; sort_by_key has put the row index last.
  for (auto begin = order.begin(); begin != order.end();) {
    auto end = begin + 1;
    while (end != order.end() && end->key == begin->key) ++end;
    if (end - begin > 1) {
      std::stable_sort(begin, end, [&](const Keyed& a, const Keyed& b) {
        for (index_t j = 0; j < U.cols; ++j)
          if (U(a.record, j) != U(b.record, j)) return U(a.record, j) < U(b.record, j);
        return false;
      });
      control.poll();
    }
    begin = end;
  }
  cut_into_runs(order, k, labels);
}

namespace {

// SSE + noise_cost/length of the sorted values [i, j), in constant time.
class IntervalCost {
 public:
  IntervalCost(const std::vector<Keyed>& sorted, double noise_cost) : noise_cost_(noise_cost) {
    const double centre = sorted[sorted.size() / 2].key;
    first_.resize(sorted.size() + 1);
    second_.resize(sorted.size() + 1);
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      const long double v = static_cast<long double>(sorted[i].key) - centre;
      first_[i + 1] = first_[i] + v;
      second_[i + 1] = second_[i] + v * v;
    }
  }
  double operator()(index_t i, index_t j) const {
    const auto length = static_cast<double>(j - i);
    if (j - i == 1) return noise_cost_;
    const long double s1 = first_[j] - first_[i], s2 = second_[j] - second_[i];
    const auto spread = static_cast<double>(s2 - s1 * s1 / length);
    return std::max(spread, 0.0) + noise_cost_ / length;
  }

 private:
  double noise_cost_;
  std::vector<long double> first_, second_;
};

}  // namespace

void optimal_univariate(std::span<const double> x, double noise_cost, index_t min_size,
                        Control& control, label_t* labels) {
  const index_t n = std::ssize(x);
  check_cluster_size(min_size, n, "min_size");
  if (!(noise_cost >= 0) || !std::isfinite(noise_cost))
    throw InputError("noise_cost must be 0 or a positive number");
  std::vector<Keyed> order = keyed_by_value(x);
  sort_by_key(order);
  control.poll();
  const IntervalCost cost(order, noise_cost);

  // best[i]: least cost of the first i values. A start j serves the ends from j + min_size on, and
  // a later start that is better than an earlier one at some end stays better at all later ends. So
  // the starts worth keeping form a queue, each with the first end from which it is the best.
  struct Start {
    index_t position;
    double best;
    index_t from;
  };
  std::vector<Start> queue;
  std::vector<double> best(static_cast<std::size_t>(n + 1), 0.0);
  std::vector<std::int32_t> start_of(static_cast<std::size_t>(n + 1), 0);
  std::size_t front = 0;
  for (index_t end = min_size; end <= n; ++end) {
    const index_t position = end - min_size;
    if (position == 0 || position >= min_size) {
      const double so_far = best[position];
      const auto better = [&](const Start& old, index_t at) {
        return so_far + cost(position, at) < old.best + cost(old.position, at);
      };
      while (queue.size() > front && queue.back().from >= end &&
             better(queue.back(), queue.back().from))
        queue.pop_back();
      if (queue.size() == front) {
        queue.push_back({position, so_far, end});
      } else {
        // First end at which the new start is better than the last one kept: gallop, then bisect.
        const Start& old = queue.back();
        index_t low = std::max(old.from, end) - 1;  // not better here, or before both
        index_t high = low + 1;
        for (index_t step = 1; high <= n && !better(old, high); step *= 2) {
          low = high;
          high = std::min(high + step, high == n ? n + 1 : n);
        }
        while (high - low > 1) {
          const index_t middle = low + (high - low) / 2;
          (middle <= n && better(old, middle) ? high : low) = middle;
        }
        if (high <= n) queue.push_back({position, so_far, high});
      }
    }
    while (front + 1 < queue.size() && queue[front + 1].from <= end) ++front;
    best[end] = queue[front].best + cost(queue[front].position, end);
    start_of[end] = static_cast<std::int32_t>(queue[front].position);
    if ((end & 0xFFF) == 0) control.progress(static_cast<double>(end) / static_cast<double>(n));
  }

  label_t clusters = 0;
  for (index_t end = n; end > 0; end = start_of[end]) ++clusters;
  for (index_t end = n; end > 0; end = start_of[end]) {
    --clusters;
    for (index_t i = start_of[end]; i < end; ++i) labels[order[i].record] = clusters;
  }
}

}  // namespace dpmicro
