#include "pack_group4.h"

namespace octavo {

const PackGroup4 kAvx2PackGroup4 = pack_group4;

}  // namespace octavo
