#include "weft/train/checkpoint/checkpoint.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/captured.h"
#include "tests/support/full_disk.h"
#include "tests/train/runs.h"
#include "weft/train/run/run_folder.h"

namespace fs = std::filesystem;
using nlohmann::json;
using namespace weft;
using namespace weft::test;

namespace {
// Returns the message of verify_checkpoint after `damage` has been applied to a file of a copy.
template <class Damage>
std::string damaged(const std::string& checkpoint, const std::string& file, Damage damage) {
  TemporaryFolder copy;
  fs::copy(checkpoint, copy.file("step-00000002"), fs::copy_options::recursive);
  damage(copy.file("step-00000002/") + file);
  return error_of([&] { train::verify_checkpoint(copy.file("step-00000002")); });
}
// Returns the evaluated step, from `first` on, with the least loss in a run's log.
int64_t best_step(const std::string& run, int64_t first) {
  double least = INFINITY;
  int64_t best = 0;
  for (const std::string& line : lines_of(run + "/log.jsonl")) {
    const auto entry = nlohmann::json::parse(line);
    if (!entry.contains("eval_step") || entry["eval_step"] < first) continue;
    if (entry["loss"] < least) least = entry["loss"], best = entry["eval_step"];
  }
  return best;
}
}  // namespace

TEST_CASE("a checkpoint has all its files and a correct manifest") {
  TemporaryFolder folder;
  train::TrainResult result = train_in(folder, two_steps());
  train::verify_checkpoint(result.checkpoint);
  for (const char* file :
       {"model.safetensors", "config.json", "vocabulary.json", "state-optimizer.safetensors",
        "data.json", "rng.json", "recipe.yaml", "MANIFEST.json"})
    CHECK(fs::exists(result.checkpoint + "/" + file));
  CHECK(result.checkpoint.ends_with("checkpoints/step-00000002"));
  CHECK(train::find_checkpoint(result.run_folder) == result.checkpoint);
  CHECK(train::find_checkpoint(result.run_folder + "/checkpoints") == result.checkpoint);
  CHECK(train::checkpoint_recipe(result.checkpoint).to_yaml() == two_steps().to_yaml());
}

TEST_CASE("damage to a checkpoint is reported by file") {
  TemporaryFolder folder;
  std::string checkpoint = train_in(folder, two_steps()).checkpoint;
  for (std::string file : {"model.safetensors", "config.json", "state-optimizer.safetensors",
                           "data.json", "rng.json", "recipe.yaml", "vocabulary.json"}) {
    INFO(file);
    std::string gone = damaged(checkpoint, file, [](const std::string& path) { fs::remove(path); });
    CHECK(gone.find(file + " is missing") != std::string::npos);
    std::string cut = damaged(checkpoint, file, [](const std::string& path) {
      fs::resize_file(path, fs::file_size(path) - 1);
    });
    CHECK(cut.find(file + " has ") != std::string::npos);
    std::string flipped = damaged(checkpoint, file, [](const std::string& path) {
      std::string bytes = contents_of(path);
      bytes[bytes.size() / 2] ^= 1;
      std::ofstream(path, std::ios::binary) << bytes;
    });
    CHECK(flipped.find(file + " is damaged") != std::string::npos);
    CHECK(flipped.starts_with("checkpoint: "));
  }
  CHECK(damaged(checkpoint, "MANIFEST.json", [](const std::string& path) {
          fs::remove(path);
        }).find("MANIFEST.json is missing") != std::string::npos);
  for (std::string bad : {"", "{", "[]", "{\"format\": 2}",
                          "{\"format\": 1, \"files\": {\"../x\": {\"bytes\": 1, \"xxh3\": \"0\"}}}",
                          "{\"format\": 1, \"files\": 3}"}) {
    std::string message = damaged(checkpoint, "MANIFEST.json",
                                  [&](const std::string& path) { std::ofstream(path) << bad; });
    INFO(message);
    CHECK(message.starts_with("checkpoint: "));
    CHECK(message.find("MANIFEST.json") != std::string::npos);
  }
}

TEST_CASE("a manifest lists every file that a checkpoint must have") {
  TemporaryFolder folder;
  const std::string checkpoint = train_in(folder, two_steps()).checkpoint;
  for (const std::string file : {"model.safetensors", "config.json", "state-optimizer.safetensors",
                                 "data.json", "rng.json", "recipe.yaml"}) {
    INFO(file);
    const std::string message = damaged(checkpoint, "MANIFEST.json", [&](const std::string& path) {
      auto manifest = nlohmann::json::parse(contents_of(path));
      REQUIRE(manifest["files"].erase(file) == 1);
      std::ofstream(path) << manifest;
    });
    CHECK(message.find("MANIFEST.json does not list " + file) != std::string::npos);
  }
}

TEST_CASE("a checkpoint of another model is refused with the difference") {
  TemporaryFolder folder;
  std::string checkpoint = train_in(folder, two_steps()).checkpoint;
  train::Recipe other = two_steps();
  other.set("model.config",
            "{hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2, dropout: 0.1}",
            "test");
  train::Experiment experiment = train::make_experiment(other);
  std::string message = error_of([&] { train::load_model(checkpoint, experiment); });
  CHECK(message.find("another model: hidden_size is 16 there and 32 in the recipe") !=
        std::string::npos);
}

TEST_CASE("the newest checkpoints and the best are kept") {
  TemporaryFolder folder;
  auto recipe = images_recipe(folder,
                              "train: {steps: 12, global_batch_size: 12}\n"
                              "eval: {every: 3}\n"
                              "checkpoint: {every: 1, keep_last: 2, best: loss}\n");
  train::TrainResult result = train_in(folder, recipe);
  auto all = train::list_checkpoints(result.run_folder);
  REQUIRE(all.size() >= 2);
  CHECK(all.size() <= 3);
  CHECK(all.back().step == 12);
  CHECK(all.back().latest);
  CHECK(all[all.size() - 2].step == 11);
  CHECK(std::count_if(all.begin(), all.end(), [](auto& info) { return info.best; }) == 1);
}

TEST_CASE("the best checkpoint stays the best when later evaluations are worse") {
  TemporaryFolder folder;
  auto recipe = images_recipe(folder,
                              "train: {steps: 12, global_batch_size: 12}\neval: {every: 1}\n"
                              "checkpoint: {every: 12, keep_last: 1, best: loss}\n");
  recipe.set("optimizer.lr", "1", "test");  // too large for losses to fall steadily
  const std::string run = train_in(folder, recipe).run_folder;
  const int64_t best = best_step(run, 1);
  REQUIRE(best < 11);
  const auto all = train::list_checkpoints(run);
  const auto marked = std::ranges::find(all, true, &train::CheckpointInfo::best);
  REQUIRE(marked != all.end());
  CHECK(marked->step == best);
}

TEST_CASE("an old checkpoint with a user's file is kept with one warning") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 6, global_batch_size: 4}\n");
  recipe.set("checkpoint.every", "1", "test");
  recipe.set("checkpoint.keep_last", "1", "test");
  const Captured said(2);
  const train::TrainResult result = train_while(folder, recipe, [&](int64_t step) {
    if (step == 3) folder.file("runs/run/checkpoints/step-00000002/notes", "x");
  });
  const auto all = train::list_checkpoints(result.run_folder);
  REQUIRE(all.size() == 2);
  CHECK(all[0].step == 2);
  CHECK(contents_of(all[0].path + "/notes") == "x");
  CHECK(said.text() == "weft: warning: " + all[0].path +
                           " is not removed, although checkpoint.keep_last is 1: it contains "
                           "notes, which is not part of a checkpoint.\n");
}

TEST_CASE("a repeated save keeps a user's file and replaces no complete checkpoint") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 4, global_batch_size: 4}\n");
  recipe.set("checkpoint.every", "1", "test");
  recipe.set("checkpoint.keep_last", "2", "test");
  const std::string run = train_in(folder, recipe).run_folder,
                    last = run + "/checkpoints/step-00000004";
  folder.file("runs/run/checkpoints/step-00000004/notes", "x");
  fs::remove(last + "/model.safetensors");
  recipe.set("train.steps", "5", "test");
  const Captured said(2);
  train_in(folder, recipe, true);
  CHECK(contents_of(run + "/checkpoints/before-step-00000004-1/notes") == "x");
  CHECK(said.text().find("/before-step-00000004-1 is the earlier " + last +
                         ", set aside: it contains notes, which is not part of a checkpoint.\n") !=
        std::string::npos);
  CHECK(!fs::exists(last + "/notes"));
  CHECK(train::list_checkpoints(run).size() == 2);
}

TEST_CASE("damaged later checkpoints do not count as kept ones") {
  TemporaryFolder folder;
  auto recipe = sums_recipe("train: {steps: 6, global_batch_size: 4}\n");
  recipe.set("checkpoint.every", "1", "test");
  recipe.set("checkpoint.keep_last", "3", "test");
  const std::string run = train_in(folder, recipe).run_folder;
  for (const char* damaged : {"/checkpoints/step-00000005", "/checkpoints/step-00000006"})
    fs::remove(run + damaged + "/model.safetensors");
  const Captured said(2);
  train_in(folder, recipe, true, {.signal = SIGTERM, .step = 5});
  std::vector<int64_t> steps;
  for (const auto& checkpoint : train::list_checkpoints(run)) steps.push_back(checkpoint.step);
  CHECK(steps == std::vector<int64_t>{4, 5, 6});
}

TEST_CASE("after a failed best save the next better checkpoint becomes the best") {
  TemporaryFolder folder;
  auto recipe = images_recipe(folder,
                              "train: {steps: 6, global_batch_size: 12}\neval: {every: 1}\n"
                              "checkpoint: {every: 6, keep_last: 1, best: loss}\n");
  std::optional<FullDisk> full;
  const Captured said(2);
  const train::TrainResult result = train_while(folder, recipe, [&](int64_t step) {
    if (step == 1) full.emplace(1024);
    if (step == 2) full.reset();
  });
  CHECK(said.text().find("The run continues") != std::string::npos);
  const int64_t best = best_step(result.run_folder, 2);
  CHECK(best > 0);
  const auto all = train::list_checkpoints(result.run_folder);
  const auto marked = std::ranges::find(all, true, &train::CheckpointInfo::best);
  REQUIRE(marked != all.end());
  CHECK(marked->step == best);
}

TEST_CASE("partial checkpoints of dead processes are removed and those of live ones are kept") {
  TemporaryFolder folder;
  const std::string run = train_in(folder, two_steps()).run_folder;
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  const auto left_by = [&](pid_t process) {
    return fmt::format("{}/checkpoints/step-00000009.partial-{}-0123456789abcdef", run, process);
  };
  for (pid_t process : {gone, getpid(), 1}) fs::create_directory(left_by(process));
  fs::permissions(run + "/checkpoints", fs::perms::all);
  fs::permissions(folder.path(), fs::perms::all);
  const pid_t child = fork();  // becomes another user, who may not signal the parent
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(1);
    // begin() removes stale folders first, and then fails where the user may not write.
    error_of([&] {
      train::RunFolder(folder.file("runs"), "run", true, false).begin(two_steps(), "{}");
    });
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(!fs::exists(left_by(gone)));
  CHECK(fs::exists(left_by(getpid())));
  CHECK(fs::exists(left_by(1)));
}

TEST_CASE("a failed save is reported and retried while the run continues") {
  TemporaryFolder folder;
  train::Recipe recipe = sums_recipe("train: {steps: 6, global_batch_size: 4}\n");
  recipe.set("checkpoint.every", "2", "test");
  std::optional<FullDisk> full;
  const auto steps_without_room = [&](const std::set<int64_t>& steps, bool resume) {
    return train::train(recipe, {.runs = folder.path(),
                                 .resume = resume,
                                 .quiet = true,
                                 .last_save_seconds = 0,
                                 .after_step = [&](int64_t step) {
                                   full.reset();
                                   if (steps.contains(step)) full.emplace(1024);
                                 }});
  };
  const Captured said(2);
  const train::TrainResult result = steps_without_room({4}, false);
  CHECK(result.step == 6);
  CHECK(said.text().find("checkpoint of step 4: cannot write ") != std::string::npos);
  CHECK(said.text().find(" Earlier checkpoints are intact. The run continues, and tries again when "
                         "the next checkpoint is due, or in a minute.\n") != std::string::npos);
  std::vector<int64_t> saved;
  for (const auto& checkpoint : train::list_checkpoints(result.run_folder))
    saved.push_back(checkpoint.step);
  CHECK(saved == std::vector<int64_t>{2, 6});

  recipe.set("train.steps", "7", "test");  // the last save must succeed
  CHECK(
      error_of([&] { steps_without_room({7}, true); }).starts_with("failed: checkpoint of step 7"));
}

TEST_CASE("repeated save failures are reported once and the last save is retried") {
  TemporaryFolder folder;
  train::Recipe recipe = sums_recipe("train: {steps: 6, global_batch_size: 4}\n");
  recipe.set("log.every", "1000", "test");  // keeps the log below the limit
  recipe.set("checkpoint.every", "1", "test");
  std::optional<FullDisk> full;
  std::optional<std::thread> freed;
  const Captured said(2);
  const train::TrainResult result =
      train::train(recipe, {.runs = folder.path(), .quiet = true, .after_step = [&](int64_t step) {
                              if (step == 2 || step == 6) full.emplace(1024);
                              if (step == 5) full.reset();
                              if (step == 6)
                                freed.emplace([&] {
                                  std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                  full.reset();
                                });
                            }});
  freed->join();
  CHECK(result.step == 6);
  const std::string text = said.text();
  const std::vector<std::string> expected = {
      "weft: warning: checkpoint of step 2: ", "weft: note: checkpoints are saved again: ",
      "weft: warning: checkpoint of step 6: ", "weft: note: checkpoints are saved again: "};
  std::istringstream lines(text);
  std::string line;
  for (const std::string& begins : expected) {
    REQUIRE(std::getline(lines, line));
    CHECK_MESSAGE(line.starts_with(begins), line);
  }
  CHECK(!std::getline(lines, line));
  CHECK(text.find(" It is the last checkpoint: weft retries for 10 s.\n") != std::string::npos);
}

TEST_CASE("the save of a run that a signal stops is retried") {
  TemporaryFolder folder;
  train::Recipe recipe = sums_recipe("train: {steps: 60, global_batch_size: 4}\n");
  std::optional<FullDisk> full;
  std::optional<std::thread> freed;
  const Captured said(2);
  const train::TrainResult result =
      train::train(recipe, {.runs = folder.path(), .quiet = true, .after_step = [&](int64_t step) {
                              if (step != 2) return;
                              full.emplace(1024);
                              std::raise(SIGTERM);
                              freed.emplace([&] {
                                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                full.reset();
                              });
                            }});
  freed->join();
  CHECK(result.step == 2);
  CHECK(train::list_checkpoints(result.run_folder).size() == 1);
  CHECK(said.text().find(" It is the last checkpoint: weft retries for 10 s.\n") !=
        std::string::npos);
}

TEST_CASE("the failure of a first save does not mention earlier ones") {
  TemporaryFolder folder;
  train::Experiment experiment = train::make_experiment(two_steps());
  std::string message;
  {
    const FullDisk full(1024);
    message = error_of([&] { train::save_checkpoint(folder.path(), experiment, {}, false); });
  }
  CHECK(message.starts_with("failed: checkpoint of step 0: cannot write"));
  CHECK(message.ends_with(" No checkpoint is saved."));
}

TEST_CASE("a file that no part of a checkpoint names is not saved") {
  TemporaryFolder folder;
  train::Experiment experiment = train::make_experiment(two_steps());
  experiment.checkpoint_files = {{"images.json", "{}"}, {"own.json", "{}"}};
  const auto save = [&] { train::save_checkpoint(folder.path(), experiment, {}, false); };
  CHECK(error_of(save).find("the data set keeps own.json, which its entry does not list in "
                            "`files`.") != std::string::npos);
  experiment.checkpoint_files.pop_back();
  save();
  CHECK(train::foreign_among_checkpoints(folder.path()).empty());
}

TEST_CASE("a checkpoint that cannot be written is reported in one line and the old one stays") {
  TemporaryFolder folder;
  train::TrainResult result = train_in(folder, two_steps());
  train::Experiment experiment = train::make_experiment(two_steps());
  auto save = [&] { train::save_checkpoint(result.run_folder, experiment, {.step = 9}, false); };

  SUBCASE("a full disk") {
    std::string message;
    {
      const FullDisk full(1024);  // ends in the middle of a file
      message = error_of(save);
    }
    CHECK(message.starts_with("failed: checkpoint of step 9: cannot write"));
    CHECK(message.find("File too large") != std::string::npos);
    CHECK(message.ends_with(" Earlier checkpoints are intact."));
  }
  SUBCASE("a path that is not a folder") {
    fs::rename(result.run_folder + "/checkpoints", result.run_folder + "/aside");
    std::ofstream(result.run_folder + "/checkpoints") << "x";
    std::string message = error_of(save);
    fs::remove(result.run_folder + "/checkpoints");
    fs::rename(result.run_folder + "/aside", result.run_folder + "/checkpoints");
    CHECK(message.starts_with("failed: checkpoint of step 9: cannot"));
  }
  auto all = train::list_checkpoints(result.run_folder);
  REQUIRE(all.size() == 1);
  train::verify_checkpoint(all[0].path);
  CHECK(train::find_checkpoint(result.run_folder) == result.checkpoint);
}
