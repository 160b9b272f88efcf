// Tests runs with values offloaded to files: bit-equal results, the promises of the plan, and
// failures.
#include <csignal>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/train/runs.h"
#include "weft/runtime/executable.h"
#include "weft/train/run/steps.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;

namespace {
// Returns the recipe of a language model or an MLP whose weights are large enough to be offloaded.
train::Recipe offloaded_recipe(const std::string& model, const std::string& offload,
                               const std::string& micro_batch = "null") {
  train::Recipe recipe = sums_recipe("train: {steps: 6, global_batch_size: 8, grad_clip: 1}\n");
  recipe.set("model.config", "{hidden_size: 128, num_hidden_layers: 2, num_attention_heads: 2}",
             "test");
  if (model == "mlp")
    recipe = train::Recipe::parse(
        "model: {name: mlp, config: {hidden_sizes: [256, 256]}}\n"
        "data: {dataset: random-images, image_size: 8, classes: 10}\n"
        "train: {steps: 6, global_batch_size: 8}\nlog: {every: 1}\n",
        "test.yaml");
  recipe.set("train.offload", offload, "test");
  recipe.set("train.micro_batch_size", micro_batch, "test");
  return recipe;
}

// Returns the loss and the gradient norm of each step.
std::vector<std::pair<double, double>> curve_of(const train::TrainResult& result) {
  std::vector<std::pair<double, double>> curve;
  for (const std::string& line : lines_of(result.run_folder + "/log.jsonl"))
    if (json entry = json::parse(line); entry.contains("step") && entry.contains("grad_norm"))
      curve.emplace_back(entry["loss"], entry["grad_norm"]);
  return curve;
}
void check_equal_runs(const train::TrainResult& got, const train::TrainResult& wanted) {
  CHECK(curve_of(got) == curve_of(wanted));
  for (const char* file : {"model.safetensors", "state-optimizer.safetensors", "data.json"}) {
    INFO(std::string(file));
    CHECK(contents_of(got.checkpoint + "/" + file) == contents_of(wanted.checkpoint + "/" + file));
  }
}
json plan_of(const train::TrainResult& result) {
  return json::parse(contents_of(result.run_folder + "/plan.json"));
}
}  // namespace

TEST_CASE("a run with offloaded values and its checkpoint are bit-identical") {
  const std::string all = "[parameters, optimizer, gradients, activations]";
  struct Runs {
    std::string model, micro_batch;
    std::vector<std::string> offloads;
  };
  // An MLP is soon planned, and has each category where gradients are sums of passes.
  for (const auto& [model, micro_batch, offloads] :
       {Runs{"mlp", "4", {"[parameters]", "[optimizer]", "[gradients]", "[activations]", all}},
        Runs{"mlp", "null", {all}}, Runs{"gpt", "4", {all}},
        Runs{"gpt", "null", {"[activations]", all}}}) {
    CAPTURE(model);
    CAPTURE(micro_batch);
    TemporaryFolder kept_folder;
    const auto kept = train_in(kept_folder, offloaded_recipe(model, "[]", micro_batch));
    REQUIRE(curve_of(kept).size() == 6);
    for (const std::string& offload : offloads) {
      CAPTURE(offload);
      TemporaryFolder folder;
      check_equal_runs(train_in(folder, offloaded_recipe(model, offload, micro_batch)), kept);
    }
  }
}

TEST_CASE("a stopped run resumes with its state offloaded or back in memory") {
  TemporaryFolder kept_folder;
  const auto kept = train_in(kept_folder, offloaded_recipe("gpt", "[]"));
  for (const std::string then : {"[parameters, optimizer]", "[]"}) {
    CAPTURE(then);
    TemporaryFolder folder;
    const auto stopped = train_in(folder, offloaded_recipe("gpt", "[parameters, optimizer]"), false,
                                  {.signal = SIGTERM, .step = 3});
    REQUIRE(stopped.exit_code == train::exit_saved);
    check_equal_runs(train_in(folder, offloaded_recipe("gpt", then), true), kept);
  }
}

TEST_CASE("offloaded activations meet a memory limit that nothing else can") {
  TemporaryFolder kept_folder, folder;
  auto recipe = offloaded_recipe("gpt", "[]");
  const auto kept = train_in(kept_folder, recipe);
  const size_t whole = plan_of(kept)["total_bytes"];
  const size_t arena = plan_of(kept)["arena_bytes"];
  recipe.set("train.memory", std::to_string(whole - arena / 5), "test");
  recipe.set("train.recompute", "none", "test");
  CHECK(error_of([&] { train::plan_run(recipe, {}); }).find("takes at least") != std::string::npos);
  recipe.set("train.offload", "[activations]", "test");
  const auto limited = train_in(folder, recipe);
  check_equal_runs(limited, kept);
  CHECK(plan_of(limited)["total_bytes"] <= whole - arena / 5);
  CHECK(plan_of(limited)["offloaded_bytes"] == 0);
  CHECK(plan_of(limited)["file_bytes"] > 0);
}

TEST_CASE("offloaded values take no memory and the process stays within its plan") {
  TemporaryFolder kept_folder, folder;
  const json kept = plan_of(train_in(kept_folder, offloaded_recipe("gpt", "[]", "4")));
  const auto result =
      train_in(folder, offloaded_recipe("gpt", "[parameters, optimizer, gradients]", "4"));
  const json plan = plan_of(result);
  const size_t offloaded = plan["offloaded_bytes"], traffic = plan["file_traffic"];
  CHECK(plan["file_bytes"] >= offloaded);
  // Each value is read and written in the update at least, gradients also in other passes.
  CHECK(traffic >= 2 * offloaded);
  for (const char* part : {"model_bytes", "optimizer_bytes", "accumulator_bytes"})
    CHECK(plan[part] == kept[part]);
  CHECK(plan["total_bytes"].get<size_t>() == plan["model_bytes"].get<size_t>() +
                                                 plan["optimizer_bytes"].get<size_t>() +
                                                 plan["accumulator_bytes"].get<size_t>() +
                                                 plan["arena_bytes"].get<size_t>() - offloaded);
  CHECK(plan["total_bytes"] < kept["total_bytes"]);
  // Nearly all state is offloaded: all but values below 64 KiB.
  CHECK(static_cast<double>(offloaded) >
        0.9 * static_cast<double>(plan["model_bytes"].get<size_t>() * 4));
  const std::string closing = lines_of(result.run_folder + "/log.jsonl").back();
  CHECK(arena_is_as_planned(closing));
  CHECK(json::parse(closing)["used_state"] == json::parse(closing)["state"]);
}

TEST_CASE("the planned time includes the transfers that kernels wait for") {
  const MachineSpec machine{.flops_per_s = 1e11, .bytes_per_s = 1e10};
  const auto kept = train::plan_run(offloaded_recipe("mlp", "[]"), machine);
  const auto moved = train::plan_run(offloaded_recipe("mlp", "[optimizer]"), machine);
  const double alone = moved->report.file_traffic * machine.file_slowdown() / machine.bytes_per_s;
  CHECK(moved->report.seconds >= alone);
  CHECK(moved->report.seconds < kept->report.seconds + alone);
}

TEST_CASE("an unknown offload category and an unwritable folder are refused in one line") {
  CHECK(error_of([] { offloaded_recipe("gpt", "[weights]"); })
            .find("train.offload must be one of parameters, optimizer, gradients, activations. Got "
                  "'weights'.") != std::string::npos);
  auto recipe = offloaded_recipe("gpt", "[optimizer]");
  recipe.set("train.offload_folder", "/nowhere", "test");
  TemporaryFolder folder;
  CHECK(error_of([&] {
          train_in(folder, recipe);
        }).find("[offload] /nowhere cannot be written for ") != std::string::npos);
  CHECK(error_of([&] { train::plan_run(recipe, {}); }) == "none");
}
