#include "weft/cli/verbs/plan_inference.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/memory/memory.h"
#include "weft/cli/measure/peaks.h"
#include "weft/cli/show/terminal.h"
#include "weft/device/registry.h"
#include "weft/io/json.h"
#include "weft/nn/block_activations.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;

struct InferencePlan {
  std::unique_ptr<Inference> inference;
  PlannedInference planned;
  std::string device;
  bool on_host = true;
  size_t available_bytes = 0;  // 0: not known

  size_t sum_of(size_t PlanSummary::* bytes) const {
    size_t sum = 0;
    for (const PlanSummary& step : planned.steps) sum += step.*bytes;
    return sum;
  }
  size_t constant_bytes() const { return sum_of(&PlanSummary::constant_bytes); }
  size_t staging_bytes() const { return sum_of(&PlanSummary::staging_bytes); }
  const PlanSummary& largest_step() const {
    return *std::ranges::max_element(planned.steps, {}, &PlanSummary::arena_bytes);
  }
  size_t arena_bytes() const { return largest_step().arena_bytes; }
  size_t total_bytes() const {
    return static_cast<size_t>(planned.weight_bytes + planned.cache_bytes) + constant_bytes() +
           arena_bytes() + staging_bytes();
  }
  // Returns 0 where they are not known.
  double last_seconds() const { return planned.steps.back().expected_seconds(); }
};

InferencePlan planned(const InferenceOptions& options) {
  InferencePlan plan{.inference = make_inference(options, /*weights=*/false)};
  const MachineSpec machine = machine_spec(options.device);  // measures, for the times
  plan.planned = plan.inference->plan();
  plan.device = plan.planned.steps.back().device;
  plan.on_host = library(options.device).on_host();
  plan.available_bytes = plan.on_host ? machine_memory() : machine.memory_bytes;
  return plan;
}

void check_it_fits(const InferencePlan& plan) {
  if (plan.available_bytes == 0 || plan.total_bytes() <= plan.available_bytes) return;
  auto text = [](size_t bytes) { return train::bytes_text(static_cast<double>(bytes)); };
  const auto cache = static_cast<size_t>(plan.planned.cache_bytes);
  throw Error(ErrorKind::does_not_fit,
              "the plan does not fit: it takes {} of memory, {} for the weights{} and {} for the "
              "arena. The largest value is {}. A run can use {} on {}.{}",
              text(plan.total_bytes()), text(static_cast<size_t>(plan.planned.weight_bytes)),
              cache > 0 ? fmt::format(", {} for the cache", text(cache)) : "",
              text(plan.arena_bytes()), plan.largest_step().largest, text(plan.available_bytes),
              plan.on_host ? "this machine" : plan.device, plan.inference->less_text());
}

std::string table_of(const InferencePlan& plan, const std::string& folder) {
  const nn::Module& module = plan.inference->module();
  const std::string rate(plan.inference->item());
  auto size = [](size_t bytes) { return size_text(bytes); };
  auto time = [&](const PlanSummary& step, int64_t items) {
    const double seconds = step.expected_seconds();
    return seconds > 0 ? fmt::format("{}, {} {}/s", train::time_text(seconds),
                                     train::count_text(static_cast<double>(items) / seconds), rate)
                       : std::string("not known");
  };
  Table table;
  table.row({"model", fmt::format("{}, {} parameters in {}", folder,
                                  train::count_text(static_cast<double>(nn::number_count(module))),
                                  name(plan.inference->dtype()))});
  table.row({"device", plan.device});
  const auto [title, inputs] = plan.inference->inputs_text();
  table.row({title, inputs});
  table.row({"weights", size(static_cast<size_t>(plan.planned.weight_bytes))});
  if (nn::has_blocks(module))
    table.row({"activations", plan.planned.activations == DType::i8
                                  ? "int8 in products with weights in blocks"
                                  : "float32"});
  if (plan.planned.cache_bytes > 0)
    table.row({"cache", size(static_cast<size_t>(plan.planned.cache_bytes))});
  table.row({"arena", size(plan.arena_bytes())});
  table.row({"constants", size(plan.constant_bytes())});
  if (plan.staging_bytes() > 0) table.row({"staging", size(plan.staging_bytes())});
  table.row({"total", plan.available_bytes > 0 ? fmt::format("{} of {}", size(plan.total_bytes()),
                                                             size(plan.available_bytes))
                                               : size(plan.total_bytes())});
  const std::vector<InferenceStep>& steps = plan.inference->steps();
  for (size_t i = 0; i < steps.size(); ++i)
    table.row({steps[i].text, time(plan.planned.steps[i], steps[i].items)});
  return table.text();
}

json json_of(const InferencePlan& plan, const std::string& folder) {
  const bool counts_tokens = plan.inference->item() == "tok";
  auto step = [&](const PlanSummary& summary, int64_t items) {
    const double seconds = summary.expected_seconds();
    return json{{counts_tokens ? "tokens" : "rows", items},
                {"seconds", seconds > 0 ? json(seconds) : json()},
                {"flops", summary.flops},
                {"bytes", summary.bytes},
                {"kernels", summary.launches}};
  };
  json all{
      {"model", folder},
      {"device", plan.device},
      {"dtype", name(plan.inference->dtype())},
      {"parameters", nn::number_count(plan.inference->module())},
      {"activations",
       nn::has_blocks(plan.inference->module()) ? json(name(plan.planned.activations)) : json()},
      {"batch", plan.inference->batch()},
      {"context", plan.inference->context() > 0 ? json(plan.inference->context()) : json()},
      {"weight_bytes", plan.planned.weight_bytes},
      {"cache_bytes", plan.planned.cache_bytes},
      {"arena_bytes", plan.arena_bytes()},
      {"constant_bytes", plan.constant_bytes()},
      {"staging_bytes", plan.staging_bytes()},
      {"total_bytes", plan.total_bytes()},
      {"available_bytes", plan.available_bytes > 0 ? json(plan.available_bytes) : json()}};
  const std::vector<InferenceStep>& steps = plan.inference->steps();
  for (size_t i = 0; i < steps.size(); ++i)
    all[steps[i].key] = step(plan.planned.steps[i], steps[i].items);
  return all;
}

// PlannedModel is a model planned for one machine, or the reason why it does not fit.
struct PlannedModel {
  std::string on;
  std::optional<InferencePlan> plan;
  std::string refusal;
};

std::vector<PlannedModel> all_planned(InferenceOptions options,
                                      const std::vector<std::string>& devices) {
  std::vector<PlannedModel> all;
  all.reserve(devices.size());
  for (const std::string& device : devices) {
    PlannedModel& made = all.emplace_back(PlannedModel{.on = device.substr(device.find(':') + 1)});
    options.device = device;
    try {
      InferencePlan plan = planned(options);
      check_it_fits(plan);
      made.plan = std::move(plan);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::does_not_fit) throw;
      made.refusal = error.what();
    }
  }
  std::ranges::stable_sort(all, {}, [](const PlannedModel& made) {
    return std::pair(!made.plan, made.plan ? made.plan->last_seconds() : 0);
  });
  return all;
}

std::string table_of(const std::vector<PlannedModel>& all) {
  std::vector<std::string> titles = {"device", "memory", "limit"};
  if (all.front().plan)  // machines on which the model fits come first
    for (const InferenceStep& step : all.front().plan->inference->steps())
      titles.push_back(step.text);
  titles.emplace_back("rate");
  Table table(titles);
  std::string reasons;
  for (const PlannedModel& made : all) {
    if (!made.plan) {
      table.row({made.on, "does not fit"});
      reasons += fmt::format("\n{}: {}\n", made.on, made.refusal);
      continue;
    }
    const InferencePlan& plan = *made.plan;
    std::vector<std::string> row = {
        made.on, size_text(plan.total_bytes()),
        plan.available_bytes > 0 ? size_text(plan.available_bytes) : "-"};
    for (const PlanSummary& step : plan.planned.steps)
      row.push_back(step.expected_seconds() > 0 ? train::time_text(step.expected_seconds()) : "-");
    const auto items = static_cast<double>(plan.inference->steps().back().items);
    const double seconds = plan.last_seconds();
    row.push_back(seconds > 0 ? fmt::format("{} {}/s", train::count_text(items / seconds),
                                            plan.inference->item())
                              : "-");
    table.row(row);
  }
  return table.text() + reasons;
}

json json_of(const std::vector<PlannedModel>& all, const std::string& folder) {
  json entries = json::array();
  for (const PlannedModel& made : all) {
    json entry{{"on", made.on}, {"fits", made.plan.has_value()}};
    if (made.plan)
      entry["plan"] = json_of(*made.plan, folder);
    else
      entry["refusal"] = made.refusal;
    entries.push_back(std::move(entry));
  }
  return entries;
}
}  // namespace

std::string plan_inference(const InferenceOptions& options, bool as_json) {
  const InferencePlan plan = planned(options);
  check_it_fits(plan);
  return as_json ? io::json_text(json_of(plan, options.folder), 2) : table_of(plan, options.folder);
}

InferencePlans plan_inference_on(const InferenceOptions& options,
                                 const std::vector<std::string>& devices, bool as_json) {
  const std::vector<PlannedModel> all = all_planned(options, devices);
  return {as_json ? io::json_text(json_of(all, options.folder), 2) : table_of(all),
          std::ranges::any_of(all, [](const PlannedModel& made) { return made.plan.has_value(); })};
}

}  // namespace weft::cli
