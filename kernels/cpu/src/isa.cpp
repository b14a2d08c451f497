#include "isa.h"

namespace octavo {

bool isa_supported(int isa) {
  switch (isa) {
  case OCTAVO_PORTABLE:
    return true;
#ifdef OCTAVO_X86
  case OCTAVO_AVX2:
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  case OCTAVO_AVX512:
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
  case OCTAVO_AVX512_BF16:
    return isa_supported(OCTAVO_AVX512) && __builtin_cpu_supports("avx512bf16");
#endif
  default:
    return false;
  }
}

}  // namespace octavo

extern "C" int octavo_abi_version(void) {
  return OCTAVO_ABI_VERSION;
}

extern "C" int octavo_isa_supported(int isa) {
  return octavo::isa_supported(isa);
}
