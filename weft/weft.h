// The one header of the library. Including it registers the backends that this build has.
#pragma once

#include "weft/nn/nn.h"
#include "weft/optim/optim.h"
#include "weft/tensor/compile.h"
#include "weft/tensor/tensor.h"

namespace weft {

// Makes "cpu", "reference" and "null" known to `library(name)`. Calling it again does nothing.
bool register_backends();
namespace detail {
inline const bool backends_registered = register_backends();
}

}  // namespace weft
