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

// A RunQuestion is a run that takes no memory, and its question to the planner.
struct RunQuestion {
  Experiment experiment;
  PlanQuestion question;
  bool is_limit_found = false;  // nobody chose the limit of memory: it is what the device has
};

// PlannedRun is a question and its answer, which `weft plan` shows: plans as train() compiles them.
struct PlannedRun : RunQuestion {
  RunReport report;

  PlannedRun(const Recipe& recipe, const MachineSpec& machine);
  PlannedRun(RunQuestion run, RunReport report);
};

// This is the Recipe::where() of a `train.memory` that no user set: the limit is the memory of the
// device or of this machine.
inline constexpr const char* limit_origin = "plan";

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
