// Converts the int numbers of launches and slots (-1 for none) to indices of vectors.
#pragma once

#include <cstddef>

namespace weft {

inline size_t index(int i) { return static_cast<size_t>(i); }

}  // namespace weft
