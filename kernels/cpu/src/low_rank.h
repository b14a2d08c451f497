// Adapters (LoRA): a product of two thin matrices that is added to that of a large one.
//
//   out[n] = Σ_k x[k] · w[n, k] + Σ_j t[j] · b[n, j],   t[j] = Σ_k x[k] · a[j, k]
//
// x is the row as float32, before it is rounded for w. A matrix of several parts (q, k and v; gate
// and up) has one `a`, the parts' own one after another, so that x is read once, and a `b` for
// each:
//
//   a  bfloat16 [sum of ranks][cols]            cols as those of w, padded with zeros
//   b  bfloat16 [blocks of the part][rank][32]  a block's outputs are those of a block of w
//
// Rows share loads but no sums, so that a row's result depends on its own request alone.
#pragma once

#include <cstdint>

#include "abi.h"
#include "bfloat16.h"

namespace octavo {

constexpr int kMaxParts = OCTAVO_ADAPTER_PARTS;

struct LowRank {
  explicit LowRank(const OctavoLowRank& given) : a(static_cast<const BFloat16*>(given.a)) {
    for (int i = 0; i < kMaxParts; i++) {
      b[i] = static_cast<const BFloat16*>(given.parts[i].b);
      first[i] = rank;
      rank += given.parts[i].rank;
      ranks[i] = given.parts[i].rank;
    }
  }

  const BFloat16* a;
  const BFloat16* b[kMaxParts];
  int32_t ranks[kMaxParts];  // 0: this part has no adapter
  int32_t first[kMaxParts];  // of a part's rows in `a`
  int32_t rank = 0;          // of all parts together
};

}  // namespace octavo
