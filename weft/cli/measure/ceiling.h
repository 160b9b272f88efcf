// Computes bounds on the time of a step for `weft bench`: the floor of arithmetic and memory
// traffic, and the time of its matrix products and convolutions alone.
#pragma once

#include <map>
#include <string>

#include "weft/ir/plan.h"

namespace weft::cli {

// LeastWork is the minimum work of a step, however it is divided into kernels.
struct LeastWork {
  std::map<std::string, double> flops;  // by the type they are computed in: "f32"; each once
  double bytes = 0;                     // state read and assigned, inputs and outputs: each once
};
LeastWork least_work(const Plan& plan);

// Returns the milliseconds of the plan's matrix products and convolutions, each alone in its
// fastest kernel. Runs each several times; holds memory for one at a time.
double products_milliseconds(const Plan& plan);

}  // namespace weft::cli
