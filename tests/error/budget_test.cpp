// Tests invalid budgets, and budgets that are too small on each device.
#include <iomanip>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

using namespace weft::test;
using nlohmann::json;
using namespace std::string_literals;

namespace {
struct Layered : Workplace {
  Layered() {
    write("layers.yaml",
          "model: {layers: [flatten, {linear: {out_features: 8}}, layer_norm, relu, "
          "{linear: {out_features: 4}}]}\n"
          "data: {dataset: random-images, image_size: 2, classes: 4}\n"
          "train: {steps: 2, global_batch_size: 4}\neval: {batch_size: 100}\n");
  }
};
struct Sums : Workplace {
  Sums() {
    write("sums.yaml",
          "model: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
          "num_attention_heads: 2}}\n"
          "data: {dataset: addition, digits: 1}\ntrain: {steps: 2, global_batch_size: 4}\n"
          "eval: {batch_size: 100}\n");
  }
};
// Plans each change that the refusal of `command` suggests; returns how many fit.
int changes_that_fit(const Workplace& place, const std::vector<std::string>& command,
                     const std::string& refusal) {
  const size_t hint = refusal.find("Hint: ");
  std::string changes = hint == std::string::npos ? "" : refusal.substr(hint + 6);
  int count = 0;
  double before = 0;  // the fastest change comes first
  for (size_t end; (end = changes.find(" fits at ")) != std::string::npos; ++count) {
    std::vector<std::string> changed = command;
    std::istringstream words(changes.substr(0, end));  // "--a 1 --b '[c]'"
    for (std::string word; words >> std::quoted(word, '\'');) {
      if (word.starts_with("--"))  // the new value replaces a flag of the command
        std::erase_if(changed, [&](auto& typed) { return typed.starts_with(word + "="); });
      changed.push_back(word);
    }
    CAPTURE(changes);
    const Outcome outcome = place.weft(changed);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    const double times = std::stod(changes.substr(end + 9));  // " fits at "
    CHECK(times >= before);
    before = times;
    const std::string_view tail = " times the step time";
    changes = changes.substr(changes.find(tail, end) + tail.size() + 1);  // a comma, or the end
  }
  return count;
}
}  // namespace

TEST_CASE("an invalid memory budget is refused by its value") {
  Sums place;
  for (const char* verb : {"plan", "train"})
    for (const std::string budget :
         {"0", "0GiB", "lots", "-1GiB", "1.5 parsecs", "GiB", "1e400GiB"}) {
      CAPTURE(budget);
      CHECK(fails_with(place.weft({verb, "sums.yaml", "--train.memory=" + budget}), 2,
                       "train.memory must be a size such as 1.5GiB. Got '" + budget + "'.") == "");
    }
}

TEST_CASE("a budget below a run's need names the least budget, which is enough") {
  Sums place;
  const std::tuple<const char*, const char*, std::vector<std::string>> cases[] = {
      {"plan", "8", {"1", "20KiB"}}, {"train", "8", {"1KiB"}}, {"plan", "2000", {"1", "1KiB"}}};
  for (const auto& [verb, eval_batch, budgets] : cases)
    for (const std::string& budget : budgets) {
      CAPTURE(eval_batch);  // the larger one needs more memory to evaluate than to train
      auto with = [&, eval_batch = std::string(eval_batch)](const std::string& to_do,
                                                            const std::string& memory) {
        return place.weft({to_do, "sums.yaml", "--data.digits", "2", "--eval.batch_size",
                           eval_batch, "--memory", memory});
      };
      const Outcome outcome = with(verb, budget);
      CHECK(fails_with(outcome, 3, "the step takes at least ") == "");
      CHECK(outcome.err.find("The limit is ") != std::string::npos);
      const size_t at = outcome.err.find("at least ") + 9;
      const std::string least = outcome.err.substr(at, outcome.err.find(',', at) - at);
      CAPTURE(least);
      CHECK(with("plan", least).code == 0);
      CHECK((outcome.err.find("evaluate: ") != std::string::npos) ==
            (eval_batch == std::string("2000")));
    }
}

TEST_CASE("a suggested change fits its budget, including memory held by other steps") {
  Sums place;
  auto total = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"plan", "sums.yaml", "--json"});
    return json_of(place.weft(arguments)).at("total_bytes").get<double>();
  };
  const std::vector<std::string> batch{"--train.global_batch_size", "512", "--eval.batch_size",
                                       "8"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), batch.begin(), batch.end());
    return more;
  };
  const double least = total(with({"--train.micro_batch_size", "64"})) + 4096;
  const double whole = total(with({"--recompute", "none"}));
  REQUIRE(whole > 2 * least);
  for (const double limit : {least, 0.75 * whole}) {
    const std::string budget = std::to_string(static_cast<int64_t>(limit));
    const std::vector<std::string> command =
        with({"plan", "sums.yaml", "--memory", budget, "--recompute=none"});
    const Outcome outcome = place.weft(command, {{"WEFT_PATIENCE", "600"}});
    CHECK(fails_with(outcome, 3, "train: [compile] the step takes at least ") == "");
    CHECK(changes_that_fit(place, command, outcome.err) >= 1);
    // A flag of the command line keeps its spelling: its new value replaces the old one.
    CHECK((outcome.err.find(" --recompute auto fits at ") != std::string::npos) == (limit > least));
  }
}

TEST_CASE("a suggested change fits even where state alone exceeds the budget") {
  Sums place;
  const std::vector<std::string> wide{"plan",
                                      "sums.yaml",
                                      "--model.config.hidden_size",
                                      "256",
                                      "--train.global_batch_size",
                                      "1",
                                      "--eval.batch_size",
                                      "1"};
  auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = wide;
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  const json plan = json_of(place.weft(with({"--json"})));
  const int64_t state = plan["model_bytes"].get<int64_t>() + plan["optimizer_bytes"].get<int64_t>();
  const std::string budget = std::to_string(state * 95 / 100);
  for (const char* kept : {"fp32", "bf16"}) {
    const auto command = with({"--memory", budget, "--train.keep", kept});
    const Outcome outcome = place.weft(command, {{"WEFT_PATIENCE", "600"}});
    CHECK(fails_with(outcome, 3, " of memory, whatever the batch. Hint: --train.") == "");
    CHECK(changes_that_fit(place, command, outcome.err) >= 1);
  }
}

TEST_CASE("every device trains in every precision") {
  const Layered place;
  for (const char* device : {"cpu", "reference"})
    for (const char* precision : {"fp32", "fp64", "bf16-mixed", "fp16-mixed", "bf16"}) {
      Outcome outcome = place.weft({"train", "layers.yaml", "--device", device, "--precision",
                                    precision, "--overwrite", "--json"});
      CHECK_MESSAGE(outcome.code == 0, outcome.err);
    }
  CHECK(fails_with(
            Sums().weft({"train", "sums.yaml", "--precision", "fp8"}), 2,
            "train.precision must be one of fp32, tf32, fp64, bf16-mixed, fp16-mixed, bf16. Got "
            "'fp8'.") == "");
}
