#include "distinct.hpp"

#include <bit>

namespace dpmicro {

Distinct distinct_records(const MatrixView& X, const double* weights) {
  const auto hash = [&](index_t row) {
    std::uint64_t h = weights == nullptr ? 0 : std::bit_cast<std::uint64_t>(weights[row]);
    for (index_t j = 0; j < X.cols; ++j) {
      // The finaliser of MurmurHash3, once per value.
      h ^= std::bit_cast<std::uint64_t>(X(row, j)) + 0x9e3779b97f4a7c15;
      h = (h ^ (h >> 33)) * 0xff51afd7ed558ccd;
      h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53;
      h ^= h >> 33;
    }
    return h;
  };
  const auto same = [&](index_t a, index_t b) {
    const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
    if (weights != nullptr && bits(weights[a]) != bits(weights[b])) return false;
    for (index_t j = 0; j < X.cols; ++j)
      if (bits(X(a, j)) != bits(X(b, j))) return false;
    return true;
  };

  Distinct found;
  const auto most = static_cast<std::size_t>(X.rows / 2);
  const std::size_t mask = std::bit_ceil(2 * most + 2) - 1;
  std::vector<std::int32_t> table(mask + 1,
                                  -1);  // points by hash, the next free place on collision
  found.point.resize(static_cast<std::size_t>(X.rows));
  for (index_t row = 0; row < X.rows; ++row) {
    std::size_t place = hash(row) & mask;
    while (table[place] >= 0 && !same(found.first[table[place]], row)) place = (place + 1) & mask;
    if (table[place] < 0) {
      if (found.first.size() == most) return {};
      table[place] = static_cast<std::int32_t>(found.first.size());
      found.first.push_back(static_cast<std::int32_t>(row));
      found.counts.push_back(0);
    }
    found.point[row] = table[place];
    ++found.counts[table[place]];
  }
  return found;
}

}  // namespace dpmicro
