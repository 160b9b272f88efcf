// Declares how runs ask the planner. plan_run() of trainer.h is all that others need.
#pragma once

#include <memory>
#include <string>

#include "weft/train/run/trainer.h"

namespace weft::train {

// Returns the question of a run, without its steps.
PlanQuestion question_of(const Experiment& experiment, const Steps& steps,
                         const MachineSpec& machine);
// Builds a run without its memory, and captures its steps.
RunQuestion ask(const Recipe& recipe, const MachineSpec& machine);

// Plans a recipe that failed to fit with `message` again within `host_memory`, or the memory of its
// device, using rematerialization and row tiling. Throws DoesNotFit where that is not enough, or
// where the recipe has a smaller limit of its own. The experiment's recipe gets the limit.
std::unique_ptr<PlannedRun> plan_within(const Recipe& recipe, const MachineSpec& machine,
                                        size_t host_memory, const std::string& message,
                                        double began);

}  // namespace weft::train
