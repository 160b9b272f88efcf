// A place where ranks save, with faults of their files (file_fault/library.cpp).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/program.h"
#include "tests/support/skip.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace weft::test {

inline constexpr int saving_ranks = 2;

class SavesPlace : public Workplace {
 public:
  // Weights and state are above 16 KiB, so that ranks have parts of them.
  explicit SavesPlace(bool beside = false) {
    write("gpt.yaml",
          fmt::format(
              "name: gpt\nmodel: {{name: gpt, config: {{hidden_size: 48, num_hidden_layers: 1, "
              "num_attention_heads: 4, dropout: 0}}}}\n"
              "data: {{dataset: random-tokens, seq_len: 8, classes: 48}}\n"
              "optimizer: {{name: adamw, lr: 0.01}}\n"
              "train: {{steps: 2, global_batch_size: 4, precision: fp64}}\n"
              "eval: {{every: 1000000}}\ncheckpoint: {{every: 2, keep_last: 1, beside: {}}}\n"
              "log: {{every: 100}}\nparallel: {{zero: 3}}\n",
              beside));
  }
  // Trains a run that saved step 2, for train_with(), and an undisturbed one, for check_saved().
  void begin() {
    REQUIRE(train({}).code == 0);
    std::filesystem::copy(path("runs/gpt"), path("begun"), keeping_links);
    for (const int64_t step : {4, 6}) {
      REQUIRE(train({"--resume", "--steps", std::to_string(step)}).code == 0);
      undisturbed_.push_back(files());
    }
  }

  static std::vector<std::string> command(const std::vector<std::string>& more,
                                          int ranks = saving_ranks) {
    std::vector<std::string> words = {"launch",          "-n",    std::to_string(ranks),
                                      "--oversubscribe", "train", "gpt.yaml"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Outcome train(const std::vector<std::string>& more, const Environment& environment = {}) const {
    return weft(command(more), environment);
  }
  // Goes on from step 2 with a fault of a rank while it saves step 4.
  Outcome train_with(const std::string& what, int rank, int call, const std::string& steps) const {
    std::filesystem::remove_all(path("runs/gpt"));
    std::filesystem::remove(path("fault.log"));
    std::filesystem::copy(path("begun"), path("runs/gpt"), keeping_links);
    return train({"--resume", "--steps", steps},
                 fault(fmt::format("{} {} {} step-00000004", what, rank, call)));
  }
  Environment fault(const std::string& text) const {
    return {{"LD_PRELOAD", std::string(std::getenv("BUILD")) + "/tests/file_fault.so"},
            {"FILE_FAULT", text},
            {"FILE_FAULT_LOG", path("fault.log")}};
  }
  // Returns the system call at which the fault came; "" where it did not.
  std::string failed_call() const {
    const std::string text = read("fault.log");
    return text.substr(0, text.find('\n'));
  }
  int64_t newest_whole() const {
    const std::string found = train::newest_whole_checkpoint(path("runs/gpt"));
    for (const auto& checkpoint : train::list_checkpoints(path("runs/gpt")))
      train::verify_checkpoint(checkpoint.path);
    return std::stoll(std::filesystem::canonical(found).filename().string().substr(5));
  }
  // Checks that the checkpoint of step 4 or 6 has the bits of the undisturbed run.
  void check_saved(int64_t step) const {
    CHECK(newest_whole() == step);
    CHECK(files() == undisturbed_.at(static_cast<size_t>(step / 2 - 2)));
  }
  // Returns whether unfinished files are left.
  bool has_leftovers() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path("runs")))
      if (says(entry.path().filename().string(), ".partial-")) return true;
    return false;
  }
  // Returns the contents of a checkpoint's files.
  std::vector<std::string> files(const std::string& name = "latest") const {
    std::vector<std::string> all;
    for (const char* file :
         {"model.safetensors", "state-optimizer.safetensors", "data.json", "rng.json"}) {
      all.push_back(read(fmt::format("runs/gpt/checkpoints/{}/{}", name, file)));
      CHECK(!all.back().empty());
    }
    return all;
  }

 private:
  static constexpr auto keeping_links =
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks;
  std::vector<std::vector<std::string>> undisturbed_;  // of steps 4 and 6
};

inline bool can_preload() {
  if (testing::sanitized) testing::skipped("sanitizers must be the first library that is loaded");
  return !testing::sanitized;
}

}  // namespace weft::test
