// What this machine can do at best, measured now: bytes read per second, and arithmetic in
// registers.
//
//   g++ -O3 -std=c++17 -march=native -pthread roof.cpp -o roof
//   roof [THREADS]        for 1 to THREADS threads; all CPUs by default
//   roof [THREADS] read   reading alone, by so many threads
//
// One line of JSON per number of threads. Memory is read for two seconds, as a decoder would: the
// median pass is what lasts, the best one what a quiet moment gives. A product and its sum count as
// two operations. What the compiler's target has no instruction for is null.
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMemoryBytes = size_t{768} << 20;  // far beyond any cache
constexpr double kReadSeconds = 2;
constexpr int kPeakRepeats = 3;
constexpr int kPeakSteps = 3'000'000;
constexpr int kChains = 12;  // independent sums, enough to hide an instruction's latency

// Seconds from the first thread's start to the last one's end, of body(thread).
double run_together(int num_threads, const std::function<void(int)>& body) {
  std::atomic<int> waiting{num_threads};
  std::vector<Clock::time_point> starts(num_threads), ends(num_threads);
  auto run = [&](int thread) {
    waiting.fetch_sub(1);
    while (waiting.load() > 0) {
      std::this_thread::yield();
    }
    starts[thread] = Clock::now();
    body(thread);
    ends[thread] = Clock::now();
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) {
    threads.emplace_back(run, i);
  }
  run(0);
  for (std::thread& thread : threads) {
    thread.join();
  }
  auto first = *std::min_element(starts.begin(), starts.end());
  auto last = *std::max_element(ends.begin(), ends.end());
  return std::chrono::duration<double>(last - first).count();
}

// Many sums, which the compiler adds up in whole vectors and none of which it can leave out.
uint64_t sum_words(const uint8_t* data, size_t bytes) {
  uint64_t sums[32] = {};
  for (size_t i = 0; i < bytes; i += sizeof sums) {
    const auto* words = reinterpret_cast<const uint64_t*>(data + i);
    for (int j = 0; j < 32; ++j) {
      sums[j] += words[j];
    }
  }
  return std::accumulate(std::begin(sums), std::end(sums), uint64_t{0});
}

struct ReadRate {
  double median, best;  // GB/s
};

// Each thread reads a contiguous part again and again, as for weights.
ReadRate read_rate(const uint8_t* memory, int num_threads) {
  size_t part = kMemoryBytes / num_threads & ~size_t{4095};
  std::atomic<uint64_t> total{0};
  std::vector<double> rates;
  auto end = Clock::now() + std::chrono::duration<double>(kReadSeconds);
  while (Clock::now() < end) {
    double seconds = run_together(
        num_threads, [&](int thread) { total += sum_words(memory + part * thread, part); });
    rates.push_back(static_cast<double>(part) * num_threads / seconds / 1e9);
  }
  std::sort(rates.begin(), rates.end());
  if (total == 0) {
    return {};  // never: it keeps the sums from being left out
  }
  return {rates[rates.size() / 2], rates.back()};
}

// Giga-operations per second of `operations_per_step` in kChains chains of `step`.
template <typename Vector, typename Step>
double peak_rate(int num_threads, int operations_per_step, Step step) {
  double best = 0;
  for (int i = 0; i < kPeakRepeats; ++i) {
    double seconds = run_together(num_threads, [&](int) {
      Vector chains[kChains] = {};
      for (int n = 0; n < kPeakSteps; ++n) {
        for (Vector& chain : chains) {
          chain = step(chain);
          asm volatile("" : "+v"(chain));  // neither left out nor joined with the next
        }
      }
    });
    double operations = 1.0 * num_threads * kPeakSteps * kChains * operations_per_step;
    best = std::max(best, operations / seconds / 1e9);
  }
  return best;
}

void print_peak(const char* name, double rate) {
  if (rate > 0) {
    std::printf(", \"%s\": %.1f", name, rate);
  } else {
    std::printf(", \"%s\": null", name);
  }
}

void print_peaks(int num_threads) {
  double int8 = 0, bf16 = 0, fp32 = 0;
#if defined(__AVX512VNNI__)
  int8 = peak_rate<__m512i>(num_threads, 128, [](__m512i sum) {
    return _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_set1_epi8(1));
  });
#endif
#if defined(__AVX512BF16__)
  bf16 = peak_rate<__m512>(num_threads, 64, [](__m512 sum) {
    const auto zero = (__m512bh)_mm512_setzero_si512();
    return _mm512_dpbf16_ps(sum, zero, zero);
  });
#endif
#if defined(__AVX512F__)
  fp32 = peak_rate<__m512>(num_threads, 32, [](__m512 sum) {
    return _mm512_fmadd_ps(_mm512_set1_ps(1), _mm512_set1_ps(1), sum);
  });
#elif defined(__FMA__)
  fp32 = peak_rate<__m256>(num_threads, 16, [](__m256 sum) {
    return _mm256_fmadd_ps(_mm256_set1_ps(1), _mm256_set1_ps(1), sum);
  });
#endif
  print_peak("int8_gop_s", int8);
  print_peak("bf16_gflop_s", bf16);
  print_peak("fp32_gflop_s", fp32);
}

}  // namespace

int main(int argc, char** argv) {
  int max_threads = static_cast<int>(std::thread::hardware_concurrency());
  bool arithmetic = true;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "read") {
      arithmetic = false;
    } else {
      max_threads = std::atoi(argv[i]);
    }
  }
  if (max_threads < 1) {
    std::fprintf(stderr, "roof [THREADS] [read]\n");
    return 2;
  }
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(size_t{2} << 20, kMemoryBytes));
  if (memory == nullptr) {
    std::fprintf(stderr, "no memory for %zu bytes\n", kMemoryBytes);
    return 1;
  }
  madvise(memory, kMemoryBytes, MADV_HUGEPAGE);
  std::memset(memory, 1, kMemoryBytes);
  for (int threads = arithmetic ? 1 : max_threads; threads <= max_threads; ++threads) {
    ReadRate read = read_rate(memory, threads);
    std::printf("{\"threads\": %d, \"read_gb_s\": %.2f, \"read_best_gb_s\": %.2f", threads,
                read.median, read.best);
    if (arithmetic) {
      print_peaks(threads);
    }
    std::printf("}\n");
    std::fflush(stdout);
  }
  std::free(memory);
}
