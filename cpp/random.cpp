#include "random.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <numeric>
#include <utility>

#if defined(_WIN32)
#include <windows.h>  // first: bcrypt.h needs its types

#include <bcrypt.h>
#else
#include <pthread.h>
#include <unistd.h>
#endif
#if defined(__linux__) || defined(__APPLE__)
#include <sys/random.h>  // getrandom, getentropy; other systems have getentropy in unistd.h
#endif

namespace dpmicro {

namespace detail {
std::atomic<std::uint64_t> forks{0};
}  // namespace detail

namespace {

#if defined(_WIN32)
void guard_against_fork() {}  // there is no fork
#else
void count_fork() { detail::forks.fetch_add(1, std::memory_order_relaxed); }

// Registers the fork guard once, before the first buffer of the process is filled.
void guard_against_fork() {
  static const bool guarded = pthread_atfork(nullptr, nullptr, &count_fork) == 0;
  if (!guarded) throw GeneratorError("the random generator could not be guarded against fork()");
}
#endif

void system_random(unsigned char* out, std::size_t count) {
#if defined(__linux__)
  while (count > 0) {
    const ssize_t got = getrandom(out, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw GeneratorError(
          "the system's random generator failed (getrandom); nothing was drawn, try again on a "
          "healthy system");
    out += got;
    count -= static_cast<std::size_t>(got);
  }
#elif defined(_WIN32)
  const NTSTATUS status =
      BCryptGenRandom(nullptr, out, static_cast<ULONG>(count), BCRYPT_USE_SYSTEM_PREFERRED_RNG);
  if (status < 0)
    throw GeneratorError(
        "the system's random generator failed (BCryptGenRandom); nothing was drawn, try again on a "
        "healthy system");
#else
  while (count > 0) {
    const std::size_t part = std::min<std::size_t>(count, 256);  // getentropy's limit
    if (getentropy(out, part) != 0)
      throw GeneratorError(
          "the system's random generator failed (getentropy); nothing was drawn, try again on a "
          "healthy system");
    out += part;
    count -= part;
  }
#endif
}

// A wipe that the compiler may not drop although nobody reads the memory again.
void wipe(std::span<std::uint64_t> words) {
  volatile std::uint64_t* word = words.data();
  for (std::size_t i = 0; i < words.size(); ++i) word[i] = 0;
}

// The seeds in force on this thread, as a stack. A bare pointer, which needs no destructor: see
// Stream.
struct Seed {
  SeededGenerator::Key key;
  std::uint32_t calls;
  Seed* below;
};
thread_local Seed* seeds = nullptr;

}  // namespace

Generator::~Generator() { wipe(std::span(buffer_).first(end_)); }

void Generator::refill() {
  guard_against_fork();
  // Small first, so that a handful of draws does not cost a large read.
  const std::size_t size = std::clamp<std::size_t>(2 * end_, 32, kWords);
  wipe(std::span(buffer_).first(end_));  // what a parent process left behind
  position_ = end_ = 0;                  // stays empty if generate throws
  forks_ = detail::forks.load(std::memory_order_relaxed);
  end_ = generate(std::span(buffer_).first(size));
}

std::size_t SystemGenerator::generate(std::span<std::uint64_t> words) {
  system_random(reinterpret_cast<unsigned char*>(words.data()), words.size_bytes());
  return words.size();
}

SeededGenerator::SeededGenerator(const Key& key, std::uint32_t call, std::uint64_t chunk)
    : state_{0x61707865,
             0x3320646e,
             0x79622d32,
             0x6b206574,
             key[0],
             key[1],
             key[2],
             key[3],
             key[4],
             key[5],
             key[6],
             key[7],
             0,
             static_cast<std::uint32_t>(chunk),
             static_cast<std::uint32_t>(chunk >> 32),
             call} {}

std::size_t SeededGenerator::generate(std::span<std::uint64_t> words) {
  // Sizes of refills are multiples of a block (8 words), so no block is cut.
  for (std::size_t w = 0; w < words.size(); w += 8) {
    std::array<std::uint32_t, 16> x = state_;
    const auto quarter = [&x](int a, int b, int c, int d) {
      x[a] += x[b], x[d] = std::rotl(x[d] ^ x[a], 16);
      x[c] += x[d], x[b] = std::rotl(x[b] ^ x[c], 12);
      x[a] += x[b], x[d] = std::rotl(x[d] ^ x[a], 8);
      x[c] += x[d], x[b] = std::rotl(x[b] ^ x[c], 7);
    };
    for (int round = 0; round < 10; ++round) {
      quarter(0, 4, 8, 12), quarter(1, 5, 9, 13), quarter(2, 6, 10, 14), quarter(3, 7, 11, 15);
      quarter(0, 5, 10, 15), quarter(1, 6, 11, 12), quarter(2, 7, 8, 13), quarter(3, 4, 9, 14);
    }
    for (int i = 0; i < 16; ++i) x[i] += state_[i];
    for (int i = 0; i < 8; ++i)
      words[w + i] = x[2 * i] | static_cast<std::uint64_t>(x[2 * i + 1]) << 32;
    ++state_[12];
  }
  return words.size();
}

std::size_t ScriptedGenerator::generate(std::span<std::uint64_t> words) {
  if (next_ == words_.size()) throw GeneratorError("the scripted words are used up");
  const std::size_t count = std::min(words.size(), words_.size() - next_);
  std::copy_n(words_.begin() + static_cast<index_t>(next_), count, words.begin());
  next_ += count;
  return count;
}

RandomSource RandomSource::current() {
  RandomSource source;
  if (seeds != nullptr) {
    source.key_ = seeds->key;
    source.call_ = seeds->calls++;
  }
  return source;
}

void push_seed(const SeededGenerator::Key& key) { seeds = new Seed{key, 0, seeds}; }

void pop_seed() {
  if (seeds != nullptr) delete std::exchange(seeds, seeds->below);
}

bool is_seeded() { return seeds != nullptr; }

void permutation(std::span<std::int64_t> out, Generator& generator, Control& control) {
  std::iota(out.begin(), out.end(), std::int64_t{0});
  for (std::size_t left = out.size(); left > 1; --left) {
    std::swap(out[left - 1], out[generator.below(left)]);
    if ((left & 0xFFFF) == 0) control.poll();
  }
}

}  // namespace dpmicro
