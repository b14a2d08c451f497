// How fast the matrix kernels run, against what the machine can do in the same minute.
//
//   cmake -S . -B build -DOCTAVO_BENCH=ON && cmake --build build --target matrix_bench
//   build/matrix_bench [--isa=N] [--threads=N] [--passes=N] [--formats=int8,…] [--rows=1,8,…]
//
// The matrices have the shapes of SmolLM2-135M's layers, as many layers as make 250 MB, so that
// every pass reads them from memory. Each thread walks its own half of each matrix's blocks. Passes
// of a case alternate with a plain read of the same memory; the best of each counts. `of bound` is
// the time that the faster of memory and arithmetic could not beat, over the time taken.
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "../src/abi.h"
#include "../src/matrix.h"

namespace {

using octavo::kBlockRows;
using octavo::MatrixFormat;

struct Shape {
  int64_t rows, cols;
};
constexpr Shape kLayer[] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};
constexpr int64_t kMinBytes = 250'000'000;

struct Case {
  const char* name;
  MatrixFormat format;
  int32_t group;
};
constexpr Case kCases[] = {
    {"bf16", octavo::kFormatBFloat16, 0},           {"int8", octavo::kFormatInt8, 0},
    {"group8-32", octavo::kFormatGroup8, 32},       {"group4-32", octavo::kFormatGroup4, 32},
    {"group4-64", octavo::kFormatGroup4, 64},       {"group4min-32", octavo::kFormatGroup4Min, 32},
    {"group4min-64", octavo::kFormatGroup4Min, 64},
};

// Memory in pages of 2 MB where the system has them, filled with numbers of ordinary size in each
// of the formats.
uint8_t* allocate(int64_t bytes) {
  constexpr size_t kPage = size_t{2} << 20;
  const size_t size = (static_cast<size_t>(bytes) + kPage - 1) / kPage * kPage;
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(kPage, size));
  if (memory == nullptr) std::abort();
  madvise(memory, size, MADV_HUGEPAGE);
  for (size_t i = 0; i < size; i++) memory[i] = static_cast<uint8_t>(0x30 + (i * 7 >> 3) % 8);
  return memory;
}

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Starts body(thread) on all threads together. The largest processor time of one, in seconds: on a
// shared machine a thread may have to wait for its core.
double seconds(int num_threads, const std::function<void(int)>& body) {
  std::atomic<int> waiting{num_threads};
  std::vector<std::thread> threads;
  std::vector<double> taken(num_threads);
  for (int t = 0; t < num_threads; t++)
    threads.emplace_back([&, t] {
      waiting--;
      while (waiting > 0) _mm_pause();
      const double start = cpu_seconds();
      body(t);
      taken[t] = cpu_seconds() - start;
    });
  for (auto& thread : threads) thread.join();
  return *std::max_element(taken.begin(), taken.end());
}

std::atomic<int64_t> sink{0};

__attribute__((target("avx512f"))) void read(const uint8_t* p, int64_t bytes) {
  __m512i sums[4] = {};
  for (int64_t i = 0; i + 256 <= bytes; i += 256)
    for (int j = 0; j < 4; j++)
      sums[j] = _mm512_add_epi64(sums[j], _mm512_load_si512(p + i + j * 64));
  int64_t lanes[8];
  for (__m512i sum : sums) {
    _mm512_storeu_si512(lanes, sum);
    for (int64_t lane : lanes) sink += lane;
  }
}

// Twelve chains of one instruction, which touch no memory. Counts operations: product and sum.
#define OCTAVO_CHAIN(op, i) op " %%zmm31, %%zmm30, %%zmm" #i "\n"
#define OCTAVO_PEAK(name, op, ops_per_lane)                                                        \
  double name() {                                                                                  \
    constexpr int64_t kSteps = 2'000'000;                                                          \
    int64_t n = kSteps;                                                                            \
    asm volatile(                                                                                  \
        "vpxord %%zmm30, %%zmm30, %%zmm30\nvpxord %%zmm31, %%zmm31, %%zmm31\n1:\n" OCTAVO_CHAIN(   \
            op, 0) OCTAVO_CHAIN(op, 1) OCTAVO_CHAIN(op, 2) OCTAVO_CHAIN(op, 3) OCTAVO_CHAIN(op, 4) \
            OCTAVO_CHAIN(op, 5) OCTAVO_CHAIN(op, 6) OCTAVO_CHAIN(op, 7) OCTAVO_CHAIN(op, 8)        \
                OCTAVO_CHAIN(op, 9) OCTAVO_CHAIN(op, 10) OCTAVO_CHAIN(op, 11) "dec %0\njnz 1b\n"   \
        : "+r"(n)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
          "xmm10", "xmm11", "cc");                                                                 \
    return 12.0 * kSteps * 16 * ops_per_lane;                                                      \
  }
OCTAVO_PEAK(int8_chains, "vpdpbusd", 8)
OCTAVO_PEAK(bf16_chains, "vdpbf16ps", 4)
OCTAVO_PEAK(fp32_chains, "vfmadd231ps", 2)

double peak(int num_threads, double (*chains)()) {
  std::vector<double> ops(num_threads);
  const double time = seconds(num_threads, [&](int t) { ops[t] = chains(); });
  double total = 0;
  for (double x : ops) total += x;
  return total / time;
}

struct Model {
  std::vector<OctavoMatrixMultiply> calls;  // one a matrix
  int64_t bytes = 0;
  double weights = 0;
};

Model make_model(const Case& c, const uint8_t* memory, int isa) {
  Model model;
  while (model.bytes < kMinBytes)
    for (const Shape& shape : kLayer) {
      OctavoMatrixMultiply call{};
      call.data = memory + model.bytes;
      call.num_blocks = shape.rows / kBlockRows;
      call.format = c.format;
      call.cols = static_cast<int32_t>(shape.cols);
      call.group = c.group;
      call.out_stride = shape.rows;
      call.isa = isa;
      model.calls.push_back(call);
      model.bytes += call.num_blocks * octavo::block_bytes(c.format, shape.cols, c.group);
      model.weights += static_cast<double>(shape.rows * shape.cols);
    }
  return model;
}

struct Activations {
  uint8_t* values;
  float* scales;
  int32_t* sums;
  float* out;
};

void run_model(const Model& model, const Activations& a, int64_t num_rows, int thread,
               int num_threads) {
  for (OctavoMatrixMultiply call : model.calls) {
    call.bf16 = a.values;
    call.int8 = reinterpret_cast<int8_t*>(a.values);
    call.scales = a.scales;
    call.sums = a.sums;
    call.first_block = call.num_blocks * thread / num_threads;
    call.count = call.num_blocks * (thread + 1) / num_threads - call.first_block;
    call.out = a.out + call.first_block * kBlockRows;
    call.num_rows = num_rows;
    if (octavo_matrix_multiply(&call) != OCTAVO_OK) std::abort();
  }
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

std::string option(int argc, char** argv, const std::string& name, const std::string& fallback) {
  const std::string prefix = "--" + name + "=";
  for (int i = 1; i < argc; i++)
    if (std::string(argv[i]).rfind(prefix, 0) == 0) return argv[i] + prefix.size();
  return fallback;
}

}  // namespace

int main(int argc, char** argv) {
  const int isa = std::stoi(option(argc, argv, "isa", "3"));
  const int num_threads = std::stoi(option(argc, argv, "threads", "2"));
  const int passes = std::stoi(option(argc, argv, "passes", "5"));
  const auto formats = split(option(argc, argv, "formats", "bf16,int8,group4-32,group4-64"));
  const auto rows = split(option(argc, argv, "rows", "1,2,4,8,16,32,128,512"));
  if (!octavo_isa_supported(isa)) {
    std::fprintf(stderr, "isa %d is not available here\n", isa);
    return 1;
  }
  uint8_t* memory = allocate(kMinBytes + (int64_t{16} << 20));
  int64_t max_rows = 1;
  for (const auto& text : rows) max_rows = std::max<int64_t>(max_rows, std::stoll(text));
  const Activations a{allocate(max_rows * 1536 * 2),
                      reinterpret_cast<float*>(allocate(max_rows * 1536 / 8)),
                      reinterpret_cast<int32_t*>(allocate(max_rows * 1536 / 8)),
                      reinterpret_cast<float*>(allocate(max_rows * 3072 * 4))};
  std::memset(a.sums, 0, static_cast<size_t>(max_rows * 1536 / 8));

  std::printf("%-13s %4s %8s %8s %9s %9s %9s\n", "format", "rows", "GB/s", "of read", "GOP/s",
              "of peak", "of bound");
  for (const Case& c : kCases) {
    if (std::find(formats.begin(), formats.end(), c.name) == formats.end()) continue;
    const Model model = make_model(c, memory, isa);
    for (const auto& text : rows) {
      const int64_t num_rows = std::stoll(text);
      double best = 1e9, read_best = 1e9, peak_best = 0;
      for (int pass = 0; pass < passes; pass++) {
        read_best = std::min(read_best, seconds(num_threads, [&](int t) {
                               const int64_t part = model.bytes / num_threads / 64 * 64;
                               read(memory + part * t, part);
                             }));
        best = std::min(best, seconds(num_threads, [&](int t) {
                          run_model(model, a, num_rows, t, num_threads);
                        }));
        const bool bf16 = c.format == octavo::kFormatBFloat16;
        peak_best =
            std::max(peak_best, peak(num_threads, !bf16                       ? int8_chains
                                                  : isa == OCTAVO_AVX512_BF16 ? bf16_chains
                                                                              : fp32_chains));
      }
      const double ops = 2 * model.weights * static_cast<double>(num_rows);
      const double bytes = static_cast<double>(model.bytes);
      const double bound = std::max(read_best, ops / peak_best);
      std::printf("%-13s %4d %8.1f %7.0f%% %9.0f %8.0f%% %8.0f%%\n", c.name,
                  static_cast<int>(num_rows), bytes / best / 1e9, 100 * read_best / best,
                  ops / best / 1e9, 100 * ops / best / peak_best, 100 * bound / best);
      std::fflush(stdout);
    }
  }
  return 0;
}
