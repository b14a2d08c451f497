// Which token a row of logits gives.
//
//   logits ─► mask ─► temperature ─► top-k ─► top-p ─► min-p ─► draw
//
// kernels/reference/sampling.py is the definition. What is kept is always an upper part of one
// total order, by value and then by lower id, so that it is known from its last token alone:
//
//   key(id) = value, as an ordered integer : 32 | ~id : 32         kept = { id : key(id) >= last }
//
// Maxima of blocks say which parts of the row can matter. Sums are in float64 and their order is
// that of the ids, so the token is a function of the row and the parameters alone, and the same on
// all instruction sets.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

namespace octavo {

constexpr int32_t kNotFinite = -1;  // kernels.backend.NOT_FINITE

// How one row is picked from.
struct Pick {
  double temperature;  // below 1e-5: the likeliest token, the lowest id among equals
  int32_t top_k;       // 0 is all; 1 is as temperature 0
  double top_p;
  double min_p;
  double draw;  // uniform in [0, 1)

  bool greedy() const { return temperature < 1e-5 || top_k == 1; }
};

// The largest logit of some of a row's tokens; of all of them, its token is the greedy pick.
struct RowMax {
  float value = -std::numeric_limits<float>::infinity();
  int32_t token_id = 0;  // the lowest among equals; kNotFinite if any logit is NaN or infinite

  // Takes in another part of the row, in any order.
  void add(const RowMax& other) {
    if (token_id == kNotFinite || other.token_id == kNotFinite) {
      token_id = kNotFinite;
    } else if (other.value > value || (other.value == value && other.token_id < token_id)) {
      *this = other;
    }
  }
};

// Room for one thread's picks from rows of up to max_vocab_size tokens: about 9 bytes a token, of
// which most rows touch little.
class SamplingScratch {
public:
  explicit SamplingScratch(int64_t max_vocab_size);

  std::unique_ptr<float[]> maxima;   // [num_blocks]
  std::unique_ptr<float[]> ranked;   // [num_blocks]
  std::unique_ptr<double[]> sums;    // [num_blocks]
  std::unique_ptr<uint64_t[]> keys;  // [max_vocab_size]
};

// How the weights of a row are computed: 2^((value - maximum) * scale), and 0 below `floor`, below
// `min_weight` and below 2^-64.
struct Weighing {
  double maximum;
  double scale;  // log2(e) / temperature
  double min_weight;
  double floor;
};

constexpr int kSamplingBlock = 128;  // tokens; the last block of a row may have fewer

// Kernels of one instruction set.
struct SamplingKernels {
  // Takes values [count] of tokens first_id, first_id + 1, … into `running`; any count.
  void (*add_to_max)(const float* values, int64_t count, int32_t first_id, RowMax& running);
  // maxima[b] of each block, -infinity if that is all it has; false if a value is NaN or infinite.
  bool (*block_maxima)(const float* values, int64_t count, float* maxima);
  // As block_maxima, of those values whose bit in `mask` is set; -infinity takes the place of the
  // others in blocks that have any such value. False if one whose bit is set is NaN or infinite.
  bool (*masked_maxima)(float* values, int64_t count, const uint32_t* mask, float* maxima);
  // The sum of one block's weights, in an order that `count` alone decides.
  double (*sum_weights)(const float* values, int64_t count, const Weighing& weighing);
  // weights[i] of one block.
  void (*weigh)(const float* values, int64_t count, const Weighing& weighing, double* weights);
};

extern const SamplingKernels kPortableSampling;
extern const SamplingKernels kAvx2Sampling;
extern const SamplingKernels kAvx512Sampling;
const SamplingKernels& sampling_kernels(int isa);  // OctavoIsa

// The token of a row [vocab_size] among those whose bit is set in `mask` [(vocab_size + 31) / 32],
// or kNotFinite if one of those is NaN or infinite, or there is none. May change the others.
int32_t pick_allowed_token(const SamplingKernels& kernels, float* logits, int64_t vocab_size,
                           const uint32_t* mask, const Pick& pick, SamplingScratch& scratch);

// The token of a row [vocab_size], or kNotFinite if any logit is NaN or infinite.
int32_t pick_token(const SamplingKernels& kernels, const float* logits, int64_t vocab_size,
                   const Pick& pick, SamplingScratch& scratch);

}  // namespace octavo
