// The language-model head: what comes of the rows that the engine asked about.
//
//   wanted rows    [ greedy | drawn | logits ]       greedy and drawn are the step's picks; those
//                                                    with a mask count as drawn
//   kept of each     maximum  logits  logits         of a block of outputs, while it is in the
//   cache
#include <algorithm>

#include "decoder.h"

namespace octavo {
namespace {

Pick pick_of(const OctavoStep& step, int64_t i) {
  return {step.temperature[i], step.top_k[i], step.top_p[i], step.min_p[i], step.draw[i]};
}

const uint32_t* mask_of(const OctavoStep& step, int64_t i, int64_t num_words) {
  if (!step.mask_of || step.mask_of[i] < 0) return nullptr;
  return step.masks + step.mask_of[i] * num_words;
}

}  // namespace

void Decoder::give_hidden(const OctavoStep& step) {
  turned_.reserve(step.num_hidden * hidden_);
  for_rows(step.num_hidden, [&](int64_t i) {
    float* normed = turned_ + i * hidden_;
    row_.rms_norm(x_ + step.hidden_rows[i] * hidden_, final_norm_, config_.norm_eps,
                  config_.hidden_size, hidden_, normed);
    std::copy_n(normed, config_.hidden_size, step.hidden + i * config_.hidden_size);
  });
}

void Decoder::select(OctavoStep& step) {
  give_hidden(step);
  const int64_t num_wanted = step.num_picks + step.num_logits;
  if (num_wanted == 0) return;
  gather_wanted(step, num_wanted);
  prepare(head_, selected_.data(), hidden_, final_norm_, config_.hidden_size, num_wanted);
  compute_logits(step, num_wanted);
  lap(OCTAVO_PHASE_HEAD);
  pool_.run(step.num_picks, [&](int64_t i, int thread) {
    if (drawn_row_[i] < 0) {
      RowMax largest;
      for (int t = 0; t < pool_.num_threads(); t++) largest.add(largest_[t * num_wanted + i]);
      step.picked[i] = largest.token_id;
      return;
    }
    float* row = drawn_ + drawn_row_[i] * padded_vocab_;
    const Pick pick = pick_of(step, i);
    if (const uint32_t* mask = mask_of(step, i, (config_.vocab_size + 31) / 32))
      step.picked[i] = pick_allowed_token(sampling_, row, config_.vocab_size, mask, pick,
                                          *sampling_scratch_[thread]);
    else
      step.picked[i] =
          pick_token(sampling_, row, config_.vocab_size, pick, *sampling_scratch_[thread]);
  });
  lap(OCTAVO_PHASE_PICK);
}

void Decoder::gather_wanted(const OctavoStep& step, int64_t num_wanted) {
  selected_.reserve(num_wanted * hidden_);
  int64_t num_drawn = 0;
  drawn_row_.assign(num_wanted, -1);
  for (int64_t i = 0; i < num_wanted; i++) {
    const bool picks = i < step.num_picks;
    const int32_t row = picks ? step.pick_rows[i] : step.logits_rows[i - step.num_picks];
    std::copy_n(x_ + row * hidden_, hidden_, selected_ + i * hidden_);
    if (picks && (!pick_of(step, i).greedy() || mask_of(step, i, 0))) drawn_row_[i] = num_drawn++;
  }
  drawn_.reserve(num_drawn * padded_vocab_);
}

void Decoder::compute_logits(const OctavoStep& step, int64_t num_wanted) {
  largest_.assign(pool_.num_threads() * num_wanted, RowMax{});
  tiles_.reserve(pool_.num_threads() * num_wanted * kBlockRows);
  for_blocks(head_.num_blocks, num_wanted,
             [&](int64_t block, int64_t first, int64_t count, int thread) {
               float* tile = tiles_ + thread * num_wanted * kBlockRows;
               matrix_.multiply(head_, block, rows_, first, count, tile, kBlockRows, false);
               const int64_t start = block * kBlockRows;
               const int64_t size = std::min<int64_t>(kBlockRows, config_.vocab_size - start);
               for (int64_t i = first; i < first + count; i++, tile += kBlockRows) {
                 if (config_.logit_softcap > 0)
                   row_.softcap(tile, kBlockRows, config_.logit_softcap);
                 if (i >= step.num_picks)
                   std::copy_n(tile, size,
                               step.logits + (i - step.num_picks) * config_.vocab_size + start);
                 else if (drawn_row_[i] >= 0)
                   std::copy_n(tile, size, drawn_ + drawn_row_[i] * padded_vocab_ + start);
                 else
                   sampling_.add_to_max(tile, size, static_cast<int32_t>(start),
                                        largest_[thread * num_wanted + i]);
               }
             });
}

}  // namespace octavo
