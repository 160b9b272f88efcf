// Lists the parts of checkpoints. This is one file so that a part is read where it is written.
#include "weft/train/checkpoint/parts.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/numbers/hash.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/load.h"
#include "weft/models/config_json.h"
#include "weft/models/family.h"
#include "weft/models/pretrained.h"
#include "weft/train/checkpoint/adapter_base.h"
#include "weft/train/checkpoint/checkpoint_folders.h"
#include "weft/train/task/imported.h"
#include "weft/train/task/published.h"

namespace weft::train {
namespace {
using nlohmann::json;

// ---- recipe.yaml

void add_recipe(CheckpointFiles& to, const Experiment& experiment, const Progress&) {
  to.push_back({"recipe.yaml", experiment.recipe.to_yaml()});
}

// Refuses to resume with other data, another order of them or another optimizer: that would be
// another run.
void check_same_run(const std::string& folder, const Experiment& experiment) {
  const Recipe saved = checkpoint_recipe(folder), &here = experiment.recipe;
  for (const RecipeKey& key : recipe_keys())
    if (key.same_on_resume && saved.to_yaml(key.path) != here.to_yaml(key.path))
      throw Error(ErrorKind::usage,
                  "{} cannot be resumed: {} is {} there and {} in the recipe. Hint: --name starts "
                  "another run.",
                  folder, key.path, saved.to_yaml(key.path), here.to_yaml(key.path));
}

// ---- data.json: the progress of the run

json to_json(const Progress& progress) {
  auto number = [](const std::optional<double>& value) { return value ? json(*value) : json(); };
  return {{"step", progress.step},
          {"data_fingerprint", progress.data_fingerprint},
          {"epoch", progress.loader.epoch},
          {"position", progress.loader.position},
          {"evaluated_step", progress.evaluated_step},
          {"evaluations_since_best", progress.evaluations_since_best},
          {"best_loss", number(progress.best_loss)},
          {"best_score", number(progress.best_score)},
          {"stopped", progress.stopped}};
}

Progress progress_of(const json& fields) {
  auto number = [&](const char* key) { return io::number_or_null_at(fields, key); };
  auto integer = [&](const char* key) { return io::integer_at(fields, key); };
  return {.step = integer("step"),
          .data_fingerprint = fields.contains("data_fingerprint")  // older checkpoints have none
                                  ? io::text_at(fields, "data_fingerprint")
                                  : "",
          .loader = {.epoch = integer("epoch"), .position = integer("position")},
          .evaluated_step = integer("evaluated_step"),
          .evaluations_since_best = integer("evaluations_since_best"),
          .best_loss = number("best_loss"),
          .best_score = number("best_score"),
          .stopped = io::truth_at(fields, "stopped")};
}
Progress read_progress(const std::string& folder) {
  return fields_of(join(folder, "data.json"), progress_of);
}

void add_progress(CheckpointFiles& to, const Experiment&, const Progress& progress) {
  to.push_back({"data.json", io::json_text(to_json(progress), 2) + "\n"});
}

void check_same_data(const std::string& folder, const Experiment& experiment) {
  const std::string there = read_progress(folder).data_fingerprint;
  if (there.empty()) return;
  if (const std::string here = experiment.data_fingerprint(); there != here)
    throw Error(ErrorKind::checkpoint,
                "{} cannot be resumed: it was trained on other data (fingerprint {} there, {} "
                "here). Hint: --name starts another run.",
                folder, io::printable(there), here.empty() ? "none" : here);
}

void load_progress(const std::string& folder, Experiment& experiment, Progress& progress) {
  progress = read_progress(folder);
  if (progress.data_fingerprint.empty()) progress.data_fingerprint = experiment.data_fingerprint();
}

// ---- config.json

void add_config(CheckpointFiles& to, const Experiment& experiment, const Progress&) {
  to.push_back({"config.json", models::json_text(experiment.model->config())});
}

// Throws one line that names the first difference between the models of the file and of the recipe.
void check_same_model(const std::string& folder, const Experiment& experiment) {
  const std::string path = join(folder, "config.json");
  const json saved = fields_of(path, [](const json& contents) { return contents; }),
             here = models::json_of(experiment.model->config());
  if (!saved.is_object()) throw Error(ErrorKind::checkpoint, "{}: must be an object.", path);
  for (const auto& [key, value] : here.items()) {
    const json there = saved.value(key, json());
    if (there != value)
      throw Error(ErrorKind::usage, "{} holds another model: {} is {} there and {} in the recipe.",
                  folder, key, io::printable(io::json_text(there)), io::json_text(value));
  }
}

// ---- vocabulary.json: the characters or bytes of a text

void add_vocabulary(CheckpointFiles& to, const Experiment& experiment, const Progress&) {
  if (experiment.vocabulary && experiment.vocabulary->vocabulary() != nullptr)
    to.push_back({"vocabulary.json", experiment.vocabulary->vocabulary()->to_json()});
}

bool differ(const data::TextCodec& a, const data::TextCodec& b) {
  if (a.vocabulary() == nullptr || b.vocabulary() == nullptr) return a.size() != b.size();
  return *a.vocabulary() != *b.vocabulary();
}

void check_same_vocabulary(const std::string& folder, const Experiment& experiment) {
  if (auto saved = checkpoint_vocabulary(folder);
      saved && experiment.vocabulary && differ(*saved, *experiment.vocabulary))
    throw Error(ErrorKind::checkpoint,
                "{} has another vocabulary than the data: {} tokens there, {} here.", folder,
                saved->size(), experiment.vocabulary->size());
}

// ---- files of the data, of a tokenizer, of a published model, of an ONNX file

std::vector<std::string_view> extra_names() {
  std::vector<std::string_view> names(published_files.begin(), published_files.end());
  names.insert(names.end(), {net_file, labels_file});
  for (const auto* entries : {&registry::datasets(), &registry::formats()})
    for (const DataEntry& entry : *entries)
      names.insert(names.end(), entry.files.begin(), entry.files.end());
  return names;
}

void add_extra(CheckpointFiles& to, const Experiment& experiment, const Progress&) {
  for (const io::FolderFile& file : experiment.checkpoint_files) {
    WEFT_CHECK(is_checkpoint_file(file.name),
               "[checkpoint] the data set keeps {}, which its entry does not list in `files`.",
               file.name);
    to.push_back({file.name, std::string_view(file.contents)});
  }
}

// Refuses a tokenizer other than the checkpoint's: the model would read other ids.
void check_same_tokenizer(const std::string& folder, const Experiment& experiment) {
  const Manifest manifest = read_manifest(folder);
  for (const io::FolderFile& file : experiment.checkpoint_files) {
    if (!determines_ids(file.name)) continue;
    const ListedFile* const saved = manifest.find(file.name);
    if (saved == nullptr || saved->checksum != to_hex(hash_text(file.contents)))
      throw Error(ErrorKind::checkpoint,
                  "{} was trained with another tokenizer: {} differs. Hint: --name starts another "
                  "run.",
                  folder, file.name);
  }
}

// ---- weights: of a model, or of an adapter in files that PEFT can load

// Calls `load`, which reads tensors of a checkpoint. If they do not fit because the recipe differs
// from the checkpoint's, the file is not damaged: throws Error(usage) that names the first such
// key.
void load_tensors(const std::string& folder, const Recipe& here, const auto& load) try {
  load();
} catch (const io::Misfit& misfit) {
  const Recipe saved = checkpoint_recipe(folder);
  for (const RecipeKey& key : recipe_keys())
    if (key.decides_tensors && saved.to_yaml(key.path) != here.to_yaml(key.path))
      throw Error(ErrorKind::usage, "{} {} is {} there and {} in the recipe.", misfit.what(),
                  key.path, saved.to_yaml(key.path), here.to_yaml(key.path));
  throw;
}

// The files have the weights that the model is used with, so that every reader of a model gets
// those: those that train are state of the run where they are others.
void add_weights(CheckpointFiles& to, const Experiment& experiment, const Progress&) {
  const StandInScope used(experiment.stand_ins());
  if (!experiment.recipe->adapter.type)
    return to.push_back({weights_file, CheckpointTensors{experiment.model->saved()}});
  io::Metadata metadata = io::pytorch_metadata();
  identify_base(metadata, *experiment.recipe->model.pretrained);
  to.push_back({std::string(models::adapter_weights_file),
                CheckpointTensors{models::adapter_tensors(*experiment.model), metadata}});
  to.push_back({std::string(models::adapter_config_file),
                models::adapter_config_text(*experiment.model, adapter_of(experiment.recipe))});
}

void load_weights(const std::string& folder, Experiment& experiment) {
  const StandInScope used(experiment.stand_ins());
  load_tensors(folder, experiment.recipe, [&] {
    const std::string weights = weights_of(folder);
    if (experiment.recipe->adapter.type) {
      const std::string& base = *experiment.recipe->model.pretrained;
      check_base(folder, base);
      models::load_published(*experiment.model, io::weight_files(base), true);
      models::load_adapter_weights(*experiment.model, weights);
    } else if (experiment.recipe->model.pretrained) {
      models::load_published(*experiment.model, {weights}, false);
    } else {
      io::load_into(weights, io::state_of(*experiment.model));
    }
  });
}

// ---- state-optimizer.safetensors: the state of the optimizer and of methods

constexpr const char* state_file = "state-optimizer.safetensors";

void add_state(CheckpointFiles& to, const Experiment& experiment, const Progress&) {
  to.push_back({state_file,
                CheckpointTensors{io::bytes_of(io::by_name(experiment.state_beside_weights()))}});
}

void load_used_state(const std::string& folder, Experiment& experiment) {
  load_tensors(folder, experiment.recipe, [&] {
    for (const auto& method : experiment.methods)
      if (const std::vector<Variable> used = method->used_state(); !used.empty())
        io::load_into(join(folder, state_file), used, {.strict = false});
  });
}

void load_state(const std::string& folder, Experiment& experiment, Progress&) {
  load_tensors(folder, experiment.recipe, [&] {
    io::load_into(join(folder, state_file), io::by_name(experiment.state_beside_weights()));
  });
}

// ---- rng.json

void add_random(CheckpointFiles& to, const Experiment& experiment, const Progress&) {
  const json random = {{"seed", experiment.recipe->seed},
                       {"step", static_cast<int64_t>(random_step().value().item())}};
  to.push_back({"rng.json", io::json_text(random, 2) + "\n"});
}

void load_random(const std::string& folder, Experiment&, Progress&) {
  const int64_t step = fields_of(join(folder, "rng.json"),
                                 [](const json& fields) { return io::integer_at(fields, "step"); });
  random_step().assign(tensor(std::vector<int64_t>{step}, {}));
}
}  // namespace

const std::vector<CheckpointPart>& checkpoint_parts() {
  static const std::vector<CheckpointPart> parts{
      {.files = {"recipe.yaml"}, .required = true, .add = add_recipe, .check_run = check_same_run},
      {.files = {"data.json"},
       .required = true,
       .add = add_progress,
       .check_run = check_same_data,
       .load_run = load_progress},
      {.files = {"config.json"},
       .required = true,
       .add = add_config,
       .check_model = check_same_model},
      {.files = {"vocabulary.json"}, .add = add_vocabulary, .check_model = check_same_vocabulary},
      {.files = extra_names(), .add = add_extra, .check_model = check_same_tokenizer},
      {.files = {weights_file, models::adapter_weights_file},
       .required = true,
       .add = add_weights,
       .load_model = load_weights},
      {.files = {models::adapter_config_file, "base.json"}},  // written with the adapter's weights
      {.files = {state_file},
       .required = true,
       .add = add_state,
       .load_model = load_used_state,
       .load_run = load_state},
      {.files = {"rng.json"}, .required = true, .add = add_random, .load_run = load_random}};
  return parts;
}

int64_t step_in(const std::string& folder) { return read_progress(folder).step; }

std::string weights_of(const std::string& checkpoint) {
  const std::string adapter = join(checkpoint, models::adapter_weights_file);
  return io::exists(adapter, ErrorKind::checkpoint) ? adapter : join(checkpoint, weights_file);
}

bool is_checkpoint_file(std::string_view name) {
  return name == manifest_file ||
         std::ranges::any_of(checkpoint_parts(), [&](const CheckpointPart& part) {
           return std::ranges::find(part.files, name) != part.files.end();
         });
}

}  // namespace weft::train
