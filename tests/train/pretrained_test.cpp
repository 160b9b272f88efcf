// Tests runs that train a published model further (model.pretrained).
#include "weft/models/pretrained.h"

#include <cmath>
#include <filesystem>
#include <map>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/published_model.h"
#include "tests/train/runs.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/io/files.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/task/evaluation.h"
#include "weft/train/task/model_format.h"
#include "weft/train/task/published.h"

using namespace weft;
using namespace weft::test;
namespace fs = std::filesystem;

namespace {
struct DecoderOnText : TemporaryFolder {
  DecoderOnText() {
    write_published(file("model"));
    file("text.txt", sixty_lines());
  }
  train::Recipe recipe(const std::string& more) const {
    return train::Recipe::parse(
        fmt::format("model: {{pretrained: {0}/model}}\n"
                    "data: {{format: text, path: {0}/text.txt, seq_len: 16, val_split: 0.2}}\n"
                    "log: {{every: 1}}\n{1}",
                    path(), more),
        "test.yaml");
  }
  std::string refusal(const std::string& more) const {
    return error_of([&] { train::make_experiment(recipe(more)); });
  }
};

std::map<std::string, std::vector<double>> weights_of(const std::string& folder) {
  std::map<std::string, std::vector<double>> weights;
  for (const auto& [name, variable] : models::load_pretrained(folder).model->state())
    weights[name] = variable.to_doubles();
  return weights;
}
}  // namespace

TEST_CASE("training a published model begins at its weights and saves a folder like its own") {
  const DecoderOnText folder;
  const std::string still = "optimizer: {lr: 0, weight_decay: 0}\n";
  const std::string before = folder.file("model"),
                    after = train_in(folder, folder.recipe(train_two_steps + still)).checkpoint;
  for (std::string_view name :
       {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    CHECK(io::read_file(after + "/" + std::string(name), 1 << 20) ==
          io::read_file(before + "/" + std::string(name), 1 << 20));
  train::verify_checkpoint(after);
  const io::Safetensors published = io::Safetensors::open(before + "/model.safetensors"),
                        saved = io::Safetensors::open(after + "/model.safetensors");
  REQUIRE(saved.entries().size() == published.entries().size());
  for (size_t i = 0; i < saved.entries().size(); ++i)
    CHECK(saved.entries()[i].name == published.entries()[i].name);
  CHECK(weights_of(after) == weights_of(before));
}

TEST_CASE("two steps on a text lower its loss, in float32 and in bfloat16") {
  const DecoderOnText folder;
  for (const std::string precision : {"fp32", "bf16", "fp64"}) {
    const train::Recipe recipe =
        folder.recipe(fmt::format("train: {{steps: 2, global_batch_size: 4, precision: {0}}}\n"
                                  "optimizer: {{lr: 0.01}}\nname: {0}\n",
                                  precision));
    const double before = train::evaluate(train::make_experiment(recipe)).loss;
    const train::TrainResult result = train_in(folder, recipe);
    CHECK(result.evaluation.loss < before);
    CHECK(models::load_pretrained(result.checkpoint).dtype ==
          train::find_precision(precision)->parameters);
  }
}

TEST_CASE("a run of a published model resumes, and evaluates, without the folder it began with") {
  const DecoderOnText folder;
  const std::string four = "train: {steps: 4, global_batch_size: 4}\n";
  const std::string whole = train_in(folder, folder.recipe(four + "name: whole\n")).checkpoint;
  const train::Recipe first = folder.recipe(train_two_steps + "name: part\n");
  train_in(folder, first);
  fs::remove_all(folder.file("model"));
  const train::TrainResult resumed = train_in(folder, folder.recipe(four + "name: part\n"), true);
  check_equal(whole, resumed.checkpoint);
  const train::Recipe recipe = train::checkpoint_recipe(whole);
  train::Experiment experiment =
      train::make_experiment(recipe, {.initialize = false,
                                      .vocabulary = train::checkpoint_vocabulary(whole),
                                      .checkpoint = whole});
  train::load_model(whole, experiment);
  CHECK(train::evaluate(experiment).loss == resumed.evaluation.loss);
}

TEST_CASE("a run does not resume with another tokenizer") {
  const DecoderOnText folder;
  const train::Recipe recipe = folder.recipe(train_two_steps);
  train_in(folder, recipe);
  const std::string file = folder.file("model/tokenizer.json");
  folder.file("model/tokenizer.json", io::read_file(file, 1 << 20) + "\n");
  const std::string message = error_of(
      [&] { train_in(folder, folder.recipe("train: {steps: 4, global_batch_size: 4}\n"), true); });
  CHECK(message.find("checkpoint: ") == 0);
  CHECK(message.find("was trained with another tokenizer: tokenizer.json differs.") !=
        std::string::npos);
}

TEST_CASE("a run of a published model is planned without its weights") {
  const DecoderOnText folder;
  fs::remove(folder.file("model/model.safetensors"));
  const train::PlannedRun planned(folder.recipe(train_two_steps), {});
  int64_t bytes = 0;
  for (const Variable& variable : planned.experiment.model->variables()) {
    CHECK(variable.state()->storage->buffer() == nullptr);
    bytes += static_cast<int64_t>(variable.type().bytes());
  }
  CHECK(planned.report.bytes_of("weights") == static_cast<size_t>(bytes));
  CHECK(planned.experiment.shape.classes == 100);
}

TEST_CASE("any model trains on the tokens of a tokenizer, which its checkpoint keeps") {
  const DecoderOnText folder;
  train::Recipe recipe = train::Recipe::parse(
      fmt::format("model: {{name: gpt, config: {{hidden_size: 16, num_hidden_layers: 1, "
                  "num_attention_heads: 2}}}}\n"
                  "data: {{format: text, path: {0}/text.txt, seq_len: 16, tokenizer: "
                  "{0}/model/tokenizer.json}}\n{1}",
                  folder.path(), train_two_steps),
      "test.yaml");
  const std::string checkpoint = train_in(folder, recipe).checkpoint;
  fs::remove_all(folder.file("model"));
  const auto codec = train::checkpoint_vocabulary(checkpoint);
  REQUIRE(codec);
  CHECK(codec->decode(codec->encode("A text?")) == "A text?");
  CHECK(codec->size() == 98);
  const train::Recipe more =
      train::Recipe::parse(recipe.to_yaml(), "test.yaml");  // the run goes on without the file
  train::Recipe longer = more;
  longer.set("train.steps", "3", "test");
  CHECK(train_in(folder, longer, true).step == 3);
}

TEST_CASE("recipes that do not go with a published model are refused") {
  const DecoderOnText folder;
  CHECK(folder.refusal(train_two_steps + "model: {name: gpt}\n").find("given twice") !=
        std::string::npos);
  auto refuses = [&](const char* key, const std::string& value, const std::string& message) {
    train::Recipe recipe = folder.recipe(train_two_steps);
    recipe.set(key, value, "test");
    const std::string refusal = error_of([&] { train::make_experiment(recipe); });
    CHECK(refusal.starts_with("usage: test"));  // a flag, or a line of the recipe
    CHECK(refusal.ends_with(": " + message));
  };
  refuses("model.name", "gpt",
          "exactly one of model.name, model.pretrained and model.layers must be set.");
  refuses("model.config", "{hidden_size: 8}",
          "model.config is for model.name: a published model is as its config.json says.");
  refuses("data.seq_len", "65",
          "data.seq_len is at most the 64 tokens of the model's context. Got 65. Hint: "
          "--data.seq_len 64.");
  refuses("data.tokenizer", "bytes",
          "data.tokenizer: a published model reads the ids of its tokenizer. Got bytes. Hint: "
          "auto.");
  refuses("data.tokenizer", "nowhere",
          "there is no tokenizer nowhere. Hint: data.tokenizer is auto, characters, bytes, or the "
          "path of one.");
  refuses("task", "masked_lm",
          "model.pretrained: published models are trained as causal_lm. The task of these data is "
          "masked_lm.");
  train::Recipe sums = folder.recipe(train_two_steps);
  sums.set("data.format", "null", "test");
  sums.set("data.dataset", "addition", "test");
  CHECK(error_of([&] {
          train::make_experiment(sums);
        }).find("model.pretrained: the data must be text, which the model's tokenizer reads.") !=
        std::string::npos);
}

TEST_CASE("the name of a model tells its format, and the format its files of weights") {
  const TemporaryFolder place;
  const std::string model = place.file("model"), alone = place.file("alone.safetensors");
  write_published(model);
  fs::copy_file(place.file("model/model.safetensors"), alone);
  const auto is = [](const std::string& name, const train::ModelFormat& format) {
    return &train::format_of(name) == &format;
  };
  CHECK(is("none.onnx", train::onnx_format));
  CHECK(is("none.weft", train::compiled_format));
  CHECK(is("none.gguf", train::published_format));
  CHECK(is(model, train::published_format));
  for (const std::string& name : {alone, place.path(), std::string("mnist"), std::string()})
    CHECK(is(name, train::run_format));
  const train::WeightFiles whole = train::published_format.weights(model, /*verify=*/false);
  CHECK(whole.folder == model);
  CHECK(whole.files == std::vector{model + "/model.safetensors"});
  const train::WeightFiles single = train::run_format.weights(alone, /*verify=*/true);
  CHECK(single.folder.empty());
  CHECK(single.files == std::vector{alone});
  CHECK_FALSE(bool{train::onnx_format.weights != nullptr});
  place.file("model/MANIFEST.json", "{}");
  CHECK(is(model, train::run_format));
}
