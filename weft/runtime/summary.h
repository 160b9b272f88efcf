// Sums up the memory and the time of a plan.
#pragma once

#include "weft/device/device.h"
#include "weft/device/spec.h"
#include "weft/ir/plan.h"
#include "weft/ir/plan_summary.h"

namespace weft {

// Seconds at the roofline: each kernel takes as long as its operations or its bytes need, whichever
// is more. Transfers take their time beside the kernels, one after another, and hold up those that
// await them. 0 if the machine is unknown.
double planned_seconds(const Plan& plan, const MachineSpec& machine);
// The same with the likely time of each kernel.
double likely_seconds(const Plan& plan, const MachineSpec& machine);

// `library`: that the plan is for; `machine` gives the times. Whoever has its name says which
// device it is.
PlanSummary summarize(const Plan& plan, const KernelLibrary& library, const MachineSpec& machine);

}  // namespace weft
