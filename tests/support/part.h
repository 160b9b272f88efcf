// Cuts the cases of a long test into parts: with PART=2/4 in the environment, a test that asks
// in_part() takes every fourth case, from the second on. Without PART it takes all.
#pragma once

#include <cstddef>

namespace weft::testing {

bool in_part(size_t index);

}  // namespace weft::testing
