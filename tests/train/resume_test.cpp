// Tests runs that were stopped and go on: bit-equal, and only as what they were.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/train/runs.h"
#include "weft/device/registry.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace fs = std::filesystem;
using nlohmann::json;
using namespace weft;
using namespace weft::test;

namespace {
// Trains once without a break, and once stopped by signals and resumed; all state must be
// bit-equal.
void check_resume(const train::Recipe& recipe, const std::vector<int>& stops) {
  TemporaryFolder whole, stopped;
  train::TrainResult expected = train_in(whole, recipe);
  bool resume = false;
  for (int step : stops) {
    train::TrainResult result =
        train_in(stopped, recipe, resume, {.signal = SIGTERM, .step = step});
    REQUIRE(result.exit_code == train::exit_saved);
    CHECK(result.step == step);
    resume = true;
  }
  train::TrainResult result = train_in(stopped, recipe, true);
  CHECK(result.exit_code == 0);
  CHECK(result.step == expected.step);
  check_equal(expected.checkpoint, result.checkpoint);
  CHECK(lines_of(expected.run_folder + "/log.jsonl").size() >= static_cast<size_t>(expected.step));
}
}  // namespace

TEST_CASE(
    "a language model that was stopped and resumed is bit-identical to an uninterrupted one") {
  check_resume(sums_recipe("train: {steps: 40, global_batch_size: 8, grad_clip: 1}\n"
                           "scheduler: {name: cosine, warmup_steps: 10}\n"
                           "eval: {every: 9}\n"),
               {7, 20});
}

TEST_CASE("runs of every precision and float16's loss scale resume bit-identically") {
  const std::pair<const char*, const char*> kinds[] = {{"bf16-mixed", "null"},
                                                       {"fp16-mixed", "null"},
                                                       {"bf16", "nearest"},
                                                       {"bf16", "stochastic"},
                                                       {"bf16", "kahan"}};
  for (const auto& [precision, rounding] : kinds) {
    auto recipe = sums_recipe("train: {steps: 12, global_batch_size: 8}\n");
    recipe.set("train.precision", precision, "test");
    recipe.set("train.rounding", rounding, "test");
    CAPTURE(precision);
    CAPTURE(rounding);
    check_resume(recipe, {5});
    TemporaryFolder data;
    auto images = images_recipe(data, "train: {steps: 12, global_batch_size: 12}\n");
    images.set("train.precision", precision, "test");
    images.set("train.rounding", rounding, "test");
    check_resume(images, {5});
  }
}

TEST_CASE("a run with damaged last checkpoints resumes from the newest whole one with a warning") {
  TemporaryFolder folder, whole;
  const auto recipe = [](int steps) {
    train::Recipe all =
        sums_recipe(fmt::format("train: {{steps: {}, global_batch_size: 4}}\n", steps));
    all.set("checkpoint.every", "1", "test");
    all.set("checkpoint.keep_last", "4", "test");
    return all;
  };
  const train::TrainResult trained = train_in(folder, recipe(4));
  const std::string run = trained.run_folder, step = run + "/checkpoints/step-0000000";
  const std::string expected = train_in(whole, recipe(6)).checkpoint;
  CHECK(train::newest_whole_checkpoint(run) == step + "4");
  fs::remove(step + "4/rng.json");
  fs::resize_file(step + "3/model.safetensors", 100);
  CHECK(train::newest_whole_checkpoint(run) == step + "2");
  const train::TrainResult resumed = train_in(folder, recipe(6), /*resume=*/true);
  CHECK(lines_of(run + "/log.jsonl").size() >= 6);
  check_equal(resumed.checkpoint, expected);
  train::verify_checkpoint(step + "4");  // saved a second time by the resumed run

  fs::remove(step + "6/MANIFEST.json");  // the target of `latest`
  CHECK(train::newest_whole_checkpoint(run) == step + "5");
  for (const char* left : {"3", "4", "5"}) fs::remove(step + left + "/data.json");
  CHECK(error_of([&] { train::newest_whole_checkpoint(run); }) ==
        "checkpoint: " + run + "/checkpoints/latest has no MANIFEST.json.");
}

TEST_CASE("a run does not resume with other data but does with moved data") {
  TemporaryFolder folder, elsewhere;
  const std::string length = "train: {epochs: 1, global_batch_size: 12}\nname: same\n";
  REQUIRE(train_in(folder, images_recipe(folder, length), false, {.signal = SIGTERM, .step = 2})
              .exit_code == train::exit_saved);
  const train::Recipe moved = images_recipe(elsewhere, length);
  for (const char* file : {"train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const std::string path = elsewhere.file(file), contents = contents_of(path);
    std::string other = contents;
    other.back() = static_cast<char>(other.back() ^ 1);
    elsewhere.file(file, other);
    const std::string wrong = error_of([&] { train_in(folder, moved, true); });
    CHECK(wrong.find("cannot be resumed: it was trained on other data (fingerprint ") !=
          wrong.npos);
    elsewhere.file(file, contents);
  }
  train::Recipe scaled = moved;
  scaled.set("data.mean", "[0.5]", "test");
  scaled.set("data.std", "[0.25]", "test");
  CHECK(error_of([&] { train_in(folder, scaled, true); }).find("cannot be resumed: data.mean is") !=
        std::string::npos);
  CHECK(train_in(folder, moved, true).exit_code == 0);
}

TEST_CASE("a run does not resume with another text") {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "ab c\n"[i * i % 7 % 5];
  auto recipe = [&](const std::string& trained, const std::string& evaluated) {
    return train::Recipe::parse(
        fmt::format("name: letters\nmodel: {{name: gpt, config: {{hidden_size: 16, "
                    "num_hidden_layers: 1, num_attention_heads: 2}}}}\n"
                    "data: {{format: text, path: {}, val_path: {}, seq_len: 8}}\n"
                    "train: {{steps: 4, global_batch_size: 4}}\n",
                    folder.file("train.txt", trained), folder.file("val.txt", evaluated)),
        "letters.yaml");
  };
  REQUIRE(train_in(folder, recipe(text, text), false, {.signal = SIGTERM, .step = 2}).exit_code ==
          train::exit_saved);
  std::string other = text;  // has the same letters with the same counts
  std::swap(other[100], other[101]);
  REQUIRE(other != text);
  for (const auto& [trained, evaluated] : {std::pair(other, text), std::pair(text, other)}) {
    const std::string wrong = error_of([&] { train_in(folder, recipe(trained, evaluated), true); });
    CHECK(wrong.find("cannot be resumed: it was trained on other data (fingerprint ") !=
          wrong.npos);
  }
  CHECK(train_in(folder, recipe(text, text), true).exit_code == 0);
}

TEST_CASE("a resumed run uses the kernels with which it began") {
  TemporaryFolder folder;
  auto recipe = images_recipe(folder, "train: {epochs: 2, global_batch_size: 12}\nname: chosen\n");
  recipe.set("model.layers",
             "[{conv2d: {out_channels: 16, kernel_size: 3, padding: 1}}, "
             "{conv2d: {out_channels: 16, kernel_size: 3, padding: 1}}, flatten, "
             "{linear: {out_features: 4}}]",
             "test");
  const train::TrainResult stopped =
      train_in(folder, recipe, false, {.signal = SIGTERM, .step = 5});
  const std::string path = stopped.run_folder + "/plan.json";
  json plan = json::parse(contents_of(path));
  const std::map<std::string, std::string> before = plan["kernels"];
  std::string what;  // a convolution with several kernels on any instruction set
  for (const auto& [key, kernel] : before)
    if (key.starts_with("conv ") && key.find("[16, 16, 3, 3]") != std::string::npos) what = key;
  REQUIRE(!what.empty());
  const std::string other = before.at(what) == "weft:conv" ? "weft:winograd" : "weft:conv";
  plan["kernels"][what] = other;
  std::ofstream(path) << plan.dump();
  CHECK(train_in(folder, recipe, true).exit_code == 0);
  CHECK(json::parse(contents_of(path))["kernels"][what] == other);
  library("auto").kernels().prefer(before);  // restores the state for later tests
}

TEST_CASE("a net with batch norm and augmentation resumes bit-identically in mid-epoch") {
  TemporaryFolder data;
  check_resume(images_recipe(data,
                             "train: {epochs: 12, global_batch_size: 12, micro_batch_size: 6}\n"
                             "eval: {every: epoch}\n"
                             "checkpoint: {best: accuracy}\n"),
               {11, 43});
}

TEST_CASE("a resumed run refuses another seed, batch size or optimizer") {
  TemporaryFolder folder;
  train_in(folder, two_steps());
  auto message = [&](const std::string& key, const std::string& value) {
    train::Recipe other = two_steps();
    other.set(key, value, "test");
    other.set("train.steps", "3", "test");
    return error_of([&] { train_in(folder, other, true); });
  };
  CHECK(message("seed", "1").find("seed is 0 there and 1 in the recipe") != std::string::npos);
  CHECK(message("train.global_batch_size", "8").find("train.global_batch_size is 4 there and 8") !=
        std::string::npos);
  CHECK(message("optimizer.name", "sgd").find("optimizer.name is adamw there and sgd") !=
        std::string::npos);
  CHECK(message("log.every", "7") == "none");
}
