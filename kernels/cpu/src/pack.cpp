// Turns rows of a weight into blocks of a packed matrix.
//
//   rows as stored ─┬─ same grid of values: codes and scales are only moved ───┬─▶ block
//                   └─ tile of float32 ──▶ checked ──▶ rounded or quantised ───┘
#include <atomic>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

#include "isa.h"
#include "pack_block.h"
#include "pack_group4.h"
#include "pack_source.h"
#include "thread_pool.h"

namespace octavo {
namespace {

constexpr int64_t kNoIndex = INT64_MAX;

struct Packing {
  const uint8_t* source;
  int64_t row_bytes;
  int64_t num_rows;
  int64_t cols;
  int64_t padded_cols;
  int scheme;
  MatrixFormat format;
  int group;
  PackGroup4 pack_group4;

  const uint8_t* row(int64_t r) const { return source + r * row_bytes; }
};

int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Whether every value of the scheme is one of the format's, with the same 32 columns to a scale.
bool keeps_codes(const Packing& p) {
  if (is_dense(p.scheme) || p.group != kPieceCols) return false;
  switch (p.format) {
  case kFormatGroup8:
    return zero_code(p.scheme) >= 0;
  case kFormatGroup4:
    return p.scheme == OCTAVO_Q4_0;
  case kFormatGroup4Min:
    return p.scheme == OCTAVO_Q4_0 || p.scheme == OCTAVO_Q4_1 || p.scheme == OCTAVO_Q4_K;
  default:
    return false;
  }
}

bool is_finite(Float16 x) {
  return (x.bits & 0x7c00) != 0x7c00;
}

// Codes of one piece of all rows, in the format's terms, to its scales, mins and bytes at `out`.
// Returns the row of the first scale that is not finite, or -1.
int move_piece(const Packing& p, int64_t first_row, int64_t piece, uint8_t* out) {
  const int zero = p.format == kFormatGroup8 ? 128 : p.format == kFormatGroup4 ? 8 : 0;
  const bool has_min = p.format == kFormatGroup4Min;
  uint8_t codes[kBlockRows][kPieceCols];
  Float16 scales[kBlockRows] = {}, mins[kBlockRows] = {};
  memset(codes, zero, sizeof codes);
  int bad_row = -1;
  const bool beyond = piece * kPieceCols >= p.cols;
  for (int r = 0; r < kBlockRows && first_row + r < p.num_rows && !beyond; r++) {
    CodedPiece coded;
    read_codes(p.scheme, p.row(first_row + r), piece, coded);
    const int own_zero = zero_code(p.scheme);
    if (has_min && own_zero > 0) coded.min = -coded.scale * own_zero;
    const int shift = has_min ? 0 : zero - own_zero;
    for (int c = 0; c < kPieceCols; c++) codes[r][c] = coded.codes[c] + shift;
    store_as(coded.scale, &scales[r]);
    store_as(coded.min, &mins[r]);
    if (!(is_finite(scales[r]) && is_finite(mins[r])) && bad_row < 0) bad_row = r;
  }
  memcpy(out, scales, sizeof scales);
  out += sizeof scales;
  if (has_min) memcpy(out, mins, sizeof mins);
  if (has_min) out += sizeof mins;
  if (p.format == kFormatGroup8) {
    for (int c = 0; c < kPieceCols; c += 4)
      for (int r = 0; r < kBlockRows; r++, out += 4) memcpy(out, codes[r] + c, 4);
    return bad_row;
  }
  for (int c = 0; c < kPieceCols; c += 8)
    for (int r = 0; r < kBlockRows; r++, out += 4)
      for (int j = 0; j < 4; j++) out[j] = codes[r][c + j] | codes[r][c + 4 + j] << 4;
  return bad_row;
}

// Returns the index of a weight whose scale is not finite, or kNoIndex.
int64_t move_block(const Packing& p, int64_t first_row, uint8_t* out) {
  const int64_t step = block_bytes(p.format, kPieceCols, kPieceCols);
  for (int64_t piece = 0; piece < p.padded_cols / kPieceCols; piece++, out += step) {
    const int bad_row = move_piece(p, first_row, piece, out);
    if (bad_row >= 0) return (first_row + bad_row) * p.cols + piece * kPieceCols;
  }
  return kNoIndex;
}

// Fills the tile; rows and columns beyond the source's are zero. Returns whether all weights are
// finite as packed.
bool fill_tile(const Packing& p, int64_t first_row, float* tile) {
  const float limit = largest_weight(p.format);
  int bad = 0;
  for (int64_t c = 0; c < p.padded_cols; c += kPieceCols) {
    float values[kBlockRows][kPieceCols] = {};
    const int64_t count = p.cols - c < kPieceCols ? p.cols - c : kPieceCols;
    for (int r = 0; r < kBlockRows && first_row + r < p.num_rows && count > 0; r++)
      read_values(p.scheme, p.row(first_row + r), c / kPieceCols, count, values[r]);
    for (int i = 0; i < kPieceCols; i++)
      for (int r = 0; r < kBlockRows; r++) {
        const float w = values[r][i];
        tile[(c + i) * kBlockRows + r] = w;
        bad |= !(magnitude(w) <= limit);
      }
  }
  return bad == 0;
}

int64_t find_bad(const Packing& p, int64_t first_row, const float* tile) {
  const float limit = largest_weight(p.format);
  for (int r = 0; r < kBlockRows; r++)
    for (int64_t c = 0; c < p.cols; c++)
      if (!(magnitude(tile[c * kBlockRows + r]) <= limit)) return (first_row + r) * p.cols + c;
  return kNoIndex;
}

int64_t quantise_block(const Packing& p, int64_t first_row, float* tile, uint8_t* out) {
  if (!fill_tile(p, first_row, tile)) return find_bad(p, first_row, tile);
  switch (p.format) {
  case kFormatBFloat16:
    pack_bfloat16(tile, p.padded_cols, out);
    break;
  case kFormatInt8:
    rotate(tile, p.padded_cols);
    pack_int8(tile, p.padded_cols, out);
    break;
  case kFormatGroup8:
    pack_group8(tile, p.padded_cols, p.group, out);
    break;
  case kFormatGroup4:
    p.pack_group4(tile, p.padded_cols, p.group, out);
    break;
  case kFormatGroup4Min:
    break;  // can_pack has refused it
  }
  return kNoIndex;
}

PackGroup4 pack_group4_of(int isa) {
#ifdef OCTAVO_X86
  if (isa >= OCTAVO_AVX512) return kAvx512PackGroup4;
  if (isa == OCTAVO_AVX2) return kAvx2PackGroup4;
#endif
  return kPortablePackGroup4;
}

bool can_pack(const OctavoPackRows& args, const Packing& p) {
  if (unit_bytes(p.scheme) == 0 || args.cols % unit_cols(p.scheme) != 0) return false;
  switch (p.format) {
  case kFormatBFloat16:
  case kFormatInt8:
    return true;
  case kFormatGroup8:
  case kFormatGroup4:
    return p.group == 32 || p.group == 64;
  case kFormatGroup4Min:
    return keeps_codes(p);
  }
  return false;
}

int pack_rows(OctavoPackRows& args) {
  if (!isa_supported(args.isa)) return OCTAVO_BAD_ISA;
  Packing p{};
  p.source = static_cast<const uint8_t*>(args.source);
  p.num_rows = args.num_rows;
  p.cols = args.cols;
  p.padded_cols = round_up(args.cols, kColUnit);
  p.scheme = args.scheme;
  p.format = static_cast<MatrixFormat>(args.format);
  p.group = args.group;
  p.pack_group4 = pack_group4_of(args.isa);
  if (!can_pack(args, p)) return OCTAVO_BAD_PACKING;
  p.row_bytes = args.cols / unit_cols(p.scheme) * unit_bytes(p.scheme);

  const bool moves = keeps_codes(p);
  const int64_t bytes = block_bytes(p.format, p.padded_cols, p.group);
  const int num_threads = args.num_threads > 1 ? args.num_threads : 1;
  const int64_t tile_floats = moves ? 0 : p.padded_cols * kBlockRows;
  std::vector<float> tiles(tile_floats * num_threads);
  std::atomic<int64_t> first_bad{kNoIndex};
  ThreadPool pool(num_threads);
  pool.run(round_up(p.num_rows, kBlockRows) / kBlockRows, [&](int64_t block, int thread) {
    uint8_t* out =
        static_cast<uint8_t*>(args.out) + (args.first_block + block * args.block_step) * bytes;
    const int64_t bad =
        moves ? move_block(p, block * kBlockRows, out)
              : quantise_block(p, block * kBlockRows, &tiles[thread * tile_floats], out);
    int64_t known = first_bad.load();
    while (bad < known && !first_bad.compare_exchange_weak(known, bad)) {
    }
  });
  args.bad_index = first_bad.load();
  return args.bad_index == kNoIndex ? OCTAVO_OK : OCTAVO_BAD_WEIGHT;
}

}  // namespace
}  // namespace octavo

extern "C" int octavo_pack_rows(OctavoPackRows* args) {
  try {
    return octavo::pack_rows(*args);
  } catch (const std::bad_alloc&) {
    return OCTAVO_OUT_OF_MEMORY;
  } catch (const std::system_error&) {  // no more threads
    return OCTAVO_OUT_OF_MEMORY;
  }
}
