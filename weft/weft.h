// This is the umbrella header of the library; including it registers the backends of this build.
#pragma once

#include "weft/core.h"
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

}  // namespace weft
