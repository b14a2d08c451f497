// Products in float32 over the vectors of vec_*.h, for CPUs without dot products of the cache's
// dtype. What a 32-bit lane of the cache holds is taken apart in registers.
#pragma once

#include "attention_block.h"
#include "rotation.h"

namespace octavo {
namespace {

// What a lane of 32 bits holds: two bfloat16 ...
template <class V>
struct Bf16Lanes {
  static constexpr int kPer = 2;
  static constexpr int kScales = 0;  // bytes before a piece's first row
  static constexpr bool kHideUnusedValues = true;
  static constexpr bool kRotated = false;

  static void take_apart(const uint8_t* p, typename V::F (&x)[kPer], bool) {
    const typename V::F lanes = V::load(reinterpret_cast<const float*>(p));
    x[0] = V::low_bfloat16(lanes);
    x[1] = V::high_bfloat16(lanes);
  }
};

// ... or four bytes, of V signed, of K with 128 added.
template <class V>
struct Int8Lanes {
  static constexpr int kPer = 4;
  static constexpr int kScales = 4 * kPiece;
  static constexpr bool kHideUnusedValues = false;
  static constexpr bool kRotated = true;

  static void take_apart(const uint8_t* p, typename V::F (&x)[kPer], bool key) {
    V::split_bytes(V::load(reinterpret_cast<const float*>(p)), key, x);
  }
};

template <class V, class Lanes>
struct FloatDot {
  using Vec = V;
  using F = typename V::F;
  using Sum = float;
  static constexpr int kTile = V::kRows;
  static constexpr bool kHideUnusedValues = Lanes::kHideUnusedValues;
  static constexpr int kPer = Lanes::kPer;
  static constexpr int kPerPiece = kPiece / V::kLanes;  // vectors

  struct Queries {
    alignas(64) float rows[kTile][kMaxHeadDim + 16];
  };
  struct Weights {
    alignas(64) float rows[kTile][kScoreStride];
  };

  static void load_query(const float* query, int dim, float factor, int row, Queries& queries) {
    for (int d = 0; d < dim; d++) queries.rows[row][d] = query[d] * factor;
    if constexpr (Lanes::kRotated) rotate(queries.rows[row], dim);
  }

  // scores[r][t] for the tokens of `count` pieces.
  template <int kRows>
  static void score(Pieces pieces, int count, int dim, const Queries& queries, float* scores) {
    const int vectors = count * kPerPiece;
    int i = 0;
    for (; i + V::kVectors <= vectors; i += V::kVectors)
      score_vectors<kRows, V::kVectors>(pieces, i, dim, queries, scores);
    for (; i < vectors; i++) score_vectors<kRows, 1>(pieces, i, dim, queries, scores);
    if constexpr (Lanes::kScales > 0)
      for (int r = 0; r < kRows; r++) multiply_scales(pieces, count, scores + r * kScoreStride);
  }

  // Turns scores into weights relative to 2^shift and returns their sum.
  static float weigh(float* scores, float shift, Pieces pieces, int count, int row,
                     Weights& weights) {
    const F s = V::set1(shift), zero = V::set1(0.0f);
    F total = zero;
    for (int t = 0; t < count * kPiece; t += V::kLanes) {
      F weight = exp2<V>(V::sub(V::load(scores + t), s));
      total = V::add(total, weight);
      if constexpr (Lanes::kScales > 0) {
        // An unused slot's scale may be NaN.
        const F scale = V::load(scales_of(pieces[t / kPiece]) + t % kPiece);
        weight = V::select_less(zero, weight, V::mul(weight, scale), weight);
      }
      V::store(weights.rows[row] + t, weight);
    }
    return reduce_add<V>(total);
  }

  template <int kRows>
  static void accumulate(Pieces pieces, int count, int padded_dim, const Weights& weights,
                         float* sums) {
    constexpr int kWide = V::kVectors * V::kLanes;
    int d = 0;
    for (; d + kWide <= padded_dim; d += kWide)
      accumulate_dims<kRows, V::kVectors>(pieces, count, padded_dim, d, weights, sums);
    for (; d < padded_dim; d += V::kLanes)
      accumulate_dims<kRows, 1>(pieces, count, padded_dim, d, weights, sums);
  }

  static F sum(const float* sums, const Weights&, int) { return V::load(sums); }

private:
  static const float* scales_of(const uint8_t* piece) {
    return reinterpret_cast<const float*>(piece);
  }

  static void multiply_scales(Pieces pieces, int count, float* scores) {
    for (int t = 0; t < count * kPiece; t += V::kLanes)
      V::store(scores + t,
               V::mul(V::load(scores + t), V::load(scales_of(pieces[t / kPiece]) + t % kPiece)));
  }

  // Vectors [first, first + kWide) of the pieces' tokens.
  template <int kRows, int kWide>
  static void score_vectors(Pieces pieces, int first, int dim, const Queries& queries,
                            float* scores) {
    F sum[kRows][kWide];
    for (int r = 0; r < kRows; r++)
      for (int w = 0; w < kWide; w++) sum[r][w] = V::set1(0.0f);
    for (int d = 0; d < dim; d += kPer) {
      F k[kWide][kPer];
      for (int w = 0; w < kWide; w++) {
        const int place = (first + w) % kPerPiece * V::kLanes * 4;
        Lanes::take_apart(pieces[(first + w) / kPerPiece] + Lanes::kScales + d / kPer * 64 + place,
                          k[w], true);
      }
      for (int j = 0; j < kPer; j++)
        for (int r = 0; r < kRows; r++) {
          const F q = V::set1(queries.rows[r][d + j]);
          for (int w = 0; w < kWide; w++) sum[r][w] = V::fma(q, k[w][j], sum[r][w]);
        }
    }
    for (int r = 0; r < kRows; r++)
      for (int w = 0; w < kWide; w++)
        V::store(scores + r * kScoreStride + (first + w) * V::kLanes, sum[r][w]);
  }

  template <int kRows, int kWide>
  static void accumulate_dims(Pieces pieces, int count, int padded_dim, int first,
                              const Weights& weights, float* sums) {
    F sum[kRows][kWide];
    for (int r = 0; r < kRows; r++)
      for (int w = 0; w < kWide; w++) sum[r][w] = V::set1(0.0f);
    for (int i = 0; i < count; i++) {
      const uint8_t* values = pieces[i] + Lanes::kScales + first * 4;
      for (int t = 0; t < kPiece; t += kPer, values += padded_dim * 4) {
        F v[kWide][kPer];
        for (int w = 0; w < kWide; w++) Lanes::take_apart(values + w * V::kLanes * 4, v[w], false);
        for (int j = 0; j < kPer; j++)
          for (int r = 0; r < kRows; r++) {
            const F weight = V::set1(weights.rows[r][i * kPiece + t + j]);
            for (int w = 0; w < kWide; w++) sum[r][w] = V::fma(weight, v[w][j], sum[r][w]);
          }
      }
    }
    for (int r = 0; r < kRows; r++)
      for (int w = 0; w < kWide; w++)
        V::store(sums + r * padded_dim + first + w * V::kLanes, sum[r][w]);
  }
};

}  // namespace
}  // namespace octavo
