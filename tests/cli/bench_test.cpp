// Checks that other systems can reproduce the initial state of `weft bench`.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/guarded.h"
#include "tests/support/near.h"
#include "tests/support/program.h"
#include "tests/support/reference_file.h"
#include "weft/weft.h"

using namespace weft;
using weft::test::Outcome;
using weft::test::Workplace;
using weft::testing::near;

namespace {
// Returns whether the planned bytes were used, except for library scratch at the end of the arena.
bool is_as_planned(size_t used, size_t planned) {
  return used <= planned && planned - used <= testing::slack_of_scratch;
}
}  // namespace

TEST_CASE("the loss of a bench is reproducible from its weights file and the documented batch") {
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

  optim::SGD sgd(model->parameters(), {.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4});
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
  CHECK(loss == near(expected, 1e-5));
  CHECK(loss < 2);  // the loss has fallen
}

TEST_CASE("a bench reports its least work and traffic and loads weights from a file") {
  Workplace place;
  Outcome written = place.weft(
      {"bench", "mlp", "--steps", "1", "--write-weights", "w.st", "--ceiling", "--json"});
  REQUIRE_MESSAGE(written.code == 0, written.err);
  const auto first = nlohmann::json::parse(written.out);
  // The products of 784-256-10 on 128 rows are the forward pass and the gradients of the weights
  // and of the hidden layer.
  const double products = 2.0 * 128 * (2 * (784 * 256 + 256 * 10) + 256 * 10);
  CHECK(first["least_flops"]["f32"].get<double>() > products);
  CHECK(first["least_flops"]["f32"].get<double>() < 1.05 * products);
  // Parameters and momentum are read and written, the batch is read.
  const double parameters = 784 * 256 + 256 + 256 * 10 + 10;
  const double bytes = 4 * 4 * parameters + 128 * (784 * 4 + 8);
  CHECK(first["least_bytes"].get<double>() == near(bytes, 1e-4));
  CHECK(first["products_ms"].get<double>() > 0);
  CHECK(is_as_planned(first["used_arena_bytes"], first["arena_bytes"]));
  CHECK(first["planned_process_bytes"].get<double>() > first["arena_bytes"].get<double>());

  Outcome again = place.weft({"bench", "mlp", "--steps", "1", "--weights", "w.st", "--json"});
  REQUIRE_MESSAGE(again.code == 0, again.err);
  CHECK(nlohmann::json::parse(again.out)["loss"] == first["loss"]);
  CHECK(fails_with(place.weft({"bench", "mlp", "--steps", "1", "--weights", "none.st"}), 5,
                   "none.st") == "");

  Outcome rows = place.weft({"bench", "softmax", "--batch", "64", "--length", "512", "--steps", "1",
                             "--ceiling", "--json"});
  REQUIRE_MESSAGE(rows.code == 0, rows.err);
  CHECK(nlohmann::json::parse(rows.out)["arithmetic_ms"].get<double>() > 0);
  CHECK_FALSE(first.contains("arithmetic_ms"));
}

TEST_CASE("a workload without a model refuses to write weights") {
  Workplace place;
  CHECK(fails_with(place.weft({"bench", "softmax", "--batch", "2", "--length", "2",
                               "--write-weights", "w.st"}),
                   2, "has no model") == "");
}

TEST_CASE("a memory curve keeps the losses and the planned bytes at every budget and is drawn") {
  Workplace place;
  Outcome outcome = place.weft({"bench", "gpt-char", "--batch", "4", "--length", "32", "--steps",
                                "2", "--memory-curve", "curve.svg", "--json"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const auto curve = nlohmann::json::parse(outcome.out);
  REQUIRE(curve.size() == 10);
  double before = 1e18;
  for (const auto& point : curve) {
    CHECK(point["same_losses"].get<bool>());
    CHECK(is_as_planned(point["used"], point["planned"]));
    CHECK(point["planned"].get<double>() <= point["budget"].get<double>());
    CHECK(point["budget"].get<double>() < before);
    before = point["budget"].get<double>();
  }
  CHECK(curve[0]["again"] == 0);
  CHECK(curve[9]["again"].get<int>() > 0);
  const std::string picture = place.read("curve.svg");
  CHECK(picture.find("memory of weights, state and arena") != std::string::npos);
  CHECK(picture.find("minimum: ") != std::string::npos);
  CHECK(fails_with(place.weft({"bench", "softmax", "--batch", "2", "--length", "2",
                               "--memory-curve", "curve.svg"}),
                   2, "has no model") == "");
}
