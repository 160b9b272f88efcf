#include "weft/cli/show/run_log.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/base/text/partial_name.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace fs = std::filesystem;

namespace weft::cli {
namespace {
using nlohmann::json;
constexpr size_t largest_log = size_t{1} << 30;  // bytes

// JSON has null for numbers that are not finite.
double number_of(const json& entry, const char* key) {
  return io::number_or_null_at(entry, key).value_or(std::numeric_limits<double>::quiet_NaN());
}

void read_line(const json& entry, RunLog& run) {
  if (entry.contains("eval_step")) {
    if (entry.contains("r2")) run.score_name = "r2";
    run.evaluations.push_back({io::integer_at(entry, "eval_step"), number_of(entry, "loss"),
                               number_of(entry, run.score_name.c_str())});
  } else if (entry.contains("step")) {
    run.step = std::max(run.step, io::integer_at(entry, "step"));
    run.losses.push_back(number_of(entry, "loss"));
    for (const char* unit : {"img/s", "tok/s", "row/s"})
      if (entry.contains(unit)) {
        run.rate = number_of(entry, unit);
        run.unit = unit;
      }
  } else if (entry.contains("process_peak")) {
    run.closed = true;
    run.seconds += io::number_at(entry, "seconds");
    run.step_seconds = io::number_at(entry, "measured_step_seconds");
    run.planned_step_seconds = io::number_at(entry, "planned_step_seconds");
    run.process_peak = io::number_at(entry, "process_peak");
  }
}

void read_plan(const json& plan, RunLog& run) {
  if (plan.contains("model")) run.model = io::text_at(plan, "model");
  if (plan.contains("steps")) run.steps = io::integer_at(plan, "steps");
  if (plan.contains("parameters")) run.parameters = io::number_at(plan, "parameters");
  if (plan.contains("process_bytes")) run.planned_bytes = io::number_at(plan, "process_bytes");
}

// Skips text that is not a JSON object, such as a line cut off by a kill.
template <class Read>
void read_object(const std::string& text, const std::string& path, RunLog& run, Read read) {
  const json entry = io::parse_json_or_discard(text);
  if (!entry.is_object()) return;
  try {
    read(entry, run);
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::data, "{}: {}.", path, error.what());
  }
}
}  // namespace

const LoggedEvaluation* RunLog::last() const {
  return evaluations.empty() ? nullptr : &evaluations.back();
}
const LoggedEvaluation* RunLog::best() const {
  auto better = [](const LoggedEvaluation& a, const LoggedEvaluation& b) {
    return a.score != b.score ? a.score < b.score : a.loss > b.loss;
  };
  auto found = std::max_element(evaluations.begin(), evaluations.end(), better);
  return found == evaluations.end() ? nullptr : &*found;
}

RunLog read_run(const std::string& folder) {
  RunLog run{.name = fs::path(folder).filename().string(), .folder = folder};
  std::string log = (fs::path(folder) / "log.jsonl").string();
  if (!io::exists(log))
    throw Error(ErrorKind::data, "{} is not a run: it has no log.jsonl.", folder);
  const std::string plan = (fs::path(folder) / "plan.json").string();
  if (io::exists(plan)) read_object(io::read_file(plan, largest_log), plan, run, read_plan);
  std::istringstream lines(io::read_file(log, largest_log));
  for (std::string text; std::getline(lines, text);) read_object(text, log, run, read_line);
  return run;
}

std::vector<RunLog> read_runs(const std::string& runs) {
  std::vector<RunLog> all;
  std::error_code error;
  const fs::directory_iterator entries(runs, error);
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(ErrorKind::usage, "cannot open {}: {}.", runs, error.message());
  for (const fs::directory_entry& entry : entries) {
    if (partial_owner(entry.path().filename().string())) continue;  // it is being replaced
    try {
      if (io::exists((entry.path() / "log.jsonl").string()))
        all.push_back(read_run(entry.path().string()));
    } catch (const Error& wrong) {  // a damaged run must not hide the others
      logging::warn("{} This run is skipped.", wrong.what());
    }
  }
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.name < b.name; });
  return all;
}

std::map<std::string, std::string> recipe_values(const RunLog& run) {
  std::map<std::string, std::string> values;
  std::string section;
  // Recipe::to_yaml writes a line per key, and sections without indentation.
  std::istringstream lines(train::checkpoint_recipe(run.folder).to_yaml());
  for (std::string text; std::getline(lines, text);) {
    size_t begin = text.find_first_not_of(' '), colon = text.find(':');
    if (begin == std::string::npos || colon == std::string::npos) continue;
    std::string key = text.substr(begin, colon - begin);
    if (begin == 0) section = key;
    if (colon + 2 > text.size()) continue;
    values[begin == 0 ? key : fmt::format("{}.{}", section, key)] = text.substr(colon + 2);
  }
  return values;
}

}  // namespace weft::cli
