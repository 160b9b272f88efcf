// Sums up the memory and the time of a plan.
#pragma once

#include <string>

#include "weft/device/device.h"
#include "weft/device/spec.h"
#include "weft/ir/plan.h"
#include "weft/ir/plan_summary.h"

namespace weft {

// Returns the seconds of a run at the roofline: each kernel takes as long as its operations or its
// bytes need, whichever is more. Transfers run beside the kernels, one after another, and hold up
// the launches that await them. 0 if the machine is unknown.
double planned_seconds(const Plan& plan, const MachineSpec& machine);
// Returns the seconds of a run whose kernels take their likely times instead.
double likely_seconds(const Plan& plan, const MachineSpec& machine);

// Returns which value of a plan takes most memory: "f32[1, 4096, 4096] of attn.softmax, 64.0 MiB",
// by its module where it has one; a variable by its name.
std::string largest_value(const Plan& plan);

// `library` is the library that the plan is for; `machine` gives the times. The caller fills in the
// name of the device.
PlanSummary summarize(const Plan& plan, const KernelLibrary& library, const MachineSpec& machine);

}  // namespace weft
