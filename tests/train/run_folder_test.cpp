// Tests folders of runs: those that exist are neither mixed nor lost, and a run goes on where its
// own is changed by others.
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/captured.h"
#include "tests/train/runs.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/run/signals.h"

namespace fs = std::filesystem;
using namespace weft;
using namespace weft::test;

TEST_CASE("an existing run is neither changed nor mixed with another") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 2, global_batch_size: 4}\n");
  train::TrainResult first = train_in(folder, recipe);
  std::string message = error_of([&] { train_in(folder, recipe); });
  CHECK(message.starts_with("usage: run " + first.run_folder + " exists"));
  CHECK(message.find("--resume") != std::string::npos);

  recipe.set("train.steps", "1", "test");
  train::TrainResult second =
      train::train(recipe, {.runs = folder.file("runs"), .overwrite = true, .quiet = true});
  CHECK(train::list_checkpoints(second.run_folder).size() == 1);
  CHECK(train::list_checkpoints(second.run_folder)[0].step == 1);
}

TEST_CASE("a name that a program sets is checked before the run has a folder") {
  const TemporaryFolder folder;
  auto recipe = two_steps();
  recipe.set("name", "../up", "test");
  CHECK(error_of([&] { train_in(folder, recipe); }).find("name must be a folder name") !=
        std::string::npos);
  CHECK(folder.entries() == 0);
}

TEST_CASE("a run that its data end before the first checkpoint leaves no folder") {
  for (const int64_t every : {2, 5}) {
    const TemporaryFolder folder;
    auto recipe = sums_recipe("train: {steps: 6, global_batch_size: 4}\n");
    recipe.set("checkpoint.every", std::to_string(every), "test");
    CHECK(error_of([&] {
            train_while(folder, recipe, [](int64_t step) {
              if (step == 4) throw Error(ErrorKind::data, "a sample is damaged.");
            });
          }) == "data: a sample is damaged.");
    CHECK(fs::exists(folder.file("runs/run")) == (every == 2));
  }
}

TEST_CASE("a run says how many samples a whole epoch leaves out, once") {
  const TemporaryFolder folder;
  const auto said = [&](int64_t steps, int64_t batch) {
    auto recipe = images_recipe(
        folder, fmt::format("train: {{steps: {}, global_batch_size: {}}}\n", steps, batch));
    const Captured screen(STDERR_FILENO);
    train::train(recipe, {.runs = folder.file("runs"), .overwrite = true, .quiet = true});
    return screen.text();
  };
  CHECK(said(3, 36) ==
        "weft: note: each epoch leaves out 24 of 96 samples, which are no whole batch of 36.\n");
  const auto planned = [&] {
    return nlohmann::json::parse(
        contents_of(folder.file("runs/run/plan.json")))["samples_left_out"];
  };
  CHECK(planned() == 24);
  CHECK(said(1, 36) == "");  // it ends within an epoch
  CHECK(planned() == 0);
  CHECK(said(2, 48) == "");
}

TEST_CASE("a replaced run is removed only after its replacement has trained and saved") {
  TemporaryFolder folder;
  const std::string runs = folder.file("runs");
  auto recipe = sums_recipe("train: {steps: 4, global_batch_size: 4}\n");
  recipe.set("checkpoint.every", "2", "test");
  train_in(folder, recipe);
  const std::string model = contents_of(runs + "/run/checkpoints/latest/model.safetensors");
  // Returns the model of the only other folder beside the run, or an empty string.
  auto beside = [&]() -> std::string {
    for (const auto& entry : fs::directory_iterator(runs))
      if (entry.path().filename() != "run")
        return contents_of(entry.path().string() + "/checkpoints/latest/model.safetensors");
    return "";
  };
  train::TrainOptions anew{.runs = runs, .overwrite = true, .quiet = true};
  anew.after_step = [&](int64_t step) { CHECK(beside() == (step > 2 ? "" : model)); };
  train::train(recipe, anew);
  CHECK(beside() == "");

  std::string said, warned;
  SUBCASE("a loss that is not finite") {
    train::Recipe wild = recipe;
    for (const auto& [key, value] : {std::pair("optimizer.lr", "100"),
                                     {"optimizer.weight_decay", "10"},
                                     {"train.steps", "60"},
                                     {"checkpoint.every", "60"}})
      wild.set(key, value, "test");
    anew.after_step = {};
    {
      const Captured screen(STDERR_FILENO);
      said = error_of([&] { train::train(wild, anew); });
      warned = screen.text();
    }
    CHECK(said.starts_with("failed: step "));
    CHECK(fs::exists(runs + "/run/blackbox.json"));
    // A resumed run replaces or removes the black box.
    CHECK(train_in(folder, recipe, true).step == 4);
    CHECK(!fs::exists(runs + "/run/blackbox.json"));
  }
  SUBCASE("a signal before the first step") {
    const train::Signals early;
    std::raise(SIGTERM);
    anew.after_step = {};
    const Captured screen(STDERR_FILENO);
    CHECK(train::train(recipe, anew).step == 0);
    warned = screen.text();
  }
  CHECK(warned.find("from before --overwrite") != std::string::npos);
  CHECK(beside() == model);
}

TEST_CASE("a run that another process trains is not changed") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 2, global_batch_size: 4}\n");
  train::TrainResult first = train_in(folder, recipe);
  int other = open(first.run_folder.c_str(), O_RDONLY);  // stands for another process
  REQUIRE(flock(other, LOCK_EX) == 0);
  std::string message = error_of([&] { train_in(folder, recipe, true); });
  close(other);
  CHECK(message == "usage: run " + first.run_folder + " is being trained by another process.");
}

TEST_CASE("a recipe removed in mid-run is written again and the log is kept") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 4, global_batch_size: 4}\n");
  recipe.set("checkpoint.every", "2", "test");
  recipe.set("log.every", "1", "test");
  const Captured said(2);
  const train::TrainResult result = train_while(folder, recipe, [&](int64_t step) {
    if (step == 1) fs::remove(folder.file("runs/run/recipe.yaml"));
  });
  CHECK(said.text() == "weft: warning: " + result.run_folder +
                           "/recipe.yaml was removed during the run: it is recreated.\n");
  CHECK(fs::exists(result.run_folder + "/recipe.yaml"));
  const std::string log = contents_of(result.run_folder + "/log.jsonl");
  for (const char* step : {"\"step\":1", "\"step\":4"}) CHECK(log.find(step) != std::string::npos);
}

TEST_CASE(
    "a run folder removed in mid-run is recreated by the next checkpoint and can be resumed") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 6, global_batch_size: 4}\n");
  recipe.set("checkpoint.every", "3", "test");
  recipe.set("log.every", "1", "test");
  const Captured said(2);
  const train::TrainResult result = train_while(folder, recipe, [&](int64_t step) {
    if (step == 1) std::filesystem::remove_all(folder.file("runs/run"));
  });
  const std::string text = said.text();
  const std::string lost =
      "weft: warning: cannot write " + result.run_folder +
      "/log.jsonl: No such file or directory. Log lines are lost until it can be recreated.\n";
  CHECK(text.starts_with(lost));  // at the next line; the next checkpoint restores it
  CHECK(text.find("with a log that begins at step 3.") != std::string::npos);
  CHECK(text.find("Log lines are lost", lost.size()) == std::string::npos);
  CHECK(result.exit_code == 0);
  const auto all = train::list_checkpoints(result.run_folder);
  REQUIRE(all.size() == 2);
  CHECK(all[0].step == 3);
  const std::string log = contents_of(result.run_folder + "/log.jsonl");
  CHECK(log.find("\"step\":2") == std::string::npos);
  CHECK(log.find("\"step\":4") != std::string::npos);
  auto longer = recipe;
  longer.set("train.steps", "8", "test");
  CHECK(train_in(folder, longer, true).step == 8);
}

TEST_CASE("a run whose name was taken by another continues in a new folder") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 4, global_batch_size: 4}\n");
  const Captured said(2);
  const train::TrainResult result = train_while(folder, recipe, [&](int64_t step) {
    if (step != 2) return;
    fs::rename(folder.file("runs/run"), folder.file("runs/moved"));
    fs::create_directories(folder.file("runs/run/checkpoints"));
    folder.file("runs/run/recipe.yaml", "of another\n");
  });
  CHECK(result.run_folder == folder.file("runs/run-2"));
  CHECK(said.text().find(folder.file("runs/run") +
                         " now belongs to another run: this run continues in " + result.run_folder +
                         ", with a log that begins at step 4.\n") != std::string::npos);
  const auto all = train::list_checkpoints(result.run_folder);
  REQUIRE(all.size() == 1);
  CHECK(all[0].step == 4);
  CHECK(fs::is_empty(folder.file("runs/run/checkpoints")));
  CHECK(contents_of(folder.file("runs/run/recipe.yaml")) == "of another\n");
}

TEST_CASE("a log removed in mid-run is recreated with one warning") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 6, global_batch_size: 4}\n");
  recipe.set("log.every", "1", "test");
  const Captured said(2);
  const train::TrainResult result = train_while(folder, recipe, [&](int64_t step) {
    if (step == 3) std::filesystem::remove(folder.file("runs/run/log.jsonl"));
  });
  const std::string log = contents_of(result.run_folder + "/log.jsonl"), line = said.text();
  CHECK(log.starts_with(R"({"data":)"));
  CHECK(log.find("\"step\":3") == std::string::npos);
  CHECK(log.find("\"step\":4") != std::string::npos);
  CHECK(log.find("\"process_peak\"") != std::string::npos);
  CHECK(line == "weft: warning: " + result.run_folder +
                    "/log.jsonl was removed during the run: it is recreated and starts here.\n");
}

TEST_CASE("a log replaced in mid-run is appended to unless it is a link") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 6, global_batch_size: 4}\n");
  recipe.set("log.every", "1", "test");
  const std::string log = folder.file("runs/run/log.jsonl");
  auto run = [&](const std::function<void()>& replace) {
    const Captured said(2);
    train::train(recipe, {.runs = folder.file("runs"),
                          .overwrite = true,
                          .quiet = true,
                          .after_step = [&](int64_t step) {
                            if (step == 3) replace();
                          }});
    return said.text();
  };
  const std::string replaced = run([&] {  // as editors and logrotate do
    std::ofstream(log + ".new") << "{}\n";
    fs::rename(log + ".new", log);
  });
  CHECK(replaced ==
        "weft: warning: " + log + " was replaced during the run: it continues in the new file.\n");
  CHECK(contents_of(log).find("\"step\":4") != std::string::npos);
  const std::string linked = run([&] {
    fs::remove(log);
    fs::create_symlink(folder.file("elsewhere"), log);
  });
  CHECK(linked.find("weft: warning: cannot write " + log + ": ") == 0);
  CHECK(!fs::exists(folder.file("elsewhere")));
}
