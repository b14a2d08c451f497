#include <new>

#include "decoder.h"
#include "isa.h"

struct OctavoDecoder {
  explicit OctavoDecoder(const OctavoDecoderConfig& config) : decoder(config) {}
  octavo::Decoder decoder;
};

extern "C" OctavoDecoder* octavo_decoder_create(const OctavoDecoderConfig* config) {
  if (!octavo::isa_supported(config->isa)) return nullptr;
  try {
    return new OctavoDecoder(*config);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

extern "C" void octavo_decoder_destroy(OctavoDecoder* decoder) {
  delete decoder;
}

extern "C" void octavo_decoder_set_kv(OctavoDecoder* decoder, void* base, int32_t num_blocks,
                                      int32_t block_size, int32_t kv_dtype) {
  decoder->decoder.set_kv(base, num_blocks, block_size, kv_dtype);
}

extern "C" int octavo_decoder_set_adapter(OctavoDecoder* decoder, int32_t slot,
                                          const OctavoLowRank* matrices) {
  try {
    decoder->decoder.set_adapter(slot, matrices);
    return OCTAVO_OK;
  } catch (const std::bad_alloc&) {
    return OCTAVO_OUT_OF_MEMORY;
  }
}

extern "C" int octavo_decoder_step(OctavoDecoder* decoder, OctavoStep* step) {
  try {
    return decoder->decoder.step(*step);
  } catch (const std::bad_alloc&) {
    return OCTAVO_OUT_OF_MEMORY;
  }
}

extern "C" void octavo_decoder_phase_seconds(const OctavoDecoder* decoder, double* seconds) {
  for (int i = 0; i < OCTAVO_NUM_PHASES; i++) seconds[i] = decoder->decoder.phase_seconds()[i];
}
