// Compares small forms of every architecture with PyTorch on the same weights and batches: logits
// in float32, twenty losses in float64, and the logits after them; all logits in eval mode.
#include <doctest/doctest.h>

#include "tests/models/reference.h"
#include "tests/support/near.h"
#include "weft/models/model.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
nn::Option option_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  return value.get<std::vector<int64_t>>();
}
nn::Options options_of(const Json& object) {
  nn::Options options;
  for (const auto& [key, value] : object.items()) options.set(key, option_of(value));
  return options;
}

TaskShape reference_task(const Json& task) {
  Shape input(std::span<const int64_t>(task.at("input").get<std::vector<int64_t>>()));
  InputKind kind = task.at("kind") == "tokens" ? InputKind::tokens : InputKind::images;
  return {kind, input, task.at("classes"), task.value("vocabulary", int64_t{0})};
}

std::unique_ptr<Model> build_reference(const Json& reference, DType dtype) {
  nn::BuildScope scope({.dtype = dtype, .initialize = true});  // also running variances
  TaskShape task = reference_task(reference.at("task"));
  const Json& weft = reference.at("weft");
  std::unique_ptr<Model> model;
  if (weft.contains("layers")) {
    std::vector<nn::LayerSpec> layers;
    for (const Json& layer : weft.at("layers"))
      layers.push_back({layer.at("name"), options_of(layer.at("options"))});
    model = make_layers_model(layers, task);
  } else {
    model = make_model(weft.at("model").get<std::string>(), options_of(weft.at("config")), task);
  }
  // The parameters must have the names, order and shapes of the reference before they are set.
  auto parameters = model->named_parameters();
  const Json& expected = reference.at("parameters");
  REQUIRE(parameters.size() == expected.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    REQUIRE(parameters[i].name == expected[i].at("name").get<std::string>());
    REQUIRE(parameters[i].variable.shape() == shape_of(expected[i]));
  }
  set_weights(*model, expected);
  return model;
}

// Builds a masked batch: about 15 of 100 positions are replaced by the last token of the vocabulary
// and are to be predicted.
Batch masked_batch(uint64_t b, const Shape& shape, int64_t mask) {
  auto tokens = token_batch(b, shape, mask).inputs.to_vector<int64_t>();
  std::vector<int64_t> labels(tokens.size(), -100);
  for (size_t i = 0; i < tokens.size(); ++i)
    if (formula_integer(2000 + b, i, 100) < 15) labels[i] = std::exchange(tokens[i], mask);
  return {tensor(tokens, shape), tensor(labels, shape)};
}
// Builds a batch with one label for each row of tokens.
Batch sample_batch(uint64_t b, const Shape& shape, const TaskShape& task) {
  std::vector<int64_t> labels(static_cast<size_t>(shape[0]));
  for (size_t r = 0; r < labels.size(); ++r) labels[r] = formula_integer(2000 + b, r, task.classes);
  return {token_batch(b, shape, task.vocabulary).inputs, tensor(labels, {shape[0]})};
}

Batch batch_of(const Json& reference, uint64_t b, DType dtype) {
  TaskShape task = reference_task(reference.at("task"));
  Shape shape{reference.at("task").at("rows")};
  for (int64_t extent : task.input) shape.push_back(extent);
  if (task.kind == InputKind::images) return image_batch(b, shape, dtype);
  std::string labels = reference.at("task").value("labels", "next");
  if (labels == "masked") return masked_batch(b, shape, task.classes - 1);
  return task.labels_tokens() ? token_batch(b, shape, task.classes) : sample_batch(b, shape, task);
}

// Compares the elements of the logits that the file lists: a strided sample.
void check_strided_logits(const Tensor& logits, const Json& expected, double tolerance) {
  std::vector<double> all = logits.to_doubles();
  size_t listed = expected.size(), stride = std::max<size_t>(1, all.size() / listed);
  for (size_t i = 0; i < listed; ++i) {
    CAPTURE(i);
    REQUIRE(std::abs(all.at(i * stride) - expected[i].get<double>()) <= tolerance);
  }
}

void check_forward(const std::string& name) {
  CAPTURE(name);
  Json reference = reference_file(name + ".json");
  auto model = build_reference(reference, DType::f32);
  auto forward = compile([&](Tensor inputs) { return (*model)(inputs); }, {.mode = Mode::eval});
  Tensor logits = forward(batch_of(reference, 0, DType::f32).inputs);
  check_strided_logits(logits, reference.at("logits"),
                       1e-5 * reference.at("largest_logit").get<double>());
}

void check_training_curve(const std::string& name) {
  CAPTURE(name);
  Json reference = reference_file(name + ".json");
  auto model = build_reference(reference, DType::f64);
  auto optimizer = make_optimizer(*model, reference.at("optimizer"));
  auto step = compile([&](Tensor inputs, Tensor labels) {
    Tensor loss = cross_entropy((*model)(inputs), labels);
    optimizer->step(grad(loss, model->parameters()));
    return loss;
  });
  std::vector<Batch> batches;
  batches.reserve(8);
  for (uint64_t b = 0; b < 8; ++b) batches.push_back(batch_of(reference, b, DType::f64));
  const Json& losses = reference.at("loss_f64");
  for (size_t s = 0; s < losses.size(); ++s) {
    CAPTURE(s);
    const Batch& batch = batches[s % batches.size()];
    double expected = losses[s], loss = step(batch.inputs, batch.labels).item();
    REQUIRE(loss == near(expected, 1e-6));
  }
  auto evaluate = compile([&](Tensor inputs) { return (*model)(inputs); }, {.mode = Mode::eval});
  double largest = reference.at("largest_logit");
  check_strided_logits(evaluate(batches[0].inputs), reference.at("last_logits"), 1e-5 * largest);
}
}  // namespace

TEST_CASE("AlexNet: logits agree with PyTorch") { check_forward("alexnet_narrow"); }
TEST_CASE("narrow ResNets of both block types: logits and twenty losses agree with PyTorch") {
  for (const char* name : {"resnet18_narrow", "resnet50_narrow"}) {
    check_forward(name);
    check_training_curve(name);
  }
}
TEST_SUITE("slow full-width architectures") {
  TEST_CASE("ResNet-50 at full width: logits and losses agree with PyTorch") {
    check_forward("resnet50");
    check_training_curve("resnet50");
  }
  TEST_CASE("AlexNet at full width: logits and losses agree with PyTorch") {
    check_training_curve("alexnet_narrow");
    check_forward("alexnet");
    check_training_curve("alexnet");
  }
}

TEST_CASE("GPT-2 with biases: logits and twenty losses agree with PyTorch") {
  check_forward("gpt2");
  check_training_curve("gpt2");
}
TEST_CASE("LSTM and GRU: logits and twenty losses agree with PyTorch") {
  for (const char* name : {"lstm", "gru_both_ways"}) {
    check_forward(name);
    check_training_curve(name);
  }
}
TEST_SUITE("slow bidirectional recurrent nets") {
  TEST_CASE("bidirectional LSTM and GRU: logits and twenty losses agree with PyTorch") {
    for (const char* name : {"gru", "lstm_both_ways"}) {
      check_forward(name);
      check_training_curve(name);
    }
  }
}
TEST_CASE("BERT with both heads: logits and twenty losses agree with PyTorch") {
  for (const char* name : {"bert_masked", "bert_samples"}) {
    check_forward(name);
    check_training_curve(name);
  }
}
TEST_CASE("Llama: logits and twenty losses agree with PyTorch") {
  check_forward("llama");
  check_training_curve("llama");
}
