// Declares the subjects that `weft profile` times: an update or an evaluation step of a recipe, a
// step of a workload, or the steps of a published model's inference.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/cli/measure/profile.h"
#include "weft/cli/measure/workloads.h"
#include "weft/cli/models/inference.h"
#include "weft/train/recipe/recipe.h"

namespace weft::cli {

// A Subject is a repeatable update of a model, or step of a workload or of inference.
class Subject {
 public:
  virtual ~Subject() = default;
  // Returns its key in JSON where a profile has several subjects.
  virtual std::string key() const { return ""; }
  virtual void update() = 0;
  virtual NamedExecutables executables() = 0;  // the executables that update() runs
  virtual std::string text() const = 0;
  virtual std::string rate_text(double seconds) const = 0;  // of an update
};

using Subjects = std::vector<std::unique_ptr<Subject>>;

// `inference`: the evaluation step is timed, instead of an update.
std::unique_ptr<Subject> recipe_subject(const train::Recipe& recipe, bool inference);
std::unique_ptr<Subject> workload_subject(const WorkloadKind& kind, const WorkloadOptions& options);
// Returns the steps of a model's inference. The default context is 768 tokens, or the model's limit
// if that is less: `weft generate` has caches of this size for a prompt of 512 tokens and 200 new
// ones.
Subjects inference_subjects(InferenceOptions options);

}  // namespace weft::cli
