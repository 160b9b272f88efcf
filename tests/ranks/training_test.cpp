// Tests training by data parallelism between processes: the ranks compute what one rank computes
// that accumulates the gradients of as many parts of a batch, to the bit.
#include <cmath>
#include <cstring>
#include <filesystem>

#include <doctest/doctest.h>

#include "tests/support/published_model.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/values.h"
#include "weft/base/memory/storage.h"
#include "weft/data/loader.h"
#include "weft/device/communicator.h"
#include "weft/runtime/executable.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/run/steps.h"
#include "weft/train/task/evaluation.h"

using namespace weft;
using namespace weft::testing;

namespace {
constexpr const char* gpt = R"(
model: {name: gpt, config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, dropout: 0.1}}
data: {dataset: random-tokens, seq_len: 16, classes: 40}
optimizer: {name: adamw, lr: 0.01}
)";
constexpr const char* wide_gpt = R"(
model: {name: gpt, config: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, dropout: 0}}
data: {dataset: random-tokens, seq_len: 16, classes: 64}
optimizer: {name: adamw, lr: 0.01}
)";
constexpr const char* mlp = R"(
model: {layers: [flatten, {linear: {out_features: 24}}, relu, {linear: {out_features: 4}}]}
data: {dataset: random-images, image_size: 4, classes: 4}
optimizer: {name: sgd, lr: 0.1, momentum: 0.9}
)";

// Small forms of all kinds of nets, with dropout where they have it.
constexpr const char* nets[] = {
    "model: {name: mlp, config: {hidden_sizes: [96, 64]}}\n"
    "data: {dataset: random-images, image_size: 4, classes: 4}\n",
    "model: {name: resnet20}\n"
    "data: {dataset: random-images, image_size: 8, classes: 4}\n",
    "model: {name: gpt, config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, "
    "dropout: 0.1}}\ndata: {dataset: random-tokens, seq_len: 16, classes: 40}\n",
    "model: {name: llama, config: {hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, "
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
  size_t state_bytes = 0;  // of the optimizer, on this rank
};

// Returns the elements of all parameters, which all ranks exchange.
std::vector<std::vector<double>> wholes(const train::Experiment& experiment) {
  CompiledStep step(
      [&](std::span<const Tensor>) {
        std::vector<Tensor> all;
        for (const Variable& parameter : experiment.model->parameters())
          all.push_back(parameter.value());
        return all;
      },
      {.device = "cpu", .mesh = experiment.mesh});
  std::vector<std::vector<double>> all;
  for (const Tensor& parameter : step.run({})) all.push_back(parameter.to_doubles());
  return all;
}

// Trains some updates. All that was planned is then used, and nothing else is allocated.
Trained trained(const train::Recipe& recipe, const std::shared_ptr<const Mesh>& mesh,
                int updates = 8) {
  train::Experiment experiment = train::make_experiment(recipe, {.mesh = mesh});
  train::share_out(experiment);
  train::Steps steps(experiment, "cpu");
  data::Loader loader(experiment.train, experiment.training());
  Trained all;
  data::Batch batch;
  for (int i = 0; i < updates; ++i) {
    if (!loader.next(batch)) loader.next(batch);
    steps.run(batch.inputs, batch.labels);
    all.losses.push_back(steps.loss());
  }
  all.parameters = wholes(experiment);
  for (const Variable& variable : experiment.update_state())
    all.state_bytes += variable.state()->storage->bytes();
  all.evaluation = *train::evaluate(experiment, steps, [] { return false; });
  return all;
}

// Checks that ranks have the curve of one rank, and its loss on other data, at levels of
// parallel.zero, of which all but "0" have parts of the optimizer's state.
void check_curves(const std::shared_ptr<const Mesh>& mesh, const std::string& net,
                  const std::vector<std::string>& levels) {
  const int updates = net.find("resnet") == std::string::npos ? 50 : 40;
  const auto recipe = [&](const std::string& level) {
    return recipe_of(net, {{"train.precision", "fp64"}, {"parallel.zero", level}});
  };
  const Trained want = trained(recipe("0"), nullptr, updates);
  for (const std::string& level : levels) {
    INFO(net, "parallel.zero ", level);
    const Trained got = trained(recipe(level), mesh, updates);
    for (size_t i = 0; i < want.losses.size(); ++i) {
      INFO("update ", i);
      CHECK(std::abs(got.losses[i] - want.losses[i]) <= 1e-9 * std::abs(want.losses[i]));
    }
    CHECK(std::abs(got.evaluation.loss - want.evaluation.loss) <=
          1e-7 * std::abs(want.evaluation.loss));
    CHECK(got.evaluation.count == want.evaluation.count);
    CHECK((got.state_bytes < want.state_bytes) == (level != "0"));
  }
}
const std::vector<std::string> all_levels = {"0", "1", "2", "3"};

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
        check_equal(
            trained(recipe_of(text, {{"train.precision", precision}, {"parallel.zero", "0"}}),
                    mesh),
            trained(
                recipe_of(text, {{"train.precision", precision}, {"train.micro_batch_size", part}}),
                nullptr));
      }
  }
  // Passes and ranks take parts of the batch, and random numbers, in one order; sums over ranks
  // then add other terms first than sums over the passes of one rank.
  TEST_CASE("ranks that accumulate" * doctest::skip()) {
    const auto mesh = data_mesh();
    const std::string part = std::to_string(8 / mesh->size(data_axis) / 2);
    for (const char* level : {"0", "2"}) {
      const train::Recipe recipe = recipe_of(gpt, {{"train.precision", "fp64"},
                                                   {"parallel.zero", level},
                                                   {"train.micro_batch_size", part}});
      INFO(std::string(level));
      const Trained got = trained(recipe, mesh), want = trained(recipe, nullptr);
      for (size_t i = 0; i < want.losses.size(); ++i)
        CHECK(std::abs(got.losses[i] - want.losses[i]) <= 1e-12 * std::abs(want.losses[i]));
    }
  }
  TEST_CASE("ranks with the curves of one" * doctest::skip()) {
    const auto mesh = data_mesh();
    for (const char* net : nets) check_curves(mesh, net, {"1"});
  }
  TEST_CASE("ranks of all levels with the curves of one" * doctest::skip()) {
    const auto mesh = data_mesh();
    for (const char* net : nets) check_curves(mesh, net, all_levels);
  }
  TEST_CASE("ranks of all levels with the curves of a mixture of experts" * doctest::skip()) {
    const auto mesh = data_mesh();
    for (const int64_t experts : {3, 4}) {  // ranks have rows of every expert, or whole experts
      const test::TemporaryFolder folder;
      check_curves(mesh, test::mixture_recipe(folder, experts), all_levels);
    }
  }
  // Norms are then sums of other parts.
  TEST_CASE("ranks that keep parts" * doctest::skip()) {
    const auto mesh = data_mesh();
    const std::string rows = std::to_string(8 / mesh->size(data_axis) / 2);
    const auto at_level = [&](const char* level, const std::string& micro_batch) {
      return trained(recipe_of(wide_gpt, {{"train.precision", "fp64"},
                                          {"parallel.zero", level},
                                          {"train.micro_batch_size", micro_batch}}),
                     mesh);
    };
    for (const std::string& micro_batch : {std::string("null"), rows}) {
      const Trained want = at_level("0", micro_batch);
      for (const char* level : {"1", "2", "3"}) {
        const Trained got = at_level(level, micro_batch);
        INFO(level, " ", micro_batch);
        for (size_t i = 0; i < want.losses.size(); ++i)
          CHECK(std::abs(got.losses[i] - want.losses[i]) <= 1e-12 * std::abs(want.losses[i]));
        for (size_t i = 0; i < want.parameters.size(); ++i)
          for (size_t k = 0; k < want.parameters[i].size(); ++k)
            CHECK(std::abs(got.parameters[i][k] - want.parameters[i][k]) <= 1e-9);
        CHECK(got.state_bytes <
              want.state_bytes * 1.1 / static_cast<double>(mesh->size(data_axis)));
      }
    }
  }
  TEST_CASE("ranks that save" * doctest::skip()) {
    const auto mesh = data_mesh();
    const bool leads = mesh->place(data_axis) == 0;
    const std::unique_ptr<test::TemporaryFolder> made =
        leads ? std::make_unique<test::TemporaryFolder>() : nullptr;
    const std::string folder =
        mesh->communicator->exchange(leads ? made->path() : "", Channel::training).front();
    struct Saving {
      std::string net, level;
    };
    int runs = 0;
    const test::TemporaryFolder mixtures;
    const auto mixture = [&](int64_t experts) {
      return test::mixture_recipe(mixtures, experts) + "optimizer: {name: adamw, lr: 0.01}\n";
    };
    for (const auto& [net, level] : {Saving{wide_gpt, "0"},
                                     {wide_gpt, "1"},
                                     {wide_gpt, "3"},
                                     {mixture(3), "3"},
                                     {mixture(4), "3"}}) {
      INFO(net, "zero ", level);
      const train::Recipe recipe = recipe_of(
          net,
          {{"train.precision", "fp64"}, {"parallel.zero", level}, {"checkpoint.beside", "true"}});
      train::Experiment experiment = train::make_experiment(recipe, {.mesh = mesh});
      train::share_out(experiment);
      train::Steps steps(experiment, "cpu");
      data::Loader loader(experiment.train, experiment.training());
      data::Batch batch;
      for (int i = 0; i < 3; ++i) {
        loader.next(batch);
        steps.run(batch.inputs, batch.labels);
      }
      const train::Progress progress{.step = 3, .loader = loader.state()};
      const std::string run = folder + "/" + std::to_string(runs++);
      train::save_checkpoint(run, experiment, progress, false);
      const auto want = wholes(experiment);
      mesh->communicator->exchange("saved", Channel::training);
      train::SaveBeside beside(experiment.snapshot_bytes(recipe));
      beside.begin(run + "-beside", experiment, progress, false, "");

      // One rank reads what all have written, and goes on as they do.
      const std::string checkpoint = train::find_checkpoint(run);
      train::verify_checkpoint(checkpoint);
      train::Experiment alone = train::make_experiment(recipe, {.checkpoint = checkpoint});
      train::load_checkpoint(checkpoint, alone);
      const auto got = wholes(alone);
      for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(got[i], want[i]));
      train::Steps rest(alone, "cpu");
      data::Loader whole(alone.train, alone.training());
      whole.restore(loader.state());
      for (int i = 0; i < 3; ++i) {
        loader.next(batch);
        steps.run(batch.inputs, batch.labels);
        whole.next(batch);
        rest.run(batch.inputs, batch.labels);
        CHECK(std::abs(steps.loss() - rest.loss()) <= 1e-12 * std::abs(rest.loss()));
      }
      beside.end();
      const std::string copy = leads ? train::find_checkpoint(run + "-beside") : checkpoint;
      for (const auto& file : std::filesystem::directory_iterator(checkpoint))
        CHECK(test::contents_of(file.path().string()) ==
              test::contents_of(copy + "/" + file.path().filename().string()));
    }
    mesh->communicator->exchange("done", Channel::training);
  }
  TEST_CASE("a checkpoint of ranks, with any parts, is that of one") {
    CHECK(run_ranks(2, "ranks that save") == "");
  }
  TEST_CASE("ZeRO of all levels trains as copies do") {
    CHECK(run_ranks(2, "ranks that keep parts") == "");
  }
  TEST_CASE("the curves of two ranks are those of one") {
    CHECK(run_ranks(2, "ranks with the curves of one") == "");
  }
  TEST_CASE("two and four ranks train as one that accumulates, to the bit") {
    for (const int ranks : {2, 4}) CHECK(run_ranks(ranks, "ranks that train") == "");
  }
  TEST_CASE("two ranks that accumulate draw the random numbers of one") {
    CHECK(run_ranks(2, "ranks that accumulate") == "");
  }
}

TEST_SUITE("slow data parallel") {
  TEST_CASE("four ranks keep parts and checkpoints") {
    for (const char* what : {"ranks that keep parts", "ranks that save"})
      CHECK(run_ranks(4, what) == "");
  }
  TEST_CASE("two and four ranks have the curves of one at all levels of ZeRO") {
    for (const int ranks : {2, 4})
      CHECK(run_ranks(ranks, "ranks of all levels with the curves of one") == "");
  }
  TEST_CASE("a mixture of experts trains on two and four ranks as on one") {
    for (const int ranks : {2, 4})
      CHECK(run_ranks(ranks, "ranks of all levels with the curves of a mixture of experts") == "");
  }
}
