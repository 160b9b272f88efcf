#include "weft/train/run/run_folder.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/logging.h"
#include "weft/base/text/partial_name.h"
#include "weft/base/text/suggest.h"
#include "weft/device/world.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace weft::train {
namespace {
namespace fs = std::filesystem;
constexpr size_t log_limit = size_t{1} << 30;  // bytes

[[noreturn]] void refuse_to_resume(const std::string& runs, const std::string& name) {
  std::vector<std::string> others;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(runs, absent))
    others.push_back(entry.path().filename().string());
  std::string_view similar =
      nearest(name, std::vector<std::string_view>(others.begin(), others.end()));
  throw Error(ErrorKind::usage, "no run {} to resume. {}", (fs::path(runs) / name).string(),
              similar.empty() ? "Hint: leave out --resume to start it."
                              : fmt::format("Did you mean --name {}?", shell_word(similar)));
}

// Runs write these files into their folders.
constexpr std::string_view parts_of_runs[] = {"recipe.yaml", "plan.json", "log.jsonl",
                                              "blackbox.json", "checkpoints"};

bool is_part_of_run(const std::string& name) {
  return std::ranges::find(parts_of_runs, name) != std::end(parts_of_runs) ||
         (name.starts_with("trace-r") && name.ends_with(".json"));
}

// Returns whether a killed process left this file or folder while writing it. A run with such a
// name was set aside by --overwrite and is not a leftover.
bool is_leftover(const fs::path& path) {
  return partial_owner(path.filename().string()) && list_checkpoints(path.string()).empty();
}

bool is_plan(const fs::path& file) {
  std::error_code none;
  if (!fs::is_regular_file(file, none)) return false;
  const nlohmann::json plan =
      io::parse_json_or_discard(io::read_file(file.string(), log_limit, ErrorKind::failed));
  return plan.is_object() && plan.contains("arena_bytes");
}

// Throws Error(usage) unless the folder is a run, an unfinished start of one, or empty, and for a
// folder that also holds foreign files: `flag` would replace its contents.
void check_may_be_replaced(const fs::path& folder, std::string_view flag) {
  std::error_code error;
  const bool is_run =
      fs::is_directory(folder, error) &&
      (fs::is_empty(folder, error) || fs::is_directory(folder / "checkpoints", error) ||
       (fs::exists(folder / "recipe.yaml", error) && is_plan(folder / "plan.json")));
  if (!is_run)
    throw Error(ErrorKind::usage,
                "{} is not a run: it has neither checkpoints nor recipe.yaml with the plan of a "
                "run. {} would replace its contents. Hint: --name chooses another.",
                folder.string(), flag);
  std::string foreign = foreign_among_checkpoints(folder.string());
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (!is_part_of_run(entry.path().filename().string()) && !is_leftover(entry.path()))
      foreign = entry.path().string();
  if (!foreign.empty())
    throw Error(ErrorKind::usage,
                "{} contains {}, which is not part of a run: {} would replace it. Hint: move it, "
                "or --name chooses another.",
                folder.string(),
                io::printable(fs::path(foreign).lexically_relative(folder).string()), flag);
}

void warn_set_aside(const std::string& aside, const std::string& run) {
  logging::warn(
      "{0} is the run {1} from before --overwrite. Hint: mv {2} {3} restores it, rm -r {2} removes "
      "it.",
      aside, run, shell_word(aside), shell_word(run + "-before"));
}

// Removes the leftovers of killed processes in the folder of a run and beside it.
void remove_leftovers(const fs::path& run) {
  std::error_code error;
  std::vector<fs::path> left;
  for (const fs::path& folder : {run.parent_path(), run, run / "checkpoints"})
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const auto owner = partial_owner(entry.path().filename().string());
      // kill() may not signal another user's live process and then fails with EPERM.
      if (!owner || kill(owner->pid, 0) == 0 || errno != ESRCH) continue;
      if (is_leftover(entry.path()))
        left.push_back(entry.path());
      else
        warn_set_aside(entry.path().string(), (run.parent_path() / owner->name).string());
    }
  for (const fs::path& path : left) fs::remove_all(path, error);
}
}  // namespace

std::string owner_of(const std::string& file) {
  std::error_code none;
  const fs::path place = fs::canonical(file, none);
  if (place.empty()) return "";
  auto holds = [&](const fs::path& folder, const char* one, const char* other) {
    return fs::exists(folder / one, none) && fs::exists(folder / other, none);
  };
  if (holds(place.parent_path(), "MANIFEST.json", "rng.json")) return place.parent_path().string();
  for (fs::path part = place; part.has_relative_path(); part = part.parent_path())
    if (std::ranges::find(parts_of_runs, part.filename().string()) != std::end(parts_of_runs) &&
        holds(part.parent_path(), "recipe.yaml", "plan.json"))
      return part.parent_path().string();
  return "";
}

RunFolder::RunFolder(const std::string& runs, const std::string& name, bool resume, bool overwrite)
    : path_((fs::path(runs) / name).string()),
      resume_(resume),
      is_written_here_(world().rank() == 0) {
  const bool is_there = io::exists(path_, ErrorKind::failed);
  if (!is_there && resume) refuse_to_resume(runs, name);
  if (is_there && !resume && !overwrite)
    throw Error(ErrorKind::usage,
                "run {} exists. Hint: --resume continues it, --overwrite replaces it, --name "
                "chooses another.",
                path_);
  std::error_code none;
  const bool goes_on = resume && (fs::is_symlink(fs::path(path_) / "checkpoints/latest", none) ||
                                  !list_checkpoints(path_).empty());
  if (overwrite && fs::is_symlink(path_, none))
    throw Error(ErrorKind::usage,
                "{} is a link to {}: --overwrite would put a folder in its place. Hint: --name "
                "chooses another.",
                path_, fs::read_symlink(path_, none).string());
  if (is_there && !goes_on) check_may_be_replaced(path_, overwrite ? "--overwrite" : "--resume");
}

std::string RunFolder::log_path() const {
  return is_written_here_ ? (fs::path(path_) / "log.jsonl").string() : "";
}

std::string RunFolder::checkpoint() const {
  std::error_code none;
  const bool saved = fs::is_symlink(fs::path(path_) / "checkpoints/latest", none);
  if (!resume_) return "";
  // A folder that cannot be entered must not count as empty, or the run would start from scratch.
  io::exists((fs::path(path_) / "checkpoints/MANIFEST.json").string(), ErrorKind::checkpoint);
  if (!saved && list_checkpoints(path_).empty()) return "";
  return newest_whole_checkpoint(path_);
}

nlohmann::json RunFolder::plan() const {
  const std::string path = (fs::path(path_) / "plan.json").string();
  if (!resume_ || !io::exists(path, ErrorKind::failed)) return {};
  return io::parse_json_or_discard(io::read_file(path, log_limit, ErrorKind::failed));
}

std::map<std::string, std::string> RunFolder::kernels() const {
  std::map<std::string, std::string> kernels;
  const nlohmann::json plan = this->plan();
  if (!plan.is_object() || !plan.contains("kernels")) return kernels;
  for (const auto& [what, kernel] : plan["kernels"].items())
    if (kernel.is_string()) kernels[what] = kernel;
  return kernels;
}

std::string RunFolder::isa() const {
  const nlohmann::json plan = this->plan();
  return plan.is_object() && plan.contains("isa") && plan["isa"].is_string() ? plan["isa"] : "";
}

std::pair<uint64_t, uint64_t> RunFolder::identity_of(int descriptor) {
  struct stat there{};
  fstat(descriptor, &there);
  return {there.st_dev, there.st_ino};
}

bool RunFolder::is_there() const {
  std::error_code none;
  return fs::is_directory(path_, none);
}

bool RunFolder::is_of_another() const {
  const int descriptor = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool same = locked_ == decltype(locked_){} || identity_of(descriptor) == locked_;
  close(descriptor);
  return !same;
}

void RunFolder::lock() {
  lock_.reset();
  locked_ = {};
  int descriptor = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // the run has no folder yet
  lock_ = std::shared_ptr<void>(nullptr, [descriptor](void*) { close(descriptor); });
  locked_ = identity_of(descriptor);
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return;
  lock_.reset();
  locked_ = {};
  throw Error(ErrorKind::usage, "run {} is being trained by another process.", path_);
}

RunFolder::~RunFolder() {
  std::error_code error;
  const bool removes = made_ && !committed_;
  if (removes) fs::remove_all(path_, error);
  if (replaced_.empty()) return;
  if (removes)
    fs::rename(replaced_, path_, error);
  else
    warn_set_aside(replaced_, path_);
}

void RunFolder::begin(const Recipe& recipe, const std::string& plan_json) {
  if (!is_written_here_) return;
  lock();
  if (!resume_ && io::exists(path_, ErrorKind::failed)) {
    const std::string aside = partial_name(path_);
    std::error_code error;
    fs::rename(path_, aside, error);
    if (error) throw Error(ErrorKind::failed, "cannot replace run {}: {}.", path_, error.message());
    replaced_ = aside;
  }
  try {
    make();
  } catch (...) {  // without the lock, another process may own it, unless it is empty
    if (lock_ == nullptr || is_of_another()) lock();  // throws if another process trains in it
    std::error_code none;
    const bool is_link = fs::is_symlink(path_, none);
    if (!resume_ && !is_link) fs::remove(fs::path(path_) / "checkpoints", none);
    if (!resume_ && !is_link) fs::remove(path_, none);
    if (!replaced_.empty()) fs::rename(replaced_, path_, none);
    if (!none) replaced_.clear();
    throw;
  }
  made_ = !resume_;
  write(recipe, plan_json);
}

std::string RunFolder::restore(const Recipe& recipe, const std::string& plan_json) {
  const bool is_another = is_of_another();
  if (!is_another && io::exists((fs::path(path_) / "recipe.yaml").string(), ErrorKind::failed))
    return "";
  const std::string before = path_;
  const bool was_there = is_there();
  for (int i = 2; is_another && is_there(); ++i) path_ = fmt::format("{}-{}", before, i);
  make();
  write(recipe, plan_json);
  if (is_another)
    return fmt::format("{} now belongs to another run: this run continues in {},", before, path_);
  if (!was_there) return fmt::format("{} was removed during the run: it is recreated,", path_);
  logging::warn("{}/recipe.yaml was removed during the run: it is recreated.", path_);
  return "";
}

void RunFolder::make() {
  check_may_save(path_);
  const std::string checkpoints = (fs::path(path_) / "checkpoints").string();
  io::create_folders(checkpoints);
  lock();  // locks the folder that exists now
  // A disk without symbolic links must fail here and not after an hour.
  const std::string trial = partial_name((fs::path(checkpoints) / "link").string());
  std::error_code error;
  fs::create_symlink("nowhere", trial, error);
  if (error) throw Error(ErrorKind::failed, "cannot link {}: {}.", checkpoints, error.message());
  fs::remove(trial, error);
}

void RunFolder::write(const Recipe& recipe, const std::string& plan_json) {
  remove_leftovers(path_);
  io::write_own_file((fs::path(path_) / "recipe.yaml").string(), recipe.to_yaml());
  io::write_own_file((fs::path(path_) / "plan.json").string(), plan_json);
}

void RunFolder::commit() { committed_ = true; }
void RunFolder::discard() { committed_ = false; }

void RunFolder::drop_replaced() {
  std::error_code error;
  if (!replaced_.empty()) fs::remove_all(std::exchange(replaced_, ""), error);
  if (error) logging::warn("cannot remove the run that {} replaced: {}.", path_, error.message());
}

void RunFolder::go_back_to(int64_t step) const {
  if (!is_written_here_) return;
  io::check_own_file(log_path());
  std::error_code none;
  fs::remove(fs::path(path_) / "blackbox.json", none);
  if (!io::exists(log_path(), ErrorKind::failed)) return;
  std::istringstream lines(io::read_file(log_path(), log_limit, ErrorKind::failed));
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    auto entry = io::parse_json_or_discard(line);
    if (!entry.is_object()) continue;  // cut off by a kill
    auto is_later = [&](const char* key) {
      return entry.contains(key) && entry[key].is_number() && entry[key] > step;
    };
    // A checkpoint is saved before weights are pruned at its step, which the run then does again.
    const bool is_repeated = entry.contains("pruned_step") && entry["pruned_step"] == step;
    if (!is_later("step") && !is_later("epoch_step") && !is_later("eval_step") &&
        !is_later("last_step") && !is_later("pruned_step") && !is_repeated)
      rest += line + "\n";
  }
  io::write_own_file(log_path(), rest);
}

}  // namespace weft::train
