#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <new>

#include "isa.h"

namespace octavo {

namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr double kSmallest = 64.0;  // 2^-64 of the likeliest token is nothing, in float64

// Keys sorted at a time; larger sets are halved first.
constexpr int64_t kSortSize = 1024;

uint32_t ordered(float value) {
  value += 0.0f;  // -0 is 0
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

float value_of(uint64_t key) {
  uint32_t bits = static_cast<uint32_t>(key >> 32);
  bits = bits & 0x80000000u ? bits & 0x7fffffffu : ~bits;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

uint64_t key_of(float value, int64_t id) {
  return static_cast<uint64_t>(ordered(value)) << 32 | static_cast<uint32_t>(~id);
}

int64_t id_of(uint64_t key) {
  return static_cast<uint32_t>(~key);
}

// One row being picked from. Keys are compared downwards: the first is the likeliest token's.
class Row {
public:
  Row(const SamplingKernels& kernels, const float* logits, int64_t vocab_size, const Pick& pick,
      SamplingScratch& scratch)
      : kernels_(kernels), logits_(logits), size_(vocab_size),
        num_blocks_((vocab_size + kSamplingBlock - 1) / kSamplingBlock), pick_(pick),
        scratch_(scratch) {}

  // With the blocks' maxima in the scratch; blocks of maximum -infinity are not looked at.
  int32_t token() {
    maximum_ = *std::max_element(scratch_.maxima.get(), scratch_.maxima.get() + num_blocks_);
    if (maximum_ == -std::numeric_limits<double>::infinity()) return kNotFinite;
    if (pick_.greedy()) return likeliest();
    all_ = {maximum_, kLog2E / pick_.temperature, 0.0, value_at(kSmallest)};
    last_ = 0;
    const bool limits_count = pick_.top_k > 0 && pick_.top_k < size_;
    const int64_t num_kept = limits_count ? keep_likeliest(pick_.top_k) : 0;
    if (pick_.top_p < 1.0) keep_nucleus(num_kept);
    return draw();
  }

private:
  int32_t likeliest() const {
    int64_t b = 0;
    while (scratch_.maxima[b] != maximum_) b++;
    int64_t i = first(b);
    while (logits_[i] != maximum_) i++;
    return static_cast<int32_t>(i);
  }

  // A value whose weight is 2^-bits, or a little less.
  double value_at(double bits) const {
    const double value = maximum_ - bits * pick_.temperature / kLog2E;
    const double lowest = -std::numeric_limits<float>::max();
    return std::max(value - std::abs(value) * 1e-6, lowest);
  }

  // Collects the keys of values >= floor and returns their number.
  int64_t collect(double floor) {
    int64_t count = 0;
    for (int64_t b = 0; b < num_blocks_; b++) {
      if (scratch_.maxima[b] < floor) continue;
      for (int64_t i = first(b); i < first(b) + length(b); i++) {
        scratch_.keys[count] = key_of(logits_[i], i);
        count += logits_[i] >= floor;
      }
    }
    return count;
  }

  // Puts the keys that are kept first in the scratch and returns their number: top_k, or less where
  // a mask leaves less.
  int64_t keep_likeliest(int64_t top_k) {
    // As many blocks have a maximum of at least the top_k-th largest maximum.
    float floor = -std::numeric_limits<float>::max();
    if (top_k <= num_blocks_) {
      float* ranked = scratch_.ranked.get();
      std::copy_n(scratch_.maxima.get(), num_blocks_, ranked);
      std::nth_element(ranked, ranked + top_k - 1, ranked + num_blocks_, std::greater<float>());
      floor = std::max(ranked[top_k - 1], floor);
    }
    uint64_t* keys = scratch_.keys.get();
    const int64_t count = collect(floor);
    if (count < top_k) return count;  // the rest of the row is masked
    std::nth_element(keys, keys + top_k - 1, keys + count, std::greater<uint64_t>());
    last_ = keys[top_k - 1];
    return top_k;
  }

  // Keeps the smallest upper part whose weights reach top_p of all; of the first num_keys keys in
  // the scratch, or of the whole row if that is 0.
  void keep_nucleus(int64_t num_keys) {
    if (num_keys) {
      const double sum = sum_keys(0, num_keys);
      cut(num_keys, sum * pick_.top_p);
      return;
    }
    const double wanted = sum_blocks(all_) * pick_.top_p;
    // Most nuclei end within the first thousandth of the likeliest token's weight.
    for (const double bits : {10.0, 20.0, kSmallest}) {
      const int64_t count = collect(value_at(bits));
      if (bits == kSmallest || sum_keys(0, count) >= wanted) {
        cut(count, wanted);
        return;
      }
    }
  }

  // Sets `last_` to where the sum over the sorted keys [0, count) reaches `wanted`.
  void cut(int64_t count, double wanted) {
    uint64_t* keys = scratch_.keys.get();
    int64_t begin = 0, end = count;
    double sum = 0.0;  // of keys before `begin`
    while (end - begin > kSortSize) {
      const int64_t middle = begin + (end - begin) / 2;
      std::nth_element(keys + begin, keys + middle, keys + end, std::greater<uint64_t>());
      const double upper = sum_keys(begin, middle);
      if (sum + upper >= wanted) {
        end = middle;
      } else {
        sum += upper;
        begin = middle;
      }
    }
    std::sort(keys + begin, keys + end, std::greater<uint64_t>());
    for (int64_t i = begin; i < end; i++) {
      last_ = keys[i];
      sum += weight_of(last_);
      if (sum >= wanted) return;
    }
  }

  double sum_keys(int64_t begin, int64_t end) {
    double sum = 0.0;
    for (int64_t i = begin; i < end; i++) sum += weight_of(scratch_.keys[i]);
    return sum;
  }

  double weight_of(uint64_t key) {
    return std::exp2((static_cast<double>(value_of(key)) - all_.maximum) * all_.scale);
  }

  // The sums of all blocks into the scratch, and their sum.
  double sum_blocks(const Weighing& weighing) {
    double sum = 0.0;
    for (int64_t b = 0; b < num_blocks_; b++) {
      scratch_.sums[b] = 0.0;
      if (scratch_.maxima[b] < weighing.floor) continue;
      scratch_.sums[b] =
          cuts(b) ? sum_cut_block(b, weighing)
                  : kernels_.sum_weights(logits_ + first(b), length(b), after(b, weighing));
      sum += scratch_.sums[b];
    }
    return sum;
  }

  int32_t draw() {
    Weighing weighing = all_;
    weighing.min_weight = pick_.min_p;
    if (pick_.min_p > 0.0) weighing.floor = std::max(all_.floor, value_at(-std::log2(pick_.min_p)));
    if (last_) weighing.floor = std::max<double>(weighing.floor, value_of(last_));
    const double target = sum_blocks(weighing) * pick_.draw;
    double sum = 0.0;
    int64_t found = -1;
    for (int64_t b = 0; b < num_blocks_; b++) {
      if (scratch_.sums[b] == 0.0) continue;
      found = b;  // if rounding hides the place, it is in the last block that has any weight
      if (sum + scratch_.sums[b] > target) break;
      sum += scratch_.sums[b];
    }
    double weights[kSamplingBlock];
    weigh(found, weighing, weights);
    int64_t at = 0;
    for (int64_t i = 0; i < length(found); i++) {
      if (weights[i] == 0.0) continue;
      at = i;
      sum += weights[i];
      if (sum > target) break;
    }
    return static_cast<int32_t>(first(found) + at);
  }

  // Of values equal to the last one kept, only ids up to its own are kept.
  bool cuts(int64_t block) const { return last_ && id_of(last_) / kSamplingBlock == block; }

  Weighing after(int64_t block, Weighing weighing) const {
    if (last_ && id_of(last_) / kSamplingBlock < block) {
      const float next = std::nextafter(value_of(last_), std::numeric_limits<float>::infinity());
      weighing.floor = std::max<double>(weighing.floor, next);
    }
    return weighing;
  }

  void weigh(int64_t block, const Weighing& weighing, double* weights) {
    kernels_.weigh(logits_ + first(block), length(block), after(block, weighing), weights);
    if (!cuts(block)) return;
    for (int64_t i = id_of(last_) - first(block) + 1; i < length(block); i++)
      if (key_of(logits_[first(block) + i], first(block) + i) < last_) weights[i] = 0.0;
  }

  double sum_cut_block(int64_t block, const Weighing& weighing) {
    double weights[kSamplingBlock];
    weigh(block, weighing, weights);
    double sum = 0.0;
    for (int64_t i = 0; i < length(block); i++) sum += weights[i];
    return sum;
  }

  static int64_t first(int64_t block) { return block * kSamplingBlock; }
  int64_t length(int64_t block) const {
    return std::min<int64_t>(kSamplingBlock, size_ - first(block));
  }

  const SamplingKernels& kernels_;
  const float* logits_;
  const int64_t size_;
  const int64_t num_blocks_;
  const Pick& pick_;
  SamplingScratch& scratch_;
  double maximum_ = 0.0;
  Weighing all_{};
  uint64_t last_ = 0;  // key of the last token kept; 0 keeps all
};

}  // namespace

SamplingScratch::SamplingScratch(int64_t max_vocab_size) {
  const int64_t num_blocks = (max_vocab_size + kSamplingBlock - 1) / kSamplingBlock;
  // Not initialised, so that memory which no row needs is never touched.
  maxima.reset(new float[num_blocks]);
  ranked.reset(new float[num_blocks]);
  sums.reset(new double[num_blocks]);
  keys.reset(new uint64_t[max_vocab_size]);
}

const SamplingKernels& sampling_kernels(int isa) {
#ifdef OCTAVO_X86
  if (isa >= OCTAVO_AVX512) return kAvx512Sampling;
  if (isa >= OCTAVO_AVX2) return kAvx2Sampling;
#endif
  (void)isa;
  return kPortableSampling;
}

int32_t pick_token(const SamplingKernels& kernels, const float* logits, int64_t vocab_size,
                   const Pick& pick, SamplingScratch& scratch) {
  if (pick.greedy()) {
    RowMax found;
    kernels.add_to_max(logits, vocab_size, 0, found);
    return found.token_id;
  }
  if (!kernels.block_maxima(logits, vocab_size, scratch.maxima.get())) return kNotFinite;
  return Row(kernels, logits, vocab_size, pick, scratch).token();
}

int32_t pick_allowed_token(const SamplingKernels& kernels, float* logits, int64_t vocab_size,
                           const uint32_t* mask, const Pick& pick, SamplingScratch& scratch) {
  if (!kernels.masked_maxima(logits, vocab_size, mask, scratch.maxima.get())) return kNotFinite;
  return Row(kernels, logits, vocab_size, pick, scratch).token();
}

}  // namespace octavo

extern "C" int octavo_pick_tokens(const OctavoPickTokens* args) {
  using namespace octavo;
  if (!isa_supported(args->isa)) return OCTAVO_BAD_ISA;
  try {
    SamplingScratch scratch(args->vocab_size);
    const std::unique_ptr<float[]> masked(new float[args->vocab_size]);
    for (int64_t i = 0; i < args->num_rows; i++) {
      const Pick pick{args->temperature[i], args->top_k[i], args->top_p[i], args->min_p[i],
                      args->draw[i]};
      const SamplingKernels& kernels = sampling_kernels(args->isa);
      const float* logits = args->logits + i * args->vocab_size;
      if (args->masks) {
        std::copy_n(logits, args->vocab_size, masked.get());
        const uint32_t* mask = args->masks + i * ((args->vocab_size + 31) / 32);
        args->picked[i] =
            pick_allowed_token(kernels, masked.get(), args->vocab_size, mask, pick, scratch);
      } else {
        args->picked[i] = pick_token(kernels, logits, args->vocab_size, pick, scratch);
      }
    }
  } catch (const std::bad_alloc&) {
    return OCTAVO_OUT_OF_MEMORY;
  }
  return OCTAVO_OK;
}
