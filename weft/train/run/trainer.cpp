// This is one file because the loop is one class: saving, evaluating and refusing depend on the
// same state of the run. Planning is in plan_run.cpp.
#include "weft/train/run/trainer.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "weft/base/host/energy.h"
#include "weft/base/host/isa.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/logging.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/disk.h"
#include "weft/base/memory/memory.h"
#include "weft/base/memory/storage.h"
#include "weft/base/numbers/quantity.h"
#include "weft/data/loader.h"
#include "weft/device/communicator.h"
#include "weft/device/registry.h"
#include "weft/device/world.h"
#include "weft/ir/mesh.h"
#include "weft/models/pretrained.h"
#include "weft/runtime/executable.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/plan/plan_run.h"
#include "weft/train/run/black_box.h"
#include "weft/train/run/ranks.h"
#include "weft/train/run/run_folder.h"
#include "weft/train/run/signals.h"
#include "weft/train/run/step_trace.h"
#include "weft/train/task/model_format.h"

namespace weft::train {
namespace {
// Selects the kernels that the resumed run started with, before anything is planned.
Experiment resumed(const Recipe& recipe, const RunFolder& folder, const std::string& checkpoint) {
  const std::shared_ptr<const Mesh> mesh = mesh_of_ranks(recipe);  // refuses before a device opens
  const KernelLibrary& device = library(recipe->train.device);
  device.kernels().prefer(folder.kernels());
  const std::string before = folder.isa();
  if (device.name() == "cpu" && !before.empty() && before != name(isa()))
    logging::warn(
        "run {} was trained with the instruction set {} and continues with {}: losses may differ "
        "in their last digits. Hint: WEFT_ISA={} where the CPU has it.",
        folder.path(), before, name(isa()), before);
  Experiment experiment = make_experiment(recipe, {.checkpoint = checkpoint, .mesh = mesh});
  must_have_one_data_set(experiment);
  share_out(experiment);
  return experiment;
}

// Returns the bytes of storage in the memory that kernels access; 0 for storage in files or pinned
// on the host for a device.
size_t allocated_bytes(const Storage& storage) {
  const Buffer* const buffer = storage.buffer().get();
  const bool is_there =
      storage.is_on_device() || (buffer != nullptr && !buffer->in_file && !buffer->pinned);
  return is_there ? storage.bytes() : 0;
}
size_t allocated_bytes(const std::vector<Variable>& variables) {
  size_t bytes = 0;
  for (const Variable& variable : variables) {
    bytes += allocated_bytes(*variable.state()->storage);
    for (const std::shared_ptr<VariableState>& copy : copies_of(*variable.state()))
      bytes += allocated_bytes(*copy->storage);
  }
  return bytes;
}

class Trainer {
 public:
  Trainer(const Recipe& recipe, const TrainOptions& options)
      : options_(options),
        folder_(options.runs, recipe->name, options.resume, options.overwrite),
        resumed_from_(folder_.checkpoint()),
        experiment_(resumed(recipe, folder_, resumed_from_)),
        steps_(experiment_, recipe->train.device),
        plan_(make_report(experiment_, sum_up(question_of(experiment_, steps_, options.machine),
                                              steps_.planned()))),
        loader_(experiment_.train, experiment_.training()),
        best_by_(recipe->checkpoint.best.value_or("")) {}

  TrainResult run() {
    start();
    try {
      go_on();
    } catch (const NonFiniteRun& failure) {
      if (failure.step <= 1) refuse_non_finite_weights();
      throw;
    } catch (const Error& error) {
      end_save();  // it may be the first checkpoint, with which the run is not discarded
      discard_refused(error);
      if (error.kind() != ErrorKind::device || progress_.step == first_step_) throw;
      throw Error(error.kind(), "{} {}", error.what(), how_to_go_on());
    }
    return result_;
  }

 private:
  const Recipe& recipe() const { return experiment_.recipe; }
  const Meters& meters() const { return library(recipe()->train.device).meters(); }

  void go_on() {
    for (;;) {
      if (evaluation_due() && !stop_requested()) evaluate();
      const bool done = is_done();
      if (stop_requested() && !(done && !evaluation_due())) return stop();
      if (done)
        save_at_last();
      else if (save_requested() || checkpoint_due())
        try_to_save(false);
      if (done) break;
      update();
      if (beside_ && beside_->has_ended()) end_save();
    }
    const World::Pause ending(world());
    finish();
  }

  // Ranks stop after a step on which they agree, whichever of them got the signal. The answer is
  // the same throughout a step, so that all ranks evaluate or none does.
  bool stop_requested() {
    if (world().size() == 1) return signals_.stop_requested();
    if (std::exchange(asked_at_, progress_.step) != progress_.step) {
      if (signals_.stop_requested()) world().ask_stop();
      stops_here_ = world().stops_after(progress_.step);
    }
    return stops_here_;
  }

  // Returns whether to save though no checkpoint is due: after SIGUSR1, and a minute after a save
  // that failed. Ranks agree on the step.
  bool save_requested() {
    const bool mine =
        signals_.take_save_request() || (failed_save_ > 0 && now() > failed_save_ + 60);
    if (world().size() == 1) return mine;
    if (mine) world().ask_save();
    return world().saves_after(progress_.step);
  }

  // A run that its data or its recipe end before the first checkpoint has nothing to resume from.
  void discard_refused(const Error& error) {
    const bool is_refusal = error.kind() == ErrorKind::usage || error.kind() == ErrorKind::data;
    if (is_refusal && result_.checkpoint.empty()) folder_.discard();
  }

  // Throws Error(data) where weights that the recipe names are not finite themselves.
  void refuse_non_finite_weights() {
    try {
      if (const auto& model = recipe()->model.pretrained)
        if (const auto weights = format_of(*model).weights)
          models::refuse_non_finite(weights(*model, /*verify=*/false).files);
      for (const auto& method : experiment_.methods) method->refuse_non_finite();
    } catch (const Error& error) {
      discard_refused(error);
      throw;
    }
  }

  // Returns the hint for a run whose device failed.
  std::string how_to_go_on() const {
    if (result_.checkpoint.empty())
      return fmt::format(
          "The run {} ended at step {}, before its first checkpoint. Hint: the same command with "
          "--resume restarts it.",
          folder_.path(), progress_.step);
    return fmt::format(
        "The run ended at step {}. {} is intact. Hint: the same command with --resume continues "
        "from there.",
        progress_.step, result_.checkpoint);
  }

  void start() {
    const std::string& checkpoint = resumed_from_;
    random_step().assign(tensor(std::vector<int64_t>{0}, {}));
    if (!checkpoint.empty()) {
      progress_ = load_checkpoint(checkpoint, experiment_);
      loader_.restore(progress_.loader);
      saved_step_ = progress_.step;
      result_.checkpoint = checkpoint;
      if (is_done() && !evaluation_due()) check_nothing_changed();
    } else {
      progress_.data_fingerprint = experiment_.data_fingerprint();
    }
    must_be_alike(experiment_, steps_);
    refuse_gathers(recipe(), plan_);
    equal_at_ = progress_.step;
    on_first_rank([&] {
      check_room();
      folder_.begin(recipe(), to_json(plan_));
    });
    must_share(folder_.path() + "/checkpoints");
    world().set_fault_folder(folder_.path() + "/checkpoints");
    world().note_saved(checkpoint);
    on_first_rank([&] {
      if (options_.resume) folder_.go_back_to(progress_.step);
      reporter_ = std::make_unique<Reporter>(options_.quiet ? nullptr : stdout, folder_.log_path());
    });
    if (!folder_.is_written_here()) reporter_ = std::make_unique<Reporter>(nullptr, "");
    reporter_->text(fitted(to_table(plan_), stdout) + "\n");
    if (const std::string text = left_out_text(plan_); !text.empty()) logging::note("{}.", text);
    if (options_.resume)
      reporter_->text(checkpoint.empty() ? "no checkpoint yet: the run starts at step 0\n"
                                         : fmt::format("resumed from {}\n", checkpoint));
    result_.run_folder = folder_.path();
    result_.evaluation.score_name = experiment_.score_name();
    if (recipe()->log.trace) trace_.emplace(steps_);
    if (recipe()->checkpoint.beside) beside_.emplace(plan_.snapshot_bytes);
    saved_best_ = progress_.best_score;
    first_step_ = progress_.step;
    line_step_ = progress_.step;
    device_joules_before_ = meters().read().joules;
    started_ = now();
  }

  // Refuses changes to the recipe of a complete run: they would have no effect, yet recipe.yaml
  // would claim that the run used them.
  void check_nothing_changed() const {
    const Recipe saved = checkpoint_recipe(result_.checkpoint);
    std::vector<std::string> changed;
    for (const RecipeKey& key : recipe_keys()) {
      const std::string& where = recipe().where(key.path);
      const bool is_ours = key.path == keys::name || where == limit_origin;
      if (!is_ours && saved.to_yaml(key.path) != recipe().to_yaml(key.path))
        changed.push_back(fmt::format("{} ({})", key.path, where));
    }
    if (changed.empty()) return;
    throw Error(ErrorKind::usage, "run {} is finished, at step {}: {} would have no effect.{}",
                folder_.path(), progress_.step, fmt::join(changed, ", "),
                progress_.stopped ? "" : " Hint: a larger --train.steps continues it.");
  }

  // Refuses a run whose checkpoints would fill the disk: the checkpoints that it keeps, and a new
  // checkpoint that is written before an older one is removed.
  void check_room() const {
    constexpr uint64_t beside = 64 << 10;  // recipe, loader, manifest, and file headers
    uint64_t each = beside + experiment_.checkpoint_file_bytes();
    for (const auto& variables : {experiment_.model->variables(), experiment_.update_state()})
      for (const Variable& variable : variables) each += variable.type().bytes();
    const int64_t saves = experiment_.total_steps / recipe()->checkpoint.every + 1;
    const int64_t lasting = recipe()->checkpoint.keep_last + (best_by_.empty() ? 1 : 2);
    const int64_t there = options_.resume ? std::ssize(list_checkpoints(folder_.path())) : 0;
    const auto more = static_cast<uint64_t>(std::max<int64_t>(std::min(saves, lasting) - there, 1));
    const std::optional<uint64_t> room = disk_room(folder_.path());
    if (!room || more * each <= *room) return;
    auto text = [](uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
    throw Error(ErrorKind::failed,
                "{} has no room for the checkpoints of this run: {} of {}. The disk has {} left. "
                "Hint: checkpoint.keep_last, --runs.",
                folder_.path(), more, text(each), text(*room));
  }

  void update() {
    for (const MethodEvent& event : steps_.before_update(progress_.step))
      reporter_->event(progress_.step, event);
    double before = now();
    if (!loader_.next(batch_)) loader_.next(batch_);  // next epoch
    if (trace_)
      trace_->before_update(progress_.step - first_step_, world().rank(),
                            fmt::format("{}/trace-r{}.json", folder_.path(), world().rank()));
    steps_.run(batch_.inputs, batch_.labels);
    folder_.commit();
    ++progress_.step;
    world().beat(progress_.step, -1);
    compare_replicas();
    const bool last = progress_.step == experiment_.total_steps;
    const bool due = last || progress_.step % recipe()->log.every == 0;
    if (due) steps_.loss();  // a device may still be busy: reading the loss waits for it
    const double seconds = now() - before;
    line_seconds_ += seconds;
    epoch_seconds_ += seconds;
    // The first step runs with cold caches and is not representative.
    if (progress_.step > first_step_ + 1) {
      measured_seconds_ += seconds;
      ++measured_steps_;
    }
    if (due)
      line();
    else
      reporter_->live(progress_.step, experiment_.total_steps);
    if (progress_.step % experiment_.steps_per_epoch == 0) epoch();
    if (options_.after_step) options_.after_step(progress_.step);
  }

  void compare_replicas() {
    const int64_t every = recipe()->parallel.check_every;
    if (world().size() == 1 || every == 0 || progress_.step % every != 0) return;
    must_hold_alike(experiment_, progress_.step, equal_at_);
    equal_at_ = progress_.step;
  }

  void epoch() {
    if (progress_.step - first_step_ >= experiment_.steps_per_epoch)  // all in this process
      reporter_->epoch(progress_.step, progress_.step / experiment_.steps_per_epoch,
                       epoch_seconds_);
    epoch_seconds_ = 0;
  }

  // Returns the measured bytes of the arena, which all steps share.
  size_t used_arena() { return steps_.executables().front().second->used_arena_bytes(); }

  size_t used_state() const {
    return allocated_bytes(experiment_.model->variables()) +
           allocated_bytes(experiment_.update_state()) + allocated_bytes(steps_.accumulators()) +
           allocated_bytes(experiment_.read_only());
  }

  void line() {
    check_finite();
    energy_.read();
    auto steps = static_cast<double>(progress_.step - line_step_);
    double units =
        steps * static_cast<double>(experiment_.global_batch * experiment_.units_per_sample());
    const double waited = loader_.take_waited_seconds();
    const double compute = plan_.seconds > 0 ? plan_.compute_bound_seconds() / plan_.seconds : 0;
    double peak = options_.machine.flops_per_s_in(
        experiment_.precision.product_type(), experiment_.precision.products == Precision::tf32);
    StepLine line{.step = progress_.step,
                  .steps = experiment_.total_steps,
                  .loss = steps_.loss(),
                  .grad_norm = steps_.grad_norm(),
                  .lr = experiment_.optimizer->schedule().at(progress_.step - 1),
                  .units_per_s = units / line_seconds_,
                  .unit = fmt::format("{}/s", experiment_.unit()),
                  .mfu = peak > 0 ? steps * plan_.flops / line_seconds_ / peak : 0,
                  .used_bytes = used_state() + used_arena(),
                  .planned_bytes = plan_.total_bytes(),
                  .data_share = waited / line_seconds_,
                  .eta_seconds = line_seconds_ / steps *
                                 static_cast<double>(experiment_.total_steps - progress_.step),
                  .verdict = verdict({.loader = waited,
                                      .checkpoint = save_seconds_,
                                      .step = std::max(0.0, line_seconds_ - waited),
                                      .compute_share = compute,
                                      .memory_share = plan_.seconds > 0 ? 1 - compute : 0}),
                  .device = meters().read()};
    for (const auto& method : experiment_.methods) method->describe(line);
    reporter_->step(line);
    if (++lines_ % lines_per_pace == 0)
      if (const std::string pace = world().pace(); !pace.empty())
        reporter_->text(fmt::format("ranks at step {}: {}\n", progress_.step, pace));
    line_step_ = progress_.step;
    line_seconds_ = save_seconds_ = 0;
  }

  void check_finite() {
    if (int64_t step = steps_.first_non_finite(); step > 0) fail(step, false);
  }

  [[noreturn]] void fail(int64_t step, bool evaluation) const {
    throw NonFiniteRun{.step = step,
                       .evaluation = evaluation,
                       .run_folder = folder_.path(),
                       .norms = steps_.norms()};
  }

  bool is_done() const { return progress_.stopped || progress_.step >= experiment_.total_steps; }
  bool evaluation_due() const {
    if (experiment_.validation == nullptr) return false;
    if (progress_.step == 0 || progress_.evaluated_step == progress_.step) return false;
    const int64_t steps = recipe()->eval.every.value_or(experiment_.steps_per_epoch);
    return progress_.step == experiment_.total_steps || progress_.step % steps == 0;
  }
  bool checkpoint_due() const {
    return progress_.step > 0 && progress_.step % recipe()->checkpoint.every == 0;
  }

  void evaluate() {
    check_finite();
    const World::Pause evaluating(world());
    auto found = train::evaluate(experiment_, steps_,
                                 [&] { return world().size() == 1 && signals_.stop_requested(); });
    if (!found) return;
    if (!std::isfinite(found->loss)) fail(progress_.step, true);
    result_.evaluation = *found;
    progress_.evaluated_step = progress_.step;
    reporter_->evaluation(progress_.step, *found);
    bool lower = !progress_.best_loss || found->loss < *progress_.best_loss;
    if (lower) progress_.best_loss = found->loss;
    progress_.evaluations_since_best = lower ? 0 : progress_.evaluations_since_best + 1;
    if (progress_.evaluations_since_best >= recipe()->eval.early_stopping.value_or(INT64_MAX))
      stop_early(fmt::format("no better loss in {} evaluations", progress_.evaluations_since_best));
    if (recipe()->eval.target && found->score >= *recipe()->eval.target)
      stop_early(fmt::format("{} {:.4f} reaches eval.target", found->score_name, found->score));
    if (improves(*found)) try_to_save(true);
  }

  // Returns whether this evaluation is the best so far, by the metric of checkpoint.best.
  bool improves(const Evaluation& evaluation) {
    if (best_by_.empty()) return false;
    end_save();  // where it fails, it takes back the best score so far
    double score = best_by_ == "loss" ? -evaluation.loss : evaluation.score;
    if (progress_.best_score && score <= *progress_.best_score) return false;
    progress_.best_score = score;
    return true;
  }

  void stop_early(const std::string& reason) {
    progress_.stopped = true;
    reporter_->text(fmt::format("stopped at step {}: {}\n", progress_.step, reason));
  }

  // Warns where saving fails and goes on: the disk may have room again before the run ends.
  void try_to_save(bool best) {
    try {
      save(best, beside_.has_value());
    } catch (const Error& error) {
      go_on_unsaved(error);
    }
  }
  void go_on_unsaved(const Error& error) {
    progress_.best_score = saved_best_;
    say_failed(
        error,
        "The run continues, and tries again when the next checkpoint is due, or in a minute");
  }

  // Waits for the save that is under way beside training. Ranks may learn at different steps that
  // it has ended: it changes nothing that they decide together before they have waited for it.
  void end_save() {
    if (!beside_ || !beside_->is_under_way()) return;
    const World::Pause saving(world());
    try {
      note_saved(beside_->end());
    } catch (const Error& error) {
      saved_step_ = -1;
      go_on_unsaved(error);
    }
  }

  // Retries a failing save for a while, as no later save follows.
  void save_at_last() {
    const World::Pause saving(world());
    const double last_try = now() + options_.last_save_seconds;
    const bool stops = signals_.stop_requested();  // a signal during the retries ends them
    end_save();
    for (;;) {
      try {
        return save(false, /*beside=*/false);
      } catch (const Error& error) {
        if (!agreed(now() < last_try && (stops || !signals_.stop_requested()))) throw;
        say_failed(error, fmt::format("It is the last checkpoint: weft retries for {:.0f} s",
                                      options_.last_save_seconds));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }

  // Warns once until a save succeeds again: a full disk usually stays full for several saves.
  void say_failed(const Error& error, std::string_view what_follows) {
    if (error.kind() != ErrorKind::failed) throw Error(error);
    if (failed_save_ == 0) logging::warn("{} {}.", error.what(), what_follows);
    failed_save_ = now();
  }

  // Recreates the folder where it was removed, and says so. Returns why it cannot; "" for success.
  std::string restore_folder() {
    if (!folder_.is_written_here()) return "";
    try {
      const std::string what = folder_.restore(recipe(), to_json(plan_));
      if (what.empty()) return "";
      logging::warn("{} with a log that begins at step {}.", what, progress_.step);
      result_.run_folder = folder_.path();
      reporter_->open_log(folder_.log_path());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::failed) throw;
      return error.what();
    }
    return "";
  }

  // Begins a save beside training, or waits for one.
  void save(bool best, bool beside) {
    if (saved_step_ == progress_.step && !best) return;
    check_finite();
    const World::Pause saving(world());
    const double before = now();
    end_save();
    const std::string problem = restore_folder();
    progress_.loader = loader_.state();
    if (beside) {
      beside_->begin(folder_.path(), experiment_, progress_, best, problem);
      saved_step_ = progress_.step;
    } else {
      const std::string checkpoint =
          save_checkpoint(folder_.path(), experiment_, progress_, best, problem);
      saved_step_ = progress_.step;
      note_saved(checkpoint);
    }
    save_seconds_ += now() - before;
  }

  // Takes the checkpoint of saved_step_. Every rank can say where it is, as rank 0 may be lost.
  void note_saved(const std::string& checkpoint) {
    saved_best_ = progress_.best_score;
    const bool failed_before = std::exchange(failed_save_, 0) > 0;
    world().note_saved(checkpoint);
    if (!folder_.is_written_here()) return;
    result_.checkpoint = checkpoint;
    if (saved_step_ > 0) folder_.drop_replaced();
    if (failed_before) logging::note("checkpoints are saved again: {}.", checkpoint);
  }

  void stop() {
    save_at_last();
    folder_.commit();
    reporter_->text(fmt::format("stopped at step {} by a signal; saved {}. --resume continues.\n",
                                progress_.step, result_.checkpoint));
    result_.exit_code = exit_saved;
    result_.step = progress_.step;
  }

  // Returns the energy of the device where it has a meter, else that of the CPU.
  std::optional<double> joules() {
    if (device_joules_before_)
      if (auto now = meters().read().joules) return *now - *device_joules_before_;
    energy_.read();
    return energy_.joules();
  }

  // Pages of other ranks that this one has read are counted by the system, and are in their plans.
  size_t own_peak() const {
    const size_t peak = peak_memory();
    return experiment_.mesh == nullptr
               ? peak
               : peak - std::min(peak, experiment_.mesh->communicator->resident_beside_own());
  }

  void finish() {
    result_.step = progress_.step;
    if (progress_.step == first_step_) {
      reporter_->text("this run is complete: nothing is left to do.\n");
      return;
    }
    result_.train_loss = steps_.loss();
    const auto& examples = experiment_.dataset->examples;
    if (examples && folder_.is_written_here()) {
      const StandInScope used(experiment_.stand_ins());
      const WholeScope whole(experiment_, result_.checkpoint);
      reporter_->text("\n" + examples(experiment_));
    }
    reporter_->closing(
        {.planned_arena = plan_.arena_bytes,
         .used_arena = used_arena(),
         .planned_state = plan_.state_bytes(),
         .used_state = used_state(),
         .planned_process = plan_.process_bytes(),
         .process_peak = own_peak(),
         .planned_step_seconds = plan_.expected_seconds(),
         .measured_step_seconds =
             measured_steps_ > 0 ? measured_seconds_ / static_cast<double>(measured_steps_) : 0,
         .seconds = now() - started_,
         .steps = progress_.step - first_step_,
         .last_step = progress_.step,
         .train_loss = *result_.train_loss,
         .evaluation = result_.evaluation,
         .joules = joules(),
         .usd_per_hour = plan_.usd_per_hour});
  }

  Signals signals_;
  TrainOptions options_;
  RunFolder folder_;
  std::string resumed_from_;  // "": no checkpoint
  Experiment experiment_;
  Steps steps_;
  RunReport plan_;
  data::Loader loader_;
  data::Batch batch_;
  std::optional<StepTrace> trace_;
  std::string best_by_;
  std::unique_ptr<Reporter> reporter_;
  Progress progress_;
  TrainResult result_;
  int64_t saved_step_ = -1;
  int64_t equal_at_ = 0;     // the step at which the state of ranks was last compared
  int64_t asked_at_ = -1;    // the step after which stop_requested() asked the other ranks
  bool stops_here_ = false;  // their answer
  static constexpr int64_t lines_per_pace = 10;
  int64_t lines_ = 0;
  int64_t first_step_ = 0, line_step_ = 0, measured_steps_ = 0;
  double started_ = 0, line_seconds_ = 0, epoch_seconds_ = 0, measured_seconds_ = 0;
  double save_seconds_ = 0;  // since the last line
  double failed_save_ = 0;   // time of the failure; 0: the last save succeeded
  EnergyMeter energy_;
  std::optional<double> device_joules_before_;
  std::optional<double> saved_best_;  // the best score, unless its save is under way
  std::optional<SaveBeside> beside_;  // ends first, as its thread reads the experiment
};

}  // namespace

TrainResult train(const Recipe& recipe, const TrainOptions& options) {
  const Signals signals;  // the search for a plan that fits takes long
  const double began = processor_seconds();
  auto run = [&](const Recipe& with_limit) {
    try {
      return Trainer(with_limit, options).run();
    } catch (const NonFiniteRun& failure) {  // the trainer and its memory are gone
      // Of several ranks, all of which fail at this step, one writes down why.
      if (!world().fails(static_cast<int>(ErrorKind::non_finite)))
        throw Error(ErrorKind::non_finite, "the loss is not finite.");
      throw Error(ErrorKind::non_finite, write_black_box(with_limit, failure));
    }
  };
  std::unique_ptr<PlannedRun> planned;
  try {
    return run(recipe);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::does_not_fit) throw;
    planned =
        plan_within(recipe, options.machine,
                    memory_of_a_rank(available_memory()) + resident_memory(), error.what(), began);
  }
  const Recipe with_limit = planned->experiment.recipe;
  planned.reset();
  return run(with_limit);
}

}  // namespace weft::train
