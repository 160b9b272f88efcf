// The one header of the library. Including it registers the backends that this build has.
#pragma once

#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "weft/base/quantity.h"
#include "weft/data/images.h"
#include "weft/data/tokens.h"
#include "weft/io/load.h"
#include "weft/io/safetensors.h"
#include "weft/models/model.h"
#include "weft/nn/nn.h"
#include "weft/optim/optim.h"
#include "weft/tensor/compile.h"
#include "weft/tensor/tensor.h"
#include "weft/train/dataset.h"
#include "weft/train/loss.h"
#include "weft/train/metric.h"

namespace weft {

// The program, with every verb and with the models that were registered before. Returns the exit
// code:
//   int main(int argc, char** argv) { return weft::main(argc, argv); }
int main(int argc, char** argv);

// What weft::main does with an exception, for programs that have a main function of their own: says
// in one line on standard error what went wrong, and returns the exit code for that.
//   int main() try { ... } catch (...) { return weft::report_failure(); }
int report_failure();

// A line on standard output, in fmt's format. As an object it hides std::print and fmt::print,
// which calls with a std::string or a type of fmt would find beside it.
struct Print {
  template <class... Args>
  void operator()(fmt::format_string<Args...> format, Args&&... args) const {
    fmt::print("{}\n", fmt::format(format, std::forward<Args>(args)...));
  }
};
inline constexpr Print print;

// Makes "cpu", "reference" and "null" known to `library(name)`. Calling it again does nothing.
bool register_backends();
namespace detail {
inline const bool backends_registered = register_backends();
}

}  // namespace weft
