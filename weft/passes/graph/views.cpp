#include "weft/passes/graph/views.h"

namespace weft {
bool same_strides(const Shape& shape, const Dims& a, const Dims& b) {
  for (int i = 0; i < shape.size(); ++i)
    if (shape[i] > 1 && a[i] != b[i]) return false;
  return true;
}
}  // namespace weft
