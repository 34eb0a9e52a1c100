// Exact coins, discrete Laplace noise and private selection. Integer arithmetic only: a floating
// point sampler leaks through the holes in its output (Mironov 2012), these have no such holes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel.hpp"
#include "random.hpp"
#include "types.hpp"

namespace dpmicro {

// numerator / denominator, both below 2^62, denominator above 0.
struct Rational {
  std::uint64_t numerator = 0;
  std::uint64_t denominator = 1;
};
inline constexpr std::uint64_t kRationalLimit = std::uint64_t{1} << 62;

// Coins that come up true with probability p, p rational.
//
// Guarantee: exact. A uniform real number is compared with p digit by digit to base 2^64; a digit
//   decides unless it equals p's.
// Requires: p a Rational from 0 to 1; InputError otherwise.
// Cost: one word; another with probability 2^-64.
class RationalCoin {
 public:
  explicit RationalCoin(Rational p);
  bool flip(Generator& generator) const {
    if (certain_) return true;
    const std::uint64_t word = generator.bits64();
    if (word != digit_) [[likely]]
      return word < digit_;
    return flip_on(generator);
  }

 private:
  bool flip_on(Generator& generator) const;
  std::uint64_t denominator_;
  std::uint64_t digit_;      // first digit of p to base 2^64
  std::uint64_t remainder_;  // p 2^64 = digit + remainder / denominator
  bool certain_;
};

// Coins that come up true with probability exp(-numerator / denominator), one denominator for many
// numerators.
//
// Guarantee: exact. exp(-(i + f)) is i coins of exp(-1) and one of exp(-f), 0 <= f < 1. For each, a
//   uniform real number R, drawn 64 bits at a time, is compared with exp(-f): the first word
//   against bounds from below and above that are proved to hold (exponential_bounds), and if R is
//   not outside them, against bounds from ever longer series and with ever more words of R
//   (below_exponential). The answer is the truth of R < exp(-f) in every case, so its probability
//   is exp(-f), not an approximation.
// Requires: 0 < denominator < 2^62; InputError otherwise.
// Source: the probabilities of Canonne, Kamath & Steinke 2020, Algorithm 1; drawn by comparison,
//   since their algorithm takes about four times the words.
// Cost: one word per coin and some ten multiplications; longer with probability 2^-52.
class ExponentialCoin {
 public:
  explicit ExponentialCoin(std::uint64_t denominator);
  bool flip(u128 numerator, Generator& generator) const;
  // The coin for a numerator below the denominator.
  bool flip_fraction(std::uint64_t numerator, Generator& generator) const;
  // Successes of exp(-1) coins before the first failure: P(V >= v) = exp(-v).
  static std::uint64_t geometric(Generator& generator);

  // lower <= 2^63 exp(-numerator / denominator) <= upper, for numerator < denominator.
  //
  // Guarantee: with ulp = 2^-63: the quotient x is at most 4 2^-64 too small (2 ulp); the table
  //   holds exp(-i/256) to 1 ulp; the series of exp(-r), r < 2^-8, stops after r^5/120, which
  //   leaves r^6/720 < 46 ulp, and its five roundings of at most 2 ulp shrink by r each; the last
  //   product rounds by 1 ulp. The sum is below 64 ulp; the bounds are 1024 ulp away.
  struct Bounds {
    std::uint64_t lower, upper;
  };
  Bounds bounds(std::uint64_t numerator) const;

 private:
  std::uint64_t denominator_;
  int shift_;                 // makes the denominator's top bit 1
  std::uint64_t reciprocal_;  // floor((2^127 - 1) / (denominator 2^shift))
  const std::uint64_t* table_;
};

// Is the real number with binary digits first, then the generator's, below
// exp(-numerator/denominator)?
//
// Guarantee: exact. exp(-x) = sum (-x)^k / k! in fixed point of 64, 128, 192, ... bits; every term
//   is rounded down and its error (below 6 units) carried along, so the partial sum and its error
//   enclose exp(-x). More bits of both sides until they are apart.
// Requires: 0 <= numerator <= denominator < 2^62, denominator > 0.
// Cost: with b bits, O(b^2 / log b) word operations; expected O(1) words.
bool below_exponential(std::uint64_t first, std::uint64_t numerator, std::uint64_t denominator,
                       Generator& generator);

// Noise y with P(y) = (1 - q)/(1 + q) q^|y|, q = exp(-1/scale), scale = numerator/denominator.
//
// Guarantee: exact, whole range of a 128-bit integer.
// Requires: 0 < numerator < 2^62, 0 < denominator < 2^126, scale at most 2^56; InputError
//   otherwise.
// Source: Canonne, Kamath & Steinke 2020, Algorithm 2. The sign is drawn together with the uniform
//   integer, which changes the order of independent draws only.
// Cost: about 5 words a draw, twice that for scales far below 1.
class DiscreteLaplace {
 public:
  DiscreteLaplace(std::uint64_t numerator, u128 denominator);
  __int128 draw(Generator& generator) const;

 private:
  std::uint64_t numerator_;
  u128 denominator_;
  ExponentialCoin coin_;
};

// values + noise, entry by entry; entry (i, j) gets noise of noises[groups[i] * cols + j].
//
// Guarantee: independent exact draws. Sums that leave the range of an int64 are set to its nearest
//   end: that is done to the noisy sum, so it reveals nothing (post-processing), and for scales up
//   to 2^56 and values up to 2^62 it happens with probability below exp(-64). The same result for
//   every number of threads under a seed.
// Requires: values is rows x cols in C order; groups is empty (all rows 0) or has rows entries,
//   each naming a group that noises has; InputError otherwise.
// Cost: a draw per entry.
void add_discrete_laplace(std::span<std::int64_t> values, index_t cols,
                          std::span<const DiscreteLaplace> noises,
                          std::span<const std::int32_t> groups, const RandomSource& source,
                          int threads, Control& control);

// Private selection: an index, a higher score being more likely. With factor = epsilon / (2
// sensitivity), the choice is epsilon-differentially private.
//
// Guarantee: exact. Permute and flip goes through the candidates in random order and takes each
//   with probability exp(-factor (max - score)); its expected score is never below the exponential
//   mechanism's, which draws a candidate with probability proportional to exp(-factor (max -
//   score)), here by rejection.
// Requires: at least one score; factor a Rational; InputError otherwise.
// Source: McKenna & Sheldon 2020, Algorithm 1 and Theorem 1; McSherry & Talwar 2007.
// Cost: at most n coins expected, usually far fewer; permute and flip needs n words of memory.
index_t permute_and_flip(std::span<const std::int64_t> scores, Rational factor,
                         Generator& generator);
index_t exponential_mechanism(std::span<const std::int64_t> scores, Rational factor,
                              Generator& generator);

// Which of n records a Poisson sample keeps (1) or not (0), each on its own: with probability p, or
// with probability 1 - exp(-x).
//
// Guarantee: exact and independent; the same for every number of threads under a seed.
// Source: PAPERS.md, SP: beta = 1 - exp(-epsilon) is irrational, so it is drawn as the complement
//   of an exponential coin instead of being rounded.
// Cost: one word per record (and per unit of x).
void poisson_sample(std::span<std::uint8_t> kept, Rational p, const RandomSource& source,
                    int threads, Control& control);
void poisson_sample_exponential(std::span<std::uint8_t> kept, Rational x,
                                const RandomSource& source, int threads, Control& control);

// Exact sums of the records of each cluster after every entry was put on a grid of 2^bits steps.
//
// Guarantee: code = nearest integer to u 2^bits (halves up), so codes lie in 0 .. 2^bits and
//   replacing one record moves an attribute's sum by at most 2^bits, exactly. sums is clusters x d
//   in C order. Integer sums, so no order of summation matters.
// Requires: entries of U in [0, 1], labels in 0 .. clusters - 1, 1 <= bits <= 40,
//   n 2^bits < 2^62; InputError otherwise.
// Source: PAPERS.md, "Noise, for all of them".
// Cost: n d.
struct ClusterSums {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> sums;
};
ClusterSums cluster_sums(const MatrixView& U, const label_t* labels, index_t clusters, int bits,
                         Control& control);

// out = nearest integer to u 2^bits, rows x cols in C order; as in cluster_sums.
void quantise(const MatrixView& U, int bits, std::int64_t* out, int threads, Control& control);

}  // namespace dpmicro
