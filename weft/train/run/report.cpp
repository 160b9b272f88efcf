// Writes the reports of a run: lines, the closing table, log.jsonl.
#include "weft/train/run/report.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/host/env.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/logging.h"
#include "weft/base/numbers/quantity.h"
#include "weft/base/text/wrap.h"
#include "weft/io/json.h"

namespace weft::train {
namespace {
using nlohmann::json;

constexpr double mebibyte = 1 << 20;
constexpr double hour = 3600, day = 24 * hour;  // seconds
constexpr double live_interval = 0.1;           // seconds
}  // namespace

std::string bytes_text(double bytes) {
  const auto [number, unit] = scaled(bytes);
  return fmt::format("{:.{}f} {}", number, unit != "B" && number < 99.95 ? 1 : 0, unit);
}

std::string count_text(double count) {
  constexpr std::string_view units[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  while (count >= 999.5 && unit + 1 < std::size(units)) {
    count /= 1000;
    ++unit;
  }
  bool whole = unit == 0 && count == std::floor(count);
  return fmt::format("{:.{}f}{}", count, whole || count >= 99.95 ? 0 : 1, units[unit]);
}

std::string amount_text(double amount, std::string_view unit) {
  std::string text = count_text(amount);
  size_t prefix = std::min(text.find_first_of("kMGTP"), text.size());
  return text.insert(prefix, " ") + std::string(unit);
}

std::string time_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.2f} ms", 1e3 * seconds);
  if (seconds < 10) return fmt::format("{:.2f} s", seconds);
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 2 * hour) return fmt::format("{:.1f} min", seconds / 60);
  if (seconds < 2 * day) return fmt::format("{:.1f} h", seconds / hour);
  return fmt::format("{:.{}f} days", seconds / day, seconds < 100 * day ? 1 : 0);
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || std::isinf(seconds)) return "-";
  if (seconds >= 2 * day) return time_text(seconds);
  auto whole = static_cast<int64_t>(std::llround(seconds));
  int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{:02}:{:02}", minutes, whole % 60);
}

std::string rate_text(double rate) {
  if (rate == 0) return "0";
  int exponent = static_cast<int>(std::floor(std::log10(std::abs(rate))));
  std::string digits = fmt::format("{:.1f}", rate / std::pow(10.0, exponent));
  if (digits == "10.0") return fmt::format("1.0e{}", exponent + 1);
  return fmt::format("{}e{}", digits, exponent);
}

std::string energy_text(double joules) {
  const double hours = joules / 3600;
  if (hours < 1) return fmt::format("{:.3g} J", joules);
  if (hours < 1e3) return fmt::format("{:.2f} Wh", hours);
  if (hours < 1e6) return fmt::format("{:.1f} kWh", hours / 1e3);
  return hours < 1e9 ? fmt::format("{:.1f} MWh", hours / 1e6)
                     : fmt::format("{:.1f} GWh", hours / 1e9);
}

std::string cost_text(double usd) {
  return usd < 1e4 ? fmt::format("${:.{}f}", usd, usd < 0.1 ? 4 : 2)
                   : fmt::format("${}", count_text(usd));
}

double cost(double seconds, double usd_per_hour) { return seconds / 3600 * usd_per_hour; }

std::string_view verdict(const Window& window) {
  const std::pair<double, std::string_view> parts[] = {
      {window.step * window.compute_share, "compute"},
      {window.step * window.memory_share, "memory"},
      {window.loader, "loader"},
      {window.checkpoint, "checkpoint"}};
  double known = 0, all = window.step + window.loader + window.checkpoint;
  for (const auto& [seconds, name] : parts) known += seconds;
  const auto& most = *std::max_element(std::begin(parts), std::end(parts));
  // The unknown part might be all of one kind.
  return most.first > all - known ? most.second : std::string_view();
}

namespace {
// Drops the sign of NaN, which has no meaning.
double unsigned_nan(double value) { return std::isnan(value) ? std::fabs(value) : value; }
}  // namespace

std::string to_line(const StepLine& line, size_t width) {
  double used = static_cast<double>(line.used_bytes) / mebibyte;
  double planned = static_cast<double>(line.planned_bytes) / mebibyte;
  int digits = planned < 9.95 ? 1 : 0;
  struct Field {
    std::string text;
    int rank;  // the highest is dropped first; 0 stays
  };
  std::vector<Field> fields = {
      {fmt::format("step {}/{}", line.step, line.steps), 0},
      {fmt::format("loss {:.4f}", unsigned_nan(line.loss)), 0},
      {fmt::format("grad_norm {:.2f}", unsigned_nan(line.grad_norm)), 3},
      {fmt::format("lr {}", rate_text(line.lr)), 4},
      {fmt::format("{} {}", count_text(line.units_per_s), line.unit), 1},
      {fmt::format("mfu {:.1f}%", 100 * line.mfu), 5},
      {fmt::format("mem {:.{}f}/{:.{}f} MiB", used, digits, planned, digits), 6},
      {fmt::format("data {:.1f}%", 100 * line.data_share), 7},
      {fmt::format("eta {}", duration_text(line.eta_seconds)), 2}};
  if (line.mfu <= 0) std::erase_if(fields, [](const Field& field) { return field.rank == 5; });
  auto joined = [&](int most) {
    std::string text;
    for (const Field& field : fields)
      if (field.rank <= most) text += (text.empty() ? "" : "  ") + field.text;
    return text;
  };
  int most = 7;
  while (width > 0 && most > 0 && joined(most).size() > width) --most;
  return joined(most);
}

std::string to_text(const Evaluation& evaluation) {
  std::string text = fmt::format("loss {:.4f}  {} {:.4f}", evaluation.loss, evaluation.score_name,
                                 evaluation.score);
  for (const auto& [name, value] : evaluation.others)
    text += fmt::format("  {} {:.4g}", name, value);
  return text;
}

std::string to_table(const ClosingReport& report) {
  auto mebibytes = [](size_t bytes) {
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / mebibyte);
  };
  auto time = [](double seconds) { return seconds > 0 ? time_text(seconds) : std::string("-"); };
  auto row = [](std::string_view what, std::string_view planned, std::string_view used) {
    return fmt::format("{:<12}{:>14}{:>14}\n", what, planned, used);
  };
  auto costs = [&](double seconds) {
    return seconds > 0 ? cost_text(cost(seconds, *report.usd_per_hour)) : std::string("-");
  };
  return row("", "planned", "measured") +
         row("arena", mebibytes(report.planned_arena), mebibytes(report.used_arena)) +
         row("state", mebibytes(report.planned_state), mebibytes(report.used_state)) +
         row("process", report.planned_process > 0 ? mebibytes(report.planned_process) : "-",
             mebibytes(report.process_peak)) +
         row("step time", time(report.planned_step_seconds), time(report.measured_step_seconds)) +
         row("energy", "-", report.joules ? energy_text(*report.joules) : "not measured") +
         (report.usd_per_hour ? row("cost", costs(report.planned_seconds()), costs(report.seconds))
                              : std::string()) +
         fmt::format("{} steps in {}\n", report.steps, duration_text(report.seconds)) +
         fmt::format("{:<12}loss {:.4f}\n", "training", report.train_loss) +
         (report.evaluation.count > 0
              ? fmt::format("{:<12}{}\n", "evaluation", to_text(report.evaluation))
              : std::string());
}

namespace {
std::pair<uint64_t, uint64_t> identity_of(const struct stat& file) {
  return {file.st_dev, file.st_ino};
}

std::pair<uint64_t, uint64_t> folder_of(const std::string& path) {
  struct stat folder{};
  stat(std::filesystem::path(path).parent_path().c_str(), &folder);
  return identity_of(folder);
}

// Opens a regular file, or an existing device, for appending; O_NOFOLLOW in `flags` refuses a link
// that was put in its place.
std::FILE* append_to(const std::string& path, int flags) {
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | flags, 0666);
  return file < 0 ? nullptr : fdopen(file, "a");
}
}  // namespace

void Reporter::open_log(const std::string& path) {
  log_path_ = path;
  if (log_path_.empty()) return;
  log_.reset(append_to(log_path_, 0));
  log_folder_ = folder_of(log_path_);
  if (log_ == nullptr)
    throw Error(ErrorKind::failed, "cannot write {}: {}.", log_path_,
                std::generic_category().message(errno));
  log_is_gone_ = false;
}

Reporter::Reporter(std::FILE* out, const std::string& log_path) : out_(out) {
  open_log(log_path);
  terminal_ = out_ != nullptr && isatty(fileno(out_)) != 0 && !env("NO_COLOR");
}

Reporter::~Reporter() { clear_live(); }

void Reporter::clear_live() {
  if (!live_shown_) return;
  fmt::print(out_, "\r\x1b[K");
  live_shown_ = false;
}

size_t columns_of(std::FILE* stream) {
  const auto columns = static_cast<size_t>(std::atoll(env("COLUMNS").value_or("0").c_str()));
  if (columns > 0 && columns < 10000) return columns;
  winsize size{};
  const bool terminal = stream != nullptr && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0;
  return terminal ? size.ws_col : 0;
}

std::string fitted(std::string_view text, std::FILE* stream) {
  const size_t columns = columns_of(stream);
  return wrapped(text, columns > 0 ? columns : 80);
}

// Recreates a log that was removed: lines written to a file without a name are lost when the
// process ends. Where its folder is gone, too, the next checkpoint recreates both.
void Reporter::restore_log() {
  struct stat named{}, own{};
  const bool is_there = stat(log_path_.c_str(), &named) == 0;
  if (is_there && fstat(fileno(log_.get()), &own) == 0 && identity_of(named) == identity_of(own))
    return;
  std::string why;
  std::unique_ptr<std::FILE, decltype(&std::fclose)> again(nullptr, &std::fclose);
  if (is_there && folder_of(log_path_) != log_folder_) {
    why = "it now belongs to another run";
  } else {
    again.reset(append_to(log_path_, O_NOFOLLOW | O_NONBLOCK));
    if (again == nullptr) why = std::generic_category().message(errno);
  }
  if (again == nullptr) {
    if (!std::exchange(log_is_gone_, true))
      logging::warn("cannot write {}: {}. Log lines are lost until it can be recreated.", log_path_,
                    why);
    return;
  }
  log_is_gone_ = false;
  log_ = std::move(again);
  logging::warn("{} was {} during the run: it {}.", log_path_, is_there ? "replaced" : "removed",
                is_there ? "continues in the new file" : "is recreated and starts here");
}

void Reporter::log(const std::string& line) {
  if (log_ == nullptr) return;
  restore_log();
  // A full disk throws nothing: the run goes on. A line is written completely or not at all.
  const int file = fileno(log_.get());
  struct stat before{};
  fstat(file, &before);
  const std::string whole = line + "\n";
  ssize_t count = 0;
  do count = write(file, whole.data(), whole.size());
  while (count < 0 && errno == EINTR);
  if (count == std::ssize(whole)) {
    if (lost_lines_ > 0)
      logging::note("{} can be written again: {} of its lines are lost.", log_path_,
                    std::exchange(lost_lines_, 0));
    return;
  }
  const int why = count < 0 ? errno : ENOSPC;
  if (count > 0 && ftruncate(file, before.st_size) != 0) logging::debug(1, "a line is torn");
  if (lost_lines_++ == 0)
    logging::warn("cannot write {}: {}. Log lines are lost.", log_path_,
                  std::generic_category().message(why));
}

void Reporter::text(std::string_view text) {
  if (out_ == nullptr) return;
  clear_live();
  // Unlike fmt::print, fwrite does not throw where nobody reads: the run goes on, and its end
  // reports it.
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

void Reporter::step(const StepLine& line) {
  last_line_ = to_line(line, columns_of(out_));
  text(last_line_ + "\n");
  json entry = {{"step", line.step},           {"loss", line.loss},
                {"grad_norm", line.grad_norm}, {"lr", line.lr},
                {line.unit, line.units_per_s}, {"mem", line.used_bytes},
                {"data", line.data_share},     {"eta", line.eta_seconds}};
  if (line.mfu > 0) entry["mfu"] = line.mfu;
  if (!line.verdict.empty()) entry["verdict"] = line.verdict;
  if (line.loss_scale > 0) entry["loss_scale"] = line.loss_scale;
  if (line.device.watts) entry["watts"] = *line.device.watts;
  if (line.device.celsius) entry["celsius"] = *line.device.celsius;
  if (!line.device.slowed_by.empty()) entry["slowed_by"] = line.device.slowed_by;
  log(io::json_text(entry));
}

void Reporter::live(int64_t step, int64_t steps) {
  if (!terminal_ || now() - last_live_ < live_interval) return;
  last_live_ = now();
  // Only the step changes; the rest repeats the last line.
  size_t rest = last_line_.find("  ");
  std::string line = fmt::format("step {}/{}{}", step, steps,
                                 rest == std::string::npos ? "" : last_line_.substr(rest));
  if (size_t most = columns_of(out_); most > 0)
    line.resize(std::min(line.size(), most - 1));  // a wrapped line cannot be cleared
  fmt::print(out_, "\r\x1b[K\x1b[2m{}\x1b[0m", line);
  std::fflush(out_);
  live_shown_ = true;
}

void Reporter::epoch(int64_t step, int64_t epoch, double seconds) {
  text(fmt::format("epoch {}  {:.{}f} s\n", epoch, seconds, seconds < 9.95 ? 2 : 1));
  log(io::json_text(json{{"epoch", epoch}, {"epoch_step", step}, {"seconds", seconds}}));
}

void Reporter::evaluation(int64_t step, const Evaluation& evaluation) {
  text(fmt::format("eval step {}  {}\n", step, to_text(evaluation)));
  json entry = {{"eval_step", step},
                {"loss", evaluation.loss},
                {evaluation.score_name, evaluation.score},
                {"count", evaluation.count}};
  for (const auto& [name, value] : evaluation.others) entry[name] = value;
  log(io::json_text(entry));
}

void Reporter::event(int64_t step, const MethodEvent& event) {
  text(fmt::format("{} step {}  {} {:.4f}\n", event.did, step, event.what, event.value));
  log(io::json_text(json{{fmt::format("{}_step", event.did), step}, {event.what, event.value}}));
}

void Reporter::closing(const ClosingReport& report) {
  text("\n" + to_table(report));
  json entry{{"steps", report.steps},
             {"last_step", report.last_step},
             {"seconds", report.seconds},
             {"planned_arena", report.planned_arena},
             {"used_arena", report.used_arena},
             {"state", report.planned_state},
             {"used_state", report.used_state},
             {"planned_process", report.planned_process},
             {"process_peak", report.process_peak},
             {"planned_step_seconds", report.planned_step_seconds},
             {"measured_step_seconds", report.measured_step_seconds},
             {"train_loss", report.train_loss}};
  if (report.joules) entry["joules"] = *report.joules;
  if (report.usd_per_hour) entry["usd"] = cost(report.seconds, *report.usd_per_hour);
  log(io::json_text(entry));
}

}  // namespace weft::train
