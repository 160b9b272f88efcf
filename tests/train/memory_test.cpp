// Measures the memory that runs of every zoo model touch, on every number of threads.
#include <algorithm>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/allocations.h"
#include "tests/support/guarded.h"
#include "tests/support/images.h"
#include "tests/support/part.h"
#include "tests/support/published_model.h"
#include "tests/support/threads.h"
#include "tests/train/runs.h"
#include "weft/io/model_folder.h"
#include "weft/models/family.h"
#include "weft/models/pretrained.h"
#include "weft/models/quantize.h"
#include "weft/models/zoo.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;

namespace {
// These are one model of each architecture; the other zoo models are deeper or wider, or
// (ResNet-18) have the blocks of one and the stem of another.
const std::set<std::string> first_of_a_kind{"mlp",  "cnn",   "lenet5",  "resnet20",
                                            "gpt",  "llama", "alexnet", "bert",
                                            "lstm", "gru",   "resnet50"};

// Returns a configuration that is narrow but has all layers.
std::string narrow_config(const std::string& model) {
  if (model.starts_with("resnet")) return "hidden_size: 8";
  if (model == "alexnet") return "hidden_size: 32";
  if (model == "lstm" || model == "gru") return "hidden_size: 32";
  if (model.starts_with("gpt"))
    return "vocab_size: 16, max_position_embeddings: 32, hidden_size: 32, num_attention_heads: 2";
  if (model.starts_with("llama"))
    return "vocab_size: 16, max_position_embeddings: 32, hidden_size: 32, intermediate_size: 64, "
           "num_attention_heads: 4, num_key_value_heads: 2";
  if (model == "bert")
    return "hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64";
  return "";
}
std::string data_of(const std::string& model, const TemporaryFolder& folder) {
  for (const char* of_tokens : {"gpt", "llama", "lstm", "gru", "bert"})
    if (model.starts_with(of_tokens)) {
      std::string text(300, 'a');
      for (size_t i = 0; i < text.size(); ++i) text[i] += static_cast<char>(i * i % 11);
      return fmt::format("task: {}\ndata: {{format: text, path: {}, seq_len: 8, val_split: 0.2}}\n",
                         model == "bert" ? "masked_lm" : "causal_lm", folder.file("text", text));
    }
  const int side = model == "alexnet" ? 63 : 28, count = 12;
  for (const char* split : {"train", "t10k"}) {
    folder.file(std::string(split) + "-images-idx3-ubyte", idx_images(count, side));
    folder.file(std::string(split) + "-labels-idx1-ubyte", idx_labels(count, 4));
  }
  return fmt::format("data: {{format: idx, path: {}}}\n", folder.path());
}

// Returns the bytes of the largest arena that a run may leave untouched.
size_t unsure_bytes(const train::Recipe& recipe) {
  const auto planned = train::plan_run(recipe, {});
  size_t bytes = SIZE_MAX;
  for (const PlannedStep& step : planned->report.plans)
    if (step.plan->arena_bytes == planned->report.arena_bytes)
      bytes = std::min(bytes, testing::unsure_bytes(*step.plan));
  REQUIRE(bytes != SIZE_MAX);
  return bytes;
}

// Returns a recipe of two updates, each logged and evaluated.
train::Recipe two_updates(const std::string& model, const std::string& data) {
  return train::Recipe::parse(fmt::format("name: run\nmodel: {{{}}}\n{}"
                                          "train: {{steps: 2, global_batch_size: 4}}\n"
                                          "eval: {{every: 1, batch_size: 8}}\nlog: {{every: 1}}\n",
                                          model, data),
                              "test");
}

void check_run(const train::Recipe& recipe, const TemporaryFolder& folder, int threads) {
  CAPTURE(threads);
  testing::Threads on(threads);
  testing::GuardedBuffers guard;
  const std::string run = train_in(folder, recipe).run_folder;
  CHECK(guard.allocated() > 0);
  CHECK(guard.strays() == 0);
  const json plan = json::parse(contents_of(run + "/plan.json"));
  const json closing = json::parse(lines_of(run + "/log.jsonl").back());
  const size_t planned = plan["arena_bytes"], used = closing["used_arena"];
  CHECK(used <= planned);
  if (used < planned) CHECK(planned - used <= unsure_bytes(recipe));
  CHECK(closing["used_state"] == closing["state"]);
}
void check_run(const std::string& model, int threads) {
  CAPTURE(model);
  TemporaryFolder folder;
  const std::string net = fmt::format("name: {}, config: {{{}}}", model, narrow_config(model));
  check_run(two_updates(net, data_of(model, folder)), folder, threads);
}

// Writes a published model with weights as numbers, or in blocks of `format`, and returns the
// recipe of an adapter for it.
train::Recipe adapter_recipe(const std::string& format, const TemporaryFolder& folder) {
  std::string model = folder.file("model");
  write_published(model, {.layers = 3, .width = 64});
  if (!format.empty()) {
    const models::Pretrained net = models::load_pretrained(model);
    const auto& decoder = dynamic_cast<const models::Decoder&>(*net.model);
    const models::QuantizedDecoder quantized = models::quantize(decoder, block_format(format));
    REQUIRE(quantized.formats.size() > 3 * 7);
    const std::string tokenizer = contents_of(model + "/tokenizer.json");
    model = folder.file("blocks");
    io::save_folder(
        model, models::published_tensors(quantized.tensors),
        {{"config.json", models::quantized_config(decoder, block_format(format), quantized)},
         {"tokenizer.json", tokenizer}});
  }
  train::Recipe recipe = two_updates("pretrained: " + model, data_of("llama", folder));
  recipe.set("adapter.type", "lora", "test");
  recipe.set("adapter.r", "4", "test");
  return recipe;
}
const char* const adapted_weights[] = {"", "Q8_0", "Q4_0"};

// Counts the allocations of the process, the loader's threads included, in steps 7 to 10.
int64_t allocations_of_four_steps(const train::Recipe& recipe, const TemporaryFolder& folder) {
  testing::Allocations used;
  train::train(recipe, {.runs = folder.file("runs"),
                        .overwrite = true,
                        .quiet = true,
                        .after_step = [&](int64_t step) {
                          if (step == 6) testing::start_watching();
                          if (step == 10) used = testing::stop_watching();
                        }});
  return used.own;
}
}  // namespace

TEST_CASE("a run of each kind of model touches exactly the planned memory") {
  size_t next = 0;
  for (const std::string& model : first_of_a_kind)
    check_run(model, testing::thread_counts[next++ % std::size(testing::thread_counts)]);
}

TEST_CASE("a run of an adapter, beside numbers or blocks, touches exactly the planned memory") {
  int threads = 0;
  for (const std::string format : adapted_weights) {
    CAPTURE(format);
    TemporaryFolder folder;
    check_run(adapter_recipe(format, folder), folder, ++threads);
  }
}

TEST_CASE("a run allocates nothing from step to step except for log lines") {
  if (!testing::can_watch_allocations()) return;
  const std::string text = "train: {steps: 11, global_batch_size: 8}\n";
  TemporaryFolder folder;
  std::vector<train::Recipe> recipes = {images_recipe(folder, text), sums_recipe(text),
                                        with(sums_recipe(text), {{"train.micro_batch_size", "4"}})};
  TemporaryFolder places[std::size(adapted_weights)];
  for (size_t i = 0; i < std::size(places); ++i) {
    recipes.push_back(adapter_recipe(adapted_weights[i], places[i]));
    recipes.back().set("train.steps", "11", "test");
    places[i].file("text", std::string(4000, 'a'));  // an epoch, which allocates, is longer
  }
  for (train::Recipe& recipe : recipes) {
    recipe.set("log.every", "100", "test");
    recipe.set("eval.every", "100", "test");
    CHECK(allocations_of_four_steps(recipe, folder) == 0);
    if (recipe.has("adapter.type")) continue;  // logs and evaluations do not know of it
    recipe.set("log.every", "1", "test");
    CHECK(allocations_of_four_steps(recipe, folder) > 0);
    // An evaluation allocates for its log line only, whatever its number of batches.
    recipe.set("log.every", "100", "test");
    recipe.set("eval.every", "2", "test");
    recipe.set("eval.batch_size", "8", "test");
    const int64_t few = allocations_of_four_steps(recipe, folder);
    recipe.set("eval.batch_size", "2", "test");
    CHECK(allocations_of_four_steps(recipe, folder) == few);
    CHECK(few > 0);
  }
}

TEST_SUITE("slow zoo") {
  TEST_CASE("a run of any model on any number of threads touches exactly the planned memory") {
    size_t next = 0;
    for (const ModelEntry& model : models::zoo())
      for (const int threads : testing::thread_counts)
        if (testing::in_part(next++)) check_run(model.name, threads);
  }
}
