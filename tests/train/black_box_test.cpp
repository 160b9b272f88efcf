// Tests blackbox.json, which a run writes when a number is no longer finite.
#include <cmath>
#include <csignal>
#include <filesystem>
#include <optional>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/train/runs.h"
#include "weft/models/model.h"
#include "weft/nn/nn.h"
#include "weft/train/run/trainer.h"

namespace fs = std::filesystem;
using namespace weft;
using namespace weft::test;
using nlohmann::json;

namespace {
// Faulty is a linear image classifier whose logits pass through an injected fault.
class Faulty : public Model {
 public:
  Faulty(const nn::Options& config, const TaskShape& task, std::string fault)
      : Model(InputKind::images, config),
        fault_(std::move(fault)),
        head_(*this, "head", element_count(task.input), task.classes),
        unused_(*this, "unused", element_count(task.input), task.classes) {}

 protected:
  Tensor forward(const Tensor& x) const override {
    Tensor flat = flatten(x, 1);
    Tensor logits = head_(flat) + 0.0 * unused_(flat);  // has gradient zero
    // This infinity does not reach the logits: 1 / inf is 0.
    logits = logits + stop_gradient(1.0 / exp(abs(logits) * 1e6));
    if (fault_ == "log") return log(logits - 1e4);  // NaN: log of negative numbers
    if (fault_ == "exp") return exp(logits * 1e2 + 1e4);
    if (fault_ == "narrow") return matmul(logits + 3e4, full({4, 4}, 64.0));
    if (fault_ == "evaluated" && current_mode() == Mode::eval) return log(logits - 1e4);
    if (fault_ != "masked") return logits;
    Tensor row = select(logits > 1e9, logits, -INFINITY);  // all elements are -inf
    return row - max(row, {.axes = {1}, .keepdim = true});
  }

 private:
  std::string fault_;
  nn::Linear head_, unused_;
};

void register_faulty(const std::string& fault) {
  registry::models().add({.name = "faulty-" + fault,
                          .make = [fault](const nn::Options& config, const TaskShape& task) {
                            return std::make_unique<Faulty>(config, task, fault);
                          }});
}
const bool registered = [] {
  for (const char* fault : {"log", "exp", "narrow", "masked", "evaluated", "none"})
    register_faulty(fault);
  return true;
}();

// SearchedModel is faulty, too. One that is made after a step of the run is the search's: it raises
// SIGTERM when it is captured in that mode, or else when it is made.
class SearchedModel : public Faulty {
 public:
  static inline bool has_trained = false;
  static inline int captures = 0;  // of the search's model

  SearchedModel(const nn::Options& config, const TaskShape& task, const std::string& fault,
                std::optional<Mode> captured)
      : Faulty(config, task, fault), captured_(captured), is_searched_(has_trained) {
    if (is_searched_ && !captured_) std::raise(SIGTERM);
  }

 protected:
  Tensor forward(const Tensor& x) const override {
    if (is_searched_) ++captures;
    if (is_searched_ && captured_ == current_mode()) std::raise(SIGTERM);
    return Faulty::forward(x);
  }

 private:
  std::optional<Mode> captured_;
  bool is_searched_;
};

train::Recipe faulty_recipe(const TemporaryFolder& folder, const std::string& fault,
                            const std::string& more) {
  REQUIRE(registered);
  auto recipe = images_recipe(folder, more);
  recipe.set("model.layers", "null", "test");
  recipe.set("model.name", "faulty-" + fault, "test");
  return recipe;
}

struct Failure {
  std::string message;
  json box;
};
Failure failure_of(const TemporaryFolder& folder, const train::Recipe& recipe) {
  Failure failure{.message = error_of([&] { train_in(folder, recipe); }), .box = {}};
  const std::string path = folder.file("runs") + "/" + recipe.text("name") + "/blackbox.json";
  REQUIRE_MESSAGE(fs::exists(path), failure.message);
  CHECK(failure.message.find(path) != std::string::npos);
  CHECK(failure.message.find('\n') == std::string::npos);
  failure.box = json::parse(contents_of(path));
  INFO(failure.box.dump(2));
  CHECK(!failure.box.contains("note"));
  return failure;
}
const std::string short_run = "train: {steps: 40, global_batch_size: 12}\n";
}  // namespace

TEST_CASE("a black box names the operation that produced the first non-finite number") {
  struct Case {
    std::string fault, op, kind;
  };
  for (const auto& [fault, op, kind] :
       {Case{"log", "log", "nan"}, Case{"exp", "exp", "inf"}, Case{"masked", "sub", "nan"}}) {
    CAPTURE(fault);
    for (const char* device : {"cpu", "reference"}) {
      TemporaryFolder folder;
      auto recipe = faulty_recipe(folder, fault, short_run);
      recipe.set("train.device", device, "test");
      auto [message, box] = failure_of(folder, recipe);
      INFO(box.dump(2));
      CHECK(box["step"] == 1);
      CHECK(box["first"]["op"] == op);
      CHECK(box["first"]["step"] == 1);
      CHECK(box["first"]["shows_in"] == "loss");
      CHECK(box["first"]["products_in"] == "f32");
      CHECK(box["first"]["elements"][kind] > 0);
      CHECK(box["first"]["file"] == "tests/train/black_box_test.cpp");
      CHECK(box["first"]["line"] > 0);
      CHECK(message.find(fmt::format("The first {} comes from {}", kind, op)) != std::string::npos);
      CHECK(message.find("(black_box_test.cpp:") != std::string::npos);
      if (fault == "log") CHECK(box["first"]["operands"][0]["elements"]["greatest"] < 0);
    }
  }
}

TEST_CASE("the black box of a diverged run has the norms and the batch of its update") {
  TemporaryFolder folder;
  std::string first;
  for (const char* every : {"1", "100"}) {
    auto recipe = images_recipe(folder, "train: {steps: 90, global_batch_size: 12}\n");
    recipe.set("name", std::string("every-") + every, "test");
    recipe.set("optimizer.lr", "100", "test");
    recipe.set("optimizer.weight_decay", "10", "test");
    recipe.set("eval.every", "90", "test");
    recipe.set("log.every", every, "test");
    auto [message, box] = failure_of(folder, recipe);
    const int64_t step = box["step"];
    CHECK(step > 1);
    CHECK(message.starts_with(fmt::format("failed: step {}: ", step)));
    const json& norms = box["norms"];
    REQUIRE(norms.size() == static_cast<size_t>(std::min<int64_t>(step, 50)));
    CHECK(norms.back()["step"] == step);
    for (size_t i = 0; i + 1 < norms.size(); ++i) {
      CHECK(norms[i]["step"] == static_cast<int64_t>(step - norms.size() + 1 + i));
      CHECK(norms[i]["loss"].is_number());
    }
    CHECK((norms.back()["loss"].is_string() || norms.back()["grad_norm"].is_string()));
    CHECK(box["batch"]["epoch"] == (step - 1) / 8);
    CHECK(box["batch"]["index"] == (step - 1) % 8);
    CHECK(box["batch"]["samples"].size() == 12);
    CHECK(box["batch"]["inputs"] == "f32[12, 1, 8, 8]");
    CHECK(box["first"]["op"] != "variable");
    if (first.empty()) first = box["first"].dump();
    CHECK(box["first"].dump() == first);
  }
}

TEST_CASE("a black box names the same operation with checkpoints and gradient accumulation") {
  TemporaryFolder folder;
  auto recipe = [&](const std::string& name, const std::string& more) {
    auto made = images_recipe(
        folder, std::string("train: {steps: 90, global_batch_size: 12}\n").append(more));
    made.set("name", name, "test");
    made.set("model.layers", "[flatten, {linear: {out_features: 4}}]", "test");
    made.set("optimizer.lr", "100", "test");
    made.set("optimizer.weight_decay", "10", "test");
    return made;
  };
  json whole = failure_of(folder, recipe("whole", "")).box;
  json saved = failure_of(folder, recipe("saved", "checkpoint: {every: 3}\n")).box;
  CHECK(saved["first"] == whole["first"]);
  CHECK(saved["replayed_from_step"] == (whole["step"].get<int64_t>() - 1) / 3 * 3);
  CHECK(whole["replayed_from_step"] == 0);
  auto split = recipe("split", "");
  split.set("train.micro_batch_size", "4", "test");
  json parts = failure_of(folder, split).box;
  CHECK(parts["first"]["op"] == whole["first"]["op"]);
  CHECK(parts["first"]["line"] == whole["first"]["line"]);
}

TEST_CASE(
    "float16 infinities reduce the loss scale to its floor and the black box names their op") {
  TemporaryFolder folder;
  auto recipe = faulty_recipe(folder, "narrow", short_run);
  recipe.set("train.precision", "fp16-mixed", "test");
  auto [message, box] = failure_of(folder, recipe);
  INFO(box.dump(2));
  CHECK(box["step"] == 17);  // after 16 halvings of the loss scale from 65,536 to 1
  CHECK(box["norms"].size() == 17);
  CHECK(box["first"]["op"] == "matmul");
  CHECK(box["first"]["products_in"] == "f16");
  recipe.set("name", "wide", "test");
  recipe.set("train.precision", "fp32", "test");
  CHECK(error_of([&] { train_in(folder, recipe); }) == "none");
}

TEST_CASE("a weight beyond float16's range is located where it is rounded") {
  TemporaryFolder folder;
  auto recipe = images_recipe(folder, "train: {steps: 90, global_batch_size: 12}\n");
  recipe.set("model.layers", "[flatten, {linear: {out_features: 4}}]", "test");
  recipe.set("train.precision", "fp16-mixed", "test");
  recipe.set("optimizer.lr", "100", "test");  // an update multiplies weights by about -1000
  recipe.set("optimizer.weight_decay", "10", "test");
  const json box = failure_of(folder, recipe).box;
  INFO(box.dump(2));
  CHECK(box["first"]["op"] == "cast");
  const json& weight = box["first"]["operands"][0]["elements"];
  CHECK(std::max(weight["greatest"].get<double>(), -weight["least"].get<double>()) > 65504);
}

TEST_CASE("an update that makes a parameter non-finite is located one step before it shows") {
  TemporaryFolder folder;
  auto recipe = faulty_recipe(folder, "none", short_run);
  recipe.set("optimizer.name", "adam", "test");
  recipe.set("optimizer.momentum", "0", "test");
  recipe.set("optimizer.eps", "0", "test");  // 0 / 0 where a pixel is always black
  auto [message, box] = failure_of(folder, recipe);
  INFO(box.dump(2));
  CHECK(box["step"] == 2);
  CHECK(box["first"]["step"] == 1);
  CHECK(box["first"]["shows_in"] == "update");
  CHECK(box["first"]["module"] == "optimizer");
  CHECK(box["first"]["op"] == "div");
}

TEST_CASE("a non-finite evaluation has its own black box") {
  TemporaryFolder folder;
  auto recipe = faulty_recipe(folder, "evaluated", "train: {steps: 40, global_batch_size: 12}\n");
  recipe.set("eval.every", "3", "test");
  auto [message, box] = failure_of(folder, recipe);
  CHECK(message.starts_with(
      "failed: evaluation at step 3: the loss is not finite. The first nan comes from"));
  CHECK(box["while"] == "evaluation");
  CHECK(box["step"] == 3);
  CHECK(box["first"]["op"] == "log");
  CHECK(box["first"]["shows_in"] == "evaluation");
  CHECK(box["batch"]["index"] == 0);
}

TEST_CASE("a signal ends the search for the first non-finite number before its next step") {
  struct Case {
    std::string fault;
    std::optional<Mode> captured;
    int captures;  // of the search's model, until the signal is noticed
    const char* message;
  };
  const Case cases[] = {
      {"log", Mode::train, 1, "failed: step 1: the loss, or its gradient, is not finite. "},
      {"none", {}, 0, "failed: step 2: the loss, or its gradient, is not finite. "},
      {"evaluated", Mode::eval, 3, "failed: evaluation at step 1: the loss is not finite. "}};
  for (const auto& [fault, captured, captures, beginning] : cases) {
    CAPTURE(fault);
    registry::models().add(
        {.name = "searched-" + fault,
         .make = [fault, captured](const nn::Options& config, const TaskShape& task) {
           return std::make_unique<SearchedModel>(config, task, fault, captured);
         }});
    TemporaryFolder folder;
    auto recipe = faulty_recipe(folder, fault, short_run);
    recipe.set("model.name", "searched-" + fault, "test");
    recipe.set("optimizer.name", "adam", "test");
    recipe.set("optimizer.momentum", "0", "test");
    recipe.set("eval.every", fault == "evaluated" ? "1" : "40", "test");
    recipe.set("log.every", "2", "test");
    // Without a fault of the model, the first update divides 0 by 0 where a pixel is always black.
    if (fault == "none") recipe.set("optimizer.eps", "0", "test");
    SearchedModel::has_trained = false;
    SearchedModel::captures = 0;
    const std::string message = error_of(
        [&] { train_while(folder, recipe, [](int64_t) { SearchedModel::has_trained = true; }); });
    CHECK_MESSAGE(message.starts_with(beginning), message);
    CHECK(message.find("The first ") == std::string::npos);
    const json box = json::parse(contents_of(folder.file("runs/run/blackbox.json")));
    INFO(box.dump(2));
    CHECK(box["note"] == "the search ended: stopped by a signal");
    CHECK(!box.contains("first"));
    CHECK(SearchedModel::captures == captures);
  }
}

TEST_CASE("a black box notes a failure that its replay does not repeat") {
  registry::models().add(
      {.name = "faulty-once", .make = [](const nn::Options& config, const TaskShape& task) {
         const char* fault = SearchedModel::has_trained ? "none" : "log";
         return std::make_unique<Faulty>(config, task, fault);
       }});
  TemporaryFolder folder;
  auto recipe = faulty_recipe(folder, "once", short_run);
  recipe.set("log.every", "2", "test");
  SearchedModel::has_trained = false;
  const std::string message = error_of(
      [&] { train_while(folder, recipe, [](int64_t) { SearchedModel::has_trained = true; }); });
  CHECK_MESSAGE(message.starts_with("failed: step 1: the loss, or its gradient, is not finite. "),
                message);
  const json box = json::parse(contents_of(folder.file("runs/run/blackbox.json")));
  CHECK(box["note"] == "the step was finite when it was replayed");
  CHECK(box["batch"]["samples"].size() == 12);
  CHECK(box["replayed_from_step"] == 0);
}

TEST_CASE("a black box that cannot be written does not hide the original error") {
  TemporaryFolder folder;
  auto recipe = faulty_recipe(folder, "log", short_run);
  recipe.set("log.every", "2", "test");
  auto block = [&](int64_t) { fs::create_directories(folder.file("runs/run/blackbox.json/full")); };
  std::string message = error_of([&] {
    train::train(recipe, {.runs = folder.file("runs"), .quiet = true, .after_step = block});
  });
  INFO(message);
  CHECK(
      message.starts_with("failed: step 1: the loss, or its gradient, is not finite. The first "));
  CHECK(message.find("blackbox.json was not written: ") != std::string::npos);
}
