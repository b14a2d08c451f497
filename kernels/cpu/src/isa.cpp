#include "isa.h"

namespace octavo {

bool isa_supported(int isa) {
  switch (isa) {
  case OCTAVO_PORTABLE:
    return true;
#ifdef OCTAVO_X86
  case OCTAVO_AVX2:
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  case OCTAVO_AVX512:
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
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
