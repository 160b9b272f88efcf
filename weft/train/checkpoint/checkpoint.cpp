#include "weft/train/checkpoint/checkpoint.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <span>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "weft/base/host/team.h"
#include "weft/base/memory/buffer.h"
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
std::shared_ptr<const Mesh> ranks_of(const Experiment& experiment) {
  return experiment.ranks() > 1 ? experiment.mesh : nullptr;
}

CheckpointFiles files_of(const Experiment& experiment, const Progress& progress) {
  CheckpointFiles files;
  for (const CheckpointPart& part : checkpoint_parts())
    if (part.add != nullptr) part.add(files, experiment, progress);
  if (const auto ranks = ranks_of(experiment))
    for (CheckpointFile& file : files)
      if (auto* const tensors = std::get_if<CheckpointTensors>(&file.contents))
        io::leave_share(tensors->tensors, {ranks->place(data_axis), ranks->size(data_axis)});
  return files;
}

// A Save has all that save_checkpoint() needs, on any thread.
struct Save {
  std::string run_folder;
  CheckpointFiles files;
  int64_t step = 0, keep_last = 1;
  bool best = false;
  std::string problem;
  CheckpointWriter writer;

  std::string run() const;
};

std::string Save::run() const {
  std::string folder = checkpoints_of(run_folder), name = fmt::format("step-{:08}", step);
  if (!writer.leads()) {
    writer.follow(files);
    return join(folder, name);
  }
  try {
    if (!problem.empty()) throw Error(ErrorKind::failed, "{}", problem);
    io::AtomicFolder whole(join(folder, name));
    writer.write(whole.path(), files, step);
    spare_foreign(join(folder, name));
    whole.commit();
    io::replace_link(join(folder, "latest"), name);
    if (best) io::replace_link(join(folder, "best"), name);
    writer.release();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::failed) writer.release(error.what());
    throw Error(error.kind(), "checkpoint of step {}: {}{}", step, error.what(),
                list_checkpoints(run_folder).empty() ? none_is_saved(run_folder)
                                                     : " Earlier checkpoints are intact.");
  }
  prune(run_folder, keep_last);
  return join(folder, name);
}

Save save_of(const std::string& run_folder, const Experiment& experiment, const Progress& progress,
             bool best, const std::string& problem, Channel channel) {
  return {.run_folder = run_folder,
          .files = files_of(experiment, progress),
          .step = progress.step,
          .keep_last = experiment.recipe->checkpoint.keep_last,
          .best = best,
          .problem = problem,
          .writer = CheckpointWriter(ranks_of(experiment), channel)};
}
}  // namespace

std::string save_checkpoint(const std::string& run_folder, const Experiment& experiment,
                            const Progress& progress, bool best, const std::string& problem) {
  return save_of(run_folder, experiment, progress, best, problem, Channel::training).run();
}

SaveBeside::SaveBeside(size_t bytes) : copy_(Buffer::allocate(bytes)) { copy_->populate(); }

void SaveBeside::begin(const std::string& run_folder, const Experiment& experiment,
                       const Progress& progress, bool best, const std::string& problem) {
  Save save = save_of(run_folder, experiment, progress, best, problem, Channel::saving);
  std::span<std::byte> rest(copy_->data, copy_->bytes);
  for (CheckpointFile& file : save.files)
    if (auto* const tensors = std::get_if<CheckpointTensors>(&file.contents))
      rest = io::copy_tensors(tensors->tensors, rest);
  saving_ = std::async(std::launch::async, [save = std::move(save)] {
    const auto alone = make_team(1);  // the other threads train
    const TeamScope scope(*alone);
    return save.run();
  });
}

bool SaveBeside::has_ended() const {
  return is_under_way() && saving_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void write_checkpoint(const std::string& folder, const Experiment& experiment,
                      const Progress& progress) {
  io::AtomicFolder whole(folder);
  CheckpointWriter(ranks_of(experiment))
      .write(whole.path(), files_of(experiment, progress), progress.step);
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
