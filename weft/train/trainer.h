// The training loop: a recipe from its first step, or from a checkpoint, to its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "weft/device/spec.h"
#include "weft/train/evaluation.h"
#include "weft/train/experiment.h"
#include "weft/train/report.h"
#include "weft/train/steps.h"

namespace weft::train {

inline constexpr int exit_saved = 75;  // stopped by a signal after a good save

struct TrainOptions {
  std::string runs = "runs";      // the folder of all runs
  bool resume = false;            // go on with a run: from checkpoints/latest, else from its start
  bool overwrite = false;         // replace a run of this name
  MachineSpec machine = {};       // for planned times and mfu
  bool quiet = false;             // no lines on the screen
  double last_save_seconds = 10;  // for which the last save is tried again while it fails
  std::function<void(int64_t step)> after_step = {};  // called on the thread that trains
};

struct TrainResult {
  int exit_code = 0;  // 0, or exit_saved
  int64_t step = 0;
  std::optional<double> train_loss;    // of the last update's batch
  Evaluation evaluation;               // the last one of this call
  std::string run_folder, checkpoint;  // the last one saved
};

// Runs a recipe to its end, planned as plan_run() does, in the memory that is free. Throws
// Error(usage) if the run exists and neither resume nor overwrite is set, or it does not and resume
// is, Error(non_finite) naming the step when a loss is not finite, Error(checkpoint), Error(data).
// Signals: see signals.h.
TrainResult train(const Recipe& recipe, const TrainOptions& options = {});

// What `weft plan` shows: compiled as train() does, for a device that runs nothing.
struct PlannedRun {
  Experiment experiment;
  Steps steps;
  RunReport report;  // of the plans in `steps`

  // `until`: as in StepOptions.
  PlannedRun(const Recipe& recipe, const MachineSpec& machine, std::optional<double> until = {});
};

// Recipe::where() of a `train.memory` that nobody wrote: what the device has, or this machine.
inline constexpr const char* limit_origin = "plan";

// Planned within `train.memory`, so that all in all it takes at most `has` bytes of the memory of
// its device, or of this machine (0: unknown); null where it does not fit. Where that is known by
// then, `least` becomes the bytes of state and arena that it takes at the least.
std::unique_ptr<PlannedRun> plan_that_fits(Recipe recipe, const MachineSpec& machine, size_t has,
                                           std::optional<double> until = {},
                                           size_t* least = nullptr);

// The plan does not fit in the memory that there is.
struct DoesNotFit : Error {
  DoesNotFit(const std::string& message, std::string table)
      : Error(ErrorKind::does_not_fit, message), table(std::move(table)) {}
  std::string table;  // what it would take of it
};

// Without `train.memory` the limit is what the device has, or this machine: where the plan takes
// more, kernels run again and logits exist in parts. Throws DoesNotFit where that is not enough.
std::unique_ptr<PlannedRun> plan_run(const Recipe& recipe, const MachineSpec& machine = {});

}  // namespace weft::train
