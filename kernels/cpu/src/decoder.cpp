#include "decoder.h"

#include <algorithm>
#include <cmath>

#include "cpu_clock.h"
#include "isa.h"

namespace octavo {
namespace {

PackedMatrix view(const OctavoMatrix& matrix) {
  return {static_cast<const uint8_t*>(matrix.data),
          matrix.bias,
          matrix.block_bytes,
          matrix.num_blocks,
          matrix.cols,
          matrix.group,
          static_cast<MatrixFormat>(matrix.format)};
}

}  // namespace

Decoder::Decoder(const OctavoDecoderConfig& config)
    : config_(config), head_{view(config.head)}, embed_{view(config.embed)},
      frequencies_(config.frequencies,
                   config.frequencies + config.num_ropes * (config.head_dim / 2)),
      rope_scales_(config.rope_scales, config.rope_scales + config.num_ropes),
      matrix_(matrix_kernels(config.isa)), row_(row_kernels(config.isa)),
      sampling_(sampling_kernels(config.isa)), pool_(config.num_threads),
      hidden_(round_up(config.hidden_size, kColUnit)),
      attended_width_(round_up(int64_t{config.num_heads} * config.head_dim, kColUnit)),
      inner_(round_up(config.intermediate_size, kColUnit)),
      k_offset_(round_up(int64_t{config.num_heads} * config.head_dim, kBlockRows)),
      v_offset_(k_offset_ + round_up(int64_t{config.num_kv_heads} * config.head_dim, kBlockRows)),
      qkv_width_(2 * v_offset_ - k_offset_),
      padded_vocab_(round_up(config.vocab_size, kBlockRows)) {
  for (int32_t i = 0; i < config.num_layers; i++) {
    const OctavoLayer& layer = config.layers[i];
    const int64_t place = int64_t{i} * OCTAVO_ADAPTER_MATRICES;
    layers_.push_back({{view(layer.qkv), place + kQkv},
                       {view(layer.o), place + kO},
                       {view(layer.gate_up), place + kGateUp},
                       {view(layer.down), place + kDown},
                       padded(layer.attn_norm, config.hidden_size),
                       padded(layer.q_norm, config.head_dim),
                       padded(layer.k_norm, config.head_dim),
                       padded(layer.post_attn_norm, config.hidden_size),
                       padded(layer.mlp_norm, config.hidden_size),
                       padded(layer.post_mlp_norm, config.hidden_size),
                       layer.rope,
                       layer.window,
                       i});
  }
  final_norm_ = padded(config.final_norm, config.hidden_size);
  for (int i = 0; i < config.num_threads; i++)
    sampling_scratch_.push_back(std::make_unique<SamplingScratch>(config.vocab_size));
  config_.layers = nullptr;  // the caller's
}

const float* Decoder::padded(const float* weights, int64_t length) {
  if (weights == nullptr) return nullptr;
  norms_.emplace_back(round_up(length, kColUnit));
  std::copy_n(weights, length, norms_.back().data());
  return norms_.back().data();
}

void Decoder::set_kv(void* base, int32_t num_blocks, int32_t block_size, int32_t kv_dtype) {
  caches_.clear();
  const int64_t bytes =
      num_blocks * kv_block_bytes(kv_dtype, config_.num_kv_heads, block_size, config_.head_dim);
  for (int32_t i = 0; i < config_.num_layers; i++)
    caches_.emplace_back(static_cast<char*>(base) + i * bytes, kv_dtype, num_blocks,
                         config_.num_kv_heads, block_size, config_.head_dim);
  max_slots_ = int64_t{num_blocks} * block_size;
}

int Decoder::step(OctavoStep& step) {
  const int status = check(step);
  if (status != OCTAVO_OK || step.num_tokens == 0) return status;
  const double start = thread_cpu_seconds() + pool_.workers_cpu_seconds();
  lap_start_ = std::chrono::steady_clock::now();
  reserve(step);
  embed(step);
  fill_rope_tables(step);
  lap(OCTAVO_PHASE_EMBED);
  for (const Layer& layer : layers_) {
    attend_layer(layer, step);
    feed_forward(layer);
  }
  select(step);
  step.cpu_seconds = thread_cpu_seconds() + pool_.workers_cpu_seconds() - start;
  return OCTAVO_OK;
}

void Decoder::lap(OctavoPhase phase) {
  const auto now = std::chrono::steady_clock::now();
  phase_seconds_[phase] += std::chrono::duration<double>(now - lap_start_).count();
  lap_start_ = now;
}

int Decoder::check(OctavoStep& step) const {
  const auto fail = [&step](OctavoStatus status, int64_t index, int64_t value) {
    step.bad_index = index;
    step.bad_value = value;
    return status;
  };
  if (caches_.empty()) return OCTAVO_NO_KV;
  for (int64_t row = 0; row < step.num_tokens; row++) {
    if (step.token_ids[row] < 0 || step.token_ids[row] >= config_.vocab_size)
      return fail(OCTAVO_BAD_TOKEN, row, step.token_ids[row]);
    if (step.positions[row] < 0) return fail(OCTAVO_BAD_POSITION, row, step.positions[row]);
    if (step.slot_mapping[row] < 0 || step.slot_mapping[row] >= max_slots_)
      return fail(OCTAVO_BAD_SLOT, row, step.slot_mapping[row]);
  }
  for (int64_t i = 0; i < step.num_picks + step.num_logits; i++) {
    const int32_t row =
        i < step.num_picks ? step.pick_rows[i] : step.logits_rows[i - step.num_picks];
    if (row < 0 || row >= step.num_tokens) return fail(OCTAVO_BAD_ROW, i, row);
    if (i < step.num_picks && step.mask_of && step.mask_of[i] >= step.num_masks)
      return fail(OCTAVO_BAD_MASK, i, step.mask_of[i]);
  }
  for (int64_t i = 0; i < step.num_hidden; i++)
    if (step.hidden_rows[i] < 0 || step.hidden_rows[i] >= step.num_tokens)
      return fail(OCTAVO_BAD_ROW, i, step.hidden_rows[i]);
  for (int64_t i = 0; step.adapters != nullptr && i < step.num_requests; i++) {
    const int64_t slot = step.adapters[i];
    if (slot >= 0 && (slot >= static_cast<int64_t>(adapters_.size()) || adapters_[slot].empty()))
      return fail(OCTAVO_BAD_ADAPTER, i, slot);
  }
  OctavoStatus status = OCTAVO_OK;
  for (size_t i = 0; i < layers_.size() && status == OCTAVO_OK; i++) {
    // Layers differ in their windows only, and few kinds there are.
    if (i > 0 && layers_[i].window == layers_[i - 1].window) continue;
    status = check_attention(attention_args(static_cast<int32_t>(i), step), &step.bad_index,
                             &step.bad_value);
  }
  return status;
}

void Decoder::reserve(const OctavoStep& step) {
  num_rows_ = step.num_tokens;
  x_.reserve(num_rows_ * hidden_);
  qkv_.reserve(num_rows_ * qkv_width_);
  attended_.reserve(num_rows_ * attended_width_);
  gated_.reserve(num_rows_ * inner_);
  added_.reserve(num_rows_ * hidden_);
  ropes_.reserve(num_rows_ * config_.num_ropes * config_.head_dim);
  const int64_t widest = std::max({hidden_, attended_width_, inner_});
  turned_.reserve(num_rows_ * widest);
  bf16_.reserve(num_rows_ * widest);
  int8_.reserve(num_rows_ * widest);
  scales_.reserve(num_rows_ * widest / kSumCols);
  sums_.reserve(num_rows_ * widest / kSumCols);
  tiles_.reserve(pool_.num_threads() * num_rows_ * 2 * kBlockRows);
  find_adapted_rows(step);
  shrunk_.reserve(num_rows_ * most_ranks_);
}

void Decoder::embed(const OctavoStep& step) {
  for_rows(num_rows_, [&](int64_t row) {
    float* x = x_ + row * hidden_;
    if (embed_.format == kFormatInt8) {
      matrix_.read_row(embed_, step.token_ids[row], hidden_, x);
      row_.rotate(x, hidden_, x);
      std::fill(x + config_.hidden_size, x + hidden_, 0.0f);  // but for rounding it is
    } else {
      matrix_.read_row(embed_, step.token_ids[row], config_.hidden_size, x);
    }
    if (config_.embedding_scale != 1.0f)
      for (int32_t i = 0; i < config_.hidden_size; i++) x[i] *= config_.embedding_scale;
  });
}

// ropes_: [num_rows, num_ropes, 2, head_dim / 2], cos and then sin.
void Decoder::fill_rope_tables(const OctavoStep& step) {
  const int64_t half = config_.head_dim / 2;
  for_rows(num_rows_, [&](int64_t row) {
    const auto position = static_cast<float>(step.positions[row]);
    for (int32_t rope = 0; rope < config_.num_ropes; rope++) {
      float* cos = ropes_ + (row * config_.num_ropes + rope) * 2 * half;
      for (int64_t i = 0; i < half; i++) {
        const float angle = position * frequencies_[rope * half + i];
        cos[i] = std::cos(angle) * rope_scales_[rope];
        cos[half + i] = std::sin(angle) * rope_scales_[rope];
      }
    }
  });
}

void Decoder::prepare(const DecoderMatrix& w, const float* x, int64_t stride, const float* norm,
                      int64_t length, int64_t num_rows) {
  const int64_t cols = w.cols, group = w.group > 0 ? w.group : cols;
  const float* from = norm != nullptr ? turned_.data() : x;
  const int64_t from_stride = norm != nullptr ? cols : stride;
  const auto take = [&](int64_t row) {
    if (norm != nullptr)
      row_.rms_norm(x + row * stride, norm, config_.norm_eps, length, cols, turned_ + row * cols);
  };
  const auto round = [&](int64_t row) {
    const float* rounded = from + row * from_stride;
    if (w.format == kFormatInt8) {
      row_.rotate(rounded, cols, turned_ + row * cols);
      rounded = turned_ + row * cols;
    }
    if (is_integer(w.format))
      row_.quantize(rounded, cols, group, int8_ + row * cols, scales_ + row * (cols / group),
                    sums_ + row * (cols / kSumCols));
    else
      row_.to_bfloat16(rounded, cols, bf16_ + row * cols);
  };
  if (w.place < 0 || adapted_rows_.empty()) {
    for_rows(num_rows, [&](int64_t row) {
      take(row);
      round(row);
    });
  } else {
    for_rows(num_rows, take);
    shrink(w, from, from_stride);
    for_rows(num_rows, round);
  }
  rows_ = {bf16_.data(), int8_.data(), scales_.data(), sums_.data(), w.cols};
  lap(OCTAVO_PHASE_PREPARE);
}

void Decoder::multiply(const DecoderMatrix& w, float* out, int64_t stride, bool add) {
  for_blocks(w.num_blocks, num_rows_, [&](int64_t block, int64_t first_row, int64_t num_rows, int) {
    float* tile = out + first_row * stride + block * kBlockRows;
    matrix_.multiply(w, block, rows_, first_row, num_rows, tile, stride, add);
    expand(w, block, first_row, num_rows, tile, stride);
  });
}

// x += rows_ · w, normed before it is added where the model has such a norm.
void Decoder::add_product(const DecoderMatrix& w, const float* post_norm) {
  if (post_norm == nullptr) return multiply(w, x_.data(), hidden_, true);
  multiply(w, added_.data(), hidden_, false);
  for_rows(num_rows_, [&](int64_t row) {
    float* y = added_ + row * hidden_;
    row_.rms_norm(y, post_norm, config_.norm_eps, config_.hidden_size, hidden_, y);
    row_.add(x_ + row * hidden_, y, hidden_);
  });
}

AttentionArgs Decoder::attention_args(int32_t layer, const OctavoStep& step) const {
  AttentionArgs args{};
  args.query = qkv_.data();
  args.query_stride = qkv_width_;
  args.out = attended_.data();
  args.out_stride = attended_width_;
  args.block_tables = step.block_tables;
  args.seq_lens = step.seq_lens;
  args.query_start_loc = step.query_start_loc;
  args.num_tokens = step.num_tokens;
  args.num_requests = step.num_requests;
  args.max_blocks = step.max_blocks;
  args.num_heads = config_.num_heads;
  args.window = layers_[layer].window;
  args.scale = config_.attention_scale;
  args.softcap = config_.attention_softcap;
  args.cache = &caches_[layer];
  args.isa = config_.isa;
  return args;
}

// Norms and turns the heads of q or k in one row.
void Decoder::turn_heads(float* heads, int32_t num_heads, const float* norm, const float* cos) {
  const int64_t dim = config_.head_dim;
  for (int32_t head = 0; head < num_heads; head++, heads += dim) {
    if (norm != nullptr) {
      alignas(64) float one[kMaxHeadDim] = {};
      std::copy_n(heads, dim, one);
      row_.rms_norm(one, norm, config_.norm_eps, dim, round_up(dim, kColUnit), one);
      std::copy_n(one, dim, heads);
    }
    row_.rope(heads, cos, cos + dim / 2, dim / 2);
  }
}

void Decoder::attend_layer(const Layer& layer, const OctavoStep& step) {
  prepare(layer.qkv, x_.data(), hidden_, layer.attn_norm, config_.hidden_size, num_rows_);
  multiply(layer.qkv, qkv_.data(), qkv_width_, false);
  lap(OCTAVO_PHASE_QKV);
  for_rows(num_rows_, [&](int64_t row) {
    float* q = qkv_ + row * qkv_width_;
    const float* cos = ropes_ + (row * config_.num_ropes + layer.rope) * config_.head_dim;
    turn_heads(q, config_.num_heads, layer.q_norm, cos);
    turn_heads(q + k_offset_, config_.num_kv_heads, layer.k_norm, cos);
    write_kv(caches_[layer.index], step.slot_mapping[row], q + k_offset_, q + v_offset_);
  });
  lap(OCTAVO_PHASE_ROPE);
  attend(pool_, attention_args(layer.index, step), attention_workspace_);
  lap(OCTAVO_PHASE_ATTENTION);
  prepare(layer.o, attended_.data(), attended_width_, nullptr, 0, num_rows_);
  add_product(layer.o, layer.post_attn_norm);
  lap(OCTAVO_PHASE_OUTPUT);
}

void Decoder::feed_forward(const Layer& layer) {
  prepare(layer.gate_up, x_.data(), hidden_, layer.mlp_norm, config_.hidden_size, num_rows_);
  const auto act = config_.activation == OCTAVO_SILU ? row_.silu_mul : row_.gelu_tanh_mul;
  for_blocks(layer.gate_up.num_blocks / 2, num_rows_,
             [&](int64_t pair, int64_t first_row, int64_t num_rows, int thread) {
               float* tile = tiles_ + thread * num_rows_ * 2 * kBlockRows;
               for (int side = 0; side < 2; side++) {
                 float* out = tile + side * kBlockRows;
                 matrix_.multiply(layer.gate_up, 2 * pair + side, rows_, first_row, num_rows, out,
                                  2 * kBlockRows, false);
                 expand(layer.gate_up, 2 * pair + side, first_row, num_rows, out, 2 * kBlockRows);
               }
               for (int64_t m = 0; m < num_rows; m++)
                 act(tile + m * 2 * kBlockRows, tile + m * 2 * kBlockRows + kBlockRows,
                     gated_ + (first_row + m) * inner_ + pair * kBlockRows);
             });
  lap(OCTAVO_PHASE_GATE_UP);
  prepare(layer.down, gated_.data(), inner_, nullptr, 0, num_rows_);
  add_product(layer.down, layer.post_mlp_norm);
  lap(OCTAVO_PHASE_DOWN);
}

}  // namespace octavo
