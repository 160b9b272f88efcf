// Declares queries about one launch of a plan, for passes and reports.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "weft/device/device.h"
#include "weft/device/spec.h"
#include "weft/ir/plan.h"

namespace weft {

// Sets Launch::flops and Launch::bytes from its body, operands and results.
void count_work(Launch& launch, std::span<const Slot> slots);

// Returns the cost of a launch: the bytes that the machine could move in its time.
double cost(const Launch& launch, const MachineSpec& machine);

// Returns a launch that rematerializes the values of these slots. A fused kernel without reductions
// is cut down to the nodes that these values need. Kernels that reduce, and library kernels, run
// whole, because the order of a sum, and so its bits, depends on everything that its kernel
// computes. Operands and results keep their places.
Launch run_again_for(Launch launch, std::span<const int> slots, std::span<const Slot> all,
                     const KernelLibrary& library);

// Inserts launches, each before the launch that it names, in their order.
void insert(Plan& plan, std::vector<std::pair<int, Launch>> launches);

// Returns whether the kernel reads the operand at indices of its own choice (gather, pad, concat)
// instead of element by element.
bool gathers(const Launch& launch, const Node* operand);

// Returns whether a library kernel computes something from its own node, the first of `body`. If
// that node's value is stored, the rest could be rematerialized without the library kernel.
bool reads_own(std::span<const Value> body);

}  // namespace weft
