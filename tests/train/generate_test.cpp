#include "weft/train/generate.h"

#include <cmath>
#include <filesystem>
#include <map>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "tests/train/runs.h"
#include "weft/train/checkpoint.h"

using namespace weft;
using namespace weft::test;
using weft::testing::near;

namespace {
train::Experiment small_model() {
  return train::make_experiment(sums_recipe("train: {steps: 1, global_batch_size: 4}\n"));
}
}  // namespace

TEST_CASE("logits after a prompt are those of its last position whatever pads the window") {
  train::Experiment experiment = small_model();
  train::Generator generator(experiment, "cpu");
  std::vector<int32_t> tokens = experiment.vocabulary->encode("12+34=");
  CompiledStep whole(
      [&](std::span<const Tensor> in) { return std::vector{(*experiment.model)(in[0])}; },
      {.mode = Mode::eval, .device = "cpu"});
  for (size_t length = 1; length <= tokens.size(); ++length) {
    std::vector<double> found = generator.next_logits(std::span(tokens).first(length));
    std::vector<int64_t> ids(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length));
    std::vector<double> all =
        whole.run(std::array{tensor(ids, {1, static_cast<int64_t>(length)})})[0].to_doubles();
    std::vector<double> last(all.end() - static_cast<std::ptrdiff_t>(found.size()), all.end());
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == near(last[i], 1e-5));
  }
}

TEST_CASE("a prompt longer than the window is truncated to its last tokens") {
  train::Experiment experiment = small_model();
  train::Generator generator(experiment, "cpu");
  std::vector<int32_t> tokens = experiment.vocabulary->encode("1111122222333334444455555");
  auto window = static_cast<size_t>(experiment.shape.input[0]);
  CHECK(generator.next_logits(tokens) == generator.next_logits(std::span(tokens).last(window)));
}

TEST_CASE("tokens are sampled from the distribution of the logits") {
  std::vector<double> logits = {std::log(0.5), std::log(0.3), std::log(0.15), std::log(0.05)};
  auto frequencies = [&](const train::GenerateOptions& options) {
    std::map<int32_t, double> counts;
    for (int64_t i = 0; i < 20000; ++i)
      counts[train::choose_token(logits, options, i)] += 1 / 20000.0;
    return counts;
  };
  auto all = frequencies({});
  CHECK(all[0] == near(0.5, 0.05));
  CHECK(all[1] == near(0.3, 0.05));
  CHECK(all[3] == near(0.05, 0.2));
  auto two = frequencies({.top_k = 2});
  CHECK(two.size() == 2);
  CHECK(two[0] == near(0.5 / 0.8, 0.05));
  // The nucleus is the smallest set of likeliest tokens whose total probability reaches top_p.
  CHECK(frequencies({.top_p = 0.5}).size() == 1);
  auto nucleus = frequencies({.top_p = 0.6});
  CHECK(nucleus.size() == 2);
  CHECK(nucleus[0] == near(0.5 / 0.8, 0.05));
  CHECK(frequencies({.top_p = 0.94}).size() == 3);
  CHECK(frequencies({.top_k = 2, .top_p = 0.94}).size() == 2);
  CHECK(frequencies({.top_p = 0.96}).size() == 4);
  auto cold = frequencies({.temperature = 0.5});  // squares the odds
  CHECK(cold[0] / cold[1] == near(25.0 / 9, 0.1));
  auto likeliest = frequencies({.temperature = 0});
  CHECK(likeliest.size() == 1);
  CHECK(likeliest.count(0) == 1);
  CHECK(frequencies({.seed = 1}) == frequencies({.seed = 1}));
}

TEST_CASE("generated text is a function of the seed, ends at the stop token and is streamed") {
  train::Experiment experiment = small_model();
  train::Generator generator(experiment, "cpu");
  std::string pieces;
  train::GenerateOptions options{.max_new_tokens = 20, .seed = 5};
  std::string text =
      generator.generate("1+", options, [&](std::string_view piece) { pieces += piece; });
  CHECK(text.size() == 20);
  CHECK(pieces == text);
  CHECK(generator.generate("1+", options) == text);
  options.stop = text.substr(7, 1);
  CHECK(generator.generate("1+", options) == text.substr(0, text.find(options.stop)));
  CHECK(error_of([&] { generator.generate("", options); }) ==
        "usage: a prompt has at least one character.");
  CHECK(error_of([&] { generator.generate("x", options); }).starts_with("data: "));
}

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
  train::Generator generator(experiment, "cpu");
  CHECK(generator.generate("the c", {.max_new_tokens = 8, .temperature = 0}) == "at sat. ");

  recipe.set("data.path", folder.file("dog.txt", text + "dog"), "test");
  train::Experiment other = train::make_experiment(recipe);
  std::string message = error_of([&] { train::load_model(checkpoint, other); });
  CHECK(message.starts_with("checkpoint: "));
  CHECK(message.find("vocab") != std::string::npos);
}
