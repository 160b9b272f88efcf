// The fastest of several kernels on this machine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "weft/backends/cpu/kernels.h"
#include "weft/device/selection.h"

namespace weft::cpu {

// What a measurement stands for: another processor, number of cores or version of a library has its
// own. "Intel(R) Xeon(R), 2 cores, avx2 avx512f, up to avx512, oneDNN 2.6.3".
std::string machine_identity();

// Runs each on operands that lie as given, or as it asks for, and returns the fastest. Takes a few
// runs of each, and memory for operands and result.
const KernelChoice& fastest(const Node& node, std::span<const Placement> operands,
                            const Family& family, std::span<const KernelChoice> choices);

// Of the fastest kernel that there is for the node, measured here and now; 0: there is none.
double least_milliseconds(const Node& node, std::span<const Placement> operands);

}  // namespace weft::cpu
