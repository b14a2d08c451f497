// A decoder as the C interface describes it, with the memory that its steps work in.
//
//   x ──norm──▶ rows ──qkv──▶ rope, KV write ──▶ attention ──▶ rows ──o──▶ + x
//   x ──norm──▶ rows ──gate, up, activation──▶ rows ──down──▶ + x              for each layer
//   x ──norm──▶ rows ──head──▶ picked tokens, logits
//
// "rows" is the step's activations in the form that the next matrix takes: bfloat16, or integers
// with a scale. Everything else is float32. Each arrow is one job of the thread pool over blocks of
// a matrix, rows, or parts of the attention.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "abi.h"
#include "aligned.h"
#include "attention.h"
#include "low_rank.h"
#include "matrix.h"
#include "rows.h"
#include "sampling.h"
#include "thread_pool.h"

namespace octavo {

// Below as many rows, handing out row operations costs more than doing them.
constexpr int64_t kSerialRows = 4;
constexpr int64_t kRowsPerItem = 4;
// A block is computed for all rows at once unless that leaves threads without work.
constexpr int64_t kItemsPerThread = 4;
constexpr int64_t kRowUnit = 12;  // rows of a kernel's tile
constexpr int64_t kRanksPerItem = 16;

// A matrix with its place among those of an adapter (OctavoLowRank); -1: adapters do not change it.
struct DecoderMatrix : PackedMatrix {
  int64_t place = -1;
};
enum AdaptedMatrix { kQkv = 0, kO = 1, kGateUp = 2, kDown = 3 };  // place % OCTAVO_ADAPTER_MATRICES

// Rows of a step that have the same adapter.
struct AdaptedRows {
  const LowRank* adapter;  // its matrices, [num_layers, matrices]
  int32_t count;
  int32_t rows[kAdaptedRows];
};

struct Layer {
  DecoderMatrix qkv, o, gate_up, down;
  const float* attn_norm;
  const float* q_norm;  // [head_dim], or null
  const float* k_norm;
  const float* post_attn_norm;  // or null
  const float* mlp_norm;
  const float* post_mlp_norm;
  int32_t rope;    // which of the step's tables
  int32_t window;  // 0: none
  int32_t index;
};

class Decoder {
public:
  explicit Decoder(const OctavoDecoderConfig& config);

  void set_kv(void* base, int32_t num_blocks, int32_t block_size, int32_t kv_dtype);

  // Throws std::bad_alloc; then the slot is as it was.
  void set_adapter(int32_t slot, const OctavoLowRank* matrices);

  // Returns an OctavoStatus. Nothing is computed, and no KV written, if the step is refused.
  int step(OctavoStep& step);

  const double* phase_seconds() const { return phase_seconds_; }  // [OCTAVO_NUM_PHASES]

private:
  int check(OctavoStep& step) const;
  void reserve(const OctavoStep& step);
  void find_adapted_rows(const OctavoStep& step);
  void embed(const OctavoStep& step);
  void fill_rope_tables(const OctavoStep& step);
  void attend_layer(const Layer& layer, const OctavoStep& step);
  void feed_forward(const Layer& layer);
  void give_hidden(const OctavoStep& step);
  void select(OctavoStep& step);
  void gather_wanted(const OctavoStep& step, int64_t num_wanted);
  void compute_logits(const OctavoStep& step, int64_t num_wanted);

  // Counts the time since the last call, or the step's begin, to a phase.
  void lap(OctavoPhase phase);
  const float* padded(const float* weights, int64_t length);
  AttentionArgs attention_args(int32_t layer, const OctavoStep& step) const;
  void turn_heads(float* heads, int32_t num_heads, const float* norm, const float* cos);
  // Fills rows_ with `num_rows` rows of x, normed if there is a norm, in the form that `w` takes.
  void prepare(const DecoderMatrix& w, const float* x, int64_t stride, const float* norm,
               int64_t length, int64_t num_rows);
  void multiply(const DecoderMatrix& w, float* out, int64_t stride, bool add);
  void add_product(const DecoderMatrix& w, const float* post_norm);
  // Fills shrunk_ for a matrix that rows of x, as it takes them, will be multiplied with.
  void shrink(const DecoderMatrix& w, const float* x, int64_t stride);
  // Adds to a block's outputs, [num_rows, stride], what the rows' adapters add.
  void expand(const DecoderMatrix& w, int64_t block, int64_t first_row, int64_t num_rows,
              float* out, int64_t stride) const;
  // Calls work(block, first_row, num_rows, thread), cut so that all threads have something to do.
  template <class Work>
  void for_blocks(int64_t num_blocks, int64_t num_rows, const Work& work);
  template <class Work>
  void for_rows(int64_t num_rows, const Work& work);  // work(row)

  OctavoDecoderConfig config_;
  std::vector<Layer> layers_;
  DecoderMatrix head_, embed_;
  std::vector<AlignedArray<float>> norms_;
  std::vector<float> frequencies_;  // [num_ropes, head_dim / 2]
  std::vector<float> rope_scales_;
  const float* final_norm_ = nullptr;
  const MatrixKernels& matrix_;
  const RowKernels& row_;
  const SamplingKernels& sampling_;
  ThreadPool pool_;
  AttentionWorkspace attention_workspace_;
  std::vector<std::unique_ptr<SamplingScratch>> sampling_scratch_;  // by thread
  std::vector<KvCache> caches_;                                     // by layer
  std::vector<std::vector<LowRank>> adapters_;  // by slot: [num_layers, matrices], or none
  int64_t max_slots_ = 0;
  double phase_seconds_[OCTAVO_NUM_PHASES] = {};
  std::chrono::steady_clock::time_point lap_start_;

  // Floats from one row to the next, and where k and v begin in a row of qkv_.
  int64_t hidden_, attended_width_, inner_, k_offset_, v_offset_, qkv_width_, padded_vocab_;

  // The step's memory, [num_rows_] of each unless said.
  int64_t num_rows_ = 0;
  AlignedArray<float> x_, qkv_, attended_, gated_, added_, turned_, ropes_;
  AlignedArray<BFloat16> bf16_;
  AlignedArray<int8_t> int8_;
  AlignedArray<float> scales_;
  AlignedArray<int32_t> sums_;
  Rows rows_{};
  std::vector<AdaptedRows> adapted_rows_;  // of the step
  int64_t most_ranks_ = 0;                 // of all parts of any matrix of the step's adapters
  AlignedArray<float> shrunk_;             // [num_rows_, most_ranks_]
  AlignedArray<float> tiles_;              // [num_threads, num_rows_, 2, kBlockRows]
  AlignedArray<float> selected_;           // rows of x whose logits are wanted
  AlignedArray<float> drawn_;       // logits of rows that are drawn from, [.., padded vocabulary]
  std::vector<RowMax> largest_;     // [num_threads, rows of selected_]
  std::vector<int64_t> drawn_row_;  // of drawn_, by row of selected_; -1 for others
};

template <class Work>
void Decoder::for_rows(int64_t num_rows, const Work& work) {
  if (num_rows <= kSerialRows) {
    for (int64_t row = 0; row < num_rows; row++) work(row);
    return;
  }
  pool_.run((num_rows + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item, int) {
    const int64_t end = std::min(num_rows, (item + 1) * kRowsPerItem);
    for (int64_t row = item * kRowsPerItem; row < end; row++) work(row);
  });
}

template <class Work>
void Decoder::for_blocks(int64_t num_blocks, int64_t num_rows, const Work& work) {
  const int64_t wanted = (kItemsPerThread * pool_.num_threads() + num_blocks - 1) / num_blocks;
  const int64_t parts = std::clamp<int64_t>(num_rows / (4 * kRowUnit), 1, wanted);
  const int64_t rows = round_up((num_rows + parts - 1) / parts, parts > 1 ? kRowUnit : 1);
  pool_.run(num_blocks * parts, [&](int64_t item, int thread) {
    const int64_t first = item % parts * rows;
    if (first < num_rows) work(item / parts, first, std::min(rows, num_rows - first), thread);
  });
}

}  // namespace octavo
