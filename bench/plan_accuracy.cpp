// Compares estimates with published runs (bench/published): `make plan-accuracy`.
//
//   plan_accuracy [--constants FILE] [--models FILE] [--runs FILE]    a row for each run's step
//   plan_accuracy ... --memory                                        for the peak of its memory
//   plan_accuracy ... --vary                                          serves tools/fit_costs.py
//
// Files are those of the repository, which is the current folder, and runs those that are held out,
// unless others are named. With --vary, each line of standard input ("NAME SCOPE VALUE ...")
// replaces constants, and is answered by a line with the seconds of every run. Rows that are marked
// holdout are refused then.
#include <array>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "weft/device/catalogue.h"
#include "weft/estimate/memory.h"
#include "weft/estimate/training.h"

namespace {
using namespace weft::estimate;

Constants constants_from(const std::string& path) {
  std::vector<Constant> values;
  for (const auto& name : YAML::LoadFile(path))
    for (const auto& scope : name.second)
      values.push_back(
          {name.first.as<std::string>(), scope.first.as<std::string>(), scope.second.as<double>()});
  return Constants(std::move(values));
}

template <class T>
void read(const YAML::Node& node, const char* key, T& value) {
  if (node[key]) value = node[key].as<T>();
}

std::map<std::string, Shape> shapes_from(const std::string& path) {
  std::map<std::string, Shape> shapes;
  for (const auto& entry : YAML::LoadFile(path)) {
    Shape shape{.name = entry.first.as<std::string>()};
    const YAML::Node& node = entry.second;
    read(node, "layers", shape.layers);
    read(node, "hidden", shape.hidden);
    read(node, "heads", shape.heads);
    read(node, "kv_heads", shape.kv_heads);
    read(node, "head_width", shape.head_width);
    read(node, "ffn", shape.ffn);
    read(node, "gated", shape.gated);
    read(node, "vocabulary", shape.vocabulary);
    read(node, "positions", shape.positions);
    read(node, "tied", shape.tied);
    read(node, "causal", shape.causal);
    read(node, "scored", shape.scored);
    read(node, "experts", shape.experts);
    read(node, "experts_per_token", shape.experts_per_token);
    read(node, "expert_ffn", shape.expert_ffn);
    read(node, "shared_ffn", shape.shared_ffn);
    read(node, "dense_layers", shape.dense_layers);
    if (node["convolutions"])
      for (const auto& each : node["convolutions"])
        shape.convolutions.push_back({each[0].as<int64_t>(), each[1].as<int64_t>(),
                                      each[2].as<int64_t>(), each[3].as<int64_t>(),
                                      each[4].as<int64_t>()});
    shapes[shape.name] = std::move(shape);
  }
  return shapes;
}

Number number_of(const std::string& text) {
  if (const auto number = find_number(text)) return *number;
  throw std::runtime_error("no number type " + text);
}

struct Run {
  std::string id;
  Program program;
  Device device;
  TrainingJob job;
  Layout layout;
  double seconds = 0;
  double memory_bytes = 0;  // the peak; 0: it was not published
};

Recompute recompute_of(const std::string& text) {
  for (const Recompute each :
       {Recompute::none, Recompute::attention, Recompute::products, Recompute::full})
    if (name(each) == text) return each;
  throw std::runtime_error("no recomputation " + text);
}

std::vector<Run> runs_from(const std::string& path, const std::map<std::string, Shape>& shapes,
                           bool is_fitting) {
  std::vector<Run> runs;
  for (const auto& node : YAML::LoadFile(path)) {
    if (is_fitting && node["holdout"])
      throw std::runtime_error("a fit reads no row that is held out: " +
                               node["id"].as<std::string>());
    if (!node["step_seconds"] || !node["products"]) continue;
    const auto id = node["id"].as<std::string>();
    const weft::DeviceModel* device = weft::find_device(node["device"].as<std::string>());
    const Program* program = find_program(node["program"].as<std::string>());
    if (device == nullptr || program == nullptr)
      throw std::runtime_error(id + " has an unknown device or program");
    Run run{.id = id, .program = *program, .device = device_of(*device), .job = {}, .layout = {}};
    read(node, "step_seconds", run.seconds);
    read(node, "limit_watts", run.device.limit_watts);
    if (node["gb_per_s"]) run.device.bytes_per_s = 1e9 * node["gb_per_s"].as<double>();
    run.job.shape = shapes.at(node["model"].as<std::string>());
    if (run.job.shape.layers == 0 && run.job.shape.convolutions.empty()) continue;
    read(node, "sequence", run.job.sequence);
    if (run.job.sequence == 0 && run.job.shape.convolutions.empty()) continue;
    read(node, "micro_batch", run.job.micro_batch);
    read(node, "accumulation", run.job.accumulation);
    run.job.products = number_of(node["products"].as<std::string>());
    run.job.recompute = recompute_of(node["recompute"].as<std::string>());
    if (node["method"]) run.job.method = Method::lora;
    read(node, "memory_bytes", run.memory_bytes);
    if (const YAML::Node state = node["state"]) {
      StateBytes bytes{.weights = 0, .gradients = 0, .master = 0, .moments = 0};
      read(state, "weights", bytes.weights);
      read(state, "gradients", bytes.gradients);
      read(state, "master", bytes.master);
      read(state, "moments", bytes.moments);
      read(state, "frozen", bytes.frozen);
      run.job.state = bytes;
    }
    read(node, "adapter_rank", run.job.adapter_rank);
    read(node, "adapts_mlp", run.job.adapts_mlp);
    read(node, "updates_in_backward", run.job.updates_in_backward);
    read(node, "tiles_loss", run.job.tiles_loss);
    read(node, "offloads_activations", run.job.offloads_activations);
    const YAML::Node layout = node["layout"];
    read(layout, "replicas", run.layout.replicas);
    read(layout, "shards", run.layout.shards);
    read(layout, "zero", run.layout.zero);
    read(layout, "tensor", run.layout.tensor);
    read(layout, "pipeline", run.layout.pipeline);
    read(layout, "interleave", run.layout.interleave);
    read(layout, "context", run.layout.context);
    read(layout, "expert", run.layout.expert);
    read(node, "per_host", run.layout.per_host);
    runs.push_back(std::move(run));
  }
  return runs;
}

// Prints what was published, what is estimated, and the parts of the estimate.
template <class Part, size_t count>
void print_row(const Run& run, double published, double estimated,
               const std::array<double, count>& parts) {
  fmt::print("{} {:.5g} {:.5g} {:+.1f}%", run.id, published, estimated,
             100 * (estimated / published - 1));
  for (size_t part = 0; part < count; ++part)
    if (parts[part] > 0)
      fmt::print(" {} {:.0f}%", name(static_cast<Part>(part)), 100 * parts[part] / estimated);
  fmt::print("\n");
}

int compare(int count, char** arguments) {
  std::map<std::string, std::string> flags{{"--constants", "catalogue/costs/fitted.yaml"},
                                           {"--models", "bench/published/models.yaml"},
                                           {"--runs", "bench/published/holdout.yaml"}};
  for (int i = 1; i < count; ++i) {
    const std::string flag = arguments[i];
    flags[flag] = flag == "--vary" || flag == "--memory" || i + 1 == count ? "" : arguments[++i];
  }
  const Constants constants = constants_from(flags["--constants"]);
  const auto shapes = shapes_from(flags["--models"]);
  const std::vector<Run> runs = runs_from(flags["--runs"], shapes, flags.contains("--vary"));
  auto estimate = [&](const Run& run, const Constants& by) {
    return training_step(run.job, run.layout, Costs(run.device, run.program, by));
  };
  if (flags.contains("--memory")) {
    for (const Run& run : runs) {
      if (run.memory_bytes == 0) continue;
      const StepMemory memory =
          training_memory(run.job, run.layout, Costs(run.device, run.program, constants));
      print_row<MemoryPart>(run, run.memory_bytes, memory.bytes, memory.parts);
    }
    return 0;
  }
  if (!flags.contains("--vary")) {
    for (const Run& run : runs) {
      const StepTime time = estimate(run, constants);
      print_row<Part>(run, run.seconds, time.seconds, time.parts);
    }
    return 0;
  }
  for (const Run& run : runs)
    fmt::print("{} {} {} {} {} {}\n", run.id, run.device.id, run.device.architecture,
               run.program.name, name(run.job.products), run.seconds);
  fmt::print("\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    Constants changed = constants;
    std::istringstream words(line);
    for (Constant each; words >> each.name >> each.scope >> each.value;) changed.set(each);
    std::string answer;
    for (const Run& run : runs) answer += fmt::format("{:.8g} ", estimate(run, changed).seconds);
    fmt::print("{}\n", answer);
    std::fflush(stdout);
  }
  return 0;
}
}  // namespace

int main(int count, char** arguments) {
  try {
    return compare(count, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "plan_accuracy: {}\n", error.what());
    return 2;
  }
}
