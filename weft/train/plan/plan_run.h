// Declares what train() shares with plan_run() and the other plans of trainer.h. It is internal to
// trainer.cpp and plan_run.cpp.
#pragma once

#include <memory>
#include <string>

#include "weft/train/run/trainer.h"

namespace weft::train {

// Reports the plans of `steps`, with how often an update runs each.
RunReport report_of(const Experiment& experiment, Steps& steps, const MachineSpec& machine);

// Plans a recipe that failed to fit with `message` again within `host_memory`, or the memory of its
// device, using rematerialization and row tiling. Throws DoesNotFit where that is not enough, or
// where the recipe has a smaller limit of its own. `whole`: its plan without a limit, where there
// is one.
std::unique_ptr<PlannedRun> plan_within(const Recipe& recipe, const MachineSpec& machine,
                                        size_t host_memory, std::string message, double began,
                                        std::unique_ptr<PlannedRun> whole = nullptr);

}  // namespace weft::train
