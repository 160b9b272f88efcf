// Tests training by data parallelism between processes: the ranks compute what one rank computes
// that accumulates the gradients of as many parts of a batch, to the bit.
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "tests/support/rank_processes.h"
#include "weft/data/loader.h"
#include "weft/runtime/executable.h"
#include "weft/train/run/steps.h"
#include "weft/train/task/evaluation.h"

using namespace weft;
using namespace weft::testing;

namespace {
constexpr const char* gpt = R"(
model: {name: gpt, config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, dropout: 0}}
data: {dataset: random-tokens, seq_len: 16, classes: 40}
optimizer: {name: adamw, lr: 0.01}
)";
constexpr const char* mlp = R"(
model: {layers: [flatten, {linear: {out_features: 24}}, relu, {linear: {out_features: 4}}]}
data: {dataset: random-images, image_size: 4, classes: 4}
optimizer: {name: sgd, lr: 0.1, momentum: 0.9}
)";

// Small forms of all kinds of nets, with dropout where they have it.
constexpr const char* nets[] = {
    "model: {name: mlp, config: {hidden_sizes: [24, 16]}}\n"
    "data: {dataset: random-images, image_size: 4, classes: 4}\n",
    "model: {name: resnet20}\n"
    "data: {dataset: random-images, image_size: 8, classes: 4}\n",
    "model: {name: gpt, config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, "
    "dropout: 0.1}}\ndata: {dataset: random-tokens, seq_len: 16, classes: 40}\n",
    "model: {name: llama, config: {hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, "
    "num_attention_heads: 4, num_key_value_heads: 2}}\n"
    "data: {dataset: random-tokens, seq_len: 16, classes: 40}\n",
    "task: masked_lm\n"
    "model: {name: bert, config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, "
    "intermediate_size: 64}}\ndata: {dataset: random-tokens, seq_len: 16, classes: 40}\n",
    "model: {name: lstm, config: {hidden_size: 24, num_hidden_layers: 2, dropout: 0.1}}\n"
    "data: {dataset: random-tokens, seq_len: 16, classes: 40}\n",
};

using Settings = std::vector<std::pair<std::string, std::string>>;  // keys and values
train::Recipe recipe_of(const std::string& more, const Settings& settings) {
  train::Recipe recipe = train::Recipe::parse(
      more + "train: {steps: 8, global_batch_size: 8, grad_clip: 0.5}\n", "test");
  for (const auto& [key, value] : settings) recipe.set(key, value, "test");
  return recipe;
}

struct Trained {
  std::vector<std::vector<double>> parameters;
  std::vector<double> losses;
  train::Evaluation evaluation;
};

// Trains some updates. All that was planned is then used, and nothing else is allocated.
Trained trained(const train::Recipe& recipe, const std::shared_ptr<const Mesh>& mesh,
                int updates = 8) {
  const train::Experiment experiment = train::make_experiment(recipe, {.mesh = mesh});
  train::Steps steps(experiment, "cpu");
  data::Loader loader(experiment.train, experiment.training());
  Trained all;
  data::Batch batch;
  for (int i = 0; i < updates; ++i) {
    if (!loader.next(batch)) loader.next(batch);
    steps.run(batch.inputs, batch.labels);
    all.losses.push_back(steps.loss());
  }
  for (const Variable& parameter : experiment.model->parameters())
    all.parameters.push_back(parameter.to_doubles());
  all.evaluation = *train::evaluate(experiment, steps, [] { return false; });
  return all;
}

void check_equal(const Trained& got, const Trained& want) {
  REQUIRE(got.parameters.size() == want.parameters.size());
  for (size_t i = 0; i < got.parameters.size(); ++i)
    CHECK(same_bits(got.parameters[i], want.parameters[i]));
  CHECK(same_bits(got.losses, want.losses));
}
}  // namespace

TEST_SUITE("data parallel") {
  TEST_CASE("ranks that train" * doctest::skip()) {
    const auto mesh = data_mesh();
    const std::string part = std::to_string(8 / mesh->size(data_axis));
    for (const char* text : {mlp, gpt})
      for (const char* precision : {"fp32", "fp64"}) {
        INFO(text, precision);
        check_equal(trained(recipe_of(text, {{"train.precision", precision}}), mesh),
                    trained(recipe_of(text, {{"train.precision", precision},
                                             {"train.micro_batch_size", part}}),
                            nullptr));
      }
  }
  TEST_CASE("ranks with the curves of one" * doctest::skip()) {
    const auto mesh = data_mesh();
    for (const std::string net : nets) {
      const int updates = net.find("resnet") == std::string::npos ? 50 : 40;
      const train::Recipe recipe = recipe_of(net, {{"train.precision", "fp64"}});
      INFO(net);
      const Trained got = trained(recipe, mesh, updates), want = trained(recipe, nullptr, updates);
      for (size_t i = 0; i < want.losses.size(); ++i) {
        INFO("update ", i);
        CHECK(std::abs(got.losses[i] - want.losses[i]) <= 1e-9 * std::abs(want.losses[i]));
      }
      CHECK(std::abs(got.evaluation.loss - want.evaluation.loss) <=
            1e-7 * std::abs(want.evaluation.loss));
      CHECK(got.evaluation.count == want.evaluation.count);
    }
  }
  TEST_CASE("the curves of two and four ranks are those of one") {
    for (const int ranks : {2, 4}) CHECK(run_ranks(ranks, "ranks with the curves of one") == "");
  }
  TEST_CASE("two and four ranks train as one that accumulates, to the bit") {
    for (const int ranks : {2, 4}) CHECK(run_ranks(ranks, "ranks that train") == "");
  }
}
