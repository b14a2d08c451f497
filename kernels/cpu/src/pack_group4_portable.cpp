#include "pack_group4.h"

namespace octavo {

const PackGroup4 kPortablePackGroup4 = pack_group4;

}  // namespace octavo
