// After a disk error or a power cut during a save, the old checkpoint or the new one is intact.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/captured.h"
#include "tests/train/runs.h"
#include "tests/train/system_calls.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/run/run_folder.h"

namespace fs = std::filesystem;
using namespace weft;
using namespace weft::test;

namespace {
train::Recipe steps_recipe(int64_t steps) {
  train::Recipe recipe =
      sums_recipe(fmt::format("train: {{steps: {}, global_batch_size: 4}}\nname: saved\n", steps));
  recipe.set("checkpoint.every", "1", "test");
  recipe.set("checkpoint.keep_last", "1", "test");
  return recipe;
}

// Returns the step of the checkpoint that a run resumes from; it must be found without a warning.
int64_t resumable_step(const std::string& run) {
  int64_t step = -1;
  Captured warnings(2);
  const std::string wrong = error_of([&] {
    const std::string found = train::newest_whole_checkpoint(run);
    step = std::stoll(fs::canonical(found).filename().string().substr(std::string("step-").size()));
  });
  CHECK(wrong == "none");
  CHECK(warnings.text() == "");
  return step;
}

int entries_in(const std::string& folder) {
  std::error_code absent;
  return static_cast<int>(
      std::distance(fs::directory_iterator(folder, absent), fs::directory_iterator()));
}
}  // namespace

TEST_CASE("any failing system call of a save leaves the old or the new checkpoint whole") {
  train::Experiment experiment = train::make_experiment(steps_recipe(9));
  constexpr int errors[] = {EIO, ENOSPC, EROFS};  // in turn, as nothing tells them apart
  for (int kind : {EIO, EINTR, CallObserver::half}) {
    CAPTURE(kind);
    const bool harmless = kind == EINTR || kind == CallObserver::half;
    std::set<std::string> failed;
    for (int number = 0;; ++number) {
      CAPTURE(number);
      const int error = harmless ? kind : errors[number % std::ssize(errors)];
      TemporaryFolder folder;
      auto save = [&](int64_t step, int call) {
        FailingCall failing(call, error);
        const std::string what = error_of(
            [&] { train::save_checkpoint(folder.path(), experiment, {.step = step}, true); });
        return std::pair(what, failing.failed());
      };
      REQUIRE(save(1, -1) == std::pair(std::string("none"), std::string()));
      const auto [what, call] = save(2, number);
      if (call.empty()) break;
      failed.insert(call);
      INFO(call << ": " << what);
      const int64_t step = resumable_step(folder.path());
      if (what == "none")
        CHECK(step == 2);
      else
        CHECK(what.starts_with("failed: checkpoint of step 2: cannot "));
      if (harmless) CHECK(what == "none");
      CHECK(save(3, -1).first == "none");  // the disk works again
      CHECK(resumable_step(folder.path()) == 3);
    }
    if (harmless)
      CHECK(failed.contains("write"));
    else
      CHECK(failed == std::set<std::string>{"mkdir", "create", "open", "write", "fsync", "close",
                                            "rename", "symlink"});
  }
}

TEST_CASE("after a power failure a run resumes from the last checkpoint that it reported") {
  constexpr int64_t steps = 2;
  constexpr auto all_of_it = fs::copy_options::recursive | fs::copy_options::copy_symlinks;
  TemporaryFolder folder, copies, kept, whole;
  fs::create_directory(kept.file("runs"));
  const std::string expected = train_in(whole, steps_recipe(steps)).checkpoint;
  int64_t saved = 0;
  int looks = 0;
  auto look = [&](const std::string& copy) {
    ++looks;
    INFO("look " << looks << ", saved " << saved);
    const std::string run = copy + "/runs/saved";
    if (saved == 0 && train::list_checkpoints(run).empty()) return;
    CHECK(resumable_step(run) >= saved);
    CHECK(contents_of(run + "/recipe.yaml") != "");
    if (looks % 50 == 0) fs::copy(run, kept.file("runs/" + std::to_string(looks)), all_of_it);
  };
  {
    PowerCut power(folder.path(), copies.file("copy"), look);
    train::train(steps_recipe(steps),
                 {.runs = folder.file("runs"), .quiet = true, .after_step = [&](int64_t step) {
                    saved = step - 1;
                    power.look();
                  }});
    saved = steps;
    power.look();
  }
  CHECK(looks > 100);
  for (const auto& copy : fs::directory_iterator(kept.file("runs"))) {
    train::Recipe recipe = steps_recipe(steps);
    recipe.set("name", copy.path().filename().string(), "test");
    check_equal(train_in(kept, recipe, /*resume=*/true).checkpoint, expected);
  }
}

TEST_CASE("a power failure leaves a checkpoint that replaces another of its step whole") {
  const train::Experiment experiment = train::make_experiment(steps_recipe(9));
  TemporaryFolder folder, copies;
  bool saved = false;
  PowerCut power(folder.path(), copies.file("copy"), [&](const std::string& copy) {
    if (saved) CHECK(resumable_step(copy) == 1);
  });
  for (int time = 0; time < 2; ++time) {
    train::save_checkpoint(folder.path(), experiment, {.step = 1}, false);
    saved = true;
    power.look();
  }
}

TEST_CASE("a failed start creates no folder and keeps the run that it was to replace") {
  TemporaryFolder folder;
  const std::string run = folder.file("runs/saved");
  // Many runs begin, so that the net is one which is soon planned.
  const train::Recipe recipe = train::Recipe::parse(
      "name: saved\nmodel: {layers: [flatten, {linear: {out_features: 4}}]}\n"
      "data: {dataset: random-images, image_size: 2, classes: 4}\n"
      "train: {steps: 1, global_batch_size: 4}\n"
      "checkpoint: {every: 1, keep_last: 1}\n",
      "test.yaml");
  auto start = [&](int call, bool overwrite) {
    int64_t steps = 0;
    FailingCall failing(call, EIO);
    const std::string wrong = error_of([&] {
      train::train(recipe, {.runs = folder.file("runs"),
                            .overwrite = overwrite,
                            .quiet = true,
                            .after_step = [&](int64_t step) {
                              steps = step;
                              failing.disarm();
                            }});
    });
    const bool ended = call >= 0 && failing.failed().empty();
    return std::tuple(wrong, steps, ended);
  };
  int failed = 0;
  for (bool overwrite : {false, true}) {
    std::string before;
    auto begin_anew = [&] {
      fs::remove_all(run);
      if (overwrite) REQUIRE(start(-1, false) == std::tuple("none", 1, false));
      before = contents_of(run + "/checkpoints/latest/MANIFEST.json");
    };
    begin_anew();
    for (int call = 0;; ++call) {
      CAPTURE(call);
      const auto [wrong, steps, ended] = start(call, overwrite);
      if (ended) break;
      if (steps > 0) {  // the failure came after the start
        begin_anew();
        continue;
      }
      ++failed;
      CHECK(wrong != "none");
      CHECK(fs::exists(run) == overwrite);
      if (overwrite) CHECK(contents_of(run + "/checkpoints/latest/MANIFEST.json") == before);
      CHECK(entries_in(folder.file("runs")) == (overwrite ? 1 : 0));
    }
  }
  CHECK(failed > 20);
}

TEST_CASE("a run whose checkpoints would fill the disk is refused before it begins") {
  TemporaryFolder folder;
  const DiskOfRoom disk(1 << 16);
  const std::string wrong = error_of([&] { train_in(folder, steps_recipe(9)); });
  CHECK(wrong.starts_with("failed: " + folder.file("runs/saved") +
                          " has no room for the checkpoints of this run: 2 of "));
  CAPTURE(wrong);
  CHECK(wrong.ends_with("The disk has 64.0 KiB left. Hint: checkpoint.keep_last, --runs."));
  CHECK(!fs::exists(folder.file("runs")));
}

TEST_CASE("existing checkpoints need no further room and the best needs its own") {
  // Returns the size, in checkpoints, of the smallest disk on which the run is not refused.
  auto needed = [](const train::Recipe& recipe, const TemporaryFolder& folder, bool resume) {
    const train::Experiment experiment = train::make_experiment(recipe);
    const uint64_t each =
        (64 << 10) + static_cast<uint64_t>(experiment.model_bytes() + experiment.optimizer_bytes());
    constexpr uint64_t block = 4096;  // the unit in which disks count
    uint64_t count = 0;
    for (bool refused = true; refused && count < 9;) {
      const DiskOfRoom disk(++count * each + block);
      const std::string what = error_of([&] { train_in(folder, recipe, resume); });
      refused = what.find(" has no room for the checkpoints of this run") != std::string::npos;
    }
    return count;
  };
  TemporaryFolder folder;
  auto more = [&](const char* settings) {
    return images_recipe(folder, fmt::format("name: saved\n{}", settings));
  };
  CHECK(needed(more("train: {steps: 9, global_batch_size: 4}\n"
                    "checkpoint: {every: 1, keep_last: 2}\n"),
               TemporaryFolder(), false) == 3);
  const auto best = [&](int64_t steps) {
    return more(fmt::format("train: {{steps: {}, global_batch_size: 4}}\neval: {{every: 3}}\n"
                            "checkpoint: {{every: 1, keep_last: 2, best: loss}}\n",
                            steps)
                    .c_str());
  };
  CHECK(needed(best(9), folder, false) == 4);
  const auto there =
      static_cast<int64_t>(train::list_checkpoints(folder.file("runs/saved")).size());
  CHECK(there >= 2);
  CHECK(needed(best(12), folder, true) == std::max<int64_t>(4 - there, 1));
}

TEST_CASE("a concurrent second start with the same name keeps the first one's folder") {
  TemporaryFolder folder;
  const train::Recipe recipe = steps_recipe(1);
  train::RunFolder first(folder.path(), "saved", false, false);
  std::string wrong;
  {
    train::RunFolder second(folder.path(), "saved", false, false);
    first.begin(recipe, "{}");
    wrong = error_of([&] { second.begin(recipe, "{}"); });
  }
  CHECK(wrong.ends_with("is being trained by another process."));
  CHECK(fs::exists(folder.file("saved/recipe.yaml")));
  CHECK(fs::exists(folder.file("saved/checkpoints")));
}

TEST_CASE("a run whose folder is a dangling link is refused and the link stays") {
  TemporaryFolder folder;
  fs::create_directory(folder.file("runs"));
  fs::create_symlink("/nowhere/disk", folder.file("runs/saved"));
  const std::string wrong = error_of([&] { train_in(folder, steps_recipe(1)); });
  CHECK(wrong == "failed: cannot write " + folder.file("runs/saved") +
                     ": it is a link to /nowhere/disk, which does not exist.");
  CHECK(fs::read_symlink(folder.file("runs/saved")) == "/nowhere/disk");
}

TEST_CASE("--overwrite does not replace a link to the folder of a run") {
  TemporaryFolder folder;
  const std::string run = train_in(folder, steps_recipe(1)).run_folder;
  fs::rename(run, folder.file("large disk"));
  fs::create_symlink(folder.file("large disk"), run);
  const std::string wrong = error_of([&] {
    train::train(steps_recipe(1), {.runs = folder.file("runs"), .overwrite = true, .quiet = true});
  });
  CHECK(wrong ==
        "usage: " + run + " is a link to " + folder.file("large disk") +
            ": --overwrite would put a folder in its place. Hint: --name chooses another.");
  CHECK(fs::is_symlink(run));
  CHECK(fs::exists(run + "/checkpoints/latest"));
}

TEST_CASE("a run that --overwrite cannot replace stays in its place") {
  struct DiskWithoutLinks : CallObserver {
    int before(std::string_view call) override { return call == "symlink" ? EPERM : 0; }
  };
  TemporaryFolder folder;
  const std::string run = train_in(folder, steps_recipe(1)).run_folder;
  const std::string model = contents_of(run + "/checkpoints/latest/model.safetensors");
  std::string wrong;
  const Captured screen(STDERR_FILENO);
  {
    const DiskWithoutLinks disk;
    wrong = error_of([&] {
      train::train(steps_recipe(2),
                   {.runs = folder.file("runs"), .overwrite = true, .quiet = true});
    });
  }
  CHECK(wrong == "failed: cannot link " + run + "/checkpoints: Operation not permitted.");
  CHECK(screen.text().empty());  // nothing was set aside
  CHECK(contents_of(run + "/checkpoints/latest/model.safetensors") == model);
}

TEST_CASE("files in the way of checkpoints are refused before a step and stay") {
  TemporaryFolder folder;
  const std::string run = train_in(folder, steps_recipe(1)).run_folder;
  auto refusal = [&] {
    int64_t steps = 0;
    const std::string wrong = error_of([&] {
      train::train(steps_recipe(3), {.runs = folder.file("runs"),
                                     .resume = true,
                                     .quiet = true,
                                     .after_step = [&](int64_t) { ++steps; }});
    });
    CHECK(steps == 0);
    return wrong;
  };
  fs::remove(run + "/checkpoints/latest");
  fs::create_directory(run + "/checkpoints/latest");
  CHECK(refusal() == "failed: cannot save checkpoints: " + run +
                         "/checkpoints/latest is not a link to a checkpoint. Hint: move it.");
  CHECK(fs::is_directory(run + "/checkpoints/latest"));
  fs::remove_all(run + "/checkpoints");
  folder.file("runs/saved/checkpoints", "a user's");
  CHECK(refusal() == "failed: cannot create folder " + run + "/checkpoints: Not a directory.");
  CHECK(contents_of(run + "/checkpoints") == "a user's");
}
