#include "weft/train/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "weft/base/numbers/hash.h"
#include "weft/io/files.h"
#include "weft/io/load.h"
#include "weft/models/pretrained.h"
#include "weft/train/checkpoint/checkpoint_folders.h"
#include "weft/train/checkpoint/parts.h"
#include "weft/train/task/published.h"

namespace weft::train {
namespace fs = std::filesystem;

namespace {
void write_parts(CheckpointWriter& writer, const Experiment& experiment, const Progress& progress) {
  for (const CheckpointPart& part : checkpoint_parts())
    if (part.write != nullptr) part.write(writer, experiment, progress);
}
void write_files(const std::string& folder, const Experiment& experiment,
                 const Progress& progress) {
  CheckpointWriter writer(folder, experiment.ranks() > 1 ? experiment.mesh.get() : nullptr);
  write_parts(writer, experiment, progress);
  writer.manifest(progress.step);
}
}  // namespace

void share_checkpoint(const Experiment& experiment, const Progress& progress) {
  CheckpointWriter writer("", experiment.mesh.get());
  write_parts(writer, experiment, progress);
  writer.follow();
}

void release_ranks(const Experiment& experiment, const std::string& error) {
  if (experiment.ranks() > 1) CheckpointWriter("", experiment.mesh.get()).release(error);
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
    release_ranks(experiment, "");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::failed) release_ranks(experiment, error.what());
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
  const std::string path = join(folder, manifest_file);
  if (!io::exists(path, ErrorKind::checkpoint))
    throw Error(ErrorKind::checkpoint, "{} is missing: the checkpoint is incomplete.", path);
  const Manifest manifest = read_manifest(folder);
  for (const CheckpointPart& part : checkpoint_parts())
    if (part.required && std::ranges::none_of(part.files, [&](std::string_view name) {
          return manifest.find(name) != nullptr;
        }))
      throw Error(ErrorKind::checkpoint, "{} does not list {}.", path, part.files.front());
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
  if (const int64_t step = step_in(folder); step != manifest.step)
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
  const Manifest manifest = read_manifest(folder);
  try {
    if (manifest.find("vocabulary.json") != nullptr)
      return io::Vocabulary::load(join(folder, "vocabulary.json"));
    if (std::ranges::any_of(manifest.files, determines_ids, &ListedFile::name))
      return data::Tokenizer::load(folder);
    return std::nullopt;
  } catch (const Error& error) {  // report the checkpoint, not the data
    throw Error(ErrorKind::checkpoint, error.what());
  }
}

void load_model(const std::string& folder, Experiment& experiment) {
  for (const CheckpointPart& part : checkpoint_parts())
    if (part.check_model != nullptr) part.check_model(folder, experiment);
  for (const CheckpointPart& part : checkpoint_parts())
    if (part.load_model != nullptr) part.load_model(folder, experiment);
}

Progress load_checkpoint(const std::string& folder, Experiment& experiment) {
  for (const CheckpointPart& part : checkpoint_parts())
    if (part.check_run != nullptr) part.check_run(folder, experiment);
  load_model(folder, experiment);
  Progress progress;
  for (const CheckpointPart& part : checkpoint_parts())
    if (part.load_run != nullptr) part.load_run(folder, experiment, progress);
  return progress;
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

}  // namespace weft::train
