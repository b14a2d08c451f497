#include "thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "cpu_clock.h"

#ifdef OCTAVO_X86
#include <immintrin.h>
#endif

namespace octavo {
namespace {

constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr uint64_t kInside = kOpen - 1;
constexpr int kJobShift = 32;

// Long enough for the gap between two jobs of a step, short beside one between two steps.
constexpr auto kSpin = std::chrono::microseconds(50);
// From then on whoever else wants the core gets it at once. Long enough for the gap between two
// steps of a busy engine: to wake up from sleep takes a good part of the fastest steps.
constexpr auto kYield = std::chrono::microseconds(500);

void relax() {
#ifdef OCTAVO_X86
  _mm_pause();
#endif
}

// Spins until done() holds; false if it did not within kSpin. The clock is read now and then only.
template <class Done>
bool spin_until(Done done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; i++) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// The same within kYield, behind all other threads that want the core.
template <class Done>
bool yield_until(Done done) {
  const auto end = std::chrono::steady_clock::now() + kYield;
  do {
    if (done()) return true;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads), ranges_(new Range[num_threads]) {
  for (int thread = 1; thread < num_threads; thread++)
    workers_.emplace_back([this, thread] {
      pthread_setname_np(pthread_self(), "octavo-kernels");
      serve(thread);
    });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  wake_count_.fetch_add(1);
  wake_all(wake_count_);
  for (std::thread& worker : workers_) worker.join();
}

double ThreadPool::workers_cpu_seconds() const {
  double seconds = 0.0;
  for (const std::thread& worker : workers_) {
    clockid_t clock;
    auto handle = const_cast<std::thread&>(worker).native_handle();
    if (pthread_getcpuclockid(handle, &clock) == 0) seconds += seconds_of(clock);
  }
  return seconds;
}

void ThreadPool::run_job(int64_t count, Job job) {
  job_ = job;
  for (int t = 0; t < num_threads_; t++) {
    ranges_[t].next.store(count * t / num_threads_, std::memory_order_relaxed);
    ranges_[t].end = count * (t + 1) / num_threads_;
  }
  const uint64_t number = (gate_.load(std::memory_order_relaxed) >> kJobShift) + 1;
  gate_.store(number << kJobShift | kOpen);
  if (num_sleeping_.load() > 0) {
    wake_count_.fetch_add(1);
    wake_all(wake_count_);
  }
  take_items(0);
  // All items are taken. Close the gate, so that a late worker stays out, and wait for those
  // inside.
  gate_.fetch_and(~kOpen);
  const auto empty = [this] { return (gate_.load(std::memory_order_acquire) & kInside) == 0; };
  while (!spin_until(empty)) std::this_thread::yield();
}

void ThreadPool::take_items(int thread) {
  for (int i = 0; i < num_threads_; i++) {
    Range& range = ranges_[(thread + i) % num_threads_];
    for (;;) {
      const int64_t item = range.next.fetch_add(1, std::memory_order_relaxed);
      if (item >= range.end) break;
      job_.call(job_.work, item, thread);
    }
  }
}

// The gate of a job later than that of `seen`, while it is open; 0 when the pool ends.
uint64_t ThreadPool::next_open_gate(uint64_t seen) {
  uint64_t gate = 0;
  const auto opened = [&] {
    gate = gate_.load();
    return ((gate & kOpen) != 0 && gate >> kJobShift != seen >> kJobShift) || stopping_.load();
  };
  while (!spin_until(opened) && !yield_until(opened)) {
    num_sleeping_.fetch_add(1);
    // Read before the last look: a job that opens after it changes the count, and sleep ends.
    const uint32_t count = wake_count_.load();
    if (!opened()) sleep_while(wake_count_, count);
    num_sleeping_.fetch_sub(1);
  }
  return stopping_.load() ? 0 : gate;
}

void ThreadPool::serve(int thread) {
  uint64_t gate = 0;
  while ((gate = next_open_gate(gate)) != 0) {
    uint64_t entered = gate;
    while ((entered & kOpen) != 0 && entered >> kJobShift == gate >> kJobShift) {
      if (!gate_.compare_exchange_weak(entered, entered + 1)) continue;
      take_items(thread);
      gate_.fetch_sub(1, std::memory_order_release);
      break;
    }
  }
}

}  // namespace octavo
