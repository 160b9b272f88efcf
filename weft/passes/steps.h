// What passes and reports ask of one step of a plan.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "weft/device/device.h"
#include "weft/device/spec.h"
#include "weft/ir/plan.h"

namespace weft {

// Sets Step::flops and Step::bytes from its body, operands and results.
void count_work(Step& step, std::span<const Slot> slots);

// What a step costs: the bytes that the machine moves in its time.
double cost(const Step& step, const MachineSpec& machine);

// The step run once more for what lies in these slots: only what they need of a fused kernel, but
// all of one that reduces, as the order of a sum depends on what else its kernel does, and the bits
// on the order; all of a library's kernel. Operands and results are as they were.
Step run_again_for(Step step, std::span<const int> slots, std::span<const Slot> all,
                   const KernelLibrary& library);

// Inserts steps, each before the step that it names, in their order.
void insert(Plan& plan, std::vector<std::pair<int, Step>> steps);

// Whether the kernel reads the operand at places of an op's own choosing (gather, pad, concat), not
// element by element.
bool gathers(const Step& step, const Node* operand);

// Whether a library's kernel computes something from the value of its own node, the first of
// `body`: that could be made again by itself where the value is stored.
bool reads_own(std::span<const Value> body);

}  // namespace weft
