#include "weft/cli/plan_inference.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/memory.h"
#include "weft/cli/peaks.h"
#include "weft/cli/terminal.h"
#include "weft/device/registry.h"
#include "weft/infer/token_model.h"
#include "weft/io/json.h"
#include "weft/models/decoder.h"
#include "weft/models/pretrained.h"
#include "weft/nn/block_activations.h"
#include "weft/train/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;
constexpr int64_t usual_prompt = 512;  // tokens

struct InferencePlan {
  models::Pretrained model;
  infer::TokenModelPlan steps;
  int64_t batch = 0, context = 0;
  std::string device;
  bool on_host = true;
  size_t available_bytes = 0;  // 0: not known

  size_t constant_bytes() const {
    return steps.prefill.constant_bytes + steps.decode.constant_bytes;
  }
  size_t staging_bytes() const { return steps.prefill.staging_bytes + steps.decode.staging_bytes; }
  size_t total_bytes() const {
    return static_cast<size_t>(steps.weight_bytes + steps.cache_bytes) + constant_bytes() +
           steps.arena_bytes() + staging_bytes();
  }
};

InferencePlan planned(const InferencePlanOptions& options) {
  InferencePlan plan{
      .model = models::load_pretrained(options.folder, {.dtype = options.dtype, .weights = false}),
      .batch = options.batch};
  if (dynamic_cast<const models::Decoder*>(plan.model.model.get()) == nullptr)
    throw Error(ErrorKind::usage,
                "{} is an encoder, which generates no text. Hint: --model.pretrained {} plans its "
                "training.",
                options.folder, options.folder);
  const MachineSpec machine = machine_spec(options.device);  // measures, for the times
  const std::unique_ptr<infer::TokenModel> tokens = infer::make_token_model(
      *plan.model.model, plan.model.vocabulary, plan.model.context,
      {.batch = options.batch, .context = options.context, .device = options.device});
  plan.context = tokens->context();
  plan.steps = tokens->plan(std::min(usual_prompt, plan.context));
  plan.device = plan.steps.decode.device;
  plan.on_host = library(options.device).on_host();
  plan.available_bytes = plan.on_host ? machine_memory() : machine.memory_bytes;
  return plan;
}

void check_it_fits(const InferencePlan& plan) {
  if (plan.available_bytes == 0 || plan.total_bytes() <= plan.available_bytes) return;
  auto text = [](size_t bytes) { return train::bytes_text(static_cast<double>(bytes)); };
  throw Error(ErrorKind::does_not_fit,
              "the plan does not fit: it takes {} of memory, {} for the weights and {} for the "
              "cache. A run can use {} on {}. Hint: --context, --batch, --dtype bf16.",
              text(plan.total_bytes()), text(static_cast<size_t>(plan.steps.weight_bytes)),
              text(static_cast<size_t>(plan.steps.cache_bytes)), text(plan.available_bytes),
              plan.on_host ? "this machine" : plan.device);
}

std::string table_of(const InferencePlan& plan, const std::string& folder) {
  auto size = [](size_t bytes) { return size_text(bytes); };
  auto time = [&](const PlanSummary& step, int64_t tokens) {
    const double seconds = step.expected_seconds();
    return seconds > 0 ? fmt::format("{}, {} tok/s", train::time_text(seconds),
                                     train::count_text(static_cast<double>(tokens) / seconds))
                       : std::string("not known");
  };
  Table table;
  table.row({"model", fmt::format("{}, {} parameters in {}", folder,
                                  train::count_text(
                                      static_cast<double>(nn::number_count(*plan.model.model))),
                                  name(plan.model.dtype))});
  table.row({"device", plan.device});
  table.row({"sequences", fmt::format("{} of at most {} tokens", plan.batch, plan.context)});
  table.row({"weights", size(static_cast<size_t>(plan.steps.weight_bytes))});
  if (nn::has_blocks(*plan.model.model))
    table.row({"activations", plan.steps.activations == DType::i8
                                  ? "int8 in products with weights in blocks"
                                  : "float32"});
  table.row({"cache", size(static_cast<size_t>(plan.steps.cache_bytes))});
  table.row({"arena", size(plan.steps.arena_bytes())});
  table.row({"constants", size(plan.constant_bytes())});
  if (plan.staging_bytes() > 0) table.row({"staging", size(plan.staging_bytes())});
  table.row({"total", plan.available_bytes > 0 ? fmt::format("{} of {}", size(plan.total_bytes()),
                                                             size(plan.available_bytes))
                                               : size(plan.total_bytes())});
  table.row({fmt::format("prompt of {} tokens", plan.steps.prefill_tokens),
             time(plan.steps.prefill, plan.batch * plan.steps.prefill_tokens)});
  table.row({"each next token", time(plan.steps.decode, plan.batch)});
  return table.text();
}

json json_of(const InferencePlan& plan, const std::string& folder) {
  auto step = [](const PlanSummary& summary, int64_t tokens) {
    const double seconds = summary.expected_seconds();
    return json{{"tokens", tokens},
                {"seconds", seconds > 0 ? json(seconds) : json()},
                {"flops", summary.flops},
                {"bytes", summary.bytes},
                {"kernels", summary.launches}};
  };
  return {{"model", folder},
          {"device", plan.device},
          {"dtype", name(plan.model.dtype)},
          {"parameters", nn::number_count(*plan.model.model)},
          {"batch", plan.batch},
          {"context", plan.context},
          {"weight_bytes", plan.steps.weight_bytes},
          {"cache_bytes", plan.steps.cache_bytes},
          {"arena_bytes", plan.steps.arena_bytes()},
          {"constant_bytes", plan.constant_bytes()},
          {"staging_bytes", plan.staging_bytes()},
          {"total_bytes", plan.total_bytes()},
          {"available_bytes", plan.available_bytes > 0 ? json(plan.available_bytes) : json()},
          {"prefill", step(plan.steps.prefill, plan.batch * plan.steps.prefill_tokens)},
          {"decode", step(plan.steps.decode, plan.batch)}};
}

// Planned is a model planned for one machine, or the reason why it does not fit.
struct Planned {
  std::string on;
  std::optional<InferencePlan> plan;
  std::string refusal;
};

std::vector<Planned> all_planned(InferencePlanOptions options,
                                 const std::vector<std::string>& devices) {
  std::vector<Planned> all;
  all.reserve(devices.size());
  for (const std::string& device : devices) {
    Planned& made = all.emplace_back(Planned{.on = device.substr(device.find(':') + 1)});
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
  std::ranges::stable_sort(all, {}, [](const Planned& made) {
    return std::pair(!made.plan, made.plan ? made.plan->steps.decode.expected_seconds() : 0);
  });
  return all;
}

std::string table_of(const std::vector<Planned>& all) {
  Table table({"device", "memory", "limit", "prompt", "next token", "rate"});
  std::string reasons;
  for (const Planned& made : all) {
    if (!made.plan) {
      table.row({made.on, "does not fit"});
      reasons += fmt::format("\n{}: {}\n", made.on, made.refusal);
      continue;
    }
    const InferencePlan& plan = *made.plan;
    const double seconds = plan.steps.decode.expected_seconds();
    auto time = [](const PlanSummary& step) {
      return step.expected_seconds() > 0 ? train::time_text(step.expected_seconds()) : "-";
    };
    table.row({made.on, size_text(plan.total_bytes()),
               plan.available_bytes > 0 ? size_text(plan.available_bytes) : "-",
               time(plan.steps.prefill), time(plan.steps.decode),
               seconds > 0 ? train::count_text(static_cast<double>(plan.batch) / seconds) + " tok/s"
                           : "-"});
  }
  return table.text() + reasons;
}

json json_of(const std::vector<Planned>& all, const std::string& folder) {
  json entries = json::array();
  for (const Planned& made : all) {
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

std::string plan_inference(const InferencePlanOptions& options, bool as_json) {
  const InferencePlan plan = planned(options);
  check_it_fits(plan);
  return as_json ? io::json_text(json_of(plan, options.folder), 2) : table_of(plan, options.folder);
}

InferencePlans plan_inference_on(const InferencePlanOptions& options,
                                 const std::vector<std::string>& devices, bool as_json) {
  const std::vector<Planned> all = all_planned(options, devices);
  return {as_json ? io::json_text(json_of(all, options.folder), 2) : table_of(all),
          std::ranges::any_of(all, [](const Planned& made) { return made.plan.has_value(); })};
}

}  // namespace weft::cli
