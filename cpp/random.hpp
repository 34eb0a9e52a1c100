// Randomness that protects people: the operating system's generator, and nothing else. A seeded
// generator exists for tests only; a release made with it is not private and says so.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "parallel.hpp"
#include "types.hpp"

namespace dpmicro {

using u128 = unsigned __int128;

namespace detail {
// Number of forks between the first process that drew and this one. A buffer filled before a fork
// is never read after it.
extern std::atomic<std::uint64_t> forks;
}  // namespace detail

// Independent uniform random bits, in words of 64.
//
// Guarantee: a word is handed out once and wiped from the buffer; what is left in the buffer is
//   thrown away in a forked child, so parent and child never draw the same words.
// Requires: one thread at a time per object (RandomSource::stream sees to that).
class Generator {
 public:
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  virtual ~Generator();

  std::uint64_t bits64() {
    if (position_ == end_ || forks_ != detail::forks.load(std::memory_order_relaxed)) [[unlikely]]
      refill();
    const std::uint64_t word = buffer_[position_];
    buffer_[position_++] = 0;
    return word;
  }

  // Uniform on 0 .. bound - 1.
  //
  // Guarantee: unbiased. word * bound / 2^64 hits every value floor(2^64 / bound) times once the
  //   2^64 mod bound words with the smallest low halves are rejected.
  // Requires: bound > 0.
  // Source: Lemire, Fast random integer generation in an interval, 2019, algorithm 5.
  // Cost: one word, seldom more; a division with probability bound / 2^64.
  std::uint64_t below(std::uint64_t bound) {
    u128 product = static_cast<u128>(bits64()) * bound;
    if (static_cast<std::uint64_t>(product) < bound) [[unlikely]] {
      const std::uint64_t rejected = (0 - bound) % bound;  // 2^64 mod bound
      while (static_cast<std::uint64_t>(product) < rejected)
        product = static_cast<u128>(bits64()) * bound;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

 protected:
  Generator() = default;
  // Fills the first words with fresh random bits and says how many (at least one), or throws
  // GeneratorError.
  virtual std::size_t generate(std::span<std::uint64_t> words) = 0;

 private:
  static constexpr std::size_t kWords = 1024;
  void refill();

  std::size_t position_ = 0;
  std::size_t end_ = 0;
  std::uint64_t forks_ = 0;
  std::array<std::uint64_t, kWords> buffer_{};
};

// The operating system's cryptographic generator: getrandom(2) on Linux, BCryptGenRandom on
// Windows, getentropy elsewhere, read in blocks of up to 8 KiB. There is no generator of our own in
// between and no fallback: GeneratorError when the system fails.
class SystemGenerator final : public Generator {
  std::size_t generate(std::span<std::uint64_t> words) override;
};

// ChaCha20 (RFC 8439 block function) under a fixed key: the same words in every run. Tests only.
class SeededGenerator final : public Generator {
 public:
  using Key = std::array<std::uint32_t, 8>;
  SeededGenerator(const Key& key, std::uint32_t call, std::uint64_t chunk);

 private:
  std::size_t generate(std::span<std::uint64_t> words) override;
  std::array<std::uint32_t, 16> state_;
};

// Hands out prepared words, then throws GeneratorError: shows in tests which words lead to which
// draw, so that exact probabilities can be enumerated.
class ScriptedGenerator final : public Generator {
 public:
  explicit ScriptedGenerator(std::vector<std::uint64_t> words) : words_(std::move(words)) {}

 private:
  std::size_t generate(std::span<std::uint64_t> words) override;
  std::vector<std::uint64_t> words_;
  std::size_t next_ = 0;
};

// The generator of one chunk of work on one thread: the system's, or under a seed one that belongs
// to the chunk. Use as a local variable; converts to Generator&. Not thread_local, although that
// would save small reads: MinGW runs the destructors of thread_local objects after it freed them.
class Stream {
 public:
  Stream() : generator_(std::make_unique<SystemGenerator>()) {}
  Stream(const SeededGenerator::Key& key, std::uint32_t call, std::uint64_t chunk)
      : generator_(std::make_unique<SeededGenerator>(key, call, chunk)) {}
  operator Generator&() { return *generator_; }
  Generator& operator*() { return *generator_; }
  Generator* operator->() { return generator_.get(); }

 private:
  std::unique_ptr<Generator> generator_;
};

// Where the streams of one computation come from. A binding takes RandomSource::current() on the
// calling thread and hands it to the core function, whose parallel_for bodies each open
// source.stream(number of the chunk); serial code opens source.stream().
//
// Guarantee: under a seed, the words depend on (seed, how many sources were taken under it, chunk)
//   only, so not on the number of threads, and no two computations share words. Without a seed,
//   every word is fresh from the system.
class RandomSource {
 public:
  RandomSource() = default;  // the system's
  // Seeded if a seed is in force on this thread, else the system's. Each call counts as a new
  // computation; take one per phase where a computation has several.
  static RandomSource current();

  bool seeded() const { return key_.has_value(); }
  Stream stream(index_t chunk = 0) const {
    return key_ ? Stream(*key_, call_, static_cast<std::uint64_t>(chunk)) : Stream();
  }

 private:
  std::optional<SeededGenerator::Key> key_;
  std::uint32_t call_ = 0;
};

// Seeds in force on this thread, the last one pushed first. For dpmicro_native.testing only.
void push_seed(const SeededGenerator::Key& key);
void pop_seed();
bool is_seeded();

// A uniformly random order of 0 .. count - 1.
//
// Guarantee: exact; every order has probability 1/count!.
// Source: Fisher-Yates with unbiased bounded integers.
// Cost: count words.
void permutation(std::span<std::int64_t> out, Generator& generator, Control& control);

}  // namespace dpmicro
