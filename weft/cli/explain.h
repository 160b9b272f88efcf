// Why a plan is as it is: what each pass saved, what fusion kept out of memory, and what it could
// not. For `weft plan --explain`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/device/spec.h"
#include "weft/train/experiment.h"

namespace weft::cli {

// What a plan comes to, the copies of its assignments included.
struct PlanFigures {
  double kernels = 0, bytes = 0, arena = 0, seconds = 0;  // seconds at best; 0: unknown
};

// The same step planned without one of the optional passes.
struct PassEffect {
  std::string pass;
  std::optional<PlanFigures> without;  // nullopt: the step does not fit its limit then
};

// Values by one reason; bytes count once each way that they go.
struct StorageReason {
  std::string reason;
  int values = 0;
  double bytes = 0;
};

// A value that goes through memory from one kernel to another, and why they are not one. Those of
// identical layers count together.
struct Unfused {
  std::string value;          // "add f32[4, 64, 768]"
  std::string module;         // of the first
  std::string maker, reader;  // kernels
  std::string reason;
  int times = 0;
  double bytes = 0;  // that the reader reads, of all
};

struct Explanation {
  std::string step;  // "train"
  PlanFigures plan;
  std::vector<PassEffect> passes;
  int fused_kernels = 0, fused_values = 0;  // values that never reach memory
  double fused_bytes = 0;                   // of a write and a read of each
  std::vector<StorageReason> stored;        // values that do, most bytes first
  std::vector<Unfused> unfused;             // the same, one by one
};

// What a plan stores between its kernels, and why; most bytes first.
std::vector<StorageReason> reasons_to_store(const Plan& plan);
std::vector<Unfused> unfused_values(const Plan& plan);

// Of each step of a run. Plans all of them anew without each pass.
std::vector<Explanation> explain(const train::Experiment& experiment, const MachineSpec& machine);

std::string to_table(const Explanation& explanation);
std::string to_json(const std::vector<Explanation>& explanations);

}  // namespace weft::cli
