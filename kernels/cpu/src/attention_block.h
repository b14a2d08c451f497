// One row block over a range of splits: scores of a whole split, its softmax, the weighted values.
// Included once by each instruction set's translation unit.
#pragma once

#include <type_traits>

#include "attention.h"
#include "attention_scores.h"
#include "attention_values.h"
#include "vec_math.h"

namespace octavo {

constexpr float kMinusInfinity = -__builtin_inff();

static inline int smaller(int a, int b) {
  return a < b ? a : b;
}
static inline int larger(int a, int b) {
  return a > b ? a : b;
}

// Calls use(std::integral_constant<int, rows>) for rows in [1, 6], so that loops over rows unroll.
template <class Use>
static inline void with_row_count(int rows, Use use) {
  switch (rows) {
  case 1:
    return use(std::integral_constant<int, 1>());
  case 2:
    return use(std::integral_constant<int, 2>());
  case 3:
    return use(std::integral_constant<int, 3>());
  case 4:
    return use(std::integral_constant<int, 4>());
  case 5:
    return use(std::integral_constant<int, 5>());
  default:
    return use(std::integral_constant<int, 6>());
  }
}

// The softmax state of a block's vectors, laid over BlockShape::state_floats() floats.
template <class Float>
struct StateView {
  Float* sums;  // [all_vectors, padded_dim]
  Float* largest;
  Float* total;

  StateView(Float* floats, const BlockShape& shape)
      : sums(floats), largest(floats + int64_t{shape.all_vectors} * shape.padded_dim),
        total(largest + shape.all_vectors) {}
};

template <class V, class T>
class BlockAttention {
public:
  BlockAttention(const OctavoPagedAttention& args, const RowBlock& block, float* scratch)
      : args_(args), block_(block), shape_(args, block), dim_(args.head_dim),
        vectors_(shape_.vectors), query_stride_(smaller(V::kRows, vectors_)),
        table_(args.block_tables + int64_t{block.request} * args.max_blocks) {
    const auto take = [&scratch](int64_t floats) {
      float* taken = scratch;
      scratch += floats;
      return taken;
    };
    spare_state_ = take(shape_.state_floats());
    queries_ = take(block.num_heads * shape_.head_query_floats());
    scores_ = take(shape_.score_floats());
    panel_ = take(shape_.panel_floats());
    staged_ = take(shape_.staged_floats());
  }

  // A place for the next split's state, when splits are merged one after another.
  float* spare_state() { return spare_state_; }

  // Queries of each head as panels [dim, query_stride], multiplied with what precedes the softmax:
  // its exponential is 2^x, so log2(e) is folded into the scale (behind the cap, if there is one).
  void load_queries() {
    const float factor = args_.softcap > 0 ? args_.scale / args_.softcap : args_.scale * kLog2OfE;
    for (int h = 0; h < block_.num_heads; h++)
      for (int i = 0; i < vectors_; i++) {
        const int64_t row = block_.first_row + i / shape_.group;
        const int64_t head = int64_t{block_.first_head + h} * shape_.group + i % shape_.group;
        const int64_t start = row * args_.query_stride + head * dim_;
        float* out = queries_at(h, i / V::kRows * V::kRows) + i % V::kRows;
        if (args_.query_dtype == OCTAVO_BFLOAT16)
          load_query(static_cast<const BFloat16*>(args_.query) + start, factor, out);
        else
          load_query(static_cast<const float*>(args_.query) + start, factor, out);
      }
  }

  void compute_split(int split, float* state_floats) {
    const StateView<float> state(state_floats, shape_);
    split_start_ = split * kSplit;
    begin_ = larger(split_start_, first_visible(0));
    end_ = smaller(split_start_ + kSplit, block_.position + block_.num_rows);
    aligned_begin_ = begin_ / kPiece * kPiece;
    aligned_end_ = static_cast<int>(round_up(end_, kPiece));
    if (vectors_ <= V::kRows)
      stream_scores();
    else
      pack_scores();
    for (int h = 0; h < block_.num_heads; h++)
      for (int i = 0; i < vectors_; i++) soften(h * vectors_ + i, i / shape_.group, state);
    sum_values(state);
  }

private:
  static constexpr float kLog2OfE = 1.44269504f;
  static constexpr int kAhead = 4;  // pieces

  template <class Q>
  void load_query(const Q* query, float factor, float* out) {
    for (int d = 0; d < dim_; d++) out[int64_t{d} * query_stride_] = to_float(query[d]) * factor;
  }

  // The panel that begins with a head's i-th vector.
  float* queries_at(int head, int i) {
    return queries_ + head * shape_.head_query_floats() + int64_t{i} * dim_;
  }

  // Scores, later weights, of a head's i-th vector from `position` on.
  float* scores_at(int head, int i, int position) {
    return scores_ + int64_t{head * vectors_ + i} * kScoreStride + (position - split_start_);
  }

  // The first position that the block's i-th row sees.
  int first_visible(int i) const {
    return args_.window > 0 ? larger(0, block_.position + i - args_.window + 1) : 0;
  }

  // Where the 16 tokens from `position` on begin in a cache; `position` is a multiple of kPiece.
  const T* piece(const void* cache, int head, int position) const {
    const int64_t number = table_[position / args_.block_size];
    const int64_t row =
        int64_t{block_.first_head + head} * args_.block_size + position % args_.block_size;
    return static_cast<const T*>(cache) + number * args_.block_stride + row * dim_;
  }

  // Calls use(head, position, piece) for all pieces of the split and all heads of each: the heads
  // of a block are neighbours in memory. Blocks lie anywhere, so a piece's first line is fetched
  // well ahead: that finds its page and sets the hardware's own prefetching off. Fetching all lines
  // this way was measured to be slower where blocks do lie in order.
  template <class Use>
  void for_each_piece(const void* cache, Use use) {
    const int heads = block_.num_heads;
    const int count = (aligned_end_ - aligned_begin_) / kPiece * heads;
    const auto at = [&](int i) {
      return piece(cache, i % heads, aligned_begin_ + i / heads * kPiece);
    };
    for (int i = 0; i < count; i++) {
      if (i + kAhead < count) __builtin_prefetch(at(i + kAhead));
      use(i % heads, aligned_begin_ + i / heads * kPiece, at(i));
    }
  }

  void stream_scores() {
    with_row_count(vectors_, [&](auto rows) {
      for_each_piece(args_.k_cache, [&](int head, int position, const T* keys) {
        for (int t = 0; t < kPiece; t += V::kLanes)
          score_streaming<V, rows.value>(keys + int64_t{t} * dim_, dim_, queries_at(head, 0),
                                         query_stride_, scores_at(head, 0, position + t));
      });
    });
  }

  void pack_scores() {
    constexpr int kPanel = V::kVectors * V::kLanes;
    for (int head = 0; head < block_.num_heads; head++)
      for (int position = aligned_begin_; position < aligned_end_; position += kPanel) {
        // Lanes past the end keep an older panel's keys; the mask overwrites their scores.
        for (int t = 0; t < kPanel && position + t < aligned_end_; t += V::kLanes) {
          const int start = (position + t) / kPiece * kPiece;
          const T* keys = piece(args_.k_cache, head, start);
          pack_keys<V>(keys + int64_t{position + t - start} * dim_, dim_, panel_ + t);
        }
        for (int i = 0; i < vectors_; i += V::kRows)
          with_row_count(smaller(V::kRows, vectors_ - i), [&](auto rows) {
            score_panel<V, rows.value>(panel_, dim_, queries_at(head, i), query_stride_,
                                       scores_at(head, i, position));
          });
      }
  }

  // Turns one vector's scores into weights relative to the split's largest score.
  void soften(int vector, int row, const StateView<float>& state) {
    using F = typename V::F;
    const int from = aligned_begin_ - split_start_, to = aligned_end_ - split_start_;
    float* scores = scores_ + int64_t{vector} * kScoreStride;
    const int seen_from = first_visible(row) - split_start_;
    const int seen_to = block_.position + row + 1 - split_start_;
    if (args_.softcap > 0) {
      const F cap = V::set1(args_.softcap * kLog2OfE);
      for (int t = from; t < to; t += V::kLanes)
        V::store(scores + t, V::mul(cap, tanh<V>(V::load(scores + t))));
    }
    for (int t = from; t < smaller(seen_from, to); t++) scores[t] = kMinusInfinity;
    for (int t = larger(from, seen_to); t < to; t++) scores[t] = kMinusInfinity;

    F largest = V::set1(kMinusInfinity);
    for (int t = from; t < to; t += V::kLanes) largest = V::max(largest, V::load(scores + t));
    state.largest[vector] = reduce_max<V>(largest);
    // A row that sees nothing of this split has weights 2^(-inf - 0) = 0.
    const F shift = V::set1(state.largest[vector] == kMinusInfinity ? 0.0f : state.largest[vector]);
    F total = V::set1(0.0f);
    for (int t = from; t < to; t += V::kLanes) {
      const F weight = exp2<V>(V::sub(V::load(scores + t), shift));
      V::store(scores + t, weight);
      total = V::add(total, weight);
    }
    state.total[vector] = reduce_add<V>(total);
  }

  // Only tokens that some row sees are read: a block's unused slots may hold NaN.
  void sum_values(const StateView<float>& state) {
    memset(state.sums, 0, sizeof(float) * shape_.all_vectors * shape_.padded_dim);
    for_each_piece(args_.v_cache, [&](int head, int position, const T* values) {
      const int first = larger(position, begin_);
      const int tokens = smaller(position + kPiece, end_) - first;
      values += int64_t{first - position} * dim_;
      // Many vectors would convert the values again and again; odd sizes need whole lanes.
      if (vectors_ > V::kRows || dim_ % V::kLanes != 0) {
        stage_values(values, tokens);
        add_values(staged_, shape_.padded_dim, shape_.padded_dim, tokens, head, first, state);
      } else {
        add_values(values, dim_, dim_, tokens, head, first, state);
      }
    });
  }

  void stage_values(const T* values, int tokens) {
    for (int t = 0; t < tokens; t++) {
      float* out = staged_ + t * shape_.padded_dim;
      for (int d = 0; d < dim_; d++) out[d] = to_float(values[int64_t{t} * dim_ + d]);
      for (int d = dim_; d < shape_.padded_dim; d++) out[d] = 0.0f;
    }
  }

  template <class U>
  void add_values(const U* values, int stride, int dim, int tokens, int head, int position,
                  const StateView<float>& state) {
    for (int i = 0; i < vectors_; i += V::kRows)
      with_row_count(smaller(V::kRows, vectors_ - i), [&](auto rows) {
        accumulate<V, rows.value>(values, stride, dim, tokens, scores_at(head, i, position),
                                  state.sums + int64_t{head * vectors_ + i} * shape_.padded_dim,
                                  shape_.padded_dim);
      });
  }

  const OctavoPagedAttention& args_;
  const RowBlock& block_;
  const BlockShape shape_;
  const int dim_;
  const int vectors_;
  const int query_stride_;
  const int32_t* table_;
  int split_start_ = 0, begin_ = 0, end_ = 0, aligned_begin_ = 0, aligned_end_ = 0;
  float *spare_state_, *queries_, *scores_, *panel_, *staged_;
};

}  // namespace octavo
