// The training loop: runs a recipe from its first step, or from a checkpoint, to its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "weft/device/spec.h"
#include "weft/train/experiment.h"
#include "weft/train/run/report.h"
#include "weft/train/run/steps.h"
#include "weft/train/task/evaluation.h"

namespace weft::train {

inline constexpr int exit_saved = 75;  // stopped by a signal after a successful save

struct TrainOptions {
  std::string runs = "runs";      // the folder of all runs
  bool resume = false;            // from checkpoints/latest, else from the start
  bool overwrite = false;         // replace a run of the same name
  MachineSpec machine = {};       // for planned times and mfu
  bool quiet = false;             // no lines on the screen
  double last_save_seconds = 10;  // how long a failing last save is retried
  std::function<void(int64_t step)> after_step = {};  // called on the training thread
};

struct TrainResult {
  int exit_code = 0;  // 0, or exit_saved
  int64_t step = 0;
  std::optional<double> train_loss;    // loss of the last update's batch
  Evaluation evaluation;               // the last one of this call
  std::string run_folder, checkpoint;  // the last one saved
};

// Runs a recipe to its end, planned as in plan_run(), within the free memory. Throws Error(usage)
// if the run exists and neither resume nor overwrite is set, or if it does not exist and resume is
// set, Error(non_finite) naming the step when a loss is not finite, Error(checkpoint), Error(data).
// signals.h describes the signals.
TrainResult train(const Recipe& recipe, const TrainOptions& options = {});

// PlannedRun has the plans that `weft plan` shows: compiled as in train(), for a device that runs
// nothing.
struct PlannedRun {
  Experiment experiment;
  Steps steps;
  RunReport report;  // the report on the plans in `steps`

  // `until` is as in StepOptions.
  PlannedRun(const Recipe& recipe, const MachineSpec& machine, std::optional<double> until = {});
};

// This is the Recipe::where() of a `train.memory` that no user set: the limit is the memory of the
// device or of this machine.
inline constexpr const char* limit_origin = "plan";

// Plans within `train.memory` so that the run takes at most `has` bytes in total of the memory of
// its device, or of this machine (0: unknown). Returns null where it does not fit; where the
// minimum is known by then, `least` is set to the smallest possible bytes of state and arena.
std::unique_ptr<PlannedRun> plan_that_fits(Recipe recipe, const MachineSpec& machine, size_t has,
                                           std::optional<double> until = {},
                                           size_t* least = nullptr);

// Thrown where the plan does not fit in the available memory.
struct DoesNotFit : Error {
  DoesNotFit(const std::string& message, std::string table)
      : Error(ErrorKind::does_not_fit, message), table(std::move(table)) {}
  std::string table;  // the memory that it would take, by part
};

// Plans a run. Without `train.memory` the limit is the memory of the device or of this machine: a
// plan that exceeds it uses rematerialization and row tiling. Throws DoesNotFit where that is not
// enough.
std::unique_ptr<PlannedRun> plan_run(const Recipe& recipe, const MachineSpec& machine = {});

}  // namespace weft::train
