#include "evaluate.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace dpmicro {

DistributionDistance compare_sorted(std::span<const double> a, std::span<const double> b,
                                    double tolerance) {
  const double n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  std::size_t i = 0, j = 0;
  DistributionDistance result{0, 0};
  // Area: between neighbouring values of the two samples the functions are constant.
  double before = std::min(a[0], b[0]);
  while (i < a.size() || j < b.size()) {
    const double value = j == b.size() || (i < a.size() && a[i] <= b[j]) ? a[i] : b[j];
    result.wasserstein +=
        std::abs(static_cast<double>(i) / n - static_cast<double>(j) / m) * (value - before);
    before = value;
    while (i < a.size() && a[i] == value) ++i;
    while (j < b.size() && b[j] == value) ++j;
  }
  i = j = 0;
  while (i < a.size() && j < b.size()) {
    const double reach = std::min(a[i], b[j]) + tolerance;
    while (i < a.size() && a[i] <= reach) ++i;
    while (j < b.size() && b[j] <= reach) ++j;
    const double gap = std::abs(static_cast<double>(i) / n - static_cast<double>(j) / m);
    result.kolmogorov_smirnov = std::max(result.kolmogorov_smirnov, gap);
  }
  return result;
}

RowClasses row_classes(const MatrixView& X, Control& control) {
  struct Key {
    std::uint64_t hash;
    index_t row;
  };
  std::vector<Key> keys(static_cast<std::size_t>(X.rows));
  for (index_t i = 0; i < X.rows; ++i) {
    std::uint64_t hash = 0;
    for (index_t j = 0; j < X.cols; ++j) {
      // The finalizer of splitmix64, a bijection, so that one column alone never collides.
      hash = hash * 0x9E3779B97F4A7C15u + std::bit_cast<std::uint64_t>(X(i, j) + 0.0);
      hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
      hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBu;
      hash ^= hash >> 31;
    }
    keys[i] = {hash, i};
    if ((i & 0xFFFF) == 0) control.poll();
  }
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) { return a.hash < b.hash; });
  const auto equal = [&](index_t r, index_t s) {
    for (index_t j = 0; j < X.cols; ++j)
      if (X(r, j) != X(s, j)) return false;
    return true;
  };
  RowClasses classes{0, 0, X.rows};
  for (std::size_t begin = 0, end; begin < keys.size(); begin = end) {
    for (end = begin + 1; end < keys.size() && keys[end].hash == keys[begin].hash;) ++end;
    // Rows of one hash are almost surely all equal; take them apart class by class all the same.
    while (end > begin) {
      const index_t first = keys[begin].row;
      const auto rest =
          std::partition(keys.begin() + begin, keys.begin() + end,
                         [&](const Key& key) { return key.row == first || equal(key.row, first); });
      const auto next = static_cast<std::size_t>(rest - keys.begin());
      const auto size = static_cast<index_t>(next - begin);
      ++classes.distinct;
      classes.unique += size == 1;
      classes.smallest = std::min(classes.smallest, size);
      begin = next;
    }
  }
  return classes;
}

namespace {

// Released rows in ascending order of one attribute, in blocks whose columns are contiguous.
class SortedRows {
 public:
  static constexpr index_t kLanes = 64;

  SortedRows(const MatrixView& X, const double* scale)
      : d_(X.cols), key_(widest(X, scale)), blocks_((X.rows + kLanes - 1) / kLanes) {
    std::vector<std::pair<double, index_t>> order(static_cast<std::size_t>(X.rows));
    for (index_t i = 0; i < X.rows; ++i) order[i] = {X(i, key_) / scale[key_], i};
    std::sort(order.begin(), order.end());
    // A NaN is neither nearer nor equally near: the last block's empty lanes count for nothing.
    values_.assign(static_cast<std::size_t>(blocks_ * kLanes * d_),
                   std::numeric_limits<double>::quiet_NaN());
    least_.resize(static_cast<std::size_t>(blocks_));
    greatest_.resize(static_cast<std::size_t>(blocks_));
    for (index_t i = 0; i < X.rows; ++i) {
      double* block = values_.data() + i / kLanes * kLanes * d_;
      for (index_t j = 0; j < d_; ++j)
        block[j * kLanes + i % kLanes] = X(order[i].second, j) / scale[j];
      if (i % kLanes == 0) least_[i / kLanes] = order[i].first;
      greatest_[i / kLanes] = order[i].first;
    }
  }

  // How many rows are exactly at the squared distance `own` from the point, if none is nearer; else
  // 0.
  index_t ties(const double* point, double own) const {
    const index_t start =
        std::lower_bound(greatest_.begin(), greatest_.end(), point[key_]) - greatest_.begin();
    index_t equal = 0;
    index_t up = start, down = start - 1;
    // Outwards on both sides, since rows near on the key are likeliest to be near.
    while (true) {
      const bool above = up < blocks_ && within(least_[up] - point[key_], own);
      const bool below = down >= 0 && within(point[key_] - greatest_[down], own);
      if (!above && !below) return equal;
      if (above && !scan(up++, point, own, equal)) return 0;
      if (below && !scan(down--, point, own, equal)) return 0;
    }
  }

 private:
  static index_t widest(const MatrixView& X, const double* scale) {
    index_t best = 0;
    double best_spread = -1;
    for (index_t j = 0; j < X.cols; ++j) {
      double sum = 0, squares = 0;
      for (index_t i = 0; i < X.rows; ++i) {
        const double centred = (X(i, j) - X(0, j)) / scale[j];
        sum += centred;
        squares += centred * centred;
      }
      const double spread = squares - sum / static_cast<double>(X.rows) * sum;
      if (spread > best_spread) best = j, best_spread = spread;
    }
    return best;
  }

  // Rounding is monotone and a sum of squares is no less than one of them, also when rounded.
  static bool within(double gap, double own) { return gap <= 0 || gap * gap <= own; }

  bool scan(index_t number, const double* point, double own, index_t& equal) const {
    const double* block = values_.data() + number * kLanes * d_;
    double distance[kLanes] = {};
    for (index_t j = 0; j < d_; ++j) {
      for (index_t lane = 0; lane < kLanes; ++lane) {
        const double difference = block[j * kLanes + lane] - point[j];
        distance[lane] += difference * difference;
      }
    }
    int nearer = 0, same = 0;
    for (index_t lane = 0; lane < kLanes; ++lane) {
      nearer += distance[lane] < own;
      same += distance[lane] == own;
    }
    equal += same;
    return nearer == 0;
  }

  index_t d_, key_, blocks_;
  std::vector<double> values_, least_, greatest_;
};

}  // namespace

void linkage(const MatrixView& original, const index_t* own, const MatrixView& released,
             const double* scale, double* out, int threads, Control& control) {
  if (original.cols != released.cols)
    throw InputError("both tables need the same columns to link their records");
  for (index_t i = 0; i < original.rows; ++i)
    if (own[i] < 0 || own[i] >= released.rows)
      throw InputError("a record's own row lies outside the released table");
  const SortedRows rows(released, scale);
  control.poll();
  parallel_for(original.rows, 16, threads, control, [&](index_t begin, index_t end) {
    std::vector<double> point(static_cast<std::size_t>(original.cols));
    for (index_t i = begin; i < end; ++i) {
      double distance = 0;  // summed in the order of the columns, as in scan()
      for (index_t j = 0; j < original.cols; ++j) {
        point[j] = original(i, j) / scale[j];
        const double difference = released(own[i], j) / scale[j] - point[j];
        distance += difference * difference;
      }
      const index_t ties = rows.ties(point.data(), distance);
      out[i] = ties == 0 ? 0.0 : 1.0 / static_cast<double>(ties);
    }
  });
}

void range_counts(const MatrixView& X, std::span<const Range> ranges, std::int64_t* counts,
                  int threads, Control& control) {
  // The ends of all ranges cut each attribute into bins. An upper end belongs to its range, so the
  // cut lies just above it; then a value is inside when it is at or above one cut and below the
  // other.
  const auto above = [](double upper) {
    return std::nextafter(upper, std::numeric_limits<double>::infinity());
  };
  std::vector<std::vector<double>> cuts(static_cast<std::size_t>(X.cols));
  for (const Range& range : ranges) {
    for (int side = 0; side < 2; ++side) {
      if (range.column[side] < 0 || range.column[side] >= X.cols)
        throw InputError("a range names a column that the table does not have");
      cuts[range.column[side]].push_back(range.lower[side]);
      cuts[range.column[side]].push_back(above(range.upper[side]));
    }
  }
  for (std::vector<double>& column : cuts) {
    std::sort(column.begin(), column.end());
    column.erase(std::unique(column.begin(), column.end()), column.end());
    if (column.size() > std::numeric_limits<std::uint16_t>::max())
      throw InputError("too many ranges on one column; count at most 32,000 at a time");
  }
  std::vector<std::vector<std::uint16_t>> bins(static_cast<std::size_t>(X.cols));
  for (index_t j = 0; j < X.cols; ++j) {
    if (cuts[j].empty()) continue;
    bins[j].resize(static_cast<std::size_t>(X.rows));
    parallel_for(X.rows, 16384, threads, control, [&](index_t begin, index_t end) {
      const double* first = cuts[j].data();
      for (index_t i = begin; i < end; ++i) {
        // Number of cuts at or below the value; without branches, which no one could predict.
        const double value = X(i, j);
        const double* base = first;
        std::size_t length = cuts[j].size();
        while (length > 1) {
          const std::size_t half = length / 2;
          base += base[half - 1] <= value ? half : 0;
          length -= half;
        }
        bins[j][i] = static_cast<std::uint16_t>(base - first + (*base <= value ? 1 : 0));
      }
    });
  }

  using Pair = std::pair<index_t, index_t>;
  std::map<Pair, std::vector<std::size_t>> queries;
  for (std::size_t q = 0; q < ranges.size(); ++q)
    queries[{ranges[q].column[0], ranges[q].column[1]}].push_back(q);
  const std::vector<std::pair<Pair, std::vector<std::size_t>>> pairs(queries.begin(),
                                                                     queries.end());
  parallel_for(
      static_cast<index_t>(pairs.size()), 1, threads, control, [&](index_t begin, index_t end) {
        for (index_t p = begin; p < end; ++p) {
          const auto [s, t] = pairs[p].first;
          // below(a, b): records in the first a bins of one attribute and the first b of the other.
          const std::size_t width = cuts[t].size() + 2;
          std::vector<std::int64_t> below((cuts[s].size() + 2) * width, 0);
          for (index_t i = 0; i < X.rows; ++i) ++below[(bins[s][i] + 1) * width + bins[t][i] + 1];
          for (std::size_t cell = width; cell < below.size(); ++cell)
            if (cell % width != 0) below[cell] += below[cell - 1];
          for (std::size_t cell = width; cell < below.size(); ++cell)
            below[cell] += below[cell - width];
          const auto position = [&](index_t column, double cut) {
            const auto found = std::lower_bound(cuts[column].begin(), cuts[column].end(), cut);
            return static_cast<std::size_t>(found - cuts[column].begin()) + 1;
          };
          for (const std::size_t q : pairs[p].second) {
            const Range& range = ranges[q];
            const std::size_t a = position(s, range.lower[0]),
                              b = position(s, above(range.upper[0]));
            const std::size_t c = position(t, range.lower[1]),
                              d = position(t, above(range.upper[1]));
            const bool empty = b <= a || d <= c;
            counts[q] = empty ? 0
                              : below[b * width + d] - below[a * width + d] - below[b * width + c] +
                                    below[a * width + c];
          }
        }
      });
}

}  // namespace dpmicro
