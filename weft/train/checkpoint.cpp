#include "weft/train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/hash.h"
#include "weft/base/logging.h"
#include "weft/base/partial_name.h"
#include "weft/io/json.h"
#include "weft/io/load.h"
#include "weft/io/safetensors.h"

namespace weft::train {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t small_file = size_t{16} << 20;  // bytes; limit for every file but tensors
constexpr int manifest_format = 1;
constexpr const char* required[] = {
    "model.safetensors", "config.json", "state-optimizer.safetensors",
    "data.json",         "rng.json",    "recipe.yaml"};

std::string join(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

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

json to_json(const nn::Options& options) {
  json result = json::object();
  for (const auto& [key, option] : options.entries())
    std::visit([&, &name = key](const auto& value) { result[name] = value; }, option);
  return result;
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
class Writer {
 public:
  explicit Writer(std::string folder) : folder_(std::move(folder)) {}

  void text(const std::string& name, std::string_view contents) {
    note(name, io::write_file_atomically(join(folder_, name), contents));
  }
  void tensors(const std::string& name, const io::NamedVariables& variables) {
    note(name, io::save_safetensors(join(folder_, name), variables));
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
  Writer writer(folder);
  writer.tensors("model.safetensors", io::state_of(*experiment.model));
  writer.text("config.json", io::json_text(to_json(experiment.model->config()), 2) + "\n");
  if (experiment.vocabulary) writer.text("vocabulary.json", experiment.vocabulary->to_json());
  writer.tensors("state-optimizer.safetensors", io::by_name(experiment.update_state()));
  writer.text("data.json", io::json_text(to_json(progress), 2) + "\n");
  json random = {{"seed", experiment.recipe.integer("seed")},
                 {"step", static_cast<int64_t>(random_step().value().item())}};
  writer.text("rng.json", io::json_text(random, 2) + "\n");
  writer.text("recipe.yaml", experiment.recipe.to_yaml());
  writer.manifest(progress.step);
}

std::string checkpoints_of(const std::string& run_folder) {
  return join(run_folder, "checkpoints");
}

// Returns false for links that lead nowhere or in a circle, as for missing files.
bool is_whole(const fs::path& checkpoint) {
  std::error_code error;
  return fs::exists(checkpoint / "MANIFEST.json", error);
}
bool is_link(const fs::path& path) {
  std::error_code error;
  return fs::is_symlink(path, error);
}

// Returns the step of "step-00001000"; nullopt for any other name.
std::optional<int64_t> step_of(const std::string& name) {
  int64_t step = 0;
  if (!name.starts_with("step-")) return std::nullopt;
  auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

// Renames the checkpoint before it removes it: a checkpoint under its own name is always complete.
// A leftover harms no run.
void remove_checkpoint(const std::string& path) {
  const std::string partial = partial_name(path);
  std::error_code error;
  fs::rename(path, partial, error);
  if (!error) fs::remove_all(partial, error);
  if (error) logging::warn("cannot remove checkpoint {}: {}.", path, error.message());
}

// Returns a path in the folder of a checkpoint that is no file of one; "" for none.
std::string foreign_in(const fs::path& checkpoint) {
  std::error_code error;
  for (const auto& file : fs::directory_iterator(checkpoint, error)) {
    const std::string name = file.path().filename().string();
    if (std::ranges::find(required, name) == std::end(required) && name != "vocabulary.json" &&
        name != "MANIFEST.json")
      return file.path().string();
  }
  return "";
}

// Renames an existing checkpoint that holds a file of the user's, which would otherwise be removed
// when a step is saved again.
void spare_foreign(const std::string& checkpoint) {
  const std::string foreign = foreign_in(checkpoint);
  if (foreign.empty()) return;
  const fs::path place(checkpoint);
  std::error_code error;
  std::string aside;
  for (int i = 1; aside.empty() || fs::exists(aside, error); ++i)
    aside =
        (place.parent_path() / fmt::format("before-{}-{}", place.filename().string(), i)).string();
  fs::rename(checkpoint, aside, error);
  if (error)
    throw Error(ErrorKind::failed, "cannot rename {} to {}: {}.", checkpoint, aside,
                error.message());
  logging::warn(
      "{} is the earlier {}, set aside: it contains {}, which is not part of a checkpoint.", aside,
      checkpoint, io::printable(fs::path(foreign).filename().string()));
}

void prune(const std::string& run_folder, int64_t keep_last) {
  static std::set<std::string> said;
  std::vector<CheckpointInfo> all = list_checkpoints(run_folder);
  // A run that resumed from an earlier checkpoint may find later ones, which are not counted.
  while (!all.empty() && !all.back().latest) all.pop_back();
  for (size_t i = 0; i + static_cast<size_t>(keep_last) < all.size(); ++i) {
    const CheckpointInfo& old = all[i];
    if (old.latest || old.best) continue;
    const std::string foreign = foreign_in(old.path);
    if (foreign.empty())
      remove_checkpoint(old.path);
    else if (said.insert(old.path).second)
      logging::warn(
          "{} is not removed, although checkpoint.keep_last is {}: it contains {}, which is not "
          "part of a checkpoint.",
          old.path, keep_last, io::printable(fs::path(foreign).filename().string()));
  }
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
  json saved = read_json(path), here = to_json(experiment.model->config());
  if (!saved.is_object()) throw Error(ErrorKind::checkpoint, "{}: must be an object.", path);
  for (const auto& [key, value] : here.items()) {
    json there = saved.value(key, json());
    if (there != value)
      throw Error(ErrorKind::checkpoint,
                  "{} holds another model: {} is {} there and {} in the recipe.", folder, key,
                  io::printable(io::json_text(there)), io::json_text(value));
  }
}
// Refuses to resume with other data, another order of them or another optimizer: that would be
// another run.
void check_same_run(const std::string& folder, const Recipe& here) {
  constexpr std::string_view keys[] = {"seed",
                                       "data.dataset",
                                       "data.format",
                                       "data.tokenizer",
                                       "data.seq_len",
                                       "data.digits",
                                       "data.reversed",
                                       "data.mean",
                                       "data.std",
                                       "train.global_batch_size",
                                       "train.precision",
                                       "train.rounding",
                                       "train.keep",
                                       "optimizer.name"};
  Recipe saved = checkpoint_recipe(folder);
  for (std::string_view key : keys)
    if (saved.to_yaml(key) != here.to_yaml(key))
      throw Error(ErrorKind::checkpoint,
                  "{} cannot be resumed: {} is {} there and {} in the recipe. Hint: --name starts "
                  "another run.",
                  folder, key, saved.to_yaml(key), here.to_yaml(key));
}
}  // namespace

std::string find_checkpoint(const std::string& path) {
  if (is_whole(path)) return path;
  for (const std::string& folder : {path, checkpoints_of(path)}) {
    std::error_code error;
    fs::path link = fs::path(folder) / "latest", target = fs::read_symlink(link, error);
    if (!error && is_whole(link)) return join(folder, target.string());
  }
  std::vector<CheckpointInfo> all = list_checkpoints(path);
  if (!all.empty()) return all.back().path;
  if (is_link(fs::path(checkpoints_of(path)) / "latest"))
    throw Error(ErrorKind::checkpoint, "{} has no MANIFEST.json.",
                join(checkpoints_of(path), "latest"));
  // A folder that cannot be entered is not empty: io::exists() throws the reason.
  for (const std::string& folder : {path, checkpoints_of(path)})
    io::exists(join(folder, "MANIFEST.json"), ErrorKind::checkpoint);
  throw Error(ErrorKind::checkpoint,
              "no checkpoint under {}: neither MANIFEST.json nor checkpoints/latest.", path);
}

std::string locate_run(const std::string& name, const std::string& runs) {
  std::error_code error;
  const bool is_one = is_whole(name) || is_link(fs::path(name) / "latest") ||
                      fs::is_directory(checkpoints_of(name), error);
  std::string run = join(runs, name);
  return !is_one && fs::is_directory(run, error) ? run : name;
}

std::vector<CheckpointInfo> list_checkpoints(const std::string& run_folder) {
  std::string folder = checkpoints_of(run_folder);
  std::vector<CheckpointInfo> all;
  std::error_code error;
  auto target = [&](const char* link) {
    std::error_code absent;
    return fs::read_symlink(fs::path(folder) / link, absent).filename().string();
  };
  std::string latest = target("latest"), best = target("best");
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    auto step = step_of(name);
    if (!step || entry.is_symlink() || !is_whole(entry.path())) continue;
    CheckpointInfo info{.path = entry.path().string(),
                        .step = *step,
                        .latest = name == latest,
                        .best = name == best};
    // A run in progress may remove the checkpoint meanwhile.
    std::error_code gone;
    for (const auto& file : fs::directory_iterator(entry.path(), gone)) {
      std::error_code absent;
      const uintmax_t bytes = fs::file_size(file.path(), absent);
      if (!absent) info.bytes += bytes;
    }
    if (is_whole(entry.path())) all.push_back(std::move(info));
  }
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.step < b.step; });
  return all;
}

std::string foreign_among_checkpoints(const std::string& run_folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints_of(run_folder), error)) {
    const std::string name = entry.path().filename().string();
    const bool is_one = step_of(name) && !entry.is_symlink(error) && entry.is_directory(error);
    const bool is_link = (name == "latest" || name == "best") && entry.is_symlink(error);
    if (!is_one && !is_link && !partial_owner(name)) return entry.path().string();
    if (const std::string foreign = is_one ? foreign_in(entry.path()) : ""; !foreign.empty())
      return foreign;
  }
  return "";
}

void check_may_save(const std::string& run_folder) {
  const std::string folder = checkpoints_of(run_folder);
  std::error_code none;
  if (is_link(run_folder) && !fs::exists(run_folder, none))
    throw Error(ErrorKind::failed, "cannot write {}: it is a link to {}, which does not exist.",
                run_folder, fs::read_symlink(run_folder, none).string());
  for (const char* link : {"latest", "best"}) {
    const fs::file_status there = fs::symlink_status(fs::path(folder) / link, none);
    if (fs::exists(there) && !fs::is_symlink(there))
      throw Error(ErrorKind::failed,
                  "cannot save checkpoints: {} is not a link to a checkpoint. Hint: move it.",
                  join(folder, link));
  }
}

std::string none_is_saved(const std::string& run_folder) {
  std::error_code error;
  const fs::directory_iterator first(checkpoints_of(run_folder), error);
  const bool unreadable = error && error != std::errc::no_such_file_or_directory;
  return unreadable || !list_checkpoints(run_folder).empty() ? "" : " No checkpoint is saved.";
}

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
  prune(run_folder, experiment.recipe.integer("checkpoint.keep_last"));
  return join(folder, name);
}

void verify_checkpoint(const std::string& folder) {
  std::string path = join(folder, "MANIFEST.json");
  if (!io::exists(path, ErrorKind::checkpoint))
    throw Error(ErrorKind::checkpoint, "{} is missing: the checkpoint is incomplete.", path);
  Manifest manifest = read_manifest(path);
  for (const char* name : required)
    if (!manifest.lists(name))
      throw Error(ErrorKind::checkpoint, "{} does not list {}.", path, name);
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

namespace {
struct Whole {
  std::string path;            // "": no checkpoint is intact
  std::optional<Error> wrong;  // what is wrong with the last one saved
};

Whole newest_whole(const std::string& path) {
  std::string last = find_checkpoint(path);
  Whole found;
  const fs::path latest = fs::path(checkpoints_of(path)) / "latest";
  if (is_link(latest) && !is_whole(latest))
    found.wrong = Error(ErrorKind::checkpoint, "{} has no MANIFEST.json.", latest.string());
  std::vector<std::string> candidates = {last};
  const fs::path run = fs::path(last).parent_path().parent_path();
  for (const CheckpointInfo& checkpoint : list_checkpoints(run.string()))
    if (checkpoint.path != last) candidates.insert(candidates.begin() + 1, checkpoint.path);
  for (const std::string& candidate : candidates) {
    try {
      verify_checkpoint(candidate);
      found.path = candidate;
      break;
    } catch (const Error& error) {
      if (!found.wrong) found.wrong = error;
    }
  }
  return found;
}
}  // namespace

std::string newest_whole_checkpoint(const std::string& run_folder) {
  const Whole found = newest_whole(run_folder);
  if (found.path.empty()) throw Error(*found.wrong);
  if (found.wrong) logging::warn("{} The run resumes from {}.", found.wrong->what(), found.path);
  return found.path;
}

std::string verified_checkpoint(const std::string& path) {
  const Whole found = newest_whole(path);
  if (!found.wrong) return found.path;
  if (found.path.empty()) throw Error(*found.wrong);
  throw Error(found.wrong->kind(), "{} Hint: {} is intact.", found.wrong->what(), found.path);
}

Recipe checkpoint_recipe(const std::string& folder) {
  const std::string path = join(folder, "recipe.yaml");
  try {
    return Recipe::parse(io::read_file(path, small_file), path);
  } catch (const Error& error) {  // report the checkpoint, not the user's input
    throw Error(ErrorKind::checkpoint, error.what());
  }
}

std::optional<io::Vocabulary> checkpoint_vocabulary(const std::string& folder) {
  std::string path = join(folder, "vocabulary.json");
  if (!read_manifest(join(folder, "MANIFEST.json")).lists("vocabulary.json")) return std::nullopt;
  try {
    return io::Vocabulary::load(path);
  } catch (const Error& error) {  // report the checkpoint, not the data
    throw Error(ErrorKind::checkpoint, error.what());
  }
}

void load_model(const std::string& folder, Experiment& experiment) {
  check_same_model(folder, experiment);
  if (auto saved = checkpoint_vocabulary(folder);
      saved && experiment.vocabulary && *saved != *experiment.vocabulary)
    throw Error(ErrorKind::checkpoint,
                "{} has another vocabulary than the data: {} tokens there, {} here.", folder,
                saved->size(), experiment.vocabulary->size());
  io::load_into(join(folder, "model.safetensors"), io::state_of(*experiment.model));
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
  io::load_into(join(folder, "state-optimizer.safetensors"),
                io::by_name(experiment.update_state()));
  int64_t random = fields_of(join(folder, "rng.json"),
                             [](const json& fields) { return io::integer_at(fields, "step"); });
  random_step().assign(tensor(std::vector<int64_t>{random}, {}));
  return progress;
}

}  // namespace weft::train
