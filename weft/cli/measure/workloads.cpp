#include "weft/cli/measure/workloads.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/memory/memory.h"
#include "weft/base/text/suggest.h"
#include "weft/device/registry.h"
#include "weft/models/model.h"
#include "weft/nn/module.h"
#include "weft/optim/adam.h"
#include "weft/optim/sgd.h"
#include "weft/runtime/executable.h"

namespace weft::cli {
namespace {
constexpr unsigned seed = 1337;

// This is the generator of tests/reference/README.md: bench/peers draws the same batches from it.
uint64_t splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}
constexpr uint64_t inputs_stream = 1000, labels_stream = 2000;

// Returns numbers in [-1, 1).
Variable formula_numbers(uint64_t stream, const Shape& shape) {
  const Variable numbers("numbers", {DType::f32, shape}, Category::input);
  uint64_t index = splitmix64(stream);
  for (float& element : numbers.floats())
    element = static_cast<float>(static_cast<double>(splitmix64(index++) >> 11) * 0x1p-52 - 1);
  return numbers;
}
Variable formula_ids(uint64_t stream, const Shape& shape, int64_t count) {
  const Variable ids("ids", {DType::i64, shape}, Category::input);
  uint64_t index = splitmix64(stream);
  const std::span<std::byte> bytes = ids.bytes();
  for (size_t i = 0; i < bytes.size(); i += sizeof(int64_t)) {
    const auto id = static_cast<int64_t>(splitmix64(index++) % static_cast<uint64_t>(count));
    std::memcpy(&bytes[i], &id, sizeof id);
  }
  return ids;
}

std::unique_ptr<optim::Optimizer> sgd(std::vector<Variable> parameters) {
  return std::make_unique<optim::SGD>(
      std::move(parameters), optim::SGDOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4});
}
std::unique_ptr<optim::Optimizer> adamw(std::vector<Variable> parameters) {
  return std::make_unique<optim::AdamW>(std::move(parameters),
                                        optim::AdamOptions{.lr = 1e-4, .weight_decay = 0.1});
}

// Checks the fit before anything is filled; the plan checks its own memory.
void check_workload_fits(std::string_view what, std::initializer_list<Type> types) {
  double bytes = 0;
  for (const Type& type : types) bytes += static_cast<double>(type.bytes());
  check_fits(fmt::format("the workload does not fit: {}", what),
             static_cast<size_t>(std::min(bytes, 0x1p62)));
}

// Training measures the forward pass, the backward pass and the update of a model.
class Training : public Workload {
 public:
  Training(std::string_view model, const nn::Options& config, const TaskShape& task,
           const WorkloadOptions& options) {
    const int64_t batch = options.batch;
    bool tokens = task.kind == InputKind::tokens;
    Type type = task.batch(batch);
    Shape labels = tokens ? type.shape : Shape{batch};
    check_workload_fits("the elements of its batch", {type, {DType::i64, labels}});
    {
      nn::BuildScope scope({.initialize = false});  // untouched pages take no memory
      size_t bytes = 0;
      for (const Variable& parameter : make_model(model, config, task)->parameters())
        bytes += parameter.type().bytes();
      check_fits("the workload does not fit: its weights", bytes);
    }
    model_ = make_model(model, config, task);
    optimizer_ = tokens ? adamw(model_->parameters()) : sgd(model_->parameters());
    inputs_ = tokens ? formula_ids(inputs_stream, type.shape, task.classes)
                     : formula_numbers(inputs_stream, type.shape);
    labels_ = formula_ids(labels_stream, labels, task.classes);
    items_ = static_cast<double>(element_count(labels));
    compile(
        [this](std::span<const Tensor>) -> std::vector<Tensor> {
          Tensor loss = cross_entropy((*model_)(inputs_), labels_);
          optimizer_->step(grad(loss, optimizer_->parameters()));
          return {loss};
        },
        options.compile);
  }

  Model* model() override { return model_.get(); }

 private:
  std::unique_ptr<Model> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Variable inputs_, labels_;
};

// Update measures the update of GPT-2's parameters alone; items are bytes, per parameter 16 read
// and 12 written.
class Update : public Workload {
 public:
  explicit Update(const WorkloadOptions& options) {
    std::vector<int64_t> sizes = {50257 * 768, 1024 * 768};
    sizes.insert(sizes.end(), 12, 7087872);
    std::vector<Variable> parameters;
    for (int64_t size : sizes) {
      std::string name = std::to_string(parameters.size());
      parameters.push_back(make(name, size, Category::parameter));
      gradients_.push_back(make("gradient." + name, size, Category::gradient));
      items_ += 28 * static_cast<double>(size);
    }
    optimizer_ = adamw(std::move(parameters));
    compile(
        [this](std::span<const Tensor>) -> std::vector<Tensor> {
          optimizer_->step(std::vector<Tensor>(gradients_.begin(), gradients_.end()));
          return {};
        },
        options.compile);
  }

 private:
  static Variable make(const std::string& name, int64_t size, Category category) {
    Variable variable(name, {DType::f32, {size}}, category);
    std::minstd_rand generator(seed);
    for (float& element : variable.floats()) element = static_cast<float>(generator()) * 1e-9f - 1;
    return variable;
  }

  std::vector<Variable> gradients_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

// RowWorkload measures one operation on rows, forward and backward; items are the minimum bytes
// moved. Results stay in the memory of the device.
class RowWorkload : public Workload {
 public:
  // `weights` are parameters with an element per column, also differentiated. With `is_loss`, the
  // operation returns a scalar and has no upstream gradient.
  using Operation = std::function<Tensor(const Tensor& x, std::span<const Variable> weights)>;
  RowWorkload(const WorkloadOptions& options, int passes, const Operation& operation,
              unsigned weights = 0, bool is_loss = false) {
    Shape shape{options.batch, options.length};
    Type type{DType::f32, shape};  // type of the rows, the upstream gradients and the results
    check_workload_fits("the elements of its rows", {type, type, type, type});
    if (!is_loss) upstream_ = filled("upstream", shape, 1);
    inputs_of_gradient_ = {filled("x", shape, 2)};
    for (unsigned i = 0; i < weights; ++i)
      inputs_of_gradient_.push_back(filled("weight", {options.length}, 3 + i));
    items_ = passes * 4.0 * static_cast<double>(element_count(shape));
    outputs_.emplace_back("y", is_loss ? Type{DType::f32, {}} : type, Category::output);
    for (const Variable& input : inputs_of_gradient_)
      outputs_.emplace_back("gradient", input.type(), Category::output);
    compile(
        [this, operation, is_loss](std::span<const Tensor>) -> std::vector<Tensor> {
          std::span<const Variable> all = inputs_of_gradient_;
          Tensor y = operation(all.front(), all.subspan(1));
          Tensor loss = is_loss ? y : sum(y * upstream_);
          const std::vector<Tensor> gradients = grad(loss, all);
          outputs_[0].assign(y);
          for (size_t i = 0; i < gradients.size(); ++i) outputs_[1 + i].assign(gradients[i]);
          return {};
        },
        options.compile);
  }

 private:
  static Variable filled(const std::string& name, const Shape& shape, unsigned salt) {
    Variable variable(name, {DType::f32, shape}, Category::buffer_state);
    std::minstd_rand generator(seed + salt);
    for (float& element : variable.floats()) element = static_cast<float>(generator()) * 1e-9f - 1;
    return variable;
  }
  std::vector<Variable> inputs_of_gradient_, outputs_;
  Variable upstream_;
};

// Decode measures the linear layers of decoding a language model: each token reads weights that no
// cache holds, once, for `batch` sequences. Items are the bytes of the weights.
class Decode : public Workload {
 public:
  explicit Decode(const WorkloadOptions& options) {
    constexpr int layers = 8;
    constexpr int64_t hidden = 2048;
    const int64_t batch = options.batch, wide = options.length;
    const Type up{DType::bf16, {wide, hidden}}, down{DType::bf16, {hidden, wide}};
    const Type rows{DType::f32, {batch, hidden}};
    const Type all_weights{DType::bf16, {2 * layers, wide, hidden}};
    check_workload_fits("its weights and rows",
                        {all_weights, rows, rows, {DType::f32, {batch, wide}}});
    for (int i = 0; i < layers; ++i)
      for (const Type& type : {up, down}) weights_.push_back(filled("weight", type));
    items_ = static_cast<double>(all_weights.bytes());
    x_ = filled("x", rows);
    y_ = Variable("y", rows, Category::output);
    compile(
        [this](std::span<const Tensor>) -> std::vector<Tensor> {
          Tensor x = x_;
          for (const Variable& weight : weights_) x = linear(x, weight);
          y_.assign(x);
          return {};
        },
        options.compile);
  }

 private:
  // The numbers are so small that sums of thousands of products stay small.
  static Variable filled(const std::string& name, const Type& type) {
    Variable variable(name, type, Category::buffer_state);
    std::minstd_rand generator(seed);
    for (int64_t i = 0; i < type.elements(); ++i)
      store(variable.bytes().data(), type.dtype, i, generator() * 0x1p-36 - 0x1p-6);
    return variable;
  }
  std::vector<Variable> weights_;
  Variable x_, y_;
};

std::unique_ptr<Workload> make_mlp(const WorkloadOptions& options) {
  return std::make_unique<Training>("mlp", nn::Options{}, TaskShape{InputKind::features, {784}, 10},
                                    options);
}
std::unique_ptr<Workload> make_mnist_conv(const WorkloadOptions& options) {
  return std::make_unique<Training>("cnn", nn::Options{},
                                    TaskShape{InputKind::images, {1, 28, 28}, 10}, options);
}
std::unique_ptr<Workload> make_resnet20(const WorkloadOptions& options) {
  return std::make_unique<Training>("resnet20", nn::Options{},
                                    TaskShape{InputKind::images, {3, 32, 32}, 10}, options);
}
std::unique_ptr<Workload> make_gpt_char(const WorkloadOptions& options) {
  nn::Options config = {{"hidden_size", 128},
                        {"num_hidden_layers", 4},
                        {"num_attention_heads", 4},
                        {"bias", false},
                        {"hidden_act", "gelu"}};
  return std::make_unique<Training>("gpt", config,
                                    TaskShape{InputKind::tokens, {options.length}, 65}, options);
}
std::unique_ptr<Workload> make_gpt2_of(std::string_view size, const WorkloadOptions& options) {
  return std::make_unique<Training>(size, nn::Options{{"max_position_embeddings", 1024}},
                                    TaskShape{InputKind::tokens, {options.length}, 50257}, options);
}
std::unique_ptr<Workload> make_gpt2(const WorkloadOptions& options) {
  return make_gpt2_of("gpt2", options);
}
std::unique_ptr<Workload> make_gpt2_xl(const WorkloadOptions& options) {
  return make_gpt2_of("gpt2-xl", options);
}
std::unique_ptr<Workload> make_bert(const WorkloadOptions& options) {
  nn::Options config = {{"max_position_embeddings", 512}, {"hidden_dropout_prob", 0.0}};
  return std::make_unique<Training>("bert", config,
                                    TaskShape{InputKind::tokens, {options.length}, 30522}, options);
}
std::unique_ptr<Workload> make_lstm(const WorkloadOptions& options) {
  return std::make_unique<Training>("lstm", nn::Options{},
                                    TaskShape{InputKind::tokens, {options.length}, 10000}, options);
}
TaskShape photographs() { return {InputKind::images, {3, 224, 224}, 1000}; }
std::unique_ptr<Workload> make_resnet50(const WorkloadOptions& options) {
  return std::make_unique<Training>("resnet50", nn::Options{}, photographs(), options);
}
std::unique_ptr<Workload> make_alexnet(const WorkloadOptions& options) {
  return std::make_unique<Training>("alexnet", nn::Options{}, photographs(), options);
}
std::unique_ptr<Workload> make_adamw(const WorkloadOptions& options) {
  return std::make_unique<Update>(options);
}
std::unique_ptr<Workload> make_decode(const WorkloadOptions& options) {
  return std::make_unique<Decode>(options);
}

using Weights = std::span<const Variable>;
std::unique_ptr<Workload> make_softmax(const WorkloadOptions& options) {
  return std::make_unique<RowWorkload>(options, 5,
                                       [](const Tensor& x, Weights) { return softmax(x); });
}
std::unique_ptr<Workload> make_layer_norm(const WorkloadOptions& options) {
  auto norm = [](const Tensor& x, Weights weights) {
    return layer_norm(x, weights[0].value(), weights[1].value());
  };
  return std::make_unique<RowWorkload>(options, 5, norm, 2);
}
std::unique_ptr<Workload> make_gelu(const WorkloadOptions& options) {
  return std::make_unique<RowWorkload>(options, 5,
                                       [](const Tensor& x, Weights) { return gelu(x); });
}
std::unique_ptr<Workload> make_cross_entropy(const WorkloadOptions& options) {
  check_workload_fits("its labels", {{DType::i64, {options.batch}}});
  const Variable labels = formula_ids(labels_stream, {options.batch}, options.length);
  return std::make_unique<RowWorkload>(
      options, 3, [labels](const Tensor& x, Weights) { return cross_entropy(x, labels); }, 0, true);
}

const WorkloadKind kinds[] = {
    {"mlp", "784-256-10, SGD", " img", {128, 0}, make_mlp},
    {"mnist-conv",
     "32 and 64 channels, two poolings, 128 hidden, SGD",
     " img",
     {128, 0},
     make_mnist_conv},
    {"resnet20", "CIFAR variant, SGD", " img", {128, 0}, make_resnet20},
    {"gpt-char",
     "4 layers, 4 heads, 128 wide, vocabulary 65, AdamW",
     " tok",
     {12, 64},
     make_gpt_char},
    {"gpt2", "12 layers, 12 heads, 768 wide, vocabulary 50257, AdamW", " tok", {4, 64}, make_gpt2},
    {"gpt2-xl",
     "48 layers, 25 heads, 1600 wide, vocabulary 50257, AdamW",
     " tok",
     {1, 64},
     make_gpt2_xl},
    {"bert", "BERT-base, every token predicted, AdamW", " tok", {8, 128}, make_bert},
    {"lstm", "2 layers, 512 wide, vocabulary 10000, AdamW", " tok", {64, 35}, make_lstm},
    {"resnet50", "224 x 224, SGD", " img", {16, 0}, make_resnet50},
    {"alexnet", "224 x 224, dropout 0.5, SGD", " img", {64, 0}, make_alexnet},
    {"adamw", "the optimizer update alone, 124M parameters", "B", {0, 0}, make_adamw},
    {"softmax", "forward and backward over rows", "B", {16384, 4096}, make_softmax},
    {"layer-norm", "forward and backward over rows", "B", {16384, 4096}, make_layer_norm},
    {"gelu", "forward and backward", "B", {16384, 4096}, make_gelu},
    {"cross-entropy", "forward and backward over rows", "B", {16384, 4096}, make_cross_entropy},
    {"decode", "16 linear layers of a decoder, bfloat16 weights", "B", {1, 5632}, make_decode},
};
}  // namespace

void Workload::compile(CompiledStep::Function function, const StepOptions& options) {
  memory_ = &library(options.device).memory();
  compiled_ = std::make_unique<CompiledStep>(std::move(function), options);
}

double Workload::step() {
  std::span<const Tensor> results = compiled_->run({});
  if (!results.empty()) return results.front().item();
  memory_->finish();
  return 0;
}

Executable& Workload::executable() { return compiled_->prepare({}); }

std::span<const WorkloadKind> workload_kinds() { return kinds; }

bool is_workload(std::string_view name) {
  return std::ranges::find(kinds, name, &WorkloadKind::name) != std::end(kinds);
}

const WorkloadKind& find_workload(std::string_view name) {
  std::vector<std::string_view> names;
  for (const WorkloadKind& kind : kinds) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  std::string_view similar = nearest(name, names);
  throw Error(ErrorKind::usage, "no workload '{}'. {}", name,
              similar.empty() ? fmt::format("Known: {}.", fmt::join(names, ", "))
                              : fmt::format("Did you mean {}?", similar));
}

WorkloadOptions workload_options(const WorkloadKind& kind, int64_t batch, int64_t length,
                                 Precision precision) {
  if (batch > 0 && kind.initial.batch == 0)
    throw Error(ErrorKind::usage, "the workload {} has no batch.", kind.name);
  if (length > 0 && kind.initial.length == 0)
    throw Error(ErrorKind::usage, "the workload {} has no length.", kind.name);
  return {batch > 0 ? batch : kind.initial.batch,
          length > 0 ? length : kind.initial.length,
          {.precision = precision}};
}

std::unique_ptr<Workload> make_workload(const WorkloadKind& kind, const WorkloadOptions& options) {
  std::unique_ptr<Workload> workload = kind.make(options);
  const StepOptions& compile = options.compile;
  if ((compile.precision != Precision::as_written || compile.memory > 0 ||
       compile.recompute != Recompute::automatic) &&
      workload->model() == nullptr)
    throw Error(ErrorKind::usage,
                "the workload {} has no model: --precision and memory limits do not apply to it.",
                kind.name);
  return workload;
}

}  // namespace weft::cli
