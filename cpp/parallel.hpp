// Loops over several threads whose results do not depend on the number of threads; progress and
// cancellation of long computations.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "types.hpp"

namespace dpmicro {

// A long computation's line to whoever started it. Only the thread that called into the core may
// call poll(); it throws Cancelled when the caller wants to stop. The base class never does.
class Control {
 public:
  virtual ~Control() = default;
  // Cheap enough to call every few thousand operations; call it at least every 100 ms of work.
  virtual void poll() {}
  // Share of the work that is done, 0 to 1; implies poll().
  virtual void progress(double) { poll(); }
};

// 0 means as many as the machine has.
inline int resolve_threads(int threads) {
  if (threads < 0) throw InputError("threads must be 0 (all cores) or a positive number");
  if (threads > 0) return threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Runs work(caller) on several threads, the calling one among them; the first exception sets `stop`
// and reaches the caller when all have ended.
template <class Work>
void on_threads(int workers, std::atomic<bool>& stop, Work&& work) {
  std::exception_ptr first;
  std::mutex first_mutex;
  const auto guarded = [&](auto&& act) {
    try {
      act();
    } catch (...) {
      const std::lock_guard lock(first_mutex);
      if (!first) first = std::current_exception();
      stop.store(true, std::memory_order_relaxed);
    }
  };
  std::vector<std::thread> others;
  guarded([&] {  // the system may refuse a thread; those that started must still be joined
    others.reserve(workers - 1);
    for (int t = 1; t < workers; ++t) others.emplace_back([&] { guarded([&] { work(false); }); });
  });
  guarded([&] { work(true); });
  for (std::thread& thread : others) thread.join();
  if (first) std::rethrow_exception(first);
}

// Calls body(begin, end) for the chunks [0, grain), [grain, 2 grain), ... of [0, count).
//
// Guarantee: the chunks depend on count and grain only, so a body that writes only what belongs to
//   its chunk gives the same result for every number of threads. An exception in a body stops the
//   other threads at their next chunk and reaches the caller (the first one thrown). Cancellation
//   likewise.
// Requires: bodies of different chunks may run at the same time. Only the calling thread polls, so
//   a chunk should take less than 100 ms.
// Cost: starts threads - 1 threads (some 20 us each); none when there is one chunk.
template <class Body>
void parallel_for(index_t count, index_t grain, int threads, Control& control, Body&& body) {
  if (count <= 0) return;
  const index_t chunks = (count + grain - 1) / grain;
  const int workers = static_cast<int>(std::min<index_t>(resolve_threads(threads), chunks));
  std::atomic<index_t> next{0};
  std::atomic<bool> stop{false};
  on_threads(workers, stop, [&](bool caller) {
    while (!stop.load(std::memory_order_relaxed)) {
      const index_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) break;
      body(chunk * grain, std::min(count, (chunk + 1) * grain));
      if (caller) control.poll();
    }
  });
}

// Calls body(i, threads, control) for every i in [0, count): long tasks, several at a time, each
// with its share of the threads.
//
// Guarantee: as parallel_for; a task's own control tells it to stop when another one fails or the
//   caller wants to stop. Only what runs on the calling thread reports progress.
template <class Body>
void parallel_each(index_t count, int threads, Control& control, Body&& body) {
  const int all = resolve_threads(threads);
  const int workers = static_cast<int>(std::min<index_t>(all, count));
  std::atomic<index_t> next{0}, done{0};
  std::atomic<bool> stop{false};

  class Own final : public Control {
   public:
    Own(const std::atomic<bool>& stop, Control* caller) : stop_(stop), caller_(caller) {}
    void poll() override {
      if (stop_.load(std::memory_order_relaxed)) throw Cancelled();
      if (caller_ != nullptr) caller_->poll();
    }
    void progress(double share) override {
      poll();
      if (caller_ != nullptr) caller_->progress(share);
    }

   private:
    const std::atomic<bool>& stop_;
    Control* caller_;
  };

  on_threads(workers, stop, [&](bool caller) {
    Own own(stop, caller ? &control : nullptr);
    for (index_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count; ++done)
      body(i, all / workers, own);
    // The others may be far from done, and only this thread hears of Ctrl-C.
    while (caller && done.load() < count) {
      own.poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

}  // namespace dpmicro
