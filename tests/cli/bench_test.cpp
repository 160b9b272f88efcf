// weft bench beside other systems: what it starts from can be had elsewhere.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include "tests/support/reference_file.h"
#include "weft/weft.h"

using namespace weft;
using weft::test::Outcome;
using weft::test::Workplace;

TEST_CASE("a bench's loss follows from its weights file and the documented batch") {
  Workplace place;
  Outcome outcome = place.weft(
      {"bench", "mlp", "--steps", "2", "--batch", "8", "--write-weights", "w.st", "--json"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  double loss = nlohmann::json::parse(outcome.out)["loss"];

  auto model = make_model("mlp", {}, {InputKind::features, {784}, 10});
  io::load(*model, place.path("w.st"));
  std::vector<float> images(8 * 784);
  for (size_t i = 0; i < images.size(); ++i)
    images[i] = static_cast<float>(testing::formula_uniform(1000, i, 1));
  std::vector<int64_t> labels(8);
  for (size_t i = 0; i < 8; ++i) labels[i] = testing::formula_integer(2000, i, 10);

  optim::SGD sgd(model->parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4});
  auto step = compile(
      [&](Tensor x, Tensor y) {
        Tensor loss = cross_entropy((*model)(x), y);
        sgd.step(grad(loss, model->parameters()));
        return loss;
      },
      {.device = "reference"});
  double expected = 0;
  for (int i = 0; i < 3 + 2; ++i)  // three untimed steps
    expected = step(tensor(images, {8, 784}), tensor(labels, {8})).item();
  CHECK(loss == doctest::Approx(expected).epsilon(1e-5));
  CHECK(loss < 2);  // it learned
}

TEST_CASE("a workload without a model has no weights to write") {
  Workplace place;
  CHECK(fails_with(place.weft({"bench", "softmax", "--batch", "2", "--length", "2",
                               "--write-weights", "w.st"}),
                   2, "has no model") == "");
}
