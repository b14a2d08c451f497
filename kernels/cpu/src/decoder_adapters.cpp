// What the adapters of a step's requests add to its products; see low_rank.h.
#include <algorithm>

#include "decoder.h"

namespace octavo {

void Decoder::set_adapter(int32_t slot, const OctavoLowRank* matrices) {
  std::vector<LowRank> adapter;
  const int64_t count = matrices != nullptr ? config_.num_layers * OCTAVO_ADAPTER_MATRICES : 0;
  for (int64_t i = 0; i < count; i++) adapter.emplace_back(matrices[i]);
  if (adapters_.size() <= static_cast<size_t>(slot)) adapters_.resize(slot + 1);
  adapters_[slot] = std::move(adapter);
}

// By adapter, so that decodes of one adapter read its matrices together wherever they stand.
void Decoder::find_adapted_rows(const OctavoStep& step) {
  adapted_rows_.clear();
  most_ranks_ = 0;
  if (step.adapters == nullptr) return;
  for (size_t slot = 0; slot < adapters_.size(); slot++) {
    AdaptedRows found{adapters_[slot].data(), 0, {}};
    for (int32_t i = 0; i < step.num_requests; i++) {
      if (step.adapters[i] != static_cast<int32_t>(slot)) continue;
      for (int32_t row = step.query_start_loc[i]; row < step.query_start_loc[i + 1]; row++) {
        found.rows[found.count++] = row;
        if (found.count < kAdaptedRows) continue;
        adapted_rows_.push_back(found);
        found.count = 0;
      }
    }
    if (found.count > 0) adapted_rows_.push_back(found);
    if (!adapted_rows_.empty() && adapted_rows_.back().adapter == found.adapter)
      for (const LowRank& matrix : adapters_[slot])
        most_ranks_ = std::max<int64_t>(most_ranks_, matrix.rank);
  }
}

void Decoder::shrink(const DecoderMatrix& w, const float* x, int64_t stride) {
  const int64_t parts = (most_ranks_ + kRanksPerItem - 1) / kRanksPerItem;
  const int64_t num_items = static_cast<int64_t>(adapted_rows_.size()) * parts;
  pool_.run(num_items, [&](int64_t item, int) {
    const AdaptedRows& group = adapted_rows_[item / parts];
    const LowRank& adapter = group.adapter[w.place];
    const int64_t first = item % parts * kRanksPerItem;
    if (first >= adapter.rank) return;
    const float* from[kAdaptedRows];
    float* to[kAdaptedRows];
    for (int m = 0; m < group.count; m++) {
      from[m] = x + group.rows[m] * stride;
      to[m] = shrunk_ + group.rows[m] * most_ranks_ + first;
    }
    row_.shrink(from, group.count, adapter.a + first * w.cols, w.cols,
                std::min<int64_t>(kRanksPerItem, adapter.rank - first), to);
  });
}

void Decoder::expand(const DecoderMatrix& w, int64_t block, int64_t first_row, int64_t num_rows,
                     float* out, int64_t stride) const {
  if (adapted_rows_.empty()) return;
  int part = 0;
  int64_t index = block;  // of the block within its part
  const int64_t k_block = k_offset_ / kBlockRows, v_block = v_offset_ / kBlockRows;
  if (w.place % OCTAVO_ADAPTER_MATRICES == kGateUp) {
    part = static_cast<int>(block % 2);
    index = block / 2;
  } else if (w.place % OCTAVO_ADAPTER_MATRICES == kQkv && block >= k_block) {
    part = block < v_block ? 1 : 2;
    index = block - (part == 1 ? k_block : v_block);
  }
  for (const AdaptedRows& group : adapted_rows_) {
    const LowRank& adapter = group.adapter[w.place];
    const int64_t rank = adapter.ranks[part];
    const float* from[kAdaptedRows];
    float* to[kAdaptedRows];
    int count = 0;
    for (int m = 0; m < group.count; m++) {
      const int64_t row = group.rows[m] - first_row;
      if (row < 0 || row >= num_rows) continue;
      from[count] = shrunk_ + group.rows[m] * most_ranks_ + adapter.first[part];
      to[count++] = out + row * stride;
    }
    if (rank > 0) row_.expand(from, count, adapter.b[part] + index * rank * kBlockRows, rank, to);
  }
}

}  // namespace octavo
