// Which instruction sets this build and this CPU have.
#pragma once

#include "abi.h"

namespace octavo {

bool isa_supported(int isa);

}  // namespace octavo
