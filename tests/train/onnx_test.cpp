// Tests runs of imported ONNX nets: their curves beside those of the same nets of weft's own, their
// checkpoints without the file, and such nets as teachers.
#include <cmath>
#include <filesystem>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/captured.h"
#include "tests/support/values.h"
#include "tests/train/runs.h"
#include "weft/data/loader.h"
#include "weft/io/safetensors.h"
#include "weft/onnx/export/export.h"
#include "weft/onnx/file/model.h"
#include "weft/tensor/compile.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/run/steps.h"
#include "weft/train/task/evaluation.h"

using namespace weft;
using namespace weft::test;
namespace fs = std::filesystem;

namespace {
// Writes the forward pass of a model as an ONNX file, for inference, as exporters do.
void write_net(const std::string& path, const Model& model, const TaskShape& shape) {
  const auto build = [&](int64_t batch) {
    const ModeScope inference(Mode::eval);
    const Tensor x = input(shape.batch(batch), 0);
    return Graph{.inputs = {x}, .outputs = {model(x)}, .assignments = {}};
  };
  onnx::write(onnx::export_model(build, {.inputs = {"images"}, .outputs = {"logits"}}).model, path);
}

// Returns the losses of the first updates, on the same batches whatever the model is.
std::vector<double> first_losses(const train::Experiment& experiment, int updates) {
  train::Steps steps(experiment, "cpu");
  data::Loader loader(experiment.train, {.batch_size = experiment.global_batch, .shuffle = true});
  std::vector<double> losses;
  data::Batch batch;
  for (int i = 0; i < updates; ++i) {
    REQUIRE(loader.next(batch));
    steps.run(batch.inputs, batch.labels);
    losses.push_back(steps.loss());
  }
  return losses;
}

double largest_relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] / b[i] - 1));
  return largest;
}

// Imported is a small net with batch normalization, trained as an imported file.
struct Imported {
  Imported()
      : base(images_recipe(folder, "train: {steps: 6, global_batch_size: 12}\n")),
        file(folder.file("net.onnx")) {
    const train::Experiment native = train::make_experiment(base);
    write_net(file, *native.model, native.shape);
    recipe = with(base, {{"model.layers", "null"}, {"model.pretrained", file}});
  }

  TemporaryFolder folder;
  train::Recipe base, recipe;
  std::string file;
};

// Builds the experiment of a run's latest checkpoint, with its weights.
train::Experiment of_newest_checkpoint(const std::string& run) {
  const std::string checkpoint = train::find_checkpoint(run);
  train::Experiment experiment = train::make_experiment(
      train::checkpoint_recipe(checkpoint), {.initialize = false, .checkpoint = checkpoint});
  train::load_model(checkpoint, experiment);
  return experiment;
}
}  // namespace

TEST_CASE("an imported ResNet-20 trains with the curve of the native one") {
  TemporaryFolder folder;
  const std::string text =
      "data: {dataset: random-images, image_size: 32, classes: 10}\n"
      "optimizer: {name: sgd, lr: 0.02, momentum: 0.9, weight_decay: 1.0e-4}\n"
      "train: {steps: 20, global_batch_size: 16}\nlog: {every: 1}\n";
  const train::Recipe native = train::Recipe::parse("model: {name: resnet20}\n" + text, "native");
  const train::Experiment ours = train::make_experiment(native);
  const std::string file = folder.file("resnet20.onnx");
  write_net(file, *ours.model, ours.shape);
  const train::Recipe imported =
      train::Recipe::parse(fmt::format("model: {{pretrained: {}}}\n{}", file, text), "imported");
  const train::Experiment theirs = train::make_experiment(imported);
  const std::vector<double> a = first_losses(ours, 20), b = first_losses(theirs, 20);
  CHECK(largest_relative_difference(a, b) < 1e-5);  // the same graph, perhaps in another order
  CHECK(a.back() < 0.8 * a.front());
}

TEST_CASE("a checkpoint of an imported net needs its file no more") {
  const Imported net;
  const train::TrainResult whole = train_in(net.folder, with(net.recipe, {{"name", "whole"}}));
  train_in(net.folder, with(net.recipe, {{"train.steps", "3"}}));
  fs::rename(net.file, net.folder.file("elsewhere.onnx"));
  const train::TrainResult resumed = train_in(net.folder, net.recipe, /*resume=*/true);
  check_equal(train::find_checkpoint(whole.run_folder), train::find_checkpoint(resumed.run_folder));
  const train::Experiment kept = of_newest_checkpoint(resumed.run_folder);
  CHECK(train::evaluate(kept).loss == doctest::Approx(resumed.evaluation.loss).epsilon(1e-6));

  // The kept file and the checkpoint's weights are an ONNX file of their own.
  const std::string own =
      (fs::path(train::find_checkpoint(resumed.run_folder)) / "model.onnx").string();
  CHECK(fs::file_size(own) < 8192);  // without weights
  const train::Experiment again =
      train::make_experiment(with(net.recipe, {{"model.pretrained", own}}));
  CHECK(train::evaluate(again).loss == train::evaluate(kept).loss);

  // Another net under the old name is said, and not taken.
  const auto warning = [&] {
    const Captured said(2);
    of_newest_checkpoint(resumed.run_folder);
    return said.text();
  };
  fs::copy(net.folder.file("elsewhere.onnx"), net.file);
  CHECK(warning().empty());
  const train::Experiment other = train::make_experiment(
      with(net.base, {{"model.layers", "[flatten, {linear: {out_features: 4}}]"}}));
  write_net(net.file, *other.model, other.shape);
  CHECK(warning().find("net.onnx is not the net that ") != std::string::npos);
}

TEST_CASE("an imported net is pruned like the native one, along the inputs of its products") {
  const Imported net;
  for (const std::string pattern : {"unstructured", "2:4"}) {
    CAPTURE(pattern);
    const auto loss_of = [&](const train::Recipe& recipe, const std::string& name) {
      const Settings pruning = {{"pruning.pattern", pattern},
                                {"pruning.scope", "layer"},
                                {"pruning.begin_step", "2"},
                                {"name", name + pattern.back()}};
      const train::Recipe pruned = with(recipe, pruning);
      CHECK(train::make_experiment(pruned).methods.size() == 1);
      return train_in(net.folder, pruned).evaluation.loss;
    };
    CHECK(loss_of(net.recipe, "imported") ==
          doctest::Approx(loss_of(net.base, "native")).epsilon(1e-5));
  }
  // A MatMul's weight is [inputs, outputs].
  testing::Random random(1);
  const int64_t inputs = element_count(train::make_experiment(net.base).shape.input);
  const Type weight{DType::f32, {inputs, 4}};
  onnx::write({.ir_version = 8,
               .opsets = {{"", 18}},
               .graph = {.nodes = {{.op = "Flatten", .inputs = {"x"}, .outputs = {"flat"}},
                                   {.op = "MatMul", .inputs = {"flat", "w"}, .outputs = {"y"}}},
                         .initializers = {{.name = "w",
                                           .value = testing::random_values(weight, -1, 1, random)}},
                         .inputs = {{.name = "x", .dtype = DType::f32}},
                         .outputs = {{.name = "y"}}}},
              net.file);
  const train::TrainResult run =
      train_in(net.folder, with(net.recipe, {{"name", "product"}, {"pruning.pattern", "2:4"}}));
  const auto file =
      io::Safetensors::open(train::find_checkpoint(run.run_folder) + "/model.safetensors");
  const std::vector<double> w = testing::elements(file.tensor("w"));
  REQUIRE(std::ssize(w) == 4 * inputs);
  for (size_t output = 0; output < 4; ++output)
    for (size_t first = 0; first < w.size() / 4; first += 4) {
      int zeros = 0;
      for (size_t i = first; i < first + 4; ++i) zeros += w[i * 4 + output] == 0 ? 1 : 0;
      CHECK(zeros == 2);
    }
}

TEST_CASE("a net of other classes or inputs than the data is refused, or said") {
  const Imported net;
  const auto classes = [&](int64_t count) {
    const train::Experiment other = train::make_experiment(
        with(net.base, {{"model.layers", "[flatten, {linear: {out_features: 4}}]"}}));
    const auto build = [&](int64_t batch) {
      const Tensor x = input(other.shape.batch(batch), 0);
      const Tensor logits = (*other.model)(x);
      return Graph{.inputs = {x},
                   .outputs = {concat({logits, logits}, 1)[{range(), range(0, count)}]},
                   .assignments = {}};
    };
    onnx::write(onnx::export_model(build, {.inputs = {"images"}, .outputs = {"scores"}}).model,
                net.file);
    return error_of([&] { train::make_experiment(net.recipe); });
  };
  CHECK(classes(3).find("net.onnx answers a sample with [3], and these data have 4 classes.") !=
        std::string::npos);
  const Captured said(2);
  CHECK(classes(6) == "none");
  const std::string warning = said.text();
  const size_t at = warning.find("net.onnx tells 6 classes apart, and these data have 4.");
  CHECK(at != std::string::npos);
  CHECK(warning.find("net.onnx tells", at + 1) == std::string::npos);

  const auto build = [&](int64_t batch) {
    const Type type{DType::f32, {batch, 1, 8, 8}};
    const Tensor x = input(type, 0), y = input(type, 1);
    return Graph{.inputs = {x, y}, .outputs = {mean(x + y, {2, 3})}, .assignments = {}};
  };
  onnx::write(onnx::export_model(build, {.inputs = {"left", "right"}, .outputs = {"scores"}}).model,
              net.file);
  CHECK(error_of([&] {
          train::make_experiment(net.recipe);
        }).find("net.onnx has the inputs 'left' and 'right', and the data fill one of them.") !=
        std::string::npos);
}

TEST_CASE("an ONNX file teaches as the run that it is from, by the names of its values") {
  const Imported net;
  const train::TrainResult run = train_in(net.folder, with(net.base, {{"name", "teacher"}}));
  const train::Experiment teacher = of_newest_checkpoint(run.run_folder);
  const std::string file = net.folder.file("teacher.onnx");
  write_net(file, *teacher.model, teacher.shape);
  const auto curve = [&](const std::string& path, const std::string& feature) {
    return first_losses(
        train::make_experiment(with(net.base, {{"distillation.teacher", path},
                                               {"distillation.features", "[" + feature + "]"}})),
        6);
  };
  const std::vector<double> expected = curve(run.run_folder, "'2'"),
                            found = curve(file, "2=2/Relu");
  CHECK(largest_relative_difference(found, expected) < 1e-5);
  CHECK(largest_relative_difference(curve(file, ""), expected) > 1e-3);
  CHECK(error_of([&] { curve(file, "2=Absent"); }).find("the teacher has no layer 'Absent'.") !=
        std::string::npos);
  // So does a run of an imported net, without its file.
  const train::TrainResult imported = train_in(net.folder, net.recipe);
  const std::vector<double> before = curve(imported.run_folder, "");
  fs::remove(net.file);
  CHECK(curve(imported.run_folder, "") == before);
}
