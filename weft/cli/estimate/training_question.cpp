#include "weft/cli/estimate/training_question.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/device/catalogue.h"
#include "weft/train/experiment.h"

namespace weft::cli {
namespace {
using estimate::Number;
using train::Recipe;
namespace keys = train::keys;

// The programs of one device have other schedules than those of the same framework on several.
std::string_view program_of(std::string_view name, int64_t devices) {
  if (devices > 1) return name;
  if (name == "pytorch") return "pytorch-single";
  if (name == "pytorch-eager") return "pytorch-single-eager";
  return name;
}

Number products_of(const Recipe& recipe, const EstimateFlags& flags) {
  if (flags.products.empty()) {
    switch (train::find_precision(recipe->train.precision)->product_type()) {
      case DType::f64:
        return Number::f64;
      case DType::f16:
        return Number::f16;
      case DType::bf16:
        return Number::bf16;
      default:
        return recipe->train.precision == "tf32" ? Number::tf32 : Number::f32;
    }
  }
  if (const auto number = estimate::find_number(flags.products)) return *number;
  throw Error(ErrorKind::usage,
              "--products {}: no such type. They are f64, f32, tf32, f16, bf16, i8, f8, f4.",
              flags.products);
}

// Returns what is kept for each parameter: in pure 16 bits all is narrow, in mixed precision the
// program decides.
estimate::StateBytes state_of(const train::Experiment& experiment,
                              const estimate::Program& program) {
  const double width = static_cast<double>(size_of(experiment.precision.parameters));
  const bool is_mixed = experiment.precision.product_type() != experiment.precision.parameters;
  estimate::StateBytes state{.weights = width, .gradients = width, .master = 0, .moments = 0};
  if (is_mixed) {
    state.weights = program.weight_bytes;
    state.gradients = program.gradient_bytes;
    state.master = program.master_bytes;
  }
  const auto parameters = static_cast<double>(experiment.trained_bytes()) / width;
  const auto moments = static_cast<double>(experiment.optimizer_bytes()) / width;
  state.moments = (is_mixed ? 4 : width) * std::round(moments / parameters);
  return state;
}

std::optional<estimate::Recompute> recompute_of(const Recipe& recipe) {
  switch (recipe->train.recompute) {
    case Recompute::none:
      return estimate::Recompute::none;
    case Recompute::selective:
      return estimate::Recompute::attention;
    case Recompute::full:
      return estimate::Recompute::full;
    case Recompute::automatic:
      break;
  }
  return std::nullopt;
}

// 4-bit weights have scales of blocks of 64, which are in 8 bits themselves (Dettmers et al. 2023,
// "QLoRA").
constexpr Method all_methods[] = {{"full", 0}, {"lora", 2}, {"qlora", 0.516}};

const Method& find_method(const std::string& name) {
  const auto* found = std::ranges::find(all_methods, name.empty() ? "full" : name, &Method::name);
  if (found == std::end(all_methods))
    throw Error(ErrorKind::usage, "--method {}: no such method. They are full, lora and qlora.",
                name);
  return *found;
}

// What a driver, a framework and its libraries keep of a device's memory.
constexpr double context_bytes = 1.2 * 0x1p30;
}  // namespace

const estimate::Program& find_program(const std::string& name, int64_t devices) {
  if (const auto* program = estimate::find_program(program_of(name, devices))) return *program;
  std::vector<std::string_view> all;
  for (const estimate::Program& each : estimate::programs()) all.push_back(each.name);
  throw Error(ErrorKind::usage, "--as {}: no such program. They are {}.", name,
              fmt::join(all, ", "));
}

std::span<const Method> methods() { return all_methods; }

void set_method(estimate::TrainingJob& job, const Method& method) {
  if (method.frozen_bytes == 0) return;
  job.method = estimate::Method::lora;
  job.state.frozen = method.frozen_bytes;
}

estimate::TrainingQuestion question_of(const train::Experiment& experiment,
                                       const estimate::Shape& shape, const EstimateFlags& flags,
                                       const estimate::Program& program, const DevicesOn& on) {
  const Recipe& recipe = experiment.recipe;
  estimate::TrainingJob job{.shape = shape,
                            .products = products_of(recipe, flags),
                            .state = state_of(experiment, program),
                            .tiles_loss = program.name == "weft"};
  if (experiment.shape.kind == InputKind::tokens) job.sequence = experiment.shape.input[0];
  if (!shape.causal) job.shape.scored = 0.15;
  set_method(job, find_method(flags.method));
  job.weight_bytes = std::min(2.0, job.state.weights);
  job.gradient_bytes = std::min(job.state.gradients, program.gradient_bytes);
  job.optimizer_bytes =
      2 * (job.state.weights + job.state.master + job.state.moments) + job.state.gradients;
  const auto& parallel = recipe->parallel;
  estimate::TrainingQuestion question{
      .job = std::move(job),
      .devices = on.count,
      .global_batch = static_cast<double>(experiment.global_batch),
      .memory_bytes = std::max(0.0, on.model->memory_bytes() - context_bytes),
      .replicas = parallel.dp,
      .tensor = parallel.tensor,
      .pipeline = parallel.pipeline,
      .interleave = parallel.interleave,
      .context = parallel.context,
      .expert = parallel.expert,
      .recompute = recompute_of(recipe)};
  // The default of ZeRO is that of the program.
  if (parallel.zero != 1) question.zero = static_cast<int>(parallel.zero);
  if (recipe->train.micro_batch_size)
    question.micro_batch = static_cast<double>(*recipe->train.micro_batch_size);
  return question;
}

std::string missing_figure(const DeviceModel& model, Number products, int64_t count) {
  const estimate::Device device = estimate::device_of(model);
  if (device.bytes_per_s == 0) return "bandwidth";
  if (model.memory_bytes() == 0) return "memory";
  if (device.peak(products) == 0) return fmt::format("dense peak in {}", name(products));
  if (count > 1 && device.peer_bytes_per_s == 0 && device.host_bytes_per_s == 0) return "links";
  if (bytes_of(products) < 2 && device.peak(Number::bf16) == 0) return "dense peak in bf16";
  return "";
}

HourPrice price_of(const DeviceModel& model, const Recipe& recipe) {
  if (recipe->plan.usd_per_hour)
    return {*recipe->plan.usd_per_hour, std::string(keys::plan::usd_per_hour)};
  HourPrice least;
  for (const Price& each : model.price.rental)
    if (!each.spot && (least.usd == 0 || each.usd < least.usd))
      least = {each.usd, fmt::format("{}, {}", each.provider, each.date)};
  return least;
}

}  // namespace weft::cli
