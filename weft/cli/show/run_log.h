// Reads the files that a run left in its folder: recipe.yaml, plan.json and log.jsonl, for tables.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft::cli {

struct LoggedEvaluation {
  int64_t step = 0;
  double loss = 0, score = 0;
};

struct RunLog {
  std::string name, folder, model;
  int64_t step = 0, steps = 0;  // done; planned (0: unknown)
  double parameters = 0;
  std::vector<double> losses;           // one per logged step
  std::optional<double> rate;           // on the last line, in `unit`
  std::string unit;                     // "img/s"
  std::string score_name = "accuracy";  // the score of evaluations: "r2" for a regression
  std::vector<LoggedEvaluation> evaluations;
  bool closed = false;  // ran to its end
  double seconds = 0;   // duration of the closed run
  double step_seconds = 0, planned_step_seconds = 0;
  double process_peak = 0, planned_bytes = 0;

  const LoggedEvaluation* last() const;
  const LoggedEvaluation* best() const;  // by score, then loss
};

// Throws Error(data) if the folder holds no run, or a field has the wrong type. Lines that are not
// JSON (from a killed run) are skipped.
RunLog read_run(const std::string& folder);
// Reads all runs of a folder, sorted by name.
std::vector<RunLog> read_runs(const std::string& runs);

// Maps keys of the run's recipe to values: "optimizer.lr" -> "0.001".
std::map<std::string, std::string> recipe_values(const RunLog& run);

}  // namespace weft::cli
