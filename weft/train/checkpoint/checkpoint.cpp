#include "weft/train/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/numbers/hash.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/load.h"
#include "weft/io/safetensors.h"
#include "weft/models/config_json.h"
#include "weft/models/decoder.h"
#include "weft/models/family.h"
#include "weft/models/pretrained.h"
#include "weft/train/checkpoint/adapter_base.h"
#include "weft/train/checkpoint/checkpoint_folders.h"
#include "weft/train/task/published.h"

namespace weft::train {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t small_file = size_t{16} << 20;  // bytes; limit for every file but tensors
constexpr int manifest_format = 1;

// Reads fields of a file; errors for missing fields and wrong types name the file.
template <class Read>
auto fields_of(const std::string& path, Read read) {
  const std::string text = io::read_file(path, small_file, ErrorKind::checkpoint);
  try {
    return read(io::parse_json(text));
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::checkpoint, "{}: {}.", path, error.what());
  }
}
json read_json(const std::string& path) {
  return fields_of(path, [](const json& contents) { return contents; });
}

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

// Writes the files of a checkpoint and records each for the manifest, which is written last.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(std::string folder) : folder_(std::move(folder)) {}

  void text(const std::string& name, std::string_view contents) {
    note(name, io::write_file_atomically(join(folder_, name), contents));
  }
  void tensors(const std::string& name, const io::NamedVariables& variables) {
    note(name, io::save_safetensors(join(folder_, name), variables));
  }
  void tensors(const std::string& name, const std::vector<io::NamedBytes>& tensors,
               const io::Metadata& metadata = io::pytorch_metadata()) {
    note(name, io::write_safetensors(join(folder_, name), tensors, metadata));
  }
  void manifest(int64_t step) {
    json manifest = {{"format", manifest_format}, {"step", step}, {"files", files_}};
    io::write_file_atomically(join(folder_, "MANIFEST.json"), io::json_text(manifest, 2) + "\n");
  }

 private:
  void note(const std::string& name, const io::FileSummary& file) {
    files_[name] = {{"bytes", file.bytes}, {"xxh3", to_hex(file.checksum)}};
  }
  std::string folder_;
  json files_ = json::object();
};

void write_files(const std::string& folder, const Experiment& experiment,
                 const Progress& progress) {
  CheckpointWriter writer(folder);
  if (experiment.recipe->adapter.type) {
    io::Metadata metadata = io::pytorch_metadata();
    identify_base(metadata, *experiment.recipe->model.pretrained);
    writer.tensors(std::string(models::adapter_weights_file),
                   models::adapter_tensors(*experiment.model), metadata);
    writer.text(std::string(models::adapter_config_file),
                models::adapter_config_text(*experiment.model, adapter_of(experiment.recipe)));
  } else {
    writer.tensors("model.safetensors", experiment.model->saved());
  }
  writer.text("config.json", models::json_text(experiment.model->config()));
  if (experiment.vocabulary && experiment.vocabulary->vocabulary() != nullptr)
    writer.text("vocabulary.json", experiment.vocabulary->vocabulary()->to_json());
  for (const io::FolderFile& file : experiment.published_files)
    writer.text(file.name, file.contents);
  writer.tensors("state-optimizer.safetensors", io::by_name(experiment.update_state()));
  writer.text("data.json", io::json_text(to_json(progress), 2) + "\n");
  json random = {{"seed", experiment.recipe->seed},
                 {"step", static_cast<int64_t>(random_step().value().item())}};
  writer.text("rng.json", io::json_text(random, 2) + "\n");
  writer.text("recipe.yaml", experiment.recipe.to_yaml());
  writer.manifest(progress.step);
}

struct ListedFile {
  std::string name, checksum;
  uint64_t bytes = 0;
};
struct Manifest {
  int64_t step;
  std::vector<ListedFile> files;

  bool lists(std::string_view name) const {
    return std::ranges::find(files, name, &ListedFile::name) != files.end();
  }
};
Manifest read_manifest(const std::string& path) {
  Manifest result = fields_of(path, [&](const json& manifest) {
    if (auto format = io::integer_at(manifest, "format"); format != manifest_format)
      throw Error(ErrorKind::checkpoint, "{} has format {}. This version of weft reads format {}.",
                  path, format, manifest_format);
    Manifest read{io::integer_at(manifest, "step"), {}};
    for (const auto& [name, file] : io::object_at(manifest, "files").items())
      read.files.push_back(
          {name, io::text_at(file, "xxh3"), static_cast<uint64_t>(io::integer_at(file, "bytes"))});
    return read;
  });
  for (const ListedFile& file : result.files)
    if (file.name.find('/') != std::string::npos || file.name.starts_with('.'))
      throw Error(ErrorKind::checkpoint, "{} lists '{}', which is not a file name.", path,
                  io::printable(file.name));
  return result;
}

// Throws one line that names the first difference between the models of the file and of the recipe.
void check_same_model(const std::string& folder, const Experiment& experiment) {
  std::string path = join(folder, "config.json");
  json saved = read_json(path), here = models::json_of(experiment.model->config());
  if (!saved.is_object()) throw Error(ErrorKind::checkpoint, "{}: must be an object.", path);
  for (const auto& [key, value] : here.items()) {
    json there = saved.value(key, json());
    if (there != value)
      throw Error(ErrorKind::usage, "{} holds another model: {} is {} there and {} in the recipe.",
                  folder, key, io::printable(io::json_text(there)), io::json_text(value));
  }
}
// Refuses to resume with other data, another order of them or another optimizer: that would be
// another run.
void check_same_run(const std::string& folder, const Recipe& here) {
  Recipe saved = checkpoint_recipe(folder);
  for (const RecipeKey& key : recipe_keys())
    if (key.same_on_resume && saved.to_yaml(key.path) != here.to_yaml(key.path))
      throw Error(ErrorKind::usage,
                  "{} cannot be resumed: {} is {} there and {} in the recipe. Hint: --name starts "
                  "another run.",
                  folder, key.path, saved.to_yaml(key.path), here.to_yaml(key.path));
}

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
}  // namespace

std::string save_checkpoint(const std::string& run_folder, const Experiment& experiment,
                            const Progress& progress, bool best) {
  std::string folder = checkpoints_of(run_folder), name = fmt::format("step-{:08}", progress.step);
  try {
    io::AtomicFolder whole(join(folder, name));
    write_files(whole.path(), experiment, progress);
    spare_foreign(join(folder, name));
    whole.commit();
    io::replace_link(join(folder, "latest"), name);
    if (best) io::replace_link(join(folder, "best"), name);
  } catch (const Error& error) {
    throw Error(error.kind(), "checkpoint of step {}: {}{}", progress.step, error.what(),
                list_checkpoints(run_folder).empty() ? none_is_saved(run_folder)
                                                     : " Earlier checkpoints are intact.");
  }
  prune(run_folder, experiment.recipe->checkpoint.keep_last);
  return join(folder, name);
}

void write_checkpoint(const std::string& folder, const Experiment& experiment,
                      const Progress& progress) {
  io::AtomicFolder whole(folder);
  write_files(whole.path(), experiment, progress);
  whole.commit();
}

void verify_checkpoint(const std::string& folder) {
  std::string path = join(folder, "MANIFEST.json");
  if (!io::exists(path, ErrorKind::checkpoint))
    throw Error(ErrorKind::checkpoint, "{} is missing: the checkpoint is incomplete.", path);
  Manifest manifest = read_manifest(path);
  for (const char* name : required)
    if (!manifest.lists(name))
      throw Error(ErrorKind::checkpoint, "{} does not list {}.", path, name);
  if (std::ranges::none_of(weight_files, [&](const char* name) { return manifest.lists(name); }))
    throw Error(ErrorKind::checkpoint, "{} does not list {}.", path, weight_files[0]);
  for (const ListedFile& listed : manifest.files) {
    std::string file = join(folder, listed.name);
    if (!io::exists(file, ErrorKind::checkpoint))
      throw Error(ErrorKind::checkpoint, "{} is missing.", file);
    std::error_code error;
    if (!fs::is_regular_file(file, error))
      throw Error(ErrorKind::checkpoint, "{} is not a regular file.", file);
    if (uint64_t bytes = fs::file_size(file, error); bytes != listed.bytes)
      throw Error(ErrorKind::checkpoint, "{} has {} bytes. The manifest says {}.", file, bytes,
                  listed.bytes);
    if (std::string found = to_hex(io::checksum_file(file, ErrorKind::checkpoint));
        found != listed.checksum)
      throw Error(ErrorKind::checkpoint, "{} is damaged: its checksum is {}. The manifest says {}.",
                  file, found, io::printable(listed.checksum));
  }
  if (int64_t step = fields_of(join(folder, "data.json"), progress_of).step; step != manifest.step)
    throw Error(ErrorKind::checkpoint, "{}: step {}. data.json says {}.", path, manifest.step,
                step);
}

Recipe checkpoint_recipe(const std::string& folder) {
  const std::string path = join(folder, "recipe.yaml");
  try {
    return Recipe::parse(io::read_file(path, small_file), path);
  } catch (const Error& error) {  // report the checkpoint, not the user's input
    throw Error(ErrorKind::checkpoint, error.what());
  }
}

std::optional<data::TextCodec> checkpoint_vocabulary(const std::string& folder) {
  const Manifest manifest = read_manifest(join(folder, "MANIFEST.json"));
  try {
    if (manifest.lists("vocabulary.json"))
      return io::Vocabulary::load(join(folder, "vocabulary.json"));
    if (std::ranges::any_of(manifest.files, determines_ids, &ListedFile::name))
      return data::Tokenizer::load(folder);
    return std::nullopt;
  } catch (const Error& error) {  // report the checkpoint, not the data
    throw Error(ErrorKind::checkpoint, error.what());
  }
}

namespace {
bool differ(const data::TextCodec& a, const data::TextCodec& b) {
  if (a.vocabulary() == nullptr || b.vocabulary() == nullptr) return a.size() != b.size();
  return *a.vocabulary() != *b.vocabulary();
}

// Refuses a tokenizer other than the checkpoint's: the model would read other ids.
void check_same_tokenizer(const std::string& folder, const Experiment& experiment) {
  const Manifest manifest = read_manifest(join(folder, "MANIFEST.json"));
  for (const io::FolderFile& file : experiment.published_files) {
    if (!determines_ids(file.name)) continue;
    const auto saved = std::ranges::find(manifest.files, file.name, &ListedFile::name);
    if (saved == manifest.files.end() || saved->checksum != to_hex(hash_text(file.contents)))
      throw Error(ErrorKind::checkpoint,
                  "{} was trained with another tokenizer: {} differs. Hint: --name starts another "
                  "run.",
                  folder, file.name);
  }
}
}  // namespace

void load_model(const std::string& folder, Experiment& experiment) {
  check_same_model(folder, experiment);
  if (auto saved = checkpoint_vocabulary(folder);
      saved && experiment.vocabulary && differ(*saved, *experiment.vocabulary))
    throw Error(ErrorKind::checkpoint,
                "{} has another vocabulary than the data: {} tokens there, {} here.", folder,
                saved->size(), experiment.vocabulary->size());
  check_same_tokenizer(folder, experiment);
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
    for (const auto& method : experiment.methods)
      if (const std::vector<Variable> used = method->used_state(); !used.empty())
        io::load_into(join(folder, "state-optimizer.safetensors"), used, {.strict = false});
  });
}

void load_first_weights(const Recipe& recipe, Model& model) {
  const std::string& path = *recipe->model.weights;
  const std::string found = locate_run(path);
  if (!io::exists(found, ErrorKind::usage))
    recipe.refuse(keys::model::weights,
                  fmt::format("model.weights: {} does not exist.", io::printable(path)));
  const std::string file =
      io::is_folder(found, ErrorKind::usage) ? weights_of(verified_checkpoint(found)) : found;
  models::as_data([&] { io::load_into(file, io::state_of(model), {.cast = true}); });
}

Progress load_checkpoint(const std::string& folder, Experiment& experiment) {
  check_same_run(folder, experiment.recipe);
  Progress progress = fields_of(join(folder, "data.json"), progress_of);
  const std::string here = experiment.data_fingerprint();
  if (const std::string& there = progress.data_fingerprint; !there.empty() && there != here)
    throw Error(ErrorKind::checkpoint,
                "{} cannot be resumed: it was trained on other data (fingerprint {} there, {} "
                "here). Hint: --name starts another run.",
                folder, io::printable(there), here.empty() ? "none" : here);
  progress.data_fingerprint = here;
  load_model(folder, experiment);
  load_tensors(folder, experiment.recipe, [&] {
    io::load_into(join(folder, "state-optimizer.safetensors"),
                  io::by_name(experiment.update_state()));
  });
  int64_t random = fields_of(join(folder, "rng.json"),
                             [](const json& fields) { return io::integer_at(fields, "step"); });
  random_step().assign(tensor(std::vector<int64_t>{random}, {}));
  return progress;
}

}  // namespace weft::train
