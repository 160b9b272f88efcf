// Measures kernels to select the fastest on this machine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "weft/backends/cpu/kernels.h"
#include "weft/device/selection.h"

namespace weft::cpu {

// Returns the identity of the machine for which a measurement is valid. It differs if the CPU, the
// number of cores or the version of a library does: "Intel(R) Xeon(R), 2 cores, avx2 avx512f, up to
// avx512, oneDNN 2.6.3".
std::string machine_identity();

// Runs each choice a few times on operands in the given layouts, or in the layouts that the choice
// asks for, and returns the fastest. Allocates memory for operands and result.
const KernelChoice& fastest(const Node& node, std::span<const Placement> operands,
                            const Family& family, std::span<const KernelChoice> choices);

// Returns the time of the fastest kernel for the node, measured now; 0 if there is none.
double least_milliseconds(const Node& node, std::span<const Placement> operands);

}  // namespace weft::cpu
