// Tests checkpoints that one process writes beside training: from every kind of state, with the
// bits of a run that waits, and what a run does where such a save fails.
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/captured.h"
#include "tests/support/published_model.h"
#include "tests/train/runs.h"
#include "weft/base/host/stopwatch.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/plan/plan_run.h"

namespace fs = std::filesystem;
using namespace weft;
using namespace weft::test;

namespace {
const std::string five_steps = "train: {steps: 5, global_batch_size: 4}\n";

train::Recipe beside(const train::Recipe& recipe, const std::string& every) {
  return with(
      recipe,
      {{"checkpoint.beside", "true"}, {"checkpoint.every", every}, {"checkpoint.keep_last", "9"}});
}

// Trains with saves that wait and with saves beside training, and compares all checkpoints.
void check_beside(const train::Recipe& recipe) {
  const TemporaryFolder waits, goes_on;
  const train::Recipe saved = beside(recipe, "2");
  const std::string expected =
      train_in(waits, with(saved, {{"checkpoint.beside", "false"}})).run_folder;
  const std::string got = train_in(goes_on, saved).run_folder;
  const auto wanted = train::list_checkpoints(expected), found = train::list_checkpoints(got);
  REQUIRE(wanted.size() == 3);
  REQUIRE(found.size() == wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    train::verify_checkpoint(found[i].path);
    check_equal(found[i].path, wanted[i].path);
    CHECK(found[i].latest == wanted[i].latest);
  }
  // Files of tensors are little more than what the snapshot holds.
  size_t tensors = 0;
  for (const auto& file : fs::directory_iterator(found.back().path))
    if (file.path().extension() == ".safetensors") tensors += file.file_size();
  const size_t planned = train::plan_run(saved)->report.snapshot_bytes;
  CHECK(planned <= tensors);
  CHECK(planned + tensors / 10 + (size_t{16} << 10) >= tensors);
}
}  // namespace

TEST_CASE("checkpoints of averages and of adapters beside training are those of a run that waits") {
  const TemporaryFolder data, model;
  check_beside(with(images_recipe(data, five_steps), {{"ema.decay", "0.6"}}));
  write_published(model.file("net"), {.layers = 1, .width = 32});
  check_beside(
      train::Recipe::parse("model: {pretrained: " + model.file("net") +
                               "}\nadapter: {type: lora, r: 4}\ndata: {format: text, path: " +
                               model.file("text", std::string(300, 'a')) +
                               ", seq_len: 8, val_split: 0.2}\n" + five_steps,
                           "test"));
}

TEST_CASE("the best checkpoint is that of the best evaluation whose save succeeded") {
  const TemporaryFolder folder;
  // A large rate makes every evaluation worse than the one before it.
  const train::Recipe recipe =
      with(beside(sums_recipe("name: best\ntrain: {steps: 30, global_batch_size: 4}\n"
                              "eval: {every: 10}\n"),
                  "1000"),
           {{"checkpoint.best", "loss"}, {"optimizer.name", "sgd"}, {"optimizer.lr", "2"}});
  const std::string checkpoints = folder.file("runs/best/checkpoints");
  const Captured warnings(2);
  // At step 10 a file is in the way of checkpoints, until the save has failed.
  const train::TrainResult result = train_while(folder, recipe, [&](int64_t step) {
    if (step == 10) {
      fs::remove(checkpoints);
      folder.file("runs/best/checkpoints", "in the way");
    }
    if (step > 10 && step < 20 && warnings.text().empty())  // the run learns of it after a step
      std::this_thread::sleep_for(std::chrono::milliseconds(10) * (1 << (step - 11)));
    if (step == 20) fs::remove(checkpoints);
  });
  std::vector<double> losses;
  for (const std::string& line : lines_of(result.run_folder + "/log.jsonl"))
    if (const auto entry = nlohmann::json::parse(line); entry.contains("eval_step"))
      losses.push_back(entry["loss"]);
  REQUIRE(losses.size() == 3);
  REQUIRE(losses[0] < losses[1]);
  REQUIRE(losses[1] < losses[2]);
  CHECK(fs::canonical(checkpoints + "/best").filename() == "step-00000020");
  const std::string text = warnings.text();
  CHECK(text.find("checkpoint of step 10: ") != text.npos);
  CHECK(text.find("checkpoints are saved again: ") != text.npos);
}

TEST_CASE("a run that only its snapshot keeps from fitting is told of checkpoint.beside") {
  const train::Recipe waits = train::Recipe::parse(
      "model: {layers: [flatten, {linear: {out_features: 1000}}, {linear: {out_features: 4}}]}\n"
      "data: {dataset: random-images, image_size: 32, classes: 4}\n" +
          five_steps,
      "test");
  const train::Recipe recipe = beside(waits, "2");
  const size_t fits = train::plan_run(waits)->report.process_bytes();
  const std::string message = error_of([&] {
    train::plan_within(recipe, {}, fits + (size_t{1} << 20), "It does not fit.",
                       processor_seconds());
  });
  CHECK(message.find("--checkpoint.beside false fits") != message.npos);
  CHECK(train::plan_within(recipe, {}, 2 * fits, "", processor_seconds())->report.snapshot_bytes >
        0);
}

TEST_SUITE_BEGIN("slow beside");

TEST_CASE("checkpoints of other state beside training are those of a run that waits") {
  const TemporaryFolder data;
  const train::Recipe text = sums_recipe(five_steps), images = images_recipe(data, five_steps);
  check_beside(with(images, {{"train.precision", "fp16-mixed"}, {"train.micro_batch_size", "2"}}));
  check_beside(with(text, {{"train.precision", "bf16"}, {"train.rounding", "kahan"}}));
  check_beside(with(images, {{"pruning.pattern", "unstructured"}}));
  check_beside(with(text, {{"train.offload", "[parameters, optimizer]"},
                           {"model.config",
                            "{hidden_size: 128, num_hidden_layers: 1, num_attention_heads: 2}"}}));
}

TEST_SUITE_END();
