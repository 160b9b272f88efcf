// Explains a plan for `weft plan --explain`: what each pass saves, which values fusion keeps out of
// memory, and why the others are stored.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/planner/answer.h"

namespace weft::cli {

// PlanFigures are the totals of a plan, including the copies of its assignments.
struct PlanFigures {
  double kernels = 0, bytes = 0, arena = 0, seconds = 0;  // seconds at best; 0: unknown
};

// A PassEffect compares the same step planned without an optional pass.
struct PassEffect {
  std::string pass;
  std::optional<PlanFigures> without;  // nullopt: the step then exceeds its limit
};

// A StorageReason counts the values that are stored for one reason; bytes count each write and each
// read.
struct StorageReason {
  std::string reason;
  int values = 0;
  double bytes = 0;
};

// Unfused is a value that passes through memory between two kernels, with the reason why these are
// not fused. Equal values of identical layers are counted together.
struct Unfused {
  std::string value;          // "add f32[4, 64, 768]"
  std::string module;         // module of the first of them
  std::string maker, reader;  // kernels
  std::string reason;
  int times = 0;
  double bytes = 0;  // read by the reader, over all
};

struct Explanation {
  std::string step;  // "train"
  PlanFigures plan;
  std::vector<PassEffect> passes;
  int fused_kernels = 0, fused_values = 0;  // values that never reach memory
  double fused_bytes = 0;                   // a write and a read of each
  std::vector<StorageReason> stored;        // stored values, most bytes first
  std::vector<Unfused> unfused;             // the same, one by one
};

// Return the values that a plan stores between its kernels, and the reasons; most bytes first.
std::vector<StorageReason> reasons_to_store(const Plan& plan);
std::vector<Unfused> unfused_values(const Plan& plan);

// Explains each step of an answer; plans all of them once more without each pass.
std::vector<Explanation> explain(const PlanQuestion& question, const PlanAnswer& answer);

std::string to_table(const Explanation& explanation);
std::string to_json(const std::vector<Explanation>& explanations);

}  // namespace weft::cli
