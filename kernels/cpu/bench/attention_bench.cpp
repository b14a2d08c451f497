// How fast attention runs, against what the machine can do in the same minute.
//
//   cmake -S . -B build -DOCTAVO_BENCH=ON && cmake --build build --target attention_bench
//   build/attention_bench [--threads=N] [--isa=N] [--heads=9,3,64] [--window=N] [--only=prefill]
//
// Prefill is a prompt of 1,024 tokens in chunks of 512 over 30 layers; its operations are those of
// the pairs that a causal mask leaves. Decoding runs over as many layers as make 400 MB, so that
// each pass reads its keys and values from memory; their blocks lie scattered. Each case is timed
// between two measurements of its bound; the best pass and the best bound count.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include "../src/attention.h"

namespace {

using octavo::AttentionArgs;
using octavo::KvCache;
using octavo::ThreadPool;

constexpr int kBlockSize = 16;
constexpr int64_t kDecodeBytes = 400'000'000;

struct Options {
  int threads = 2, isa = OCTAVO_AVX512_BF16, passes = 5;
  int num_heads = 9, num_kv_heads = 3, head_dim = 64, window = 0;
  std::string only;
};

// With one thread it is that thread's time on a core, which others on the machine disturb less.
double now(bool one_thread) {
  timespec time;
  clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds_of(const ThreadPool& pool, const std::function<void()>& work) {
  const bool one_thread = pool.num_threads() == 1;
  const double start = now(one_thread);
  work();
  return now(one_thread) - start;
}

uint8_t* allocate(int64_t bytes) {
  constexpr size_t kPage = size_t{2} << 20;
  const size_t size = (static_cast<size_t>(bytes) + kPage - 1) / kPage * kPage;
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(kPage, size));
  if (memory == nullptr) std::abort();
  madvise(memory, size, MADV_HUGEPAGE);
  memset(memory, 0, size);
  return memory;
}

std::vector<float> random_floats(int64_t size) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> floats(size);
  for (float& x : floats) x = normal(generator);
  return floats;
}

// One step's requests, all alike, over `num_layers` caches that nothing else uses.
class Step {
public:
  Step(const Options& options, int dtype, int num_layers, int num_requests, int query_len,
       int seq_len)
      : options_(options), num_requests_(num_requests),
        max_blocks_((seq_len + kBlockSize - 1) / kBlockSize) {
    const int num_blocks = num_requests * max_blocks_;
    tables_.resize(num_blocks);
    std::iota(tables_.begin(), tables_.end(), 0);
    std::shuffle(tables_.begin(), tables_.end(), std::mt19937(1));
    const int64_t bytes = num_blocks * octavo::kv_block_bytes(dtype, options.num_kv_heads,
                                                              kBlockSize, options.head_dim);
    memory_ = allocate(bytes * num_layers);
    const auto rows = random_floats(2 * options.num_kv_heads * options.head_dim + 4096);
    for (int i = 0; i < num_layers; i++) {
      caches_.emplace_back(memory_ + i * bytes, dtype, num_blocks, options.num_kv_heads, kBlockSize,
                           options.head_dim);
      for (int64_t slot = 0; slot < int64_t{num_blocks} * kBlockSize; slot++)
        octavo::write_kv(caches_.back(), slot, &rows[slot * 7 % 1024],
                         &rows[slot * 5 % 1024 + 1024]);
    }
    const int64_t width = int64_t{options.num_heads} * options.head_dim;
    query_ = random_floats(num_requests * query_len * width);
    out_.resize(query_.size());
    set_lengths(query_len, seq_len);
  }
  ~Step() { std::free(memory_); }

  void set_lengths(int query_len, int seq_len) {
    starts_.clear();
    for (int r = 0; r <= num_requests_; r++) starts_.push_back(r * query_len);
    lengths_.assign(num_requests_, seq_len);
  }

  void run(ThreadPool& pool) {
    AttentionArgs args{};
    const int64_t width = int64_t{options_.num_heads} * options_.head_dim;
    args.query = query_.data();
    args.out = out_.data();
    args.query_stride = args.out_stride = width;
    args.block_tables = tables_.data();
    args.seq_lens = lengths_.data();
    args.query_start_loc = starts_.data();
    args.num_tokens = starts_.back();
    args.num_requests = num_requests_;
    args.max_blocks = max_blocks_;
    args.num_heads = options_.num_heads;
    args.window = options_.window;
    args.scale = 0.125f;
    args.isa = options_.isa;
    for (const KvCache& cache : caches_) {
      args.cache = &cache;
      octavo::attend(pool, args, workspace_);
    }
  }

  int64_t bytes() const {
    return static_cast<int64_t>(caches_.size()) * caches_[0].num_blocks * caches_[0].block_bytes;
  }
  const uint8_t* memory() const { return memory_; }

private:
  const Options& options_;
  const int num_requests_, max_blocks_;
  uint8_t* memory_;
  std::vector<KvCache> caches_;
  std::vector<int32_t> tables_, lengths_, starts_;
  std::vector<float> query_, out_;
  octavo::AttentionWorkspace workspace_;
};

// GB/s at which all threads read the memory, in pieces of 1 MB.
double read_rate(ThreadPool& pool, const uint8_t* memory, int64_t bytes) {
  constexpr int64_t kPart = 1 << 20;
  std::vector<uint64_t> sums(bytes / kPart);
  const double seconds = seconds_of(pool, [&] {
    pool.run(bytes / kPart, [&](int64_t i, int) {
      uint64_t lanes[32] = {};
      const auto* words = reinterpret_cast<const uint64_t*>(memory + i * kPart);
      for (int64_t j = 0; j < kPart / 8; j += 32)
        for (int k = 0; k < 32; k++) lanes[k] += words[j + k];
      sums[i] = std::accumulate(lanes, lanes + 32, uint64_t{0});
    });
  });
  if (std::accumulate(sums.begin(), sums.end(), uint64_t{0}) == 42) std::abort();
  return static_cast<double>(bytes) / seconds / 1e9;
}

// GFLOP/s of VDPBF16PS, or of whatever product the target has.
double product_rate(ThreadPool& pool) {
  constexpr int64_t kSteps = 2'000'000;
  constexpr int kChains = 12;
#ifdef __AVX512BF16__
  const double seconds = seconds_of(pool, [&] {
    pool.run(pool.num_threads(), [&](int64_t, int) {
      __m512 chains[kChains] = {};
      const auto zero = (__m512bh)_mm512_setzero_si512();
      for (int64_t n = 0; n < kSteps; n++)
        for (__m512& chain : chains) {
          chain = _mm512_dpbf16_ps(chain, zero, zero);
          asm volatile("" : "+v"(chain));
        }
    });
  });
  return 64.0 * kChains * kSteps * pool.num_threads() / seconds / 1e9;
#else
  static_cast<void>(pool);
  return std::numeric_limits<double>::quiet_NaN();
#endif
}

void bench_prefill(const Options& options, ThreadPool& pool, int dtype) {
  constexpr int kLayers = 30, kPrompt = 1024, kChunk = 512;
  Step step(options, dtype, kLayers, 1, kChunk, kPrompt);
  double seconds = 1e9, bound = 0, pairs = 0;
  for (int row = 0; row < kPrompt; row++)
    pairs += options.window > 0 ? std::min(row + 1, options.window) : row + 1;
  for (int pass = 0; pass < options.passes; pass++) {
    bound = std::max(bound, product_rate(pool));
    double all = 0;
    for (int end = kChunk; end <= kPrompt; end += kChunk) {
      step.set_lengths(kChunk, end);
      all += seconds_of(pool, [&] { step.run(pool); });
    }
    seconds = std::min(seconds, all);
  }
  const double rate = pairs * options.num_heads * options.head_dim * 4 * kLayers / seconds / 1e9;
  std::printf(
      "prefill %-5s 1024 in 512s       %7.3f ms/token  %6.1f GFLOP/s  bound %6.1f  %3.0f %%\n",
      dtype == OCTAVO_INT8 ? "int8" : "bf16", seconds / kPrompt * 1e3, rate, bound,
      100 * rate / bound);
}

void bench_decode(const Options& options, ThreadPool& pool, int dtype, int num_requests,
                  int seq_len) {
  const int64_t block =
      octavo::kv_block_bytes(dtype, options.num_kv_heads, kBlockSize, options.head_dim);
  const int64_t layer = block * num_requests * ((seq_len + kBlockSize - 1) / kBlockSize);
  const int num_layers = static_cast<int>(kDecodeBytes / layer) + 1;
  Step step(options, dtype, num_layers, num_requests, 1, seq_len);
  double seconds = 1e9, bound = 0;
  for (int pass = 0; pass < options.passes; pass++) {
    bound = std::max(bound, read_rate(pool, step.memory(), step.bytes()));
    seconds = std::min(seconds, seconds_of(pool, [&] { step.run(pool); }));
  }
  const double rate = static_cast<double>(step.bytes()) / seconds / 1e9;
  std::printf("decode  %-5s %2d x %4d  %9.1f us/layer  %6.2f GB/s  bound %6.2f  %3.0f %%\n",
              dtype == OCTAVO_INT8 ? "int8" : "bf16", num_requests, seq_len,
              seconds / num_layers * 1e6, rate, bound, 100 * rate / bound);
}

bool read_option(const char* argument, const char* name, std::string* value) {
  const size_t length = strlen(name);
  if (strncmp(argument, name, length) != 0) return false;
  *value = argument + length;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i++) {
    std::string value;
    if (read_option(argv[i], "--threads=", &value)) options.threads = std::stoi(value);
    if (read_option(argv[i], "--isa=", &value)) options.isa = std::stoi(value);
    if (read_option(argv[i], "--passes=", &value)) options.passes = std::stoi(value);
    if (read_option(argv[i], "--window=", &value)) options.window = std::stoi(value);
    if (read_option(argv[i], "--only=", &value)) options.only = value;
    if (read_option(argv[i], "--heads=", &value) &&
        std::sscanf(value.c_str(), "%d,%d,%d", &options.num_heads, &options.num_kv_heads,
                    &options.head_dim) != 3)
      return 2;
  }
  ThreadPool pool(options.threads);
  for (const int dtype : {OCTAVO_BFLOAT16, OCTAVO_INT8})
    if (options.only.empty() || options.only == "prefill") bench_prefill(options, pool, dtype);
  for (const int dtype : {OCTAVO_BFLOAT16, OCTAVO_INT8})
    for (const int num_requests : {1, 8, 32})
      for (const int seq_len : {128, 512, 2048})
        if (options.only.empty() || options.only == "decode")
          bench_decode(options, pool, dtype, num_requests, seq_len);
}
