// This is the header of the core (libweft_core): tensors, compiled steps and their plans, modules,
// optimizers, data, files, models. Including it registers the backends of this build. weft.h has in
// addition recipes, their data sets, losses and metrics, and the program.
#pragma once

#include "weft/base/numbers/quantity.h"
#include "weft/base/text/print.h"
#include "weft/data/images.h"
#include "weft/data/table.h"
#include "weft/data/tokens.h"
#include "weft/io/load.h"
#include "weft/io/model_folder.h"
#include "weft/io/safetensors.h"
#include "weft/models/encoder.h"
#include "weft/models/model.h"
#include "weft/models/pretrained.h"
#include "weft/nn/nn.h"
#include "weft/optim/optim.h"
#include "weft/tensor/compile.h"
#include "weft/tensor/parallel.h"
#include "weft/tensor/session.h"
#include "weft/tensor/tensor.h"

namespace weft {

// Makes the backends of this build known to `library(name)`. Calling it again does nothing.
bool register_backends();
namespace detail {
inline const bool backends_registered = register_backends();
}

}  // namespace weft
