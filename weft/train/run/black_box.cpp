#include "weft/train/run/black_box.h"

#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/data/loader.h"
#include "weft/data/random.h"
#include "weft/device/registry.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/runtime/executable.h"
#include "weft/runtime/non_finite.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/run/signals.h"

namespace weft::train {
namespace {
using Json = nlohmann::ordered_json;  // keeps the order of keys for readers

// JSON has no infinities or NaN: words stand for them.
Json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

Json to_json(const ValueRange& range) {
  Json entry = {{"nan", range.nans}, {"inf", range.infinities}};
  if (range.low <= range.high) entry.update({{"least", range.low}, {"greatest", range.high}});
  return entry;
}

Json to_json(const NonFiniteOrigin& origin) {
  Json entry = {{"op", origin.op},
                {"module", origin.module},
                {"file", origin.file},
                {"line", origin.line},
                {"type", to_string(origin.type)},
                {"elements", to_json(origin.range)},
                {"operands", Json::array()}};
  for (const NonFiniteOrigin::Operand& operand : origin.operands)
    entry["operands"].push_back(
        {{"type", to_string(operand.type)}, {"elements", to_json(operand.range)}});
  return entry;
}

// Returns "exp in blocks.0 (gpt.cpp:12)".
std::string described(const NonFiniteOrigin& origin) {
  if (origin.leaf != LeafKind::none) return fmt::format("{} {}", origin.op, origin.module);
  std::string text = origin.op;
  if (!origin.module.empty()) text += " in " + origin.module;
  if (!origin.file.empty())
    text += fmt::format(" ({}:{})", std::filesystem::path(origin.file).filename().string(),
                        origin.line);
  return text;
}

// Replays the run up to an update and searches that update.
class Replay {
 public:
  Replay(const Recipe& recipe, const NonFiniteRun& failure, const Signals& signals)
      : recipe_(recipe), failure_(failure), signals_(signals) {}

  Json batch() const { return batch_; }  // the batch of update `step`
  const std::string& shows_in() const { return shows_in_; }
  int64_t begins() const { return begins_; }  // updates done at the checkpoint it starts from

  // Returns the origin of the first non-finite value in update `step`; nullopt where there is none.
  std::optional<NonFiniteOrigin> look_into(int64_t step, Precision products) {
    experiment_ = make_experiment(recipe_);
    data::Loader loader(experiment_.train, experiment_.training());
    data::Batch batch;
    go_to(failure_.evaluation ? step : step - 1, loader, batch);
    // The search reads the results of every launch, so the step runs where they are in host memory.
    const std::string device = recipe_->train.device;
    StepOptions options =
        step_options(experiment_, library(device).on_host() ? device : std::string("cpu"));
    options.precision = products;
    options.memory = 0;
    options.recompute = Recompute::none;
    options.offload = {};
    options.store_every_value = true;
    Steps plain(experiment_, options);
    if (failure_.evaluation) return look_into_evaluation(plain);
    describe_next(loader);
    next(loader, batch);
    plain.before_update(step - 1);
    NonFiniteSearch search;
    for (const auto& [executable, inputs] : plain.runs(batch.inputs, batch.labels)) {
      stop_if_asked();
      search.run(*executable, inputs);
    }
    shows_in_ = "loss";
    if (auto origin = search.of_output(0)) return origin;
    shows_in_ = "gradient";
    if (auto origin = search.of_output(1)) return origin;
    shows_in_ = "update";
    return search.of_state();
  }

 private:
  void stop_if_asked() const {
    if (signals_.stop_requested()) throw Error(ErrorKind::failed, "stopped by a signal");
  }
  static void next(data::Loader& loader, data::Batch& batch) {
    if (!loader.next(batch)) loader.next(batch);
  }

  // Restores the state after `updates` updates of the run.
  void go_to(int64_t updates, data::Loader& loader, data::Batch& batch) {
    random_step().assign(tensor(std::vector<int64_t>{0}, {}));
    std::string from;
    for (const CheckpointInfo& checkpoint : list_checkpoints(failure_.run_folder))
      if (checkpoint.step <= updates) from = checkpoint.path;
    Progress progress;
    if (!from.empty()) {
      verify_checkpoint(from);
      progress = load_checkpoint(from, experiment_);
    }
    begins_ = progress.step;
    loader.restore(progress.loader);
    Steps steps(experiment_, recipe_->train.device);
    for (; progress.step < updates; ++progress.step) {
      stop_if_asked();
      next(loader, batch);
      steps.before_update(progress.step);
      steps.run(batch.inputs, batch.labels);
    }
  }

  std::optional<NonFiniteOrigin> look_into_evaluation(Steps& plain) {
    shows_in_ = "evaluation";
    data::Loader loader(experiment_.validation, experiment_.evaluation());
    Executable* evaluate = plain.executables().back().second;
    NonFiniteSearch search;
    for (data::Batch batch; loader.next(batch);) {
      stop_if_asked();
      search.run(*evaluate, std::array{batch.inputs, batch.labels});
      if (auto origin = search.of_output(0)) {
        batch_ = {{"index", loader.state().position - 1}};
        return origin;
      }
    }
    return {};
  }

  void describe_next(const data::Loader& loader) {
    data::LoaderState at = loader.state();
    if (at.position == loader.batches_per_epoch()) at = {at.epoch + 1, 0};
    std::vector<int64_t> order(static_cast<size_t>(loader.size()));
    data::shuffle(order, recipe_->seed, at.epoch);
    const auto first = order.begin() + at.position * loader.batch_size();
    batch_ = {{"epoch", at.epoch},
              {"index", at.position},
              {"samples", std::vector<int64_t>(first, first + loader.batch_size())},
              {"inputs", to_string(loader.input_type())},
              {"labels", to_string(loader.label_type())}};
  }

  const Recipe& recipe_;
  const NonFiniteRun& failure_;
  const Signals& signals_;
  Experiment experiment_ = {};
  Json batch_;
  std::string shows_in_;
  int64_t begins_ = 0;
};

struct Finding {
  Json entry;  // an entry of the file
  std::optional<NonFiniteOrigin> origin;
};

// Searches with products in the type of the parameters first. If all values are finite, searches
// with the recipe's type of products, as some values overflow only in float16.
Finding search(const Recipe& recipe, const NonFiniteRun& failure, const Signals& signals) {
  Replay replay(recipe, failure, signals);
  const PrecisionKind& trained = *find_precision(recipe->train.precision);
  Precision products = Precision::as_written;
  Finding found{.origin = replay.look_into(failure.step, products)};
  if (!found.origin && trained.products != products) {
    products = trained.products;
    found.origin = replay.look_into(failure.step, products);
  }
  found.entry = {{"batch", replay.batch()}, {"replayed_from_step", replay.begins()}};
  int64_t step = failure.step;
  std::string shows_in = replay.shows_in();
  // A non-finite variable was spoiled before this step, by the last update.
  if (found.origin && found.origin->leaf == LeafKind::variable && step > 1 && !failure.evaluation)
    if (auto earlier = replay.look_into(step - 1, products)) {
      --step;
      found.origin = earlier;
      shows_in = replay.shows_in();
    }
  if (!found.origin) {
    found.entry["note"] = "the step was finite when it was replayed";
    return found;
  }
  found.entry["first"] = to_json(*found.origin);
  found.entry["first"].update(
      {{"step", step},
       {"shows_in", shows_in},
       {"products_in",
        name(products == Precision::as_written ? trained.parameters : trained.product_type())}});
  return found;
}

Json norms_of(const NonFiniteRun& failure) {
  Json all = Json::array();
  for (const StepNorms& norms : failure.norms)
    all.push_back({{"step", norms.step},
                   {"loss", json_number(norms.loss)},
                   {"grad_norm", json_number(norms.grad_norm)}});
  return all;
}
}  // namespace

std::string write_black_box(const Recipe& recipe, const NonFiniteRun& failure) {
  Signals signals;
  const std::string path = (std::filesystem::path(failure.run_folder) / "blackbox.json").string();
  const Json beginning = {{"format", 1},
                          {"step", failure.step},
                          {"while", failure.evaluation ? "evaluation" : "training"},
                          {"precision", recipe->train.precision}};
  std::string more;
  auto write = [&](const Json& found) {
    Json box = beginning;
    box.update(found);
    box["norms"] = norms_of(failure);
    try {
      io::write_own_file(path, io::json_text(box, 2) + "\n");
      more = path + " has the details.";
    } catch (const Error& error) {  // a full disk must not hide why the run ended
      more = fmt::format("blackbox.json was not written: {}", error.what());
    }
  };
  write({{"note", "the search was interrupted"}});
  std::string first;
  try {
    Finding found = search(recipe, failure, signals);
    write(found.entry);
    if (found.origin)
      first = fmt::format(" The first {} comes from {}.",
                          found.origin->range.nans > 0 ? "nan" : "inf", described(*found.origin));
  } catch (const std::exception& error) {  // no memory for the search, a signal, changed data
    write({{"note", fmt::format("the search ended: {}", error.what())}});
  }
  if (failure.evaluation)
    return fmt::format("evaluation at step {}: the loss is not finite.{} {}", failure.step, first,
                       more);
  const bool scaled = recipe->train.precision == "fp16-mixed";
  return fmt::format(
      "step {}: the loss, or its gradient, is not finite{}.{} {} Hint: a lower optimizer.lr, a "
      "warm-up, or train.grad_clip{}.",
      failure.step, scaled ? ", with the loss scale at its floor" : "", first, more,
      scaled ? "; bf16-mixed has the range of float32" : "");
}

}  // namespace weft::train
