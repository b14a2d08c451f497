// One row block over its splits, in tiles of a few query vectors: the scores of a whole split, its
// softmax, the weighted sum of its values. The products are `Dot`'s, which is one of
//
//   FloatDot (attention_float.h)   any vectors, float32
//   Bf16Dot (attention_bf16.h)     VDPBF16PS
//   VnniDot (attention_vnni.h)     VPDPBUSD, for an int8 cache
//
// Included once by each instruction set's translation unit; the unnamed namespace keeps the linker
// from picking another one's copy.
#pragma once

#include <type_traits>

#include "attention_plan.h"
#include "vec_math.h"

namespace octavo {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr int kAhead = 4;  // pieces between one that is used and one that is fetched
constexpr int kMaxTile = 12;
constexpr int kScoreStride = kSplit + 16;  // spreads rows over the sets of a cache

static inline int smaller(int a, int b) {
  return a < b ? a : b;
}
static inline int larger(int a, int b) {
  return a > b ? a : b;
}

// Calls use(std::integral_constant<int, n>) for n in [1, kMax], so that loops over rows unroll.
template <int kMax, class Use>
static inline void with_constant(int n, Use use) {
  if constexpr (kMax == 1) {
    use(std::integral_constant<int, 1>());
  } else if (n == kMax) {
    use(std::integral_constant<int, kMax>());
  } else {
    with_constant<kMax - 1>(n, use);
  }
}

// Pieces in the order in which they are used: those of K, then those of V, then kAhead more.
using Pieces = const uint8_t* const*;

// The softmax state of a block's vectors, laid over state_floats().
template <class Float>
struct StateView {
  Float* sums;  // [vectors, padded_dim]
  Float* largest;
  Float* total;

  StateView(Float* floats, int vectors, int padded_dim)
      : sums(floats), largest(floats + int64_t{vectors} * padded_dim), total(largest + vectors) {}
};

// sums · keep + next · take, and what goes with it, for one vector. `next` gives a vector of the
// new sums from d on.
template <class V, class Next>
static inline void merge_vector(const StateView<float>& state, int i, int padded_dim, float largest,
                                float total, Next next) {
  using F = typename V::F;
  if (largest == kMinusInfinity) return;  // saw nothing
  const float both = state.largest[i] > largest ? state.largest[i] : largest;
  float factors[2][V::kLanes];
  V::store(factors[0], exp2<V>(V::set1(state.largest[i] - both)));
  V::store(factors[1], exp2<V>(V::set1(largest - both)));
  const F keep = V::set1(factors[0][0]), take = V::set1(factors[1][0]);
  state.largest[i] = both;
  state.total[i] = state.total[i] * factors[0][0] + total * factors[1][0];
  float* sums = state.sums + int64_t{i} * padded_dim;
  for (int d = 0; d < padded_dim; d += V::kLanes)
    V::store(sums + d, V::fma(V::load(sums + d), keep, V::mul(next(d), take)));
}

template <class V>
static inline void cap(float cap, float* scores, int tokens) {
  for (int t = 0; t < tokens; t += V::kLanes)
    V::store(scores + t, V::mul(V::set1(cap), tanh<V>(V::load(scores + t))));
}

template <class V>
static inline float largest_of(const float* scores, int tokens) {
  typename V::F largest = V::set1(kMinusInfinity);
  for (int t = 0; t < tokens; t += V::kLanes) largest = V::max(largest, V::load(scores + t));
  return reduce_max<V>(largest);
}

template <class Dot>
class BlockAttention {
  using V = typename Dot::Vec;

public:
  BlockAttention(const AttentionArgs& args, const RowBlock& block, float* state)
      : args_(args), cache_(*args.cache), block_(block), dim_(cache_.head_dim),
        padded_dim_(cache_.padded_dim), group_(args.num_heads / cache_.num_kv_heads),
        vectors_(vectors_of(args, block)), state_(state, vectors_, padded_dim_),
        table_(args.block_tables + int64_t{block.request} * args.max_blocks) {}

  void run() {
    fetch_queries();
    memset(state_.sums, 0, sizeof(float) * vectors_ * padded_dim_);
    for (int i = 0; i < vectors_; i++) state_.largest[i] = kMinusInfinity;
    for (int i = 0; i < vectors_; i++) state_.total[i] = 0.0f;
    for (int split = block_.first_split; split < block_.end_split; split++) {
      find_pieces(split);
      for (int i = 0; i < vectors_; i += Dot::kTile)
        with_constant<Dot::kTile>(smaller(Dot::kTile, vectors_ - i),
                                  [&](auto rows) { attend_tile<rows.value>(i); });
    }
  }

private:
  static constexpr float kLog2OfE = 1.44269504f;

  // The first position that the block's i-th row sees, and the first that it does not.
  int seen_from(int row) const {
    return args_.window > 0 ? larger(0, block_.position + row - args_.window + 1) : 0;
  }
  int seen_to(int row) const { return block_.position + row + 1; }

  const uint8_t* piece(int position) const {
    const int64_t number = table_[position / cache_.block_size];
    return cache_.base + number * cache_.block_bytes + block_.head * cache_.head_bytes +
           position % cache_.block_size / kPiece * cache_.piece_bytes;
  }

  // Where the split's pieces are that some row of the block sees.
  void find_pieces(int split) {
    start_ = split * kSplit;
    const int begin = larger(start_, seen_from(0));
    const int end = smaller(start_ + kSplit, seen_to(block_.num_rows - 1));
    first_piece_ = begin / kPiece * kPiece;
    num_pieces_ = (end - first_piece_ + kPiece - 1) / kPiece;
    for (int i = 0; i < num_pieces_; i++) {
      pieces_[i] = piece(first_piece_ + i * kPiece);
      pieces_[num_pieces_ + i] = pieces_[i] + cache_.k_bytes;
    }
    for (int i = 0; i < kAhead; i++) {
      const int next = start_ + kSplit + i * kPiece;
      pieces_[2 * num_pieces_ + i] =
          next < seen_to(block_.num_rows - 1) ? piece(next) : pieces_[num_pieces_];
    }
    // Unused slots of the first and the last piece may hold NaN, which weight 0 would not hide.
    if constexpr (Dot::kHideUnusedValues)
      for (const int i : {0, num_pieces_ - 1}) {
        const int from = larger(0, begin - first_piece_ - i * kPiece);
        const int to = smaller(kPiece, end - first_piece_ - i * kPiece);
        if (from == 0 && to == kPiece) continue;
        uint8_t* copy = staged_[i == 0 ? 0 : 1];
        hide_unused(pieces_[num_pieces_ + i], from, to, copy);
        pieces_[num_pieces_ + i] = copy;
      }
  }

  // Copies a piece of bfloat16 V with zeros for tokens outside of [from, to).
  void hide_unused(const uint8_t* values, int from, int to, uint8_t* copy) const {
    for (int pair = 0; pair < kPiece / 2; pair++) {
      const int t = 2 * pair;
      const uint32_t mask =
          (t >= from && t < to ? 0xffffu : 0) | (t + 1 >= from && t + 1 < to ? 0xffff0000u : 0);
      for (int d = 0; d < padded_dim_; d++) {
        uint32_t both;
        memcpy(&both, values + (int64_t{pair} * padded_dim_ + d) * 4, 4);
        both &= mask;
        memcpy(copy + (int64_t{pair} * padded_dim_ + d) * 4, &both, 4);
      }
    }
  }

  template <int kRows>
  void attend_tile(int first) {
    const int first_row = first / group_, last_row = (first + kRows - 1) / group_;
    const int from = larger(0, (seen_from(first_row) - first_piece_) / kPiece);
    const int to = smaller(num_pieces_, (seen_to(last_row) - first_piece_ + kPiece - 1) / kPiece);
    if (from >= to) return;
    load_queries<kRows>(first);
    Dot::template score<kRows>(pieces_ + from, to - from, dim_, queries_, scores_[0]);
    const int tokens = (to - from) * kPiece;
    if (args_.softcap > 0)
      for (int r = 0; r < kRows; r++) cap<V>(args_.softcap * kLog2OfE, scores_[r], tokens);
    hide_unseen<kRows>(first, first_piece_ + from * kPiece, tokens);
    float largest[kRows], total[kRows];
    for (int r = 0; r < kRows; r++) largest[r] = largest_of<V>(scores_[r], tokens);
    for (int r = 0; r < kRows; r++) {
      // A row that sees nothing of this split has weights 2^(-inf - 0) = 0.
      const float shift = largest[r] == kMinusInfinity ? 0.0f : largest[r];
      total[r] =
          Dot::weigh(scores_[r], shift, pieces_ + num_pieces_ + from, to - from, r, weights_);
    }
    Dot::template accumulate<kRows>(pieces_ + num_pieces_ + from, to - from, padded_dim_, weights_,
                                    sums_);
    for (int r = 0; r < kRows; r++)
      merge_vector<V>(state_, first + r, padded_dim_, largest[r], total[r],
                      [&](int d) { return Dot::sum(sums_ + r * padded_dim_ + d, weights_, r); });
  }

  void fetch_queries() const {
    const int64_t floats = int64_t{group_} * dim_;
    for (int row = 0; row < block_.num_rows; row++) {
      const float* query =
          args_.query + (block_.first_row + row) * args_.query_stride + block_.head * floats;
      for (int64_t i = 0; i < floats; i += 16) __builtin_prefetch(query + i);
    }
  }

  // Queries are multiplied with what precedes the softmax: its exponential is 2^x, so log2(e) is
  // folded into the scale (behind the cap, if there is one).
  template <int kRows>
  void load_queries(int first) {
    const float factor = args_.softcap > 0 ? args_.scale / args_.softcap : args_.scale * kLog2OfE;
    for (int r = 0; r < kRows; r++) {
      const int64_t row = block_.first_row + (first + r) / group_;
      const int64_t head = int64_t{block_.head} * group_ + (first + r) % group_;
      Dot::load_query(args_.query + row * args_.query_stride + head * dim_, dim_, factor, r,
                      queries_);
    }
  }

  template <int kRows>
  void hide_unseen(int first, int position, int tokens) {
    for (int r = 0; r < kRows; r++) {
      const int row = (first + r) / group_;
      const int begin = seen_from(row) - position, end = seen_to(row) - position;
      for (int t = 0; t < smaller(begin, tokens); t++) scores_[r][t] = kMinusInfinity;
      for (int t = larger(end, 0); t < tokens; t++) scores_[r][t] = kMinusInfinity;
    }
  }

  const AttentionArgs& args_;
  const KvCache& cache_;
  const RowBlock& block_;
  const int dim_, padded_dim_, group_, vectors_;
  const StateView<float> state_;
  const int32_t* table_;
  int start_ = 0, first_piece_ = 0, num_pieces_ = 0;
  const uint8_t* pieces_[2 * kSplitPieces + kAhead];
  alignas(64) float scores_[Dot::kTile][kScoreStride];
  alignas(64) typename Dot::Sum sums_[Dot::kTile * kMaxHeadDim];
  typename Dot::Queries queries_;
  typename Dot::Weights weights_;
  alignas(64) uint8_t staged_[2][Dot::kHideUnusedValues ? kPiece * kMaxHeadDim * 2 : 1];
};

template <class Dot>
void attend_block(const AttentionArgs& args, const RowBlock& block, float* state) {
  BlockAttention<Dot>(args, block, state).run();
}

template <class V>
void merge(const AttentionArgs& args, const RowBlock& block, float* state_floats,
           const float* next_floats) {
  const int vectors = vectors_of(args, block), padded_dim = args.cache->padded_dim;
  const StateView<float> state(state_floats, vectors, padded_dim);
  const StateView<const float> next(next_floats, vectors, padded_dim);
  for (int i = 0; i < vectors; i++)
    merge_vector<V>(state, i, padded_dim, next.largest[i], next.total[i],
                    [&](int d) { return V::load(next.sums + int64_t{i} * padded_dim + d); });
}

template <class V>
void finish(const AttentionArgs& args, const RowBlock& block, const float* state_floats) {
  const int dim = args.cache->head_dim, padded_dim = args.cache->padded_dim;
  const int group = args.num_heads / args.cache->num_kv_heads, vectors = vectors_of(args, block);
  const StateView<const float> state(state_floats, vectors, padded_dim);
  for (int i = 0; i < vectors; i++) {
    const int64_t row = block.first_row + i / group;
    const int64_t head = int64_t{block.head} * group + i % group;
    float* out = args.out + row * args.out_stride + head * dim;
    const float factor = 1.0f / state.total[i];
    const float* sums = state.sums + int64_t{i} * padded_dim;
    for (int d = 0; d < dim; d++) out[d] = sums[d] * factor;
  }
}

template <class Dot>
constexpr AttentionKernels kernels_of() {
  static_assert(kPiece % Dot::Vec::kLanes == 0, "a vector of tokens lies in one piece");
  return {attend_block<Dot>, merge<typename Dot::Vec>, finish<typename Dot::Vec>};
}

}  // namespace
}  // namespace octavo
