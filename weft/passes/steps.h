// What passes and reports ask of one step of a plan.
#pragma once

#include <span>

#include "weft/ir/plan.h"

namespace weft {

// Sets Step::flops and Step::bytes from its body, operands and results.
void count_work(Step& step, std::span<const Slot> slots);

// What the kernel takes of a machine, roughly: bytes that it moves in the time.
double cost(const Step& step);

// Whether the kernel reads the operand at places of an op's own choosing (gather, pad, concat), not
// element by element.
bool gathers(const Step& step, const Node* operand);

}  // namespace weft
