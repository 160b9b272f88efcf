// Reports the needs of a plan, as tables and JSON, and the output of a run on the screen and in
// log.jsonl.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/device/meters.h"
#include "weft/device/spec.h"
#include "weft/planner/answer.h"
#include "weft/planner/costs.h"
#include "weft/train/experiment.h"

namespace weft::train {

// ---- the needs of a plan

// RunReport has all that `weft plan` prints and plan.json holds: a run, and the planner's answer.
struct RunReport : PlanAnswer {
  std::string model, device;
  int64_t parameters = 0, samples = 0, global_batch = 0, micro_batch = 0;
  int64_t ranks = 1;      // that share out a batch
  std::string link = {};  // between them
  int64_t steps = 0, steps_per_epoch = 0;
  double units = 0;                         // tokens, images or rows of an update
  std::string_view unit = {};               // as Experiment::unit() returns it
  size_t trained_bytes = 0;                 // bytes of the weights that train
  std::optional<double> usd_per_hour = {};  // price of the machine
  std::string quicker = {};                 // a sentence: changes that fit as well, in less time

  // Returns how many samples each whole epoch leaves out, which are no whole batch; 0 where the run
  // ends before one.
  int64_t left_out() const {
    return steps < steps_per_epoch ? 0 : samples - steps_per_epoch * global_batch;
  }
  double total_seconds() const { return seconds * static_cast<double>(steps); }
  double expected_total_seconds() const { return expected_seconds() * static_cast<double>(steps); }
};

// Returns what the ranks gather for operations that are not computed in parts, where it takes more
// than 1 % of an update, or where times are unknown.
std::vector<Gather> dear_gathers(const RunReport& report);
// Returns "sent by each rank per update for sort (layers.0.moe), which is not computed in
// parts: 3.1 % of an update".
std::string gather_text(const RunReport& report, const Gather& gather);
// Throws Error(usage) for the first gather, dear or not, where the recipe has parallel.strict.
void refuse_gathers(const Recipe& recipe, const RunReport& report);
RunReport make_report(const Experiment& experiment, PlanAnswer answer);
std::string to_table(const RunReport& report);
// Returns "each epoch leaves out 1 of 16 samples, which are no whole batch of 5"; "" for none.
std::string left_out_text(const RunReport& report);
// Returns "20.5 h at best by the peaks measured on one, 18.1 h by its data sheet"; "" without
// measured peaks.
std::string measured_text(const RunReport& report);
// Returns the table of the memory that a plan takes, and of its excess over `room`, the bytes that
// are available for state and arena.
std::string refusal_table(const RunReport& report, size_t room);
std::string to_table(const std::vector<ModuleCost>& modules);
std::string to_json(const RunReport& report);

// ---- numbers for people

std::string bytes_text(double bytes);                           // "812 MiB"
std::string count_text(double count);                           // "21.4k"
std::string amount_text(double amount, std::string_view unit);  // "4.1 GFLOP"
std::string time_text(double seconds);      // "12.25 ms", "14.0 s", "3.5 h", "130 days"
std::string duration_text(double seconds);  // "02:11", "1:02:11", "12.0 days"
std::string rate_text(double rate);         // "3.0e-4"
std::string energy_text(double joules);     // "812 J", "1.20 Wh", "74.1 MWh"
std::string cost_text(double usd);          // "$0.0012", "$12.35", "$1.2M"
double cost(double seconds, double usd_per_hour);

// ---- the output of a run

// A Window says how the seconds since the last step line were spent.
struct Window {
  double loader = 0, checkpoint = 0, step = 0;  // waited for data; saved; the rest
  double compute_share = 0, memory_share = 0;   // shares of `step`, as planned; zeros: unknown
};
// Returns what took most of the window's time: "compute" or "memory" (the bound of the kernels),
// "loader", "checkpoint"; "" if unknown.
std::string_view verdict(const Window& window);

struct StepLine {
  int64_t step = 0, steps = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  double units_per_s = 0;  // tokens, images or rows
  std::string unit = {};   // "tok/s"
  double mfu = 0;          // 0: unknown
  double loss_scale = 0;   // 0: none
  size_t used_bytes = 0, planned_bytes = 0;
  double data_share = 0;  // share of the time spent waiting for data
  double eta_seconds = 0;
  std::string_view verdict = {};  // the window's verdict; "": unknown
  DeviceMeters device = {};       // current readings
};
struct Evaluation {
  double loss = 0;
  double score = 0;                                         // higher is better
  std::string score_name = "accuracy";                      // "r2" for a regression
  int64_t count = 0;                                        // samples or tokens
  std::vector<std::pair<std::string, double>> others = {};  // metrics besides the score, by name
};
// Formats a line in at most `width` columns (0: unlimited): the least important fields are dropped
// first, step and loss stay.
std::string to_line(const StepLine& line, size_t width = 0);
// Returns "loss 1.7121  accuracy 0.9231", followed by the other metrics.
std::string to_text(const Evaluation& evaluation);

struct ClosingReport {
  // These are bytes. The used_ fields are measured: the arena up to the highest cache line that was
  // written, the state as it is allocated, the process at its peak.
  size_t planned_arena = 0, used_arena = 0;
  size_t planned_state = 0, used_state = 0;
  size_t planned_process = 0, process_peak = 0;
  double planned_step_seconds = 0, measured_step_seconds = 0;  // 0: unknown
  double seconds = 0;
  int64_t steps = 0;                        // steps of this process
  int64_t last_step = 0;                    // the last step of the run
  double train_loss = 0;                    // loss of the last update's batch
  Evaluation evaluation = {};               // the last evaluation; count 0: none
  std::optional<double> joules = {};        // nullopt: no meter here
  std::optional<double> usd_per_hour = {};  // nullopt: no row of costs
  double planned_seconds() const { return planned_step_seconds * static_cast<double>(steps); }
};
std::string to_table(const ClosingReport& report);

// Returns the columns of a terminal, or of COLUMNS; 0 where a stream has no such limit.
size_t columns_of(std::FILE* stream);
// Wraps `text` between words at the columns of `stream`, or at 80 columns if it has no limit.
std::string fitted(std::string_view text, std::FILE* stream);

// Prints lines and appends them to log.jsonl. On a terminal it redraws the line in progress.
class Reporter {
 public:
  // A null `out` shows nothing on the screen; an empty `log_path` writes no file.
  Reporter(std::FILE* out, const std::string& log_path);
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // Reopens the log after its folder was removed.
  void open_log(const std::string& path);
  void text(std::string_view text);
  void step(const StepLine& line);
  // Shows progress between two lines, on a terminal only, at most ten times a second.
  void live(int64_t step, int64_t steps);
  // `epoch` counts from 1; `seconds` excludes evaluations and checkpoints.
  void epoch(int64_t step, int64_t epoch, double seconds);
  void evaluation(int64_t step, const Evaluation& evaluation);
  // Reports what a method did once `step` updates were done.
  void event(int64_t step, const MethodEvent& event);
  void closing(const ClosingReport& report);

 private:
  void clear_live();
  void restore_log();
  void log(const std::string& line);

  std::FILE* out_;
  std::string log_path_;
  std::unique_ptr<std::FILE, decltype(&std::fclose)> log_{nullptr, &std::fclose};
  bool terminal_ = false, live_shown_ = false;
  std::pair<uint64_t, uint64_t> log_folder_;  // device and inode of the log's folder
  bool log_is_gone_ = false;                  // and cannot be recreated; the warning was printed
  int64_t lost_lines_ = 0;  // since the log was last written; > 0: the warning was printed
  double last_live_ = 0;
  std::string last_line_;
};

}  // namespace weft::train
