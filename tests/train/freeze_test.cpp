// Tests recipes whose model trains in part (model.freeze, model.unfreeze).
#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/values.h"
#include "tests/train/runs.h"
#include "weft/io/safetensors.h"
#include "weft/train/experiment.h"

using namespace weft;
using namespace weft::test;

namespace {
using Names = std::vector<std::string>;

// Returns the images' recipe with these lists, as flags give them; "": not given.
train::Recipe recipe_with(const TemporaryFolder& data, const std::string& freeze,
                          const std::string& unfreeze, int steps = 3) {
  train::Recipe recipe = images_recipe(data);
  recipe.set("train.steps", std::to_string(steps), "test");
  if (!freeze.empty()) recipe.set("model.freeze", freeze, "test");
  if (!unfreeze.empty()) recipe.set("model.unfreeze", unfreeze, "test");
  return recipe;
}

// Returns the tensors of the model that differ after three steps from those after one.
Names moved(const TemporaryFolder& data, const std::string& freeze,
            const std::string& unfreeze = "") {
  const auto after = [&](int steps) {
    TemporaryFolder folder;
    const train::Recipe recipe = recipe_with(data, freeze, unfreeze, steps);
    return io::Safetensors::open(train_in(folder, recipe).checkpoint + "/model.safetensors");
  };
  const io::Safetensors first = after(1), last = after(3);
  Names names;
  for (const auto& entry : first.entries())
    if (testing::elements(first.tensor(entry.name)) != testing::elements(last.tensor(entry.name)))
      names.push_back(entry.name);
  return names;
}

Names trained(const train::Recipe& recipe) {
  const train::Experiment experiment = train::make_experiment(recipe);
  Names names;
  for (const auto& [name, variable] : experiment.model->named_parameters())
    if (!variable.frozen()) names.push_back(name);
  return names;
}
}  // namespace

TEST_CASE("frozen parameters keep their bits while the others train") {
  TemporaryFolder data;
  const Names statistics = {"1.running_mean", "1.running_var"};
  const auto with_statistics = [&](Names names) {
    names.insert(names.end(), statistics.begin(), statistics.end());
    std::ranges::sort(names);
    return names;
  };
  CHECK(moved(data, "") == with_statistics(trained(recipe_with(data, "", ""))));
  CHECK(moved(data, "0.*") == with_statistics({"1.bias", "1.weight", "4.bias", "4.weight"}));
  CHECK(moved(data, "[0.weight, 1.*]") == with_statistics({"0.bias", "4.bias", "4.weight"}));
  CHECK(moved(data, "*", "4.*") == with_statistics({"4.bias", "4.weight"}));
}

TEST_CASE("the optimizer has no state for frozen parameters") {
  TemporaryFolder data;
  const train::Experiment whole = train::make_experiment(recipe_with(data, "", "")),
                          head = train::make_experiment(recipe_with(data, "['*']", "4.*"));
  int64_t frozen = 0;
  for (const auto& [name, variable] : head.model->named_parameters())
    if (variable.frozen()) frozen += static_cast<int64_t>(variable.type().bytes());
  CHECK(frozen > 0);
  CHECK(whole.optimizer_bytes() - head.optimizer_bytes() >= frozen);
  CHECK(whole.model_bytes() == head.model_bytes());
  CHECK(whole.trained_bytes() - head.trained_bytes() == frozen);
}

TEST_CASE("patterns of frozen parameters must match, and leave something that trains") {
  TemporaryFolder data;
  const auto message = [&](const std::string& freeze, const std::string& unfreeze) {
    return error_of([&] { train::make_experiment(recipe_with(data, freeze, unfreeze)); });
  };
  CHECK(message("encoder.*", "") ==
        "usage: test: model.freeze: no parameter has a name like 'encoder.*'. The first is "
        "0.weight, the last 4.bias.");
  CHECK(message("['*']", "5.*").find("model.unfreeze: no parameter has a name like '5.*'") !=
        std::string::npos);
  CHECK(message("['*']", "") ==
        "usage: test: model.freeze leaves no parameter that trains. Hint: model.unfreeze.");
  CHECK(message("", "4.*").find("model.unfreeze needs model.freeze.") != std::string::npos);
}

TEST_CASE("a run does not resume with other frozen parameters") {
  TemporaryFolder data, folder;
  train_in(folder, recipe_with(data, "0.*", "", 1));
  CHECK(error_of([&] {
          train_in(folder, recipe_with(data, "1.*", "", 2), true);
        }).find("model.freeze is [0.*] there and [1.*] in the recipe") != std::string::npos);
  CHECK(train_in(folder, recipe_with(data, "0.*", "", 2), true).step == 2);
}
