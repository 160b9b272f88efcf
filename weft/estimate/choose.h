// Chooses how devices share a step: the layout, the micro-batch and the recomputation that nobody
// set, so that the step fits and is quick.
#pragma once

#include <optional>
#include <vector>

#include "weft/estimate/memory.h"
#include "weft/estimate/training.h"

namespace weft::estimate {

// A TrainingQuestion is a job and what of it is left open.
struct TrainingQuestion {
  TrainingJob job;  // micro_batch, accumulation and recompute are those of the answer
  int64_t devices = 1;
  double global_batch = 1;  // samples of an update
  double memory_bytes = 0;  // of one device, which a step can use
  // These are set where the user chose them.
  std::optional<int64_t> replicas = {}, shards = {}, tensor = {}, pipeline = {}, interleave = {},
                         context = {}, expert = {};
  std::optional<int> zero = {};
  std::optional<double> micro_batch = {};
  bool accumulates = true;  // a step may have several micro-batches
  std::optional<Recompute> recompute = {};
  int per_host = 8;
};

struct TrainingAnswer {
  TrainingJob job;
  Layout layout;
  StepTime time;
  StepMemory memory;
};

// TrainingAnswers are those that fit, quickest first, no two of which have equal tensor, pipeline
// and context parallelism and recomputation, and of all that were tried the one that needs least
// memory.
struct TrainingAnswers {
  std::vector<TrainingAnswer> fitting;
  std::optional<TrainingAnswer> smallest;
  int64_t tried = 0;
};
// Throws Error (usage) where no layout of so many devices divides the shape and the batch.
TrainingAnswers choose(const TrainingQuestion& question, const Costs& costs);

}  // namespace weft::estimate
