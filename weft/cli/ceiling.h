// What no step can do better than: the floor of arithmetic and memory, and the time of its matrix
// products and convolutions alone. For `weft bench`.
#pragma once

#include <map>
#include <string>

#include "weft/ir/plan.h"

namespace weft::cli {

// What a step needs at least, however it is cut into kernels.
struct LeastWork {
  std::map<std::string, double> flops;  // by the type that they are done in: "f32"; once each
  double bytes = 0;  // state that is read, state that is assigned, inputs and outputs: once each
};
LeastWork least_work(const Plan& plan);

// Milliseconds of the plan's matrix products and convolutions, each alone, by the fastest kernel
// that there is for it. Runs each several times; holds memory for one at a time.
double products_milliseconds(const Plan& plan);

}  // namespace weft::cli
