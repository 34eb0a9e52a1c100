// Sums of doubles without rounding.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace dpmicro {

// The exact sum of a changing set of doubles: fixed point over the whole range of double, in digits
// of 32 bits kept in 64-bit words, so that nothing is carried until the sum is read.
//
// Guarantee: value() is the exact sum correctly rounded (ties to even), whatever the order of
//   additions and subtractions; infinite only where the sum exceeds the range of double.
// Requires: finite terms, fewer than 2^31 of them present at a time.
// Source: the small superaccumulator of Neal, "Fast exact summation" (2015).
// Cost: three integer additions per term; some 100 ns per value().
class ExactSum {
 public:
  void add(double x) { accumulate(std::bit_cast<std::uint64_t>(x)); }
  void subtract(double x) { accumulate(std::bit_cast<std::uint64_t>(-x)); }

  double value() const {
    std::array<std::uint32_t, kDigits> digits;
    std::int64_t carry = 0;
    for (int i = 0; i < kDigits; ++i) {
      const std::int64_t v = words_[i] + carry;
      digits[i] = static_cast<std::uint32_t>(v);
      carry = v >> 32;
    }
    const bool negative = carry < 0;
    if (negative) {
      std::uint64_t one = 1;
      for (std::uint32_t& digit : digits) {
        one += static_cast<std::uint32_t>(~digit);
        digit = static_cast<std::uint32_t>(one);
        one >>= 32;
      }
    }
    int top = kDigits - 1;
    while (top >= 0 && digits[top] == 0) --top;
    if (top < 0) return 0;
    const auto digit = [&](int i) { return i < 0 ? 0U : digits[i]; };
    unsigned __int128 head = digit(top);
    head = (head << 32 | digit(top - 1)) << 32 | digit(top - 2);
    bool below = false;
    for (int i = top - 3; i >= 0 && !below; --i) below = digits[i] != 0;
    const int shift = 64 + std::bit_width(digits[top]) - 53;
    auto mantissa = static_cast<std::uint64_t>(head >> shift);
    const unsigned __int128 half = static_cast<unsigned __int128>(1) << (shift - 1);
    const unsigned __int128 rest = head & (2 * half - 1);
    if (rest > half || (rest == half && (below || (mantissa & 1) != 0))) ++mantissa;
    const double magnitude =
        std::ldexp(static_cast<double>(mantissa), 32 * (top - 2) + shift - kLowest);
    return negative ? -magnitude : magnitude;
  }

 private:
  static constexpr int kDigits = 68;    // (2046 + 53) / 32, and room for the carries of 2^31 terms
  static constexpr int kLowest = 1074;  // the last bit of the smallest double is 2^-1074

  void accumulate(std::uint64_t bits) {
    const std::uint64_t exponent = bits >> 52 & 0x7FF;
    std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
    if (exponent != 0) mantissa |= std::uint64_t{1} << 52;
    const std::uint64_t position = exponent == 0 ? 0 : exponent - 1;
    const unsigned __int128 shifted = static_cast<unsigned __int128>(mantissa) << (position & 31);
    const std::int64_t sign = (bits >> 63) != 0 ? -1 : 1;
    std::int64_t* word = words_.data() + (position >> 5);
    word[0] += sign * static_cast<std::int64_t>(static_cast<std::uint32_t>(shifted));
    word[1] += sign * static_cast<std::int64_t>(static_cast<std::uint32_t>(shifted >> 32));
    word[2] += sign * static_cast<std::int64_t>(static_cast<std::uint32_t>(shifted >> 64));
  }

  std::array<std::int64_t, kDigits> words_{};
};

}  // namespace dpmicro
