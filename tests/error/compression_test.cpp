// Tests refusals of pruning and of the weights that a model begins with.
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/error/tiny_run.h"
#include "tests/support/two_inputs.h"
#include "weft/onnx/file/model.h"
#include "weft/tensor/tensor.h"

using namespace weft;
using namespace weft::test;

namespace {
// Returns the recipe of a small net on generated images, with further lines.
std::string images(const std::string& more) {
  return "model: {name: mlp, config: {hidden_sizes: [8]}}\n"
         "data: {dataset: random-images, image_size: 4, classes: 4}\n"
         "train: {steps: 5, global_batch_size: 4}\n" +
         more;
}

// A Mistake is further lines of that recipe, and the message that refuses them.
using Mistake = std::pair<std::string, std::string>;
void check_refused(const Workplace& place, const std::vector<Mistake>& mistakes) {
  for (const auto& [recipe, message] : mistakes) {
    place.write("wrong.yaml", images(recipe));
    CAPTURE(recipe);
    CHECK(fails_with(place.weft({"plan", "wrong.yaml"}), usage, message) == "");
  }
}
}  // namespace

TEST_CASE("a recipe whose pruning cannot be done is refused by key and limit") {
  const std::vector<Mistake> mistakes = {
      {"pruning: {sparsity: 0.7}\n",
       "wrong.yaml:4: pruning.sparsity needs pruning.pattern. Hint: --pruning.pattern "
       "unstructured."},
      {"pruning: {pattern: magnitude}\n",
       "wrong.yaml:4: pruning.pattern must be one of unstructured, 2:4, channels. Got "
       "'magnitude'."},
      {"pruning: {pattern: unstructured, sparsity: 1}\n",
       "wrong.yaml:4: pruning.sparsity must be in 0 .. 0.999. Got '1'."},
      {"pruning: {pattern: unstructured, begin_step: 3, end_step: 2}\n",
       "wrong.yaml:4: pruning.end_step is at least pruning.begin_step. Got 2 and 3."},
      {"pruning: {pattern: unstructured, end_step: 5}\n",
       "wrong.yaml:4: pruning ends before the last of the 5 steps of the run, so that what is left "
       "trains on. Got step 5."},
      {"pruning: {pattern: unstructured, sparsity: 0.3, initial_sparsity: 0.4}\n",
       "wrong.yaml:4: pruning.initial_sparsity is at most pruning.sparsity. Got 0.4 and 0.3."},
      {"pruning: {pattern: 2:4, sparsity: 0.6}\n",
       "wrong.yaml:4: pruning.pattern 2:4 has sparsity 0.5. Got 0.6."},
      {"pruning: {pattern: 2:4, end_step: 3}\n",
       "wrong.yaml:4: pruning.pattern 2:4 prunes at once, at pruning.begin_step: it has no "
       "end_step."},
      {"pruning: {pattern: unstructured, exclude: [conv*]}\n",
       "wrong.yaml:4: pruning.exclude: no weight to prune has a name like 'conv*'. The first is "
       "fc1.weight."},
      {"pruning: {pattern: unstructured, exclude: ['*']}\n",
       "wrong.yaml:4: pruning: no weight is left to prune."}};
  Workplace place;
  check_refused(place, mistakes);
  place.write("wrong.yaml",
              "model: {layers: [flatten, {linear: {out_features: 4}}]}\n"
              "data: {dataset: random-images, image_size: 4, classes: 4}\n"
              "train: {steps: 5, global_batch_size: 4}\npruning: {pattern: channels}\n");
  CHECK(fails_with(place.weft({"plan", "wrong.yaml"}), usage,
                   "wrong.yaml:4: pruning.pattern channels: this model has no channels that can be "
                   "removed. Those of resnet, cnn, mlp and nets of ONNX files have.") == "");
}

TEST_CASE("an imported net is refused whose channels are all needed, or counted by its nodes") {
  Workplace place;
  place.write("wrong.yaml",
              "model: {pretrained: net.onnx}\n"
              "data: {dataset: random-images, image_size: 4, classes: 4}\n"
              "train: {steps: 5, global_batch_size: 4}\npruning: {pattern: channels}\n");
  using namespace weft;
  const auto numbers = [](const std::string& name, const Shape& shape) {
    return onnx::Initializer{.name = name, .value = ones(shape).eval()};
  };
  const auto integers = [](const std::string& name, const std::vector<int64_t>& values) {
    return onnx::Initializer{.name = name, .value = tensor(values, {std::ssize(values)})};
  };
  const auto refused = [&](const onnx::Graph& graph, const std::string& message) {
    onnx::write({.ir_version = 8, .opsets = {{"", 18}}, .graph = graph}, place.path("net.onnx"));
    return fails_with(place.weft({"plan", "wrong.yaml"}), usage,
                      "wrong.yaml:4: pruning.pattern channels: " + message);
  };
  onnx::Graph graph = {.name = "net",
                       .nodes = {{.op = "Flatten", .inputs = {"x"}, .outputs = {"flat"}},
                                 {.op = "MatMul", .inputs = {"flat", "w"}, .outputs = {"y"}}},
                       .initializers = {numbers("w", {48, 4})},
                       .inputs = {{.name = "x", .dtype = DType::f32}},
                       .outputs = {{.name = "y"}}};
  CHECK(refused(graph,
                "no channels of this net can be removed: additions, outputs or other operations "
                "need all of them.") == "");
  graph.initializers = {numbers("w", {32, 4}), numbers("kernel", {2, 3, 1, 1}),
                        integers("first", {0}), integers("width", {32})};
  graph.nodes = {{.op = "Conv", .name = "conv", .inputs = {"x", "kernel"}, .outputs = {"c"}},
                 {.op = "Shape", .name = "dims", .inputs = {"c"}, .outputs = {"d"}},
                 {.op = "Gather", .name = "rows", .inputs = {"d", "first"}, .outputs = {"r"}},
                 {.op = "Concat",
                  .name = "shape",
                  .inputs = {"r", "width"},
                  .outputs = {"s"},
                  .attributes = {{"axis", int64_t{0}}}},
                 {.op = "Reshape", .name = "flat", .inputs = {"c", "s"}, .outputs = {"flat"}},
                 {.op = "MatMul", .name = "fc", .inputs = {"flat", "w"}, .outputs = {"y"}}};
  CHECK(refused(graph,
                "channels of this net cannot be removed: [onnx] net.onnx: node 'flat' (Reshape)") ==
        "");
}

TEST_CASE("a model begins with no weights that are missing or of another model") {
  TinyRun place;
  place.write("images.yaml", images(""));
  place.write("notes.txt", "no weights");
  const auto train = [&](const std::string& weights) {
    return place.weft({"train", "images.yaml", "--model.weights", weights});
  };
  CHECK(fails_with(train("nothing"), usage,
                   "--model.weights: model.weights: nothing does not "
                   "exist.") == "");
  CHECK(fails_with(train("notes.txt"), data_code, "notes.txt") == "");
  CHECK(fails_with(train("tiny"), data_code, "model.safetensors does not fit") == "");
}

TEST_CASE("weft prune refuses runs without pruned channels, and a folder that exists") {
  TinyRun place;
  CHECK(fails_with(place.weft({"prune", "tiny", "small"}), usage,
                   "this model has no channels that can be removed. Hint: pruning.pattern: "
                   "channels.") == "");
  place.write("images.yaml", images("name: images\neval: {batch_size: 4}\n"));
  CHECK(place.weft({"train", "images.yaml"}).code == 0);
  CHECK(fails_with(place.weft({"prune", "images", "small"}), usage,
                   "no channel of this model is pruned. Hint: pruning.pattern: channels.") == "");
  CHECK(fails_with(place.weft({"prune", "images", "runs"}), usage,
                   "runs exists. Nothing was changed.") == "");
  CHECK(fails_with(place.weft({"prune", "nothing", "small"}), checkpoint,
                   "no checkpoint under nothing") == "");
  CHECK(fails_with(place.weft({"prune", "images.yaml", "small"}), usage,
                   "images.yaml is a file. A run or a checkpoint is a folder.") == "");
  CHECK(place.weft({"convert", "images", "net.onnx", "--to", "onnx"}).code == 0);
  CHECK(fails_with(place.weft({"prune", "net.onnx", "small"}), usage,
                   "net.onnx is an ONNX file: wanted is a run whose channels were pruned, or its "
                   "checkpoint. Hint: weft train RECIPE --model.pretrained net.onnx "
                   "--pruning.pattern channels.") == "");
}

TEST_CASE("a teacher that does not fit is refused by one line") {
  TinyRun place;
  place.write("images.yaml", images("name: student\n"));
  place.write("wide.yaml",
              "name: wide\nmodel: {name: mlp, config: {hidden_sizes: [16]}}\n"
              "data: {dataset: random-images, image_size: 4, classes: 6}\n"
              "train: {steps: 1, global_batch_size: 4}\n");
  place.write("large.yaml",
              "name: large\nmodel: {name: mlp, config: {hidden_sizes: [16]}}\n"
              "data: {dataset: random-images, image_size: 8, classes: 4}\n"
              "train: {steps: 1, global_batch_size: 4}\n");
  for (const char* teacher : {"wide.yaml", "large.yaml"})
    REQUIRE(place.weft({"train", teacher}).code == 0);
  const auto plan = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"plan", "images.yaml"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return place.weft(arguments);
  };
  const std::string flag = "--distillation.teacher";
  for (const std::string wrong : {"nothing", "large.yaml"})
    CHECK(fails_with(plan({flag, wrong}), usage,
                     "distillation.teacher: " + wrong +
                         " is no run, no checkpoint and no folder of a model.") == "");
  CHECK(fails_with(plan({flag, "wide"}), usage,
                   "distillation.teacher: wide answers a sample with logits [6], and the model "
                   "of this run with [4].") == "");
  const Outcome larger = plan({flag, "large"});
  CHECK(fails_with(larger, usage,
                   "distillation.teacher: large does not take the inputs of these data: [linear] "
                   "\"teacher.fc1\" takes 192 features in the last axis. Got f32[4, 48].") == "");
  CHECK(larger.err.ends_with("Got f32[4, 48].\n"));  // and no line of weft's
  CHECK(fails_with(plan({flag, "tiny"}), usage,
                   "distillation.teacher: tiny does not take the inputs of these data: ") == "");
  CHECK(fails_with(plan({"--distillation.alpha", "0.3"}), usage,
                   "--distillation.alpha: distillation.alpha needs distillation.teacher. Hint: "
                   "--distillation.teacher RUN.") == "");
  CHECK(place.weft({"train", "images.yaml"}).code == 0);  // it teaches another of its kind
  CHECK(fails_with(plan({flag, "student", "--distillation.features", "[fc7]"}), usage,
                   "distillation.features: the model of this run has no layer 'fc7'.") == "");
  CHECK(fails_with(plan({flag, "student", "--distillation.features", "[fc1=fc7]"}), usage,
                   "distillation.features: the teacher has no layer 'fc7'.") == "");
  place.write("conv.yaml",
              "name: conv\nmodel: {layers: [{conv2d: {out_channels: 4, kernel_size: 3}}, flatten, "
              "{linear: {out_features: 4}}]}\n"
              "data: {dataset: random-images, image_size: 4, classes: 4}\n"
              "train: {steps: 1, global_batch_size: 4}\n");
  REQUIRE(place.weft({"train", "conv.yaml"}).code == 0);
  CHECK(fails_with(plan({flag, "conv", "--distillation.features", "[fc1=0]"}), usage,
                   "distillation.features: fc1 yields [8], and the teacher's layer [4, 2, 2]; "
                   "they may differ in channels alone.") == "");
}

TEST_CASE("averages that would stand still, and a warm-up without averages, are refused") {
  TinyRun place;
  place.write("images.yaml", images("name: student\n"));
  CHECK(fails_with(place.weft({"plan", "images.yaml", "--ema.warmup", "false"}), usage,
                   "--ema.warmup: ema.warmup needs ema.decay. Hint: --ema.decay 0.999.") == "");
  CHECK(fails_with(
            place.weft({"plan", "images.yaml", "--ema.decay", "0.9", "--train.precision", "bf16",
                        "--on", "h100"}),  // which has products in bfloat16
            usage,
            "--ema.decay: ema.decay: fc1.weight is bf16, whose average would not move: an update "
            "changes it by less than its rounding. Hint: --train.precision bf16-mixed.") == "");
}

TEST_CASE("a whole checkpoint whose weights these data do not fit is refused as a wrong recipe") {
  Workplace place;
  place.write("flat.yaml",
              "name: flat\nmodel: {layers: [flatten, {linear: {out_features: 4}}]}\n"
              "data: {dataset: random-images, image_size: 4, classes: 4}\n"
              "train: {steps: 1, global_batch_size: 4}\neval: {batch_size: 4}\n");
  REQUIRE(place.weft({"train", "flat.yaml"}).code == 0);
  const std::string shapes =
      "model.safetensors does not fit: 1 of another shape ('1.weight' is f32[4, 48], wanted "
      "f32[4, 192]).";
  const std::string keys = " data.image_size is 4 there and 8 in the recipe.";
  CHECK(fails_with(place.weft({"eval", "flat", "--data.image_size", "8"}), usage, shapes + keys) ==
        "");
  CHECK(fails_with(place.weft({"train", "flat.yaml", "--resume", "--train.steps", "2",
                               "--data.image_size", "8"}),
                   usage, shapes + keys) == "");
  const Outcome taught = place.weft({"train", "flat.yaml", "--name", "taught", "--data.image_size",
                                     "8", "--distillation.teacher", "flat"});
  CHECK(fails_with(taught, usage,
                   "distillation.teacher: flat does not take the inputs of these data: [load] ") ==
        "");
  CHECK(taught.err.find(shapes) != std::string::npos);
}

TEST_CASE("a residual net has as many inner widths as blocks") {
  Workplace place;
  place.write("wrong.yaml",
              "model: {name: resnet, config: {depth: 20, inner_channels: [8, 8]}}\n"
              "data: {dataset: random-images, image_size: 8, classes: 4}\n"
              "train: {steps: 1, global_batch_size: 4}\n");
  CHECK(fails_with(place.weft({"plan", "wrong.yaml"}), usage,
                   "[resnet] inner_channels lists 9 widths of the 9 blocks of depth 20. Got 2.") ==
        "");
}

TEST_CASE("a recipe whose quantization cannot be done is refused by key and limit") {
  const std::vector<Mistake> mistakes = {
      {"quantization: {weight_bits: 7}\n",
       "wrong.yaml:4: quantization.weight_bits needs quantization.activations. Hint: "
       "--quantization.activations static."},
      {"quantization: {activations: int8}\n",
       "wrong.yaml:4: quantization.activations must be one of static, dynamic. Got 'int8'."},
      {"quantization: {activations: static, weight_bits: 4}\n",
       "wrong.yaml:4: quantization.weight_bits must be in 7 .. 8. Got '4'."},
      {"quantization: {activations: static, start_step: 5}\n",
       "wrong.yaml:4: quantization.start_step is below the 5 steps of the run. Got 5."},
      {"quantization: {activations: static, exclude: [conv*]}\n",
       "wrong.yaml:4: quantization.exclude: no layer has a name like 'conv*'. The first is fc1."},
      {"quantization: {activations: static, exclude: ['*']}\n",
       "wrong.yaml:4: quantization: no layer is left to quantize."}};
  Workplace place;
  check_refused(place, mistakes);
  place.write("wrong.yaml",
              images("quantization: {activations: dynamic}\n") + "task: classification\n");
  CHECK(place.weft({"plan", "wrong.yaml"}).code == 0);
  CHECK(fails_with(place.weft({"plan", "wrong.yaml", "--train.precision", "fp64"}), usage,
                   "quantization.activations: this model has no linear layers with weights in "
                   "float32.") == "");
}

TEST_CASE("weft quantize refuses what is no net of int8, and writes nothing") {
  TinyRun place;
  place.write("images.yaml", images("name: images\neval: {batch_size: 4}\n"));
  place.write(
      "learned.yaml",
      images("name: learned\neval: {batch_size: 4}\nquantization: {activations: static}\n"));
  REQUIRE(place.weft({"train", "images.yaml"}).code == 0);
  REQUIRE(place.weft({"train", "learned.yaml"}).code == 0);
  REQUIRE(place.weft({"convert", "images", "net.onnx", "--to", "onnx"}).code == 0);
  const auto quantize = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"quantize"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return place.weft(arguments);
  };
  struct Row {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::vector<Row> rows = {
      {{"images", "net.onnx", "--to", "int8"}, "net.onnx exists. Nothing was changed."},
      {{"images", "out.onnx", "--to", "Q4_K"}, "ONNX files have layers in int8. Got --to Q4_K."},
      {{"net.onnx", "out", "--to", "int8"},
       "an ONNX file is quantized to a file whose name ends in .onnx. Got out."},
      {{"images", "out", "--to", "int8", "--dynamic"},
       "--dynamic is for nets, quantized to a file whose name ends in .onnx. Got out."},
      {{"images", "out.onnx", "--to", "int8", "--method", "mean"}, "--method"},
      {{"images", "out.onnx", "--to", "int8", "--percentile", "99"},
       "--percentile is for --method percentile."},
      {{"images", "out.onnx", "--to", "int8", "--dynamic", "--method", "entropy"},
       "--method is for ranges from data; --dynamic needs none."},
      {{"images", "out.onnx", "--to", "int8", "--keep", "conv*"},
       "--keep: no layer has a name like 'conv*'. The first is fc1."},
      {{"images", "out.onnx", "--to", "int8", "--keep", "*"},
       "images has no layer left to quantize."},
      {{"images", "out.onnx", "--to", "int8", "--keep-sensitive", "2"},
       "images has no layer left to quantize."},
      {{"images", "out.onnx", "--to", "int8", "--weight-bits", "4"}, "--weight-bits"},
      {{"learned", "out.onnx", "--to", "int8", "--method", "minmax"},
       "learned has learned its ranges by quantization-aware training: it takes no --method."},
      {{"net.onnx", "out.onnx", "--to", "int8"},
       "quantizing net.onnx needs data. Hint: --input FILE.npz, --data.dataset cifar10, or "
       "--data.format and --data.path."},
      {{"net.onnx", "out.onnx", "--to", "int8", "--dynamic", "--keep-sensitive", "1"},
       "--keep-sensitive measures layers on data. Hint: --input, --data.dataset, or --data.format "
       "and --data.path."},
      // Other samples, and other classes, than the net was made for.
      {{"net.onnx", "out.onnx", "--to", "int8", "--data.dataset", "random-images",
        "--data.image_size", "8", "--data.classes", "4"},
       "weft: error: net.onnx does not take the samples of these data: its input 'images' is "
       "f32[batch, 3, 4, 4], and they are f32[1, 3, 8, 8]."},
      {{"net.onnx", "out.onnx", "--to", "int8", "--data.dataset", "random-images",
        "--data.image_size", "4", "--data.classes", "7"},
       "weft: error: net.onnx answers a sample with [4], and these data have 7 classes."},
      {{"net.onnx", "out.onnx", "--to", "int8", "--data.dataset", "addition"},
       "weft: error: net.onnx does not take the samples of these data"},
      {{"images.yaml", "out.onnx", "--to", "int8"},
       "images.yaml is no model: wanted is a run, a checkpoint, a folder of Hugging Face's, or an "
       "ONNX file, whose name ends in .onnx."},
      {{"images.yaml", "out", "--to", "Q4_K"}, "images.yaml is no model: wanted is"}};
  for (const Row& row : rows) {
    CHECK(fails_with(quantize(row.arguments), usage, row.message) == "");
    CHECK_FALSE(std::filesystem::exists(place.path("out.onnx")));
  }
  CHECK(fails_with(quantize({"nothing", "out.onnx", "--to", "int8"}), checkpoint,
                   "no checkpoint under nothing") == "");
  CHECK(fails_with(quantize({"images", "out.onnx", "--to", "int8", "--data.image_size", "8"}),
                   usage, "holds another model") == "");
  CHECK(fails_with(quantize({"images", "blocks", "--to", "int8"}), usage,
                   "images is a run, which is quantized to a file whose name ends in .onnx. Got "
                   "blocks.") == "");
  // A file of int8 layers has none to quantize.
  REQUIRE(quantize({"net.onnx", "int8.onnx", "--to", "int8", "--dynamic"}).code == 0);
  CHECK(fails_with(quantize({"int8.onnx", "out.onnx", "--to", "int8", "--dynamic"}), usage,
                   "int8.onnx has no layer to quantize: no convolution or linear layer with "
                   "weights in f32.") == "");
}

TEST_CASE("weft quantize refuses arrays that a net does not take, and writes nothing") {
  const Workplace place;
  write_two_inputs(place.path("net.onnx"), {-1, "rows"});
  write_two_inputs(place.path("fixed.onnx"), {4, ""});
  onnx::Model open = two_inputs({-1, "rows"});
  open.graph.nodes = {{.op = "ReduceSum",
                       .inputs = {"mask"},
                       .outputs = {"sum"},
                       .attributes = {{"keepdims", int64_t{0}}}},
                      {.op = "Mul", .inputs = {"sum", "x"}, .outputs = {"seen"}},
                      {.op = "MatMul", .inputs = {"seen", "w1"}, .outputs = {"wide"}},
                      {.op = "MatMul", .inputs = {"wide", "w2"}, .outputs = {"scores"}}};
  open.graph.outputs.resize(1);
  open.graph.inputs[1].shape = {{{1, ""}, {-1, "length"}}};
  onnx::write(open, place.path("open.onnx"));
  write_samples(place.path("a.npz"), 6, 1);
  const auto npy = [&](const std::string& name, const Tensor& array) {
    io::write_npy(place.path(name), array.eval());
  };
  npy("x.npy", ones({6, 6}));
  npy("doubles.npy", ones({6, 6}, DType::f64));
  npy("wide.npy", ones({6, 7}));
  npy("flat.npy", ones({36}));
  npy("few.npy", ones({2, 6}));
  npy("long.npy", ones({1, 9}));
  npy("short.npy", ones({1, 5}));
  npy("nothing.npy", zeros({0, 6}));
  std::vector<double> numbers(36, 1);
  numbers[15] = std::numeric_limits<double>::quiet_NaN();
  npy("nan.npy", tensor(numbers, {6, 6}, DType::f32));
  place.write("notes.txt", "no array");
  place.write("cut.npz", place.read("a.npz").substr(0, 100));
  const std::vector<io::NamedTensor> arrays = io::read_npz(place.path("a.npz"));
  io::write_npz(place.path("half.npz"), std::vector{arrays[0]});
  io::write_npz(place.path("other.npz"),
                std::vector<io::NamedTensor>{{"x", arrays[0].tensor}, {"masks", arrays[1].tensor}});
  io::write_npz(place.path("wrong.npz"),
                std::vector<io::NamedTensor>{{"x", arrays[0].tensor}, {"mask", ones({6, 5})}});
  struct Row {
    std::string net;
    std::vector<std::string> arguments;
    int code;
    std::string message;
  };
  const std::vector<Row> rows = {
      {"net.onnx", {"--input"}, usage, "--input"},
      {"net.onnx",
       {"--input", "a.npz", "--data.dataset", "random-images"},
       usage,
       "--data.dataset and --input both name samples to calibrate on. Hint: give one of them."},
      {"net.onnx",
       {"--input", "a.npz", "--train.steps", "3"},
       usage,
       "--train.steps is for recipes. net.onnx is an ONNX file."},
      {"net.onnx",
       {"--input", "a.npz", "--batches", "3"},
       usage,
       "--batches is for data sets. Of --input every array is calibrated on."},
      {"net.onnx", {"--input", "b.npz"}, usage, "--input b.npz: there is no such file."},
      {"net.onnx",
       {"--input", "notes.txt"},
       usage,
       "--input notes.txt: inputs are arrays (.npy, .npz, .pb) or pictures (.jpg, .png)."},
      {"net.onnx",
       {"--input", "."},
       usage,
       "--input .: a net is calibrated on arrays (.npy, .npz, .pb). Hint: for pictures "
       "--data.format image_folder and --data.path."},
      {"net.onnx",
       {"--input", "x=a.npz"},
       usage,
       "--input x=a.npz: a .npz names its arrays itself. Hint: --input a.npz."},
      {"net.onnx", {"--input", "cut.npz"}, data_code, "cut.npz"},
      {"net.onnx",
       {"--input", "other.npz"},
       usage,
       "net.onnx: it has no input 'masks'. Did you mean 'mask'? Its inputs: x, mask."},
      {"net.onnx",
       {"--input", "half.npz"},
       usage,
       "net.onnx: inputs are missing: 'mask' (f32[rows, 6]). Hint: --input NAME=FILE.npy."},
      {"net.onnx",
       {"--input", "a.npz", "half.npz"},
       usage,
       "net.onnx: a batch is an array of every input. Got 2 of 'x' and 1 of 'mask'."},
      {"net.onnx",
       {"--input", "doubles.npy", "x.npy"},
       usage,
       "net.onnx: input 'x' is f32. Got f64."},
      {"net.onnx",
       {"--input", "a.npz", "wrong.npz"},
       usage,
       "wrong.npz: net.onnx: input 'mask' has the shape [rows, 6]. Got [6, 5]."},
      {"net.onnx",
       {"--input", "x.npy", "flat.npy"},
       usage,
       "net.onnx: input 'mask' has the shape [rows, 6]. Got [36]."},
      {"net.onnx",
       {"--input", "x.npy", "few.npy"},
       usage,
       "net.onnx: input 'mask' has the shape [rows, 6], where rows is 6. Got [2, 6]."},
      {"fixed.onnx",
       {"--input", "a.npz"},
       usage,
       "a.npz: fixed.onnx takes 4 rows of input 'x' at a time. Got 6."},
      {"open.onnx",
       {"--input", "x.npy", "long.npy", "x.npy", "short.npy"},
       usage,
       "open.onnx: 'length' is 9 in long.npy and 5 in short.npy, and the file that is written "
       "takes one. Hint: --dim length=9."},
      {"net.onnx",
       {"--input", "a.npz", "--dim", "length=4"},
       usage,
       "[onnx] net.onnx: its inputs have no extent 'length' to bind. Known: rows."},
      {"net.onnx",
       {"--input", "x.npy", "nan.npy"},
       data_code,
       "nan.npy: the array of input 'mask' has a NaN at [2, 3]."},
      {"net.onnx",
       {"--input", "nothing.npy", "nothing.npy"},
       data_code,
       "nothing.npy: the array of input 'x' has no elements: it is f32[0, 6]."},
      {"missing.onnx", {"--input", "a.npz"}, usage, "missing.onnx: there is no such file."},
      {"run", {"--input", "a.npz"}, usage, "--input calibrates ONNX files. Got run."}};
  for (const Row& row : rows) {
    std::vector<std::string> arguments = {"quantize", row.net, "out.onnx", "--to", "int8"};
    arguments.insert(arguments.end(), row.arguments.begin(), row.arguments.end());
    CHECK(fails_with(place.weft(arguments), row.code, row.message) == "");
    CHECK_FALSE(std::filesystem::exists(place.path("out.onnx")));
  }
  CHECK(fails_with(place.weft({"quantize", "net.onnx", "out", "--to", "int8", "--input", "a.npz"}),
                   usage, "an ONNX file is quantized to a file whose name ends in .onnx.") == "");
  const auto goes_on = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"quantize", "open.onnx", "out.onnx", "--to", "int8"});
    return place.weft(more).code;
  };
  // Batches may differ in what --dim binds.
  CHECK(goes_on({"--input", "x.npy", "long.npy", "x.npy", "short.npy", "--dim", "length=7"}) == 0);
}
