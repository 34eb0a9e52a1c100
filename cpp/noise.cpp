#include "noise.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace dpmicro {
namespace {

constexpr std::uint64_t kOne = std::uint64_t{1} << 63;   // 1 in fixed point with 63 binary places
constexpr std::uint64_t kMargin = 1024;                  // see ExponentialCoin::bounds
constexpr std::uint64_t kInverseE = 0x5E2D58D8B3BCDF1A;  // floor(2^64 / e)

std::uint64_t high(u128 product) { return static_cast<std::uint64_t>(product >> 64); }

// Whole numbers as digits to base 2^64, the least first; just what the series needs.
using Digits = std::vector<std::uint64_t>;

void multiply(Digits& a, std::uint64_t factor) {  // the top digit must have room
  std::uint64_t carry = 0;
  for (std::uint64_t& digit : a) {
    const u128 product = static_cast<u128>(digit) * factor + carry;
    digit = static_cast<std::uint64_t>(product);
    carry = high(product);
  }
}

void divide(Digits& a, std::uint64_t divisor) {  // rounds down
  std::uint64_t remainder = 0;
  for (std::size_t i = a.size(); i-- > 0;) {
    const u128 part = static_cast<u128>(remainder) << 64 | a[i];
    a[i] = static_cast<std::uint64_t>(part / divisor);
    remainder = static_cast<std::uint64_t>(part % divisor);
  }
}

void add(Digits& a, const Digits& b) {
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const u128 sum = static_cast<u128>(a[i]) + b[i] + carry;
    a[i] = static_cast<std::uint64_t>(sum);
    carry = high(sum);
  }
}

void subtract(Digits& a, const Digits& b) {  // a >= b
  std::uint64_t borrow = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const u128 difference = static_cast<u128>(a[i]) - b[i] - borrow;
    a[i] = static_cast<std::uint64_t>(difference);
    borrow = high(difference) != 0;
  }
}

bool less(const Digits& a, const Digits& b) {
  return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

bool zero(const Digits& a) {
  return std::all_of(a.begin(), a.end(), [](std::uint64_t digit) { return digit == 0; });
}

// sum - error <= 2^(64 places) exp(-numerator/denominator) <= sum + error, numerator <=
// denominator.
struct Series {
  Digits sum;
  std::uint64_t error;
};

Series exponential_series(std::uint64_t numerator, std::uint64_t denominator, std::size_t places) {
  Digits term(places + 1, 0);  // one digit above the point, enough for the numerator
  term[places] = 1;
  Digits positive = term;
  Digits negative(places + 1, 0);
  // term_k = term_{k-1} numerator / (denominator k), rounded down twice: its error is at most 2
  // more than 1/k of the error before, hence below 6. Once a term is 0 the true one is below 6, and
  // so is all that follows in an alternating series of falling terms.
  std::uint64_t terms = 0;
  while (!zero(term)) {
    ++terms;
    multiply(term, numerator);
    divide(term, denominator);
    divide(term, terms);
    add(terms % 2 == 1 ? negative : positive, term);
  }
  subtract(positive, negative);
  return {std::move(positive), 6 * (terms + 1)};
}

// floor(2^63 exp(-i/256)), up to 1 unit.
std::vector<std::uint64_t> exponential_table() {
  std::vector<std::uint64_t> table(256);
  for (std::uint64_t i = 0; i < 256; ++i) {
    const Digits sum = exponential_series(i, 256, 2).sum;
    table[i] = sum[2] << 63 | sum[1] >> 1;
  }
  return table;
}

void require_rational(Rational r) {
  if (r.denominator == 0 || r.denominator >= kRationalLimit || r.numerator >= kRationalLimit)
    throw InputError(
        "a fraction needs a numerator and a denominator below 2^62; use a simpler fraction");
}

constexpr index_t kGrain = 16384;  // draws per chunk: about a millisecond

void require_quantisable(const MatrixView& U, int bits) {
  if (bits < 1 || bits > 40) throw InputError("bits must lie between 1 and 40");
  if (U.rows >= (index_t{1} << (62 - bits)))
    throw InputError("too many records for this many bits; n 2^bits must stay below 2^62");
}

// NaN fails the comparison too.
std::int64_t code(double u, double steps) {
  if (!(u >= 0 && u <= 1))
    throw InputError("values outside the unit cube; clamp them to the public bounds first");
  // u steps is exact (a power of two), and so is adding a half below 2^41; truncation is floor.
  return static_cast<std::int64_t>(u * steps + 0.5);
}

}  // namespace

RationalCoin::RationalCoin(Rational p) : denominator_(p.denominator), certain_(false) {
  require_rational(p);
  if (p.numerator > p.denominator) throw InputError("a probability must lie between 0 and 1");
  certain_ = p.numerator == p.denominator;
  const u128 scaled = static_cast<u128>(p.numerator) << 64;
  digit_ = certain_ ? 0 : static_cast<std::uint64_t>(scaled / denominator_);
  remainder_ = static_cast<std::uint64_t>(scaled % denominator_);
}

bool RationalCoin::flip_on(Generator& generator) const {
  std::uint64_t remainder = remainder_;
  while (remainder != 0) {
    const u128 scaled = static_cast<u128>(remainder) << 64;
    const auto digit = static_cast<std::uint64_t>(scaled / denominator_);
    remainder = static_cast<std::uint64_t>(scaled % denominator_);
    const std::uint64_t word = generator.bits64();
    if (word != digit) return word < digit;
  }
  return false;  // p has no digits left, the real number is not below it
}

ExponentialCoin::ExponentialCoin(std::uint64_t denominator) : denominator_(denominator) {
  require_rational({0, denominator});
  static const std::vector<std::uint64_t> table = exponential_table();
  table_ = table.data();
  shift_ = std::countl_zero(denominator);
  constexpr u128 kTop = (static_cast<u128>(1) << 127) - 1;
  reciprocal_ = static_cast<std::uint64_t>(kTop / (denominator << shift_));
}

ExponentialCoin::Bounds ExponentialCoin::bounds(std::uint64_t numerator) const {
  // 2^64 x, too small by less than 4: the reciprocal lacks less than 1 + 2^-63, times a numerator
  // below 2^64, over 2^63, plus the rounding.
  const auto x =
      static_cast<std::uint64_t>(static_cast<u128>(numerator << shift_) * reciprocal_ >> 63);
  const std::uint64_t r = x & ((std::uint64_t{1} << 56) - 1);
  std::uint64_t e = kOne - r / 10;  // r counts 2^-64, so r/5 in units of 2^-63
  e = kOne - high(static_cast<u128>(r) * e) / 4;
  e = kOne - high(static_cast<u128>(r) * e) / 3;
  e = kOne - high(static_cast<u128>(r) * e) / 2;
  e = kOne - high(static_cast<u128>(r) * e);
  const auto p = static_cast<std::uint64_t>(static_cast<u128>(table_[x >> 56]) * e >> 63);
  return {p - kMargin, p + kMargin};
}

bool ExponentialCoin::flip_fraction(std::uint64_t numerator, Generator& generator) const {
  if (numerator == 0) return true;
  const Bounds p = bounds(numerator);
  const std::uint64_t word = generator.bits64();
  // The real number lies in [leading, leading + 1) 2^-63.
  const std::uint64_t leading = word >> 1;
  if (leading < p.lower) return true;
  if (leading >= p.upper) return false;
  return below_exponential(word, numerator, denominator_, generator);
}

std::uint64_t ExponentialCoin::geometric(Generator& generator) {
  for (std::uint64_t successes = 0;; ++successes) {
    const std::uint64_t word = generator.bits64();
    if (word < kInverseE) continue;
    if (word > kInverseE) [[likely]]
      return successes;
    if (!below_exponential(word, 1, 1, generator)) return successes;
  }
}

bool ExponentialCoin::flip(u128 numerator, Generator& generator) const {
  if (numerator >= denominator_) {
    const u128 whole = numerator / denominator_;
    // All of the first `whole` exp(-1) coins succeed: P(V >= whole) = exp(-whole).
    if (geometric(generator) < whole) return false;
    numerator -= whole * denominator_;
  }
  return flip_fraction(static_cast<std::uint64_t>(numerator), generator);
}

bool below_exponential(std::uint64_t first, std::uint64_t numerator, std::uint64_t denominator,
                       Generator& generator) {
  if (numerator == 0) return true;
  Digits real{first, 0};  // one digit above the point, as in the series
  for (std::size_t places = 1;; ++places) {
    Series series = exponential_series(numerator, denominator, places);
    Digits error(places + 1, 0);
    error[0] = series.error;
    Digits upper = series.sum;
    add(upper, error);
    if (!less(real, upper)) return false;
    // The real number is below real + 1 unit.
    Digits ceiling = real;
    ++error[0];
    add(ceiling, error);
    if (!less(series.sum, ceiling)) return true;
    real.insert(real.begin(), generator.bits64());
  }
}

DiscreteLaplace::DiscreteLaplace(std::uint64_t numerator, u128 denominator)
    : numerator_(numerator),
      denominator_(denominator),
      coin_(std::clamp<std::uint64_t>(numerator, 1, kRationalLimit - 1)) {
  if (numerator == 0 || denominator == 0)
    throw InputError("the scale of the noise must be positive");
  if (numerator >= kRationalLimit || denominator >> 126 != 0)
    throw InputError(
        "the scale needs a numerator below 2^62 and a denominator below 2^126; use a simpler "
        "fraction");
  if (numerator > denominator << 56 && denominator >> 70 == 0)
    throw InputError(
        "the noise would be above 2^56 steps; give it a larger epsilon or use a coarser grid");
}

__int128 DiscreteLaplace::draw(Generator& generator) const {
  for (;;) {
    const std::uint64_t word = generator.below(2 * numerator_);
    const bool negative = word & 1;
    const std::uint64_t u = word >> 1;
    if (!coin_.flip_fraction(u, generator)) continue;
    const u128 x = u + static_cast<u128>(numerator_) * ExponentialCoin::geometric(generator);
    const u128 y = denominator_ == 1 ? x : x / denominator_;
    if (negative && y == 0) continue;  // 0 would come up twice as often
    return negative ? -static_cast<__int128>(y) : static_cast<__int128>(y);
  }
}

void add_discrete_laplace(std::span<std::int64_t> values, index_t cols,
                          std::span<const DiscreteLaplace> noises,
                          std::span<const std::int32_t> groups, const RandomSource& source,
                          int threads, Control& control) {
  if (values.empty()) return;
  const auto rows = static_cast<index_t>(values.size()) / cols;
  const auto count = static_cast<index_t>(noises.size()) / cols;
  if (count < 1) throw InputError("every attribute needs a scale");
  if (!groups.empty() && static_cast<index_t>(groups.size()) != rows)
    throw InputError("every row needs a group");
  for (const std::int32_t group : groups)
    if (group < 0 || group >= count) throw InputError("a row names a group that has no scale");
  const index_t grain = std::max<index_t>(1, kGrain / cols);
  parallel_for(rows, grain, threads, control, [&](index_t begin, index_t end) {
    Stream stream = source.stream(begin / grain);
    Generator& generator = stream;
    for (index_t i = begin; i < end; ++i) {
      const DiscreteLaplace* noise = noises.data() + (groups.empty() ? 0 : groups[i] * cols);
      for (index_t j = 0; j < cols; ++j) {
        std::int64_t& value = values[i * cols + j];
        constexpr __int128 kLow = std::numeric_limits<std::int64_t>::min();
        constexpr __int128 kHigh = std::numeric_limits<std::int64_t>::max();
        value =
            static_cast<std::int64_t>(std::clamp(value + noise[j].draw(generator), kLow, kHigh));
      }
    }
  });
}

namespace {

// The coin of a candidate: exp(-factor (max - score)).
class Preference {
 public:
  Preference(std::span<const std::int64_t> scores, Rational factor)
      : scores_(scores), numerator_(factor.numerator), coin_(factor.denominator) {
    require_rational(factor);
    if (scores.empty())
      throw InputError("there is nothing to choose from; give at least one score");
    best_ = static_cast<std::uint64_t>(*std::max_element(scores.begin(), scores.end()));
  }
  bool flip(std::size_t candidate, Generator& generator) const {
    // The difference of two int64 always fits when taken modulo 2^64.
    const std::uint64_t gap = best_ - static_cast<std::uint64_t>(scores_[candidate]);
    return coin_.flip(static_cast<u128>(gap) * numerator_, generator);
  }

 private:
  std::span<const std::int64_t> scores_;
  std::uint64_t numerator_;
  ExponentialCoin coin_;
  std::uint64_t best_;
};

}  // namespace

index_t permute_and_flip(std::span<const std::int64_t> scores, Rational factor,
                         Generator& generator) {
  const Preference preference(scores, factor);
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // The best candidate's coin never fails, so this ends before the candidates do.
  for (std::size_t left = order.size();; --left) {
    std::swap(order[generator.below(left)], order[left - 1]);
    if (preference.flip(order[left - 1], generator)) return static_cast<index_t>(order[left - 1]);
  }
}

index_t exponential_mechanism(std::span<const std::int64_t> scores, Rational factor,
                              Generator& generator) {
  const Preference preference(scores, factor);
  for (;;) {
    const std::size_t candidate = generator.below(scores.size());
    if (preference.flip(candidate, generator)) return static_cast<index_t>(candidate);
  }
}

void poisson_sample(std::span<std::uint8_t> kept, Rational p, const RandomSource& source,
                    int threads, Control& control) {
  const RationalCoin coin(p);
  parallel_for(static_cast<index_t>(kept.size()), kGrain, threads, control,
               [&](index_t begin, index_t end) {
                 Stream stream = source.stream(begin / kGrain);
                 for (index_t i = begin; i < end; ++i) kept[i] = coin.flip(stream);
               });
}

void poisson_sample_exponential(std::span<std::uint8_t> kept, Rational x,
                                const RandomSource& source, int threads, Control& control) {
  require_rational(x);
  const ExponentialCoin coin(x.denominator);
  parallel_for(static_cast<index_t>(kept.size()), kGrain, threads, control,
               [&](index_t begin, index_t end) {
                 Stream stream = source.stream(begin / kGrain);
                 for (index_t i = begin; i < end; ++i) kept[i] = !coin.flip(x.numerator, stream);
               });
}

ClusterSums cluster_sums(const MatrixView& U, const label_t* labels, index_t clusters, int bits,
                         Control& control) {
  require_quantisable(U, bits);
  const index_t d = U.cols;
  for (index_t i = 0; i < U.rows; ++i)
    if (labels[i] < 0 || labels[i] >= clusters)
      throw InputError("labels must lie in 0 .. clusters - 1; number the clusters 0, 1, 2, ...");
  const auto steps = static_cast<double>(std::int64_t{1} << bits);
  ClusterSums result{std::vector<std::int64_t>(clusters, 0),
                     std::vector<std::int64_t>(clusters * d, 0)};
  constexpr index_t kBlock = 4096;  // keeps labels and sums in cache over the attributes
  for (index_t begin = 0; begin < U.rows; begin += kBlock) {
    const index_t end = std::min(U.rows, begin + kBlock);
    for (index_t i = begin; i < end; ++i) ++result.sizes[labels[i]];
    for (index_t j = 0; j < d; ++j)
      for (index_t i = begin; i < end; ++i) result.sums[labels[i] * d + j] += code(U(i, j), steps);
    control.poll();
  }
  return result;
}

void quantise(const MatrixView& U, int bits, std::int64_t* out, int threads, Control& control) {
  require_quantisable(U, bits);
  const auto steps = static_cast<double>(std::int64_t{1} << bits);
  parallel_for(U.rows, kGrain, threads, control, [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i)
      for (index_t j = 0; j < U.cols; ++j) out[i * U.cols + j] = code(U(i, j), steps);
  });
}

}  // namespace dpmicro
