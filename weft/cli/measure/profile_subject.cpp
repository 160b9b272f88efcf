#include "weft/cli/measure/profile_subject.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weft/cli/models/model_kind.h"
#include "weft/data/loader.h"
#include "weft/models/pretrained.h"
#include "weft/train/run/report.h"
#include "weft/train/run/steps.h"

namespace weft::cli {
namespace {
class WorkloadSubject : public Subject {
 public:
  WorkloadSubject(const WorkloadKind& kind, const WorkloadOptions& options)
      : kind_(kind), workload_(make_workload(kind, options)) {}
  void update() override { workload_->step(); }
  NamedExecutables executables() override { return {{"train", &workload_->executable()}}; }
  std::string text() const override { return fmt::format("{}: {}", kind_.name, kind_.doc); }
  std::string rate_text(double seconds) const override {
    return train::count_text(workload_->items() / seconds) + std::string(kind_.item) + "/s";
  }

 private:
  const WorkloadKind& kind_;
  std::unique_ptr<Workload> workload_;
};

class RecipeSubject : public Subject {
 public:
  RecipeSubject(const train::Recipe& recipe, bool inference)
      : inference_(inference),
        experiment_(train::make_experiment(recipe)),
        steps_(experiment_, recipe->train.device),
        loader_(source(), {.batch_size = batch_size(),
                           .shuffle = !inference,
                           .drop_last = true,
                           .seed = recipe->seed}) {}

  void update() override {
    if (!loader_.next(batch_)) loader_.next(batch_);  // next epoch
    if (inference_)
      steps_.evaluate(batch_.inputs, batch_.labels);
    else
      steps_.run(batch_.inputs, batch_.labels);
  }
  NamedExecutables executables() override {
    NamedExecutables all = steps_.executables(), run;  // by update()
    const std::vector<PlannedStep> planned = steps_.planned();
    for (size_t i = 0; i < all.size(); ++i)
      if (inference_ ? all[i].first == "evaluate" : planned[i].per_update > 0)
        run.push_back(all[i]);
    return run;
  }
  std::string text() const override {
    return fmt::format("{}, {} samples per {}", experiment_.recipe->name, batch_size(),
                       inference_ ? "evaluation step" : "update");
  }
  std::string rate_text(double seconds) const override {
    auto units = static_cast<double>(batch_size() * experiment_.units_per_sample());
    return fmt::format("{} {}/s", train::count_text(units / seconds), experiment_.unit());
  }

 private:
  int64_t batch_size() const {
    return inference_ ? experiment_.eval_batch : experiment_.global_batch;
  }
  const std::shared_ptr<const data::Source>& source() const {
    if (inference_ && experiment_.validation == nullptr)
      throw Error(ErrorKind::usage, "--inference needs data to evaluate on. Hint: data.val_split.");
    return inference_ ? experiment_.validation : experiment_.train;
  }

  bool inference_;
  train::Experiment experiment_;
  train::Steps steps_;
  data::Loader loader_;
  data::Batch batch_;
};

class InferenceSubject : public Subject {
 public:
  InferenceSubject(std::shared_ptr<Inference> inference, std::string model, size_t step)
      : inference_(std::move(inference)), model_(std::move(model)), step_(step) {}
  std::string key() const override { return step().key; }
  void update() override { inference_->run(step_); }
  NamedExecutables executables() override { return {{step().key, &inference_->executable(step_)}}; }
  std::string text() const override {
    return fmt::format("{}, {}, {}", model_, step().text, inference_->inputs_text().second);
  }
  std::string rate_text(double seconds) const override {
    return fmt::format("{} {}/s", train::count_text(static_cast<double>(step().items) / seconds),
                       inference_->item());
  }

 private:
  const InferenceStep& step() const { return inference_->steps()[step_]; }

  std::shared_ptr<Inference> inference_;
  std::string model_;
  size_t step_;
};
}  // namespace

std::unique_ptr<Subject> recipe_subject(const train::Recipe& recipe, bool inference) {
  return std::make_unique<RecipeSubject>(recipe, inference);
}
std::unique_ptr<Subject> workload_subject(const WorkloadKind& kind,
                                          const WorkloadOptions& options) {
  return std::make_unique<WorkloadSubject>(kind, options);
}
Subjects inference_subjects(InferenceOptions options) {
  constexpr int64_t usual_room = 768;
  if (options.context == 0 && !kind_of(options.folder).has_symbolic_extents)
    options.context =
        std::min(usual_room, models::load_pretrained(options.folder, {.weights = false}).context);
  const std::shared_ptr<Inference> inference = make_inference(options, /*weights=*/true);
  Subjects subjects;
  for (size_t step = 0; step < inference->steps().size(); ++step)
    subjects.push_back(std::make_unique<InferenceSubject>(inference, options.folder, step));
  return subjects;
}

}  // namespace weft::cli
