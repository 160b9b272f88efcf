#include "weft/train/run/trainer.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/near.h"
#include "tests/train/runs.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace fs = std::filesystem;
using nlohmann::json;
using namespace weft;
using namespace weft::test;
using weft::testing::near;

namespace {
std::vector<json> log_of(const train::TrainResult& result) {
  std::vector<json> entries;
  for (const std::string& line : lines_of(result.run_folder + "/log.jsonl"))
    entries.push_back(json::parse(line));
  return entries;
}
}  // namespace

TEST_CASE("a run learns and its folder holds recipe, plan, log and checkpoints") {
  TemporaryFolder folder;
  auto recipe =
      images_recipe(folder, "train: {epochs: 12, global_batch_size: 12}\nname: quarters\n");
  train::TrainResult result = train_in(folder, recipe);
  CHECK(result.exit_code == 0);
  CHECK(result.step == 96);
  CHECK(result.evaluation.score > 0.9);
  CHECK(result.evaluation.count == 40);
  CHECK(result.run_folder == folder.file("runs") + "/quarters");
  CHECK(contents_of(result.run_folder + "/recipe.yaml") == recipe.to_yaml());
  json plan = json::parse(contents_of(result.run_folder + "/plan.json"));
  CHECK(plan["steps"] == 96);
  CHECK(plan["parameters"] == 4 * 9 + 4 + 8 + 4 * 256 + 4);

  std::vector<json> log = log_of(result);
  auto steps = std::count_if(log.begin(), log.end(), [](auto& e) { return e.contains("step"); });
  auto evaluations =
      std::count_if(log.begin(), log.end(), [](auto& e) { return e.contains("eval_step"); });
  auto epochs = std::count_if(log.begin(), log.end(), [](auto& e) { return e.contains("epoch"); });
  CHECK(steps == 96);
  CHECK(epochs == 12);
  CHECK(evaluations == 12);
  for (const char* name : {"loss", "grad_norm", "lr", "img/s", "mem", "data", "eta"})
    CHECK(log[0].contains(name));
  double seconds = 0;  // sum over all lines, whose windows do not overlap
  for (const json& entry : log)
    if (entry.contains("img/s")) seconds += 12 / entry["img/s"].get<double>();
  CHECK(seconds < log.back()["seconds"].get<double>());
  CHECK(arena_is_as_planned(log.back().dump()));
  CHECK(log.back()["planned_arena"] == plan["arena_bytes"]);
}

TEST_CASE("each log line names what bounds its window where the machine is known") {
  TemporaryFolder folder;
  // The first machine is compute-bound, the second memory-bound, the third unknown.
  const std::pair<MachineSpec, std::string> machines[] = {
      {{.flops_per_s = 1e9, .bytes_per_s = 1e18}, "compute"},
      {{.flops_per_s = 1e18, .bytes_per_s = 1e9}, "memory"},
      {{}, ""}};
  for (const auto& [machine, expected] : machines) {
    auto recipe = images_recipe(folder, "train: {steps: 8, global_batch_size: 12}\n");
    train::TrainResult result = train::train(
        recipe,
        {.runs = folder.file("runs"), .overwrite = true, .machine = machine, .quiet = true});
    for (const json& entry : log_of(result)) {
      if (!entry.contains("step")) continue;
      const bool waits = entry["data"] > 0.5;
      CHECK(entry.value("verdict", "") == (waits ? "loader" : expected));
    }
  }
}

TEST_CASE("two runs of one recipe are bit-identical and the seed matters") {
  TemporaryFolder one, two, three;
  auto recipe = sums_recipe("train: {steps: 10, global_batch_size: 4}\n");
  auto weights = [&](const TemporaryFolder& folder) {
    return contents_of(train_in(folder, recipe).checkpoint + "/model.safetensors");
  };
  std::string first = weights(one);
  CHECK(first == weights(two));
  recipe.set("seed", "1", "test");
  CHECK(first != weights(three));
}

TEST_CASE("a run that resumes from an earlier checkpoint writes its closing line again") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 4, global_batch_size: 4}\n");
  recipe.set("checkpoint.every", "2", "test");
  const train::TrainResult result = train_in(folder, recipe);
  for (const char* lost : {"/checkpoints/latest", "/checkpoints/step-00000004"})
    fs::remove_all(result.run_folder + lost);
  CHECK(train_in(folder, recipe, true).step == 4);
  int64_t closing = 0;
  for (const json& entry : log_of(result)) closing += entry.contains("last_step") ? 1 : 0;
  CHECK(closing == 1);
}

TEST_CASE("a finished run resumes without further steps and an extended one continues") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 3, global_batch_size: 4}\n");
  train_in(folder, recipe);
  CHECK(train_in(folder, recipe, true).step == 3);
  recipe.set("train.steps", "5", "test");
  train::TrainResult longer = train_in(folder, recipe, true);
  CHECK(longer.step == 5);
  CHECK(train::list_checkpoints(longer.run_folder).back().step == 5);
}

TEST_CASE("the time of an epoch is logged only where one process ran all of it") {
  TemporaryFolder folder;
  auto recipe = images_recipe(folder, "train: {epochs: 3, global_batch_size: 12}\n");  // of 8 steps
  const auto run = train_in(folder, recipe, false, {.signal = SIGTERM, .step = 11}).run_folder;
  train_in(folder, recipe, true);
  std::vector<int> epochs;
  for (const std::string& line : lines_of(run + "/log.jsonl"))
    if (const json fields = json::parse(line); fields.contains("epoch_step"))
      epochs.push_back(fields["epoch"]);
  CHECK(epochs == std::vector<int>{1, 3});
}

TEST_CASE("a non-finite loss ends the run with its step and that state is not saved") {
  TemporaryFolder folder;
  auto recipe = images_recipe(
      folder, "train: {steps: 40, global_batch_size: 12}\ncheckpoint: {every: 1, keep_last: 40}\n");
  recipe.set("optimizer.lr", "100", "test");
  recipe.set("optimizer.momentum", "0.9", "test");
  recipe.set("optimizer.weight_decay", "10", "test");
  std::string message = error_of([&] { train_in(folder, recipe); });
  INFO(message);
  REQUIRE(message.starts_with("failed: step "));
  int64_t step = std::stoll(message.substr(std::string("failed: step ").size()));
  CHECK(step > 1);
  CHECK(message.find("the loss, or its gradient, is not finite") != std::string::npos);
  auto all = train::list_checkpoints(folder.file("runs") + "/run");
  REQUIRE(!all.empty());
  CHECK(all.back().step == step - 1);
}

TEST_CASE("the reported step of a non-finite loss is right whatever interval is due") {
  TemporaryFolder folder;
  auto recipe = images_recipe(
      folder, "train: {steps: 40, global_batch_size: 12}\ncheckpoint: {keep_last: 40}\n");
  recipe.set("optimizer.lr", "100", "test");
  recipe.set("optimizer.momentum", "0.9", "test");
  recipe.set("optimizer.weight_decay", "10", "test");
  // Returns the error of a run in which only the interval `due` elapses before its end.
  auto message = [&](const std::string& due, const std::string& every) {
    for (const char* key : {"log.every", "checkpoint.every", "eval.every"})
      recipe.set(key, key == due ? every : "40", "test");
    recipe.set("name", due.substr(0, due.find('.')), "test");
    std::string text = error_of([&] { train_in(folder, recipe); });
    const std::string name = "/" + recipe.text("name") + "/";
    REQUIRE(text.find(name) != std::string::npos);
    return text.replace(text.find(name), name.size(), "/run/");
  };
  const std::string each = message("log.every", "1");
  CHECK(message("none", "1") == each);
  CHECK(message("checkpoint.every", "10") == each);
  CHECK(message("eval.every", "10") == each);
  CHECK(std::stoll(each.substr(std::string("failed: step ").size())) < 10);
  CHECK(train::list_checkpoints(folder.file("runs") + "/checkpoint").empty());
}

TEST_CASE(
    "a loss beyond float16's range shrinks the loss scale to its floor before the run fails") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 100, global_batch_size: 4, precision: fp16-mixed}\n");
  recipe.set("optimizer.lr", "100", "test");  // diverges after a few steps
  recipe.set("optimizer.weight_decay", "10", "test");
  std::string message = error_of([&] { train_in(folder, recipe); });
  INFO(message);
  REQUIRE(message.starts_with("failed: step "));
  const int64_t halvings = 16;  // of the loss scale from 65,536 to 1
  CHECK(std::stoll(message.substr(std::string("failed: step ").size())) > halvings);
}

TEST_CASE("a run stops early at its target or when it no longer improves") {
  TemporaryFolder folder;
  SUBCASE("the target") {
    auto recipe =
        images_recipe(folder, "train: {epochs: 100, global_batch_size: 12}\neval: {target: 0.8}\n");
    train::TrainResult result = train_in(folder, recipe);
    CHECK(result.step < 100 * 8);
    CHECK(result.evaluation.score >= 0.8);
    CHECK(train_in(folder, recipe, true).step == result.step);  // a resumed run stops at once
  }
  SUBCASE("patience") {
    auto recipe = images_recipe(
        folder, "train: {epochs: 100, global_batch_size: 12}\neval: {early_stopping: 3}\n");
    recipe.set("optimizer.lr", "0", "test");
    recipe.set("optimizer.momentum", "0", "test");
    train::TrainResult result = train_in(folder, recipe);
    CHECK(result.step < 100 * 8);
    auto evaluations = log_of(result);
    std::erase_if(evaluations, [](auto& e) { return !e.contains("eval_step"); });
    REQUIRE(evaluations.size() >= 4);
    double best = evaluations[evaluations.size() - 4]["loss"];
    for (size_t i = evaluations.size() - 3; i < evaluations.size(); ++i)
      CHECK(evaluations[i]["loss"] >= best);
  }
}

TEST_CASE("SIGUSR1 saves and the run continues") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 60, global_batch_size: 4}\n");
  train::TrainResult result = train_in(folder, recipe, false, {.signal = SIGUSR1, .step = 10});
  CHECK(result.exit_code == 0);
  CHECK(result.step == 60);
  auto all = train::list_checkpoints(result.run_folder);
  REQUIRE(all.size() == 2);
  CHECK(all[0].step == 10);
}

TEST_CASE("an invalid recipe is refused with a one-line error before the run starts") {
  TemporaryFolder folder;
  auto message = [&](const std::string& key, const std::string& value) {
    auto recipe = sums_recipe("train: {steps: 2, global_batch_size: 4}\n");
    recipe.set(key, value, "test");
    return error_of([&] { train_in(folder, recipe); });
  };
  CHECK(message("model.name", "gtp").starts_with("usage: [model] unknown model"));
  CHECK(
      message("optimizer.momentum", "0.9").starts_with("usage: [optimizer] adamw has no momentum"));
  CHECK(message("data.transforms", "[random_horizontal_flip]")
            .starts_with("usage: test: data.transforms"));
  CHECK(message("task", "classification")
            .starts_with("usage: test: the task of these data is causal_lm"));
  CHECK(message("train.global_batch_size", "1000000")
            .starts_with("usage: test: train.global_batch_size"));
  CHECK(message("train.micro_batch_size", "3").starts_with("usage: test: train.micro_batch_size"));
  CHECK(!fs::exists(folder.file("runs")));
}

TEST_CASE("planning touches no device and its numbers match the run") {
  TemporaryFolder folder;
  auto recipe = images_recipe(folder,
                              "train: {steps: 3, global_batch_size: 12, micro_batch_size: 4}\n"
                              "plan: {usd_per_hour: 3600}\n");
  for (const char* precision : {"fp32", "bf16-mixed"}) {
    recipe.set("name", precision, "test");
    recipe.set("train.precision", precision, "test");
    auto planned = train::plan_run(recipe, {.flops_per_s = 1e11, .bytes_per_s = 1e10});
    const train::RunReport& report = planned->report;
    CHECK(report.seconds > 0);
    CHECK(json::parse(to_json(report))["usd"] == near(3 * report.seconds));
    CHECK(report.bytes_of("accumulated gradients") == 4 * static_cast<size_t>(report.parameters));
    const bool has_copies = recipe.text("train.precision") == "bf16-mixed";
    CHECK((report.bytes_of("16-bit weight copies") > 0) == has_copies);
    CHECK(json::parse(to_json(report))["copy_bytes"] == report.bytes_of("16-bit weight copies"));
    CHECK((to_table(report).find("\ncopies ") != std::string::npos) == has_copies);
    CHECK(report.state_bytes() == report.bytes_of("weights") + report.bytes_of("optimizer") +
                                      report.bytes_of("accumulated gradients") +
                                      report.bytes_of("16-bit weight copies"));
    train::TrainResult result = train_in(folder, recipe);
    json closing = log_of(result).back();
    CHECK(closing["planned_arena"] == report.arena_bytes);
    CHECK(arena_is_as_planned(closing.dump()));
    CHECK(closing["state"] == report.state_bytes());
    CHECK(closing["used_state"] == report.state_bytes());
    CHECK(closing["usd"].get<double>() == near(closing["seconds"].get<double>()));
  }
}

TEST_CASE("a text without a validation split is trained without evaluation") {
  TemporaryFolder folder;
  std::string text = folder.file("text", "to be or not to be, that is the question\n");
  auto recipe = [&](const std::string& more) {
    return train::Recipe::parse(
        "model: {name: gpt, config: {hidden_size: 8, num_hidden_layers: 1, num_attention_heads: "
        "1}}\n"
        "train: {steps: 3, global_batch_size: 2}\n"
        "data: {format: text, seq_len: 4, path: " +
            text + "}\n" + more,
        "test");
  };
  train::TrainResult result = train_in(folder, recipe(""));
  CHECK(result.step == 3);
  CHECK(result.evaluation.count == 0);
  for (const json& entry : log_of(result)) CHECK(!entry.contains("eval_step"));
  for (const char* more :
       {"eval: {target: 0.5}\n", "eval: {early_stopping: 2}\n", "checkpoint: {best: loss}\n"}) {
    const train::Recipe needs = recipe(more);
    CHECK_THROWS_WITH(train::plan_run(needs), doctest::Contains("needs data to evaluate on."));
  }
}

TEST_CASE("the tokenizer of a text is by characters unless the recipe names another") {
  TemporaryFolder folder;
  std::string text = folder.file("text", "to be or not to be, that is the question: \xc3\xa9\n");
  auto vocabulary = [&](const std::string& tokenizer) {
    train::Recipe recipe = train::Recipe::parse(
        "model: {name: gpt, config: {hidden_size: 8, num_hidden_layers: 1, num_attention_heads: "
        "1}}\n"
        "train: {steps: 1, global_batch_size: 1}\n"
        "data: {format: text, seq_len: 2, val_split: 0.2, path: " +
            text + tokenizer + "}\n",
        "test");
    return train::plan_run(recipe)->experiment.shape.classes;
  };
  CHECK(vocabulary("") == 17);
  CHECK(vocabulary(", tokenizer: auto") == vocabulary(", tokenizer: characters"));
  CHECK(vocabulary(", tokenizer: bytes") == 256);
}

TEST_CASE("a masked language model has one more token for the mask") {
  auto planned = train::plan_run(train::Recipe::parse(
      "model: {name: bert, config: {hidden_size: 8, num_hidden_layers: 1, num_attention_heads: "
      "1}}\n"
      "task: masked_lm\ntrain: {steps: 1, global_batch_size: 2}\n"
      "data: {dataset: random-tokens, classes: 30, seq_len: 4}\n",
      "test"));
  CHECK(planned->experiment.shape.classes == 31);
}
