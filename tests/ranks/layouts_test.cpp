// Tests that a run which was saved under one layout of its state resumes under any other: another
// number of ranks, and other parts of what each of them holds.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include "tests/support/published_model.h"
#include "tests/support/temporary_folder.h"
#include "weft/io/safetensors.h"

namespace fs = std::filesystem;
using namespace weft;
using namespace weft::test;

namespace {
// Most tensors are above 16 KiB, so that ranks have parts of them, and 2, 3 and 4 ranks divide
// their axes.
std::string layouts_net(const char* dropout) {
  return fmt::format(
      "model: {{name: gpt, config: {{hidden_size: 48, num_hidden_layers: 1, "
      "num_attention_heads: 4, dropout: {}}}}}\n"
      "data: {{dataset: random-tokens, seq_len: 8, classes: 48}}\n",
      dropout);
}
constexpr const char* layouts_recipe =
    "name: gpt\noptimizer: {name: adamw, lr: 0.01}\n"
    "train: {steps: 6, global_batch_size: 24, precision: fp64}\neval: {every: 1000000}\n"
    "checkpoint: {every: 3, keep_last: 9}\nlog: {every: 100}\n";

// Runs whose updates add up the same parts of a batch in the same order compute the same bits,
// whatever their ranks hold whole.
struct RunLayout {
  int ranks = 1, zero = 0, passes = 1;
  std::string name() const {
    return std::to_string(ranks) + "-" + std::to_string(zero) + "-" + std::to_string(passes);
  }
  // Level 2 adds up ranks before passes.
  std::array<int, 3> arithmetic() const {
    return {ranks, passes, static_cast<int>(passes > 1 && zero >= 2)};
  }
};
using Arithmetic = std::pair<std::array<int, 3>, std::array<int, 3>>;  // before and after

// A Saved is what a checkpoint has of the state of a run.
struct Saved {
  std::map<std::string, std::string> files = {};
  std::map<std::string, std::vector<double>> tensors = {};
  nlohmann::json place = {};  // data.json but for the loss, which has rounding errors
};

// Returns the largest difference between the elements of two checkpoints.
double distance(const Saved& a, const Saved& b) {
  REQUIRE(a.tensors.size() == b.tensors.size());
  double most = 0;
  for (const auto& [name, values] : a.tensors) {
    const std::vector<double>& others = b.tensors.at(name);
    REQUIRE(values.size() == others.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(values[i] - others[i]);
      if (!(difference <= most)) most = difference;  // also where it is not a number
    }
  }
  return most;
}

class LayoutsPlace : public Workplace {
 public:
  explicit LayoutsPlace(const std::string& net) { write("gpt.yaml", layouts_recipe + net); }

  void train(const RunLayout& layout, const std::string& name,
             const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"launch",
                                      "-n",
                                      std::to_string(layout.ranks),
                                      "--oversubscribe",
                                      "train",
                                      "gpt.yaml",
                                      "--name",
                                      name,
                                      "--parallel.zero",
                                      std::to_string(layout.zero),
                                      "--train.micro_batch_size",
                                      std::to_string(24 / layout.ranks / layout.passes)};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = weft(words);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(outcome.err == "");
  }
  // Copies a run as it was when it had saved step 3.
  void go_back(const std::string& from, const std::string& to) const {
    const std::string folder = path("runs/" + to), checkpoints = folder + "/checkpoints";
    fs::remove_all(folder);
    fs::copy(path("runs/" + from), folder,
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    fs::remove_all(checkpoints + "/step-00000006");
    fs::remove(checkpoints + "/latest");
    fs::create_symlink("step-00000003", checkpoints + "/latest");
  }
  Saved saved(const std::string& name) const {
    Saved all;
    const std::string folder = "runs/" + name + "/checkpoints/step-00000006/";
    for (const char* file :
         {"model.safetensors", "state-optimizer.safetensors", "data.json", "rng.json"}) {
      all.files[file] = read(folder + file);
      CHECK(!all.files[file].empty());
    }
    all.place = nlohmann::json::parse(all.files.at("data.json"));
    all.place.erase("best_loss");
    for (const char* file : {"model.safetensors", "state-optimizer.safetensors"}) {
      const io::Safetensors tensors = io::Safetensors::open(path(folder + file));
      for (const auto& entry : tensors.entries())
        all.tensors[entry.name] = tensors.tensor(entry.name).to_doubles();
    }
    return all;
  }
};

// Saves a run under each of the layouts, resumes it under each, and compares the resumed runs with
// those of the same arithmetic to the bit, and with the undisturbed run of the first layout within
// `bound`.
void check_all(const std::array<RunLayout, 6>& layouts, const std::string& net, double bound) {
  const LayoutsPlace place(net);
  std::map<Arithmetic, Saved> by_arithmetic;
  const auto check = [&](const Arithmetic& arithmetic, const Saved& got) {
    const Saved& want = by_arithmetic.emplace(arithmetic, got).first->second;
    for (const auto& [file, contents] : want.files) {
      CAPTURE(file);
      CHECK(got.files.at(file) == contents);
    }
  };
  for (const RunLayout& layout : layouts) {
    CAPTURE(layout.name());
    place.train(layout, layout.name());
    check({layout.arithmetic(), layout.arithmetic()}, place.saved(layout.name()));
  }
  const Saved alone = place.saved(layouts.front().name());
  double farthest = 0;
  for (const RunLayout& before : layouts)
    for (const RunLayout& after : layouts) {
      CAPTURE(before.name());
      CAPTURE(after.name());
      place.go_back(before.name(), "resumed");
      place.train(after, "resumed", {"--resume"});
      const Saved got = place.saved("resumed");
      check({before.arithmetic(), after.arithmetic()}, got);
      CHECK(got.place == alone.place);
      CHECK(got.files.at("rng.json") == alone.files.at("rng.json"));
      const double far = distance(got, alone);
      CHECK(far <= bound);
      farthest = std::max(farthest, far);
    }
  MESSAGE("the farthest element is ", farthest, " from that of one rank");
}
}  // namespace

TEST_SUITE("slow layouts") {
  TEST_CASE("a run saved under any of six layouts resumes under any of them") {
    // Dropout draws for the whole batch.
    check_all({{{.ranks = 1},
                {.ranks = 2, .zero = 0},
                {.ranks = 2, .zero = 3},
                {.ranks = 3, .zero = 3},
                {.ranks = 4, .zero = 1},
                {.ranks = 4, .zero = 3}}},
              layouts_net("0.1"), 1e-10);
  }
  TEST_CASE("a run that accumulates gradients resumes under any of six layouts") {
    check_all({{{.ranks = 1},
                {.ranks = 1, .passes = 4},
                {.ranks = 2, .zero = 1, .passes = 2},
                {.ranks = 2, .zero = 2, .passes = 2},
                {.ranks = 2, .zero = 3, .passes = 2},
                {.ranks = 3, .zero = 3, .passes = 4}}},
              layouts_net("0"), 1e-10);
  }
  TEST_CASE("a mixture of experts resumes under any of six layouts") {
    const TemporaryFolder folder;
    check_all({{{.ranks = 1},
                {.ranks = 2, .zero = 1},
                {.ranks = 2, .zero = 3},
                {.ranks = 2, .zero = 3, .passes = 2},
                {.ranks = 3, .zero = 3},    // which have rows of every expert
                {.ranks = 4, .zero = 3}}},  // which have an expert each
              mixture_recipe(folder, 4), 1e-10);
  }
}
