#include "weft/infer/generate.h"

#include <filesystem>

#include <doctest/doctest.h>

#include "tests/train/runs.h"
#include "weft/train/checkpoint/checkpoint.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("a text checkpoint generates without its data and only in its own vocabulary") {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat. ";
  auto recipe = train::Recipe::parse(
      "model: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: "
      "2}}\n"
      "optimizer: {lr: 1.0e-2}\n"
      "train: {steps: 150, global_batch_size: 8}\n",
      "test.yaml");
  recipe.set("data.format", "text", "test");
  recipe.set("data.seq_len", "16", "test");
  recipe.set("data.path", folder.file("cat.txt", text), "test");
  std::string checkpoint = train_in(folder, recipe).checkpoint;

  std::filesystem::remove(folder.file("cat.txt"));
  train::Experiment experiment =
      train::make_experiment(train::checkpoint_recipe(checkpoint),
                             {.initialize = false,
                              .with_data = false,
                              .vocabulary = train::checkpoint_vocabulary(checkpoint)});
  train::load_model(checkpoint, experiment);
  const std::unique_ptr<infer::TokenModel> model = infer::make_token_model(
      *experiment.model, experiment.shape.classes, experiment.shape.input[0], {.device = "cpu"});
  const data::TextCodec& codec = *experiment.vocabulary;
  const std::vector<int32_t> prompt = codec.encode("the c");
  const std::vector<infer::Generated> generated = infer::generate(
      *model, codec, std::span(&prompt, 1), {.max_new_tokens = 8, .sampling = {.temperature = 0}});
  CHECK(generated.front().text == "at sat. ");

  recipe.set("data.path", folder.file("dog.txt", text + "dog"), "test");
  train::Experiment other = train::make_experiment(recipe);
  std::string message = error_of([&] { train::load_model(checkpoint, other); });
  CHECK(message.starts_with("usage: "));
  CHECK(message.find("vocab") != std::string::npos);
}
