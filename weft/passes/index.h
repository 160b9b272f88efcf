// Plans number their steps and slots by int, -1 for none; vectors are read by size_t.
#pragma once

#include <cstddef>

namespace weft {

inline size_t index(int i) { return static_cast<size_t>(i); }

}  // namespace weft
