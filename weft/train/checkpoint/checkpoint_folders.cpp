#include "weft/train/checkpoint/checkpoint_folders.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/first_time.h"
#include "weft/base/logging.h"
#include "weft/base/text/partial_name.h"
#include "weft/io/files.h"
#include "weft/onnx/file/model.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace weft::train {
namespace fs = std::filesystem;

namespace {
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
    if (!is_checkpoint_file(name)) return file.path().string();
  }
  return "";
}

// Returns whether a rank wrote the file when a rank was lost.
bool is_fault(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  constexpr std::string_view begin = "fault-r", end = ".txt";
  if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size())
    return false;
  const std::string_view rank(name.data() + begin.size(), name.size() - begin.size() - end.size());
  std::error_code gone;
  return rank.find_first_not_of("0123456789") == rank.npos && !entry.is_symlink(gone) &&
         entry.is_regular_file(gone);
}

}  // namespace

std::string join(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

std::string checkpoints_of(const std::string& run_folder) {
  return join(run_folder, "checkpoints");
}

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
  std::vector<CheckpointInfo> all = list_checkpoints(run_folder);
  // A run that resumed from an earlier checkpoint may find later ones, which are not counted.
  while (!all.empty() && !all.back().latest) all.pop_back();
  for (size_t i = 0; i + static_cast<size_t>(keep_last) < all.size(); ++i) {
    const CheckpointInfo& old = all[i];
    if (old.latest || old.best) continue;
    const std::string foreign = foreign_in(old.path);
    if (foreign.empty())
      remove_checkpoint(old.path);
    else if (is_first_time("checkpoint " + old.path))
      logging::warn(
          "{} is not removed, although checkpoint.keep_last is {}: it contains {}, which is not "
          "part of a checkpoint.",
          old.path, keep_last, io::printable(fs::path(foreign).filename().string()));
  }
}

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
  std::error_code unknown;
  if (fs::exists(path, unknown) && !fs::is_directory(path, unknown))
    throw Error(ErrorKind::usage, "{} is a file. A run or a checkpoint is a folder.", path);
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
  if (!is_one && fs::is_directory(run, error)) return run;
  onnx::check_there(name);
  return name;
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
    if (!is_one && !is_link && !is_fault(entry) && !partial_owner(name))
      return entry.path().string();
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

namespace {
struct Whole {
  std::string path;            // "": no checkpoint is intact
  std::optional<Error> wrong;  // the error of the last checkpoint saved
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

}  // namespace weft::train
