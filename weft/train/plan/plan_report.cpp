// Reports on a plan: the distribution of its memory and its work. This is one file because the
// tables and the JSON show the same rows.
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/host/isa.h"
#include "weft/device/link.h"
#include "weft/io/json.h"
#include "weft/ir/graph.h"
#include "weft/nn/block_activations.h"
#include "weft/train/plan/plan_run.h"
#include "weft/train/run/report.h"

namespace weft::train {
namespace {
using nlohmann::json;

json memory_json(const Plan& plan) {
  json result = json::object();
  for (const auto& [category, bytes] : memory_by_category(plan)) result[category] = bytes;
  return result;
}

double sum_bytes(const Plan& plan) {
  double bytes = 0;
  for (const Launch& launch : plan.launches) bytes += launch.bytes;
  return bytes;
}
}  // namespace

RunReport make_report(const Experiment& experiment, PlanAnswer answer) {
  const Recipe& recipe = experiment.recipe;
  RunReport report{std::move(answer)};
  report.model = recipe->model.name         ? *recipe->model.name
                 : recipe->model.pretrained ? *recipe->model.pretrained
                                            : "layers";
  report.device = recipe->train.device;
  report.parameters = nn::number_count(*experiment.model);
  report.samples = experiment.train->size();
  report.global_batch = experiment.global_batch;
  report.micro_batch = experiment.micro_batch;
  report.ranks = experiment.ranks();
  if (report.ranks > 1) report.link = link_of(*experiment.mesh, report.device_name).name;
  report.steps = experiment.total_steps;
  report.steps_per_epoch = experiment.steps_per_epoch;
  report.units = static_cast<double>(experiment.global_batch * experiment.units_per_sample());
  report.unit = experiment.unit();
  report.trained_bytes = static_cast<size_t>(experiment.trained_bytes());
  report.usd_per_hour = recipe->plan.usd_per_hour;
  return report;
}

namespace {
std::string shared_out(const RunReport& report) {
  const bool accumulates = report.micro_batch * report.ranks < report.global_batch;
  return fmt::format("shared out to {} ranks{}", report.ranks,
                     accumulates ? fmt::format(", {} samples at a time", report.micro_batch) : "");
}
double bytes_sent(const RunReport& report) {
  double bytes = 0;
  for (const Exchange& each : report.exchanges) bytes += each.bytes_sent;
  return bytes;
}
int64_t collectives(const RunReport& report) {
  int64_t count = 0;
  for (const Exchange& each : report.exchanges) count += each.count;
  return count;
}

std::string sizes_text(size_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string place_of(const RunReport& report) {
  if (report.on_host) return "this machine";
  return report.device_name.empty() ? report.device : report.device_name;
}

// Describes in words whether the run fits and where, how long it takes, and what that estimate is
// based on.
std::string verdict_text(const RunReport& report) {
  const size_t takes = report.memory_taken(), has = report.memory_there();
  const std::string place = place_of(report);
  const std::string memory =
      has > 0 ? fmt::format("fits {}: {} of its {}", place, sizes_text(takes), sizes_text(has))
              : fmt::format("takes {} on {}, whose memory is not known", sizes_text(takes), place);
  const std::string time =
      report.seconds <= 0 ? "no time estimates, as its peaks are not known"
      : report.likely_seconds > 0
          ? fmt::format("{} expected, {} at best by {}", time_text(report.expected_total_seconds()),
                        time_text(report.total_seconds()), report.basis)
          : fmt::format("{} at best by {}", time_text(report.total_seconds()), report.basis);
  std::string text = fmt::format("{}.\n{}.\n", memory, time);
  if (const std::string measured = measured_text(report); !measured.empty())
    text += measured + ".\n";
  if (!report.quicker.empty()) text += report.quicker + "\n";
  return text + "\n";
}
}  // namespace

std::string measured_text(const RunReport& report) {
  if (report.measured_peaks_seconds <= 0) return "";
  return fmt::format("{} at best by measured peaks, {} by its data sheet",
                     time_text(report.measured_peaks_seconds * static_cast<double>(report.steps)),
                     time_text(report.total_seconds()));
}

std::string refusal_table(const RunReport& report, size_t room) {
  std::string text;
  auto row = [&](std::string_view what, size_t bytes) {
    text += fmt::format("{:<24}{:>12}\n", what, sizes_text(bytes));
  };
  size_t takes = report.state_bytes() + report.arena_bytes;
  const size_t made = report.on_host ? report.initial_bytes() : 0;
  text += fmt::format("does not fit {}: weights, state and arena take {}, {} are available.\n\n",
                      place_of(report), sizes_text(std::max(takes, made)), sizes_text(room));
  for (const Bill& bill : report.state_bills()) {
    const std::string bytes = sizes_text(static_cast<size_t>(std::abs(bill.bytes)));
    text += fmt::format("{:<24}{:>12}\n", bill.purpose.what, bill.bytes < 0 ? "-" + bytes : bytes);
  }
  const auto largest = std::ranges::max_element(
      report.plans, {}, [](const PlannedStep& step) { return step.plan->arena_bytes; });
  for (const auto& [category, bytes] : memory_by_category(*largest->plan)) row(category, bytes);
  row("total", takes);
  if (made > takes) row("weights while created", takes = made);
  row("available", room);
  row("over", takes - std::min(takes, room));
  if (report.on_host && report.snapshot_bytes > 0)
    text += fmt::format("checkpoint.beside takes {} besides.\n", sizes_text(report.snapshot_bytes));
  return text;
}

std::string left_out_text(const RunReport& report) {
  if (report.left_out() == 0) return "";
  return fmt::format("each epoch leaves out {} of {} samples, which are no whole batch of {}",
                     report.left_out(), report.samples, report.global_batch);
}

std::vector<Gather> dear_gathers(const RunReport& report) {
  constexpr double dear = 0.01;
  std::vector<Gather> all = report.gathers;
  std::erase_if(all, [&](const Gather& each) {
    return report.seconds > 0 && each.seconds <= dear * report.expected_seconds();
  });
  return all;
}

std::string gather_text(const RunReport& report, const Gather& gather) {
  const double whole = report.expected_seconds();
  return fmt::format(
      "sent by each rank per update for {}{}, which is not computed in parts{}", gather.op,
      gather.module.empty() ? "" : fmt::format(" ({})", gather.module),
      whole > 0 ? fmt::format(": {:.1f} % of an update", 100 * gather.seconds / whole) : "");
}

void refuse_gathers(const Recipe& recipe, const RunReport& report) {
  if (!recipe->parallel.strict) return;
  for (const Gather& gather : report.gathers)
    recipe.refuse(keys::parallel::strict,
                  fmt::format("parallel.strict: {} {}. Hint: parallel.strict false.",
                              bytes_text(gather.bytes_sent), gather_text(report, gather)));
}

std::string to_table(const RunReport& report) {
  std::string text;
  auto row = [&](std::string_view what, const std::string& value, const std::string& note = "") {
    text += fmt::format("{:<13}{:>12}{}{}\n", what, value, note.empty() ? "" : "  ", note);
  };
  auto bytes = [](size_t count) { return bytes_text(static_cast<double>(count)); };
  auto count = [](int64_t number) { return count_text(static_cast<double>(number)); };
  text += verdict_text(report);
  row("model", report.model, count(report.parameters) + " parameters");
  row("data", count(report.samples),
      fmt::format("samples, {} steps per epoch", report.steps_per_epoch));
  row("batch", fmt::format("{}", report.global_batch),
      report.ranks > 1 ? shared_out(report)
      : report.micro_batch == report.global_batch
          ? ""
          : fmt::format("in micro-batches of {}", report.micro_batch));
  row("steps", fmt::format("{}", report.steps));
  for (const Bill& bill : report.state)
    if (bill.is_shown())
      row(bill.purpose.row, bytes(static_cast<size_t>(bill.bytes)), bill.purpose.note);
  row("arena", bytes(report.arena_bytes), "shared by all steps");
  if (report.staging_bytes > 0)
    row("staging", bytes(report.staging_bytes), "of batches being copied to the device");
  row("memory", bytes(report.total_bytes()),
      report.offloaded_bytes > 0
          ? fmt::format("total; {} of state {}", bytes(report.offloaded_bytes),
                        report.on_host ? "in files" : "in host memory")
          : "total");
  const std::string price = report.seconds > 0
                                ? fmt::format("+{:.0f} % step time", 100 * report.recompute_price())
                                : "an unknown step time";
  const size_t saved =
      std::max(report.unlimited_bytes, report.total_bytes()) - report.total_bytes();
  if (saved > 0 && report.rematerialized == 0)
    row("chunks", "-" + bytes(saved), "of memory: the logits are computed in row tiles");
  else if (saved > 0)
    row("recompute", "-" + bytes(saved),
        fmt::format("for {}: {} kernels per update are recomputed", price, report.rematerialized));
  else if (report.rematerialized > 0)
    row("recompute", fmt::format("{}", report.rematerialized),
        fmt::format("kernels per update are recomputed: {}", price));
  if (report.file_bytes > 0)  // for a device, host memory takes the place of files
    row(report.on_host ? "files" : "host", bytes(report.file_bytes),
        fmt::format("offloaded; {} copied per update", bytes_text(report.file_traffic)));
  if (report.snapshot_bytes > 0)
    row("snapshot", bytes(report.snapshot_bytes),
        "of host memory, from which a checkpoint is written beside training");
  if (report.on_host)
    row("process", bytes(report.process_bytes()),
        fmt::format("at most, including {} of data and {} of code and heaps{}",
                    bytes(report.data_bytes), bytes(report.runtime_bytes),
                    report.snapshot_bytes > 0 ? ", and the snapshot" : ""));
  row("work", amount_text(report.flops, "FLOP"),
      fmt::format("per update, with {} of memory traffic", bytes_text(report.bytes)));
  if (report.ranks > 1)
    row("exchange", bytes_text(bytes_sent(report)),
        fmt::format("sent by each rank per update over {}, in {} collectives{}", report.link,
                    collectives(report),
                    report.exchange_seconds > 0 ? fmt::format(": {}, of which {} are exposed",
                                                              time_text(report.exchange_seconds),
                                                              time_text(report.exposed_seconds))
                                                : ""));
  for (const Gather& gather : dear_gathers(report))
    row("gather", bytes_text(gather.bytes_sent), gather_text(report, gather));
  if (report.likely_seconds > 0)
    row("expected", time_text(report.likely_seconds),
        "per update, at the speed that such kernels usually reach");
  if (report.seconds > 0)
    row("at best", time_text(report.seconds),
        fmt::format("per update at the roofline, {} for the run{}",
                    time_text(report.total_seconds()),
                    report.file_bytes > 0 && report.on_host
                        ? ", with files at a tenth of the memory bandwidth"
                        : ""));
  if (report.expected_seconds() > 0)
    row("rate", count_text(report.units / report.expected_seconds()),
        fmt::format("{}/s", report.unit));
  if (report.seconds > 0 && report.usd_per_hour)
    row("cost", cost_text(cost(report.total_seconds(), *report.usd_per_hour)),
        fmt::format("at best, at {} per hour", cost_text(*report.usd_per_hour)));
  if (report.ranks > 1) text += "\n";
  for (const Exchange& each : report.exchanges)
    text += fmt::format("{:<16}{:>6} times{:>12} sent\n", each.op, each.count,
                        bytes_text(each.bytes_sent));
  for (const PlannedStep& step : report.plans) {
    text += fmt::format("\n{}: {} kernels, {} of arena at its peak\n", step.name,
                        step.plan->launches.size(), bytes(step.plan->arena_bytes));
    for (const auto& [category, size] : memory_by_category(*step.plan))
      text += fmt::format("  {:<16}{:>12}\n", category, bytes(size));
  }
  return text;
}

std::string to_table(const std::vector<ModuleCost>& modules) {
  std::string text = fmt::format("{:<24}{:>12}{:>12}{:>12}{:>9}\n", "module", "FLOP", "traffic",
                                 "memory", "kernels");
  for (const ModuleCost& row : modules)
    text +=
        fmt::format("{:<24}{:>12}{:>12}{:>12}{:>9}\n", row.module.empty() ? "(model)" : row.module,
                    count_text(row.flops), bytes_text(row.bytes),
                    bytes_text(static_cast<double>(row.memory)), row.kernels);
  if (std::ranges::any_of(modules, [](const ModuleCost& row) { return row.module.empty(); }))
    text += "(model): the loss, the optimizer's update, and other work of no single module.\n";
  return text;
}

std::string to_json(const RunReport& report) {
  json steps = json::array();
  for (const PlannedStep& step : report.plans) {
    json modules = json::array();
    for (const ModuleCost& row : cost_by_module(*step.plan))
      modules.push_back({{"module", row.module},
                         {"flops", row.flops},
                         {"bytes", row.bytes},
                         {"memory", row.memory},
                         {"kernels", row.kernels}});
    steps.push_back({{"name", step.name},
                     {"per_update", step.per_update},
                     {"kernels", step.plan->launches.size()},
                     {"arena_bytes", step.plan->arena_bytes},
                     {"live_peak_bytes", step.plan->live_peak_bytes},
                     {"flops", step.plan->flops()},
                     {"bytes", sum_bytes(*step.plan)},
                     {"memory", memory_json(*step.plan)},
                     {"modules", modules}});
  }
  json all = {{"model", report.model},
              {"device", report.device},
              {"parameters", report.parameters},
              {"samples", report.samples},
              {"global_batch_size", report.global_batch},
              {"micro_batch_size", report.micro_batch},
              {"steps", report.steps},
              {"steps_per_epoch", report.steps_per_epoch},
              {"samples_left_out", report.left_out()},
              {"trained_bytes", report.trained_bytes},
              {"accumulator_bytes", 0},  // these are there in every run, as readers expect them
              {"teacher_bytes", 0},
              {"copy_bytes", 0},
              {"offloaded_bytes", report.offloaded_bytes},
              {"file_bytes", report.file_bytes},
              {"file_traffic", report.file_traffic},
              {"arena_bytes", report.arena_bytes},
              {"total_bytes", report.total_bytes()},
              {"again", report.rematerialized},
              {"again_seconds", report.rematerialized_seconds()},
              {"constant_bytes", report.constant_bytes},
              {"staging_bytes", report.staging_bytes},
              {"data_bytes", report.data_bytes},
              {"snapshot_bytes", report.snapshot_bytes},
              {"runtime_bytes", report.runtime_bytes},
              {"process_bytes", report.process_bytes()},
              {"flops", report.flops},
              {"bytes", report.bytes},
              {"step_seconds", report.seconds},
              {"likely_step_seconds", report.likely_seconds},
              {"measured_peaks_step_seconds", report.measured_peaks_seconds},
              {"units", report.units},
              {"plans", steps},
              {"machine", report.machine},
              {"isa", name(isa())},
              {"kernels", report.kernels}};
  for (const Bill& bill : report.state) all[bill.purpose.key] = bill.bytes;
  if (!report.device_name.empty()) all["device_name"] = report.device_name;
  if (report.device_bytes > 0) all["device_bytes"] = report.device_bytes;
  if (report.ranks > 1) {
    json exchanges = json::array();
    for (const Exchange& each : report.exchanges)
      exchanges.push_back(
          {{"op", each.op}, {"count", each.count}, {"bytes_sent", each.bytes_sent}});
    json gathers = json::array();
    for (const Gather& each : report.gathers)
      gathers.push_back({{"op", each.op},
                         {"module", each.module},
                         {"bytes_sent", each.bytes_sent},
                         {"seconds", each.seconds}});
    all["gathers"] = std::move(gathers);
    all["ranks"] = report.ranks;
    all["link"] = report.link;
    all["exchanges"] = std::move(exchanges);
    all["exchange_seconds"] = report.exchange_seconds;
    all["exposed_seconds"] = report.exposed_seconds;
  }
  if (report.usd_per_hour) all["usd"] = cost(report.total_seconds(), *report.usd_per_hour);
  return io::json_text(all, 2) + "\n";
}

}  // namespace weft::train
