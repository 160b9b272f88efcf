#include "weft/ops/methods.h"

namespace weft {
template class TensorMethods<Tensor>;
}
