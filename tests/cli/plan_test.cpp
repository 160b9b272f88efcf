// Tests `weft plan` for a choice among rented GPUs: whether a run fits, how long it takes, its
// price.
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tests/support/exit_codes.h"
#include "tests/support/program.h"

using namespace weft::test;
using nlohmann::json;

namespace {
struct Asked : Workplace {
  Asked() {
    write("small.yaml",
          "model: {name: gpt2, config: {num_hidden_layers: 2}}\n"
          "data: {dataset: random-tokens, classes: 50257, seq_len: 1024}\n"
          "train: {steps: 10, global_batch_size: 16, precision: bf16-mixed}\n"
          "eval: {batch_size: 4}\n");
    // Few wide layers take as much memory as many, and are planned sooner.
    const auto wide = [](int layers, int width) {
      return fmt::format(
          "model: {{name: llama, config: {{hidden_size: {}, intermediate_size: {}, "
          "num_hidden_layers: {}, num_attention_heads: 32}}}}\n"
          "data: {{dataset: random-tokens, seq_len: 1024}}\n"
          "train: {{steps: 10, global_batch_size: 1}}\n",
          width, 4 * width, layers);
    };
    write("medium.yaml", wide(2, 8192));
    write("large.yaml", wide(1, 32768));
  }
};

size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}
}  // namespace

TEST_CASE("plans for several GPUs are one table of 80 columns with the fastest first") {
  Asked place;
  const std::vector<std::string> question{"plan",     "small.yaml", "--on", "a100,h100,h200,t4",
                                          "--tokens", "1B"};
  const Outcome answer = place.weft(question);
  REQUIRE_MESSAGE(answer.code == 0, answer.err);
  CHECK(widest_line(answer.out) <= 80);
  std::vector<std::string> asked_json = question;
  asked_json.emplace_back("--json");
  const json plans = json_of(place.weft(asked_json));
  std::vector<std::string> order;
  for (const json& entry : plans) {
    order.push_back(entry["on"]);
    REQUIRE(entry["fits"] == true);
    const json& plan = entry["plan"];
    CHECK(plan["total_bytes"] <= plan["device_bytes"]);
    CHECK(plan["steps"] == (1'000'000'000 + 16 * 1024 - 1) / (16 * 1024));
    CHECK(plan["likely_step_seconds"] > plan["step_seconds"]);
    const std::string beside =
        fmt::format("\n{}: ", entry["on"].get<std::string>());  // the line of measured peaks
    const bool is_measured = plan["measured_peaks_step_seconds"] > 0;
    CHECK(is_measured == (entry["on"] != "t4"));
    CHECK((answer.out.find(beside) != std::string::npos) == is_measured);
  }
  CHECK(order == std::vector<std::string>{"h200", "h100", "a100", "t4"});
}

TEST_CASE("a table of any GPUs keeps its heading and each row on one line of 80 columns") {
  Asked place;
  // The longest names, and the slowest and the fastest GPU.
  const char* names[] = {"rtx4060ti-16gb", "a100-pcie-40gb", "t4", "gb300"};
  const Outcome answer =
      place.weft({"plan", "small.yaml", "--on", fmt::format("{}", fmt::join(names, ",")),
                  "--tokens", "3000B"});
  REQUIRE_MESSAGE(answer.code == 0, answer.err);
  CHECK(widest_line(answer.out) <= 80);
  CHECK(answer.out.starts_with("device "));
  CHECK(answer.out.substr(0, answer.out.find('\n')).ends_with("  at best"));
  for (const char* name : names) {
    const size_t row = answer.out.find(fmt::format("\n{} ", name));
    REQUIRE(row != std::string::npos);
    const std::string text = answer.out.substr(row + 1, answer.out.find('\n', row + 1) - row - 1);
    CHECK(text.ends_with(" days"));
  }
}

TEST_CASE("a table of GPUs of which none fits exits with code 3") {
  Asked place;
  for (const auto& [on, code] :
       {std::pair{"t4,v100-16gb", does_not_fit}, std::pair{"t4,h200", 0}}) {
    const Outcome answer =
        place.weft({"plan", "medium.yaml", "--on", on}, {{"WEFT_PATIENCE", "0"}});
    CAPTURE(answer.out);
    CHECK(answer.code == code);
    CHECK(answer.out.find("does not fit") != std::string::npos);
  }
}

TEST_CASE("invalid combinations of --on and --tokens are refused") {
  Asked place;
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"--on", "h100x8"}, "--on h100x8: a run uses one device. Hint: --on h100."},
      {{"--on", "h1000"}, "--on h1000: no such machine. Did you mean h100?"},
      {{"--on", "h100,cpu,H100"}, "--on names H100 more than once."},
      {{"--on", "h100,"}, "--on has an empty name. Hint: --on h100,h200."},
      {{"--on", "h100", "--device", "cpu"}, "--on and --device both say what to plan for."},
      {{"--on", "cpu", "--train.device", "cuda"}, "--on and --train.device both say what to plan"},
      {{"--device", "cuda:h100"}, "--device cuda:h100 names a GPU to plan for. Hint: --on h100."},
      {{"--train.device=cuda:H200"}, "--train.device cuda:H200 names a GPU to plan for."},
      {{"--on", "h100,a100", "--explain"}, "describe one plan. Got --on h100,a100."},
      {{"--tokens", "many"}, "--tokens is a count such as 300M or 1B. Got 'many'."},
  };
  for (const auto& [flags, message] : mistakes) {
    std::vector<std::string> arguments{"plan", "small.yaml"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    CHECK(fails_with(place.weft(arguments), 2, message) == "");
  }
}

TEST_CASE("a plan that exceeds this machine's memory is refused with what it needs") {
  Asked place;
  for (const char* memory : {"null", "900GiB"}) {  // a limit above the memory has no effect
    const Outcome answer =
        place.weft({"plan", "large.yaml", "--memory", memory}, {{"WEFT_PATIENCE", "0"}});
    CHECK(fails_with(answer, does_not_fit, " of memory. A run can use ") == "");
    for (const char* row : {"weights", "optimizer", "total", "over"})
      CHECK(answer.out.find(row) != std::string::npos);
  }
}
