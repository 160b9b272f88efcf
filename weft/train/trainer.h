// The training loop, evaluation, and the folder of a run:
//
//   runs/NAME/{recipe.yaml, plan.json, log.jsonl, checkpoints/...}
#pragma once

#include <string>

#include "weft/device/spec.h"
#include "weft/train/experiment.h"
#include "weft/train/report.h"

namespace weft::train {

inline constexpr int exit_saved = 75;  // stopped by a signal after a good save

struct TrainOptions {
  std::string runs = "runs";  // the folder of all runs
  bool resume = false;        // go on from checkpoints/latest; without one, from the start
  bool overwrite = false;     // remove a run of this name
  MachineSpec machine = {};
  bool quiet = false;         // no lines on the screen
};

struct TrainResult {
  int exit_code = 0;          // 0, or exit_saved
  int64_t step = 0;
  Evaluation evaluation;      // the last one
  std::string run_folder, checkpoint;  // the last one saved
};

// Runs a recipe to its end. Throws Error(usage) if the run exists and neither resume nor overwrite is
// set, Error(non_finite) naming the step when a loss is not finite, Error(checkpoint), Error(data).
// Signals: see signals.h.
TrainResult train(const Recipe& recipe, const TrainOptions& options = {});

// What `weft plan` shows: compiled as train() does, for a device that runs nothing.
struct PlannedRun {
  Experiment experiment;
  RunReport report;             // its plans lie in `steps`
  std::shared_ptr<class Steps> steps;
};
std::unique_ptr<PlannedRun> plan_run(const Recipe& recipe, const MachineSpec& machine = {});

// Of the validation data, every sample once. `device` as train.device.
Evaluation evaluate(Experiment& experiment);

}  // namespace weft::train
