// Queries about one launch of a plan, for passes and reports.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "weft/device/spec.h"
#include "weft/ir/plan.h"

namespace weft {

// Sets Step::flops and Step::bytes from its body, operands and results.
void count_work(Step& step, std::span<const Slot> slots);

// Returns the cost of a launch: the bytes that the machine could move in its time.
double cost(const Step& step, const MachineSpec& machine);

// Inserts steps, in the given order, each before the step at its index.
void insert(Plan& plan, std::vector<std::pair<int, Step>> steps);

// Returns whether the kernel reads the operand at indices of its own choice (gather, pad, concat)
// instead of element by element.
bool gathers(const Step& step, const Node* operand);

// Returns whether a library kernel computes something from its own node, the first of `body`. If
// that node's value is stored, the rest could be rematerialized without the library kernel.
bool reads_own(std::span<const Value> body);

}  // namespace weft
