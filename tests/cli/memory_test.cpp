// The process of a run takes at most the planned memory, and at most 2 % or 32 MiB less.
#include <algorithm>
#include <map>
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/images.h"
#include "tests/support/known_peaks.h"
#include "tests/support/program.h"
#include "tests/support/published_model.h"
#include "tests/support/skip.h"

using namespace weft::test;
using nlohmann::json;

namespace {
constexpr double mebibyte = 1 << 20;

json last_line(const std::string& log) {
  std::istringstream lines(log);
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  return json::parse(last);
}

// Trains with an empty kernel cache, then resumes with a full one.
void check_process(const Workplace& place, const std::string& name, const std::string& recipe,
                   int thread_count) {
  const std::string threads = std::to_string(thread_count);
  CAPTURE(name);
  CAPTURE(threads);
  place.write(name + ".yaml", "name: " + name + "\n" + recipe);
  const std::string cache = fmt::format("cache.{}{}", name, threads);
  write_peaks(place, cache, thread_count);
  const Workplace::Environment settings{{"WEFT_CACHE_DIR", place.path(cache)},
                                        {"WEFT_THREADS", threads}};
  for (const std::string steps : {"3", "6"}) {
    CAPTURE(steps);
    Outcome planned =
        place.weft({"plan", name + ".yaml", "--train.steps", steps, "--json"}, settings);
    REQUIRE_MESSAGE(planned.code == 0, planned.err);
    Outcome outcome = place.weft({"train", name + ".yaml", "--train.steps", steps,
                                  steps == "3" ? "--overwrite" : "--resume"},
                                 settings);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    json closing = last_line(place.read("runs/" + name + "/log.jsonl"));
    double plan = closing["planned_process"], used = closing["process_peak"];
    CHECK(json::parse(planned.out)["process_bytes"] == closing["planned_process"]);
    if (weft::testing::sanitized) {
      weft::testing::skipped("what a process takes: sanitizers take memory themselves");
      continue;
    }
    INFO("planned " << plan / mebibyte << " MiB, used " << used / mebibyte);
    CHECK(used <= plan);
    CHECK(used >= plan - std::max(0.02 * plan, 32 * mebibyte));
  }
}
std::string images(const std::string& model, int batch) {
  return "model: " + model +
         "\ndata: {format: idx, path: data}\noptimizer: {name: sgd, momentum: 0.9}\n"
         "train: {global_batch_size: " +
         std::to_string(batch) + "}\n";
}
std::string sums(int width, int layers, int batch) {
  return "model: {name: gpt, config: {hidden_size: " + std::to_string(width) +
         ", num_hidden_layers: " + std::to_string(layers) +
         ", num_attention_heads: 4}}\ndata: {dataset: addition}\ntrain: {global_batch_size: " +
         std::to_string(batch) + "}\neval: {batch_size: 100}\n";
}
// Writes a text and returns the recipe of a language model on it. Each time step of a recurrent
// model is a kernel of its own, so these have many distinct kernels.
std::string language_model(const Workplace& place, const std::string& model,
                           const std::string& config) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += static_cast<char>('a' + i * i % 23);
  place.write("letters.txt", text);
  return "task: causal_lm\nmodel: {name: " + model + ", config: {" + config +
         "}}\ndata: {format: text, path: letters.txt, tokenizer: characters, seq_len: 16, "
         "val_split: 0.1}\n"
         "train: {global_batch_size: 16}\n";
}
// Returns the recipe of an adapter for a published model, whose weights are in blocks of `format`
// unless that is "".
std::string adapter(const Workplace& place, const std::string& format) {
  const std::string numbers = place.path("published"), model = numbers + format;
  write_published(numbers, {.layers = 4, .width = 256});
  if (!format.empty()) {
    const Outcome made = place.weft({"quantize", numbers, model, "--to", format});
    REQUIRE_MESSAGE(made.code == 0, made.err);
  }
  place.write("lines.txt", std::string(20000, 'a'));
  return "model: {pretrained: " + model +
         "}\ndata: {format: text, path: lines.txt, seq_len: 64, val_split: 0.1}\n"
         "adapter: {type: lora}\ntrain: {global_batch_size: 16}\n";
}

// Returns one small recipe of each kind, by name.
std::vector<std::pair<std::string, std::string>> recipes_in(const Workplace& place) {
  write_images(place, "data", 1000, 28, 10);
  write_images(place, "data.large", 200, 63, 10);
  const std::string recurrent = "hidden_size: 64, num_hidden_layers: 2";
  const std::string attention = "hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4";
  std::string large = images("{name: alexnet, config: {hidden_size: 256}}", 32);
  large.replace(large.find("path: data"), 10, "path: data.large");
  std::string masked = language_model(place, "bert", attention + ", intermediate_size: 128");
  masked.replace(masked.find("causal_lm"), 9, "masked_lm");
  std::string files = sums(256, 2, 16);
  files.replace(files.find("train: {"), 8, "train: {offload: [parameters, optimizer, gradients], ");
  return {{"mlp", images("{name: mlp}", 64)},
          {"cnn", images("{name: cnn}", 64)},
          {"lenet5", images("{name: lenet5}", 64)},
          {"resnet20", images("{name: resnet20}", 64)},
          {"gpt", sums(128, 2, 64)},
          {"lstm", language_model(place, "lstm", recurrent)},
          {"files", files},
          {"gru", language_model(place, "gru", recurrent)},
          {"lora", adapter(place, "")},
          {"qlora", adapter(place, "Q4_0")},
          {"bert", masked},
          {"llama", language_model(place, "llama",
                                   attention + ", num_key_value_heads: 2, intermediate_size: 128")},
          {"alexnet", large},
          {"resnet18", images("{name: resnet18, config: {hidden_size: 16}}", 32)},
          {"resnet50", images("{name: resnet50, config: {hidden_size: 16}}", 32)}};
}
}  // namespace

TEST_CASE("the memory of a run's process matches the plan") {
  Workplace place;
  const std::map<std::string, int> threads{{"cnn", 3}, {"lstm", 12}, {"qlora", 2}};
  for (const auto& [name, recipe] : recipes_in(place))
    if (threads.contains(name)) check_process(place, name, recipe, threads.at(name));
}

TEST_SUITE("slow") {
  TEST_CASE("the memory of every kind of run matches the plan on each number of threads") {
    Workplace place;
    for (const auto& [name, recipe] : recipes_in(place))
      for (const int threads : {1, 2, 3, 8, 12, 64}) check_process(place, name, recipe, threads);
  }

  TEST_CASE("the memory of wide and deep runs matches the plan") {
    Workplace place;
    check_process(place, "wide", sums(768, 8, 16), 2);
    check_process(place, "deep", sums(64, 48, 16), 2);
  }
}
