// This is the umbrella header of the library; including it registers the backends of this build.
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
#include "weft/tensor/session.h"
#include "weft/tensor/tensor.h"
#include "weft/train/task/dataset.h"
#include "weft/train/task/loss.h"
#include "weft/train/task/metric.h"

namespace weft {

// Runs the weft program with all its commands and with the models that are registered by then, and
// returns the exit code:
//   int main(int argc, char** argv) { return weft::main(argc, argv); }
int main(int argc, char** argv);

// Reports the current exception as weft::main does, for programs with a main function of their own:
// prints one line on standard error and returns the exit code.
//   int main() try { ... } catch (...) { return weft::report_failure(); }
int report_failure();

// Makes the backends of this build known to `library(name)`. Calling it again does nothing.
bool register_backends();
namespace detail {
inline const bool backends_registered = register_backends();
}

}  // namespace weft
