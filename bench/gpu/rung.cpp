// Runs one rung of the ladder of tools/gpu_smoke.py: a step of a few operations, planned and
// compiled for a device, run three times (directly, during graph capture, and as a captured graph),
// and compared with the same step on the CPU. Prints one JSON line.
//
//   gpu_rung --list
//   gpu_rung bias_gelu [--device cuda] [--small] [--build]    (--build: compiles only)
//
// This is one file because every .cpp of bench/ is a program of its own.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include <weft/base/error.h>
#include <weft/base/host/stopwatch.h>
#include <weft/base/memory/device_memory.h>
#include <weft/device/registry.h>
#include <weft/io/json.h>
#include <weft/ir/op_def.h>
#include <weft/ops/wide.h>
#include <weft/runtime/executable.h>
#include <weft/weft.h>

using namespace weft;

namespace {
using nlohmann::json;
using Tensors = std::span<const Tensor>;

// Problem is a step and its inputs. `tolerance` is relative to the largest element of each result.
struct Problem {
  std::vector<Type> inputs;
  CompiledStep::Function function;
  double tolerance = 1e-5;
  StepOptions options = {};
  int64_t classes = 0;  // of integer inputs
};

// Sizes are the extents of a real layer, or small ones that a CPU computes in milliseconds.
struct Sizes {
  int64_t rows, inner, columns, length, heads, channels, extent, vocabulary;
};
constexpr Sizes full_sizes{2048, 768, 3072, 1024, 12, 64, 56, 50257};
constexpr Sizes small_sizes{24, 16, 32, 16, 2, 8, 6, 37};

Type bf16(const Shape& shape) { return {DType::bf16, shape}; }
Type f32(const Shape& shape) { return {DType::f32, shape}; }
Type ids(const Shape& shape) { return {DType::i64, shape}; }

std::vector<Tensor> with_gradients(const Tensor& y, const Tensor& dy, Tensors of) {
  std::vector<Tensor> all = grad(sum(widen(y) * widen(dy)), of);
  all.push_back(y);
  return all;
}

Problem product(const Sizes& n, DType dtype, Precision precision, double tolerance) {
  return {.inputs = {{dtype, {n.rows, n.inner}}, {dtype, {n.inner, n.columns}}},
          .function = [](Tensors in) { return std::vector{matmul(in[0], in[1])}; },
          .tolerance = tolerance,
          .options = {.precision = precision}};
}

// Computes a[M, K] b[K, N] and an epilogue that CUDA's library may compute with it.
using Epilogue = std::function<std::vector<Tensor>(const Tensor& product, Tensors in)>;
Problem epilogue(const Sizes& n, std::vector<Type> more, const Epilogue& function) {
  Problem made{.inputs = {bf16({n.rows, n.inner}), bf16({n.inner, n.columns})},
               .function = [function](Tensors in) { return function(matmul(in[0], in[1]), in); },
               .tolerance = 2e-2};
  made.inputs.insert(made.inputs.end(), more.begin(), more.end());
  return made;
}
Tensor biased(const Tensor& product, const Tensor& bias) {
  return narrow_to(widen(product) + bias, product.dtype());
}

Problem convolution(const Sizes& n, int64_t channels, int64_t kernel, int64_t stride,
                    bool gradients) {
  const ConvOptions options{.stride = {stride, stride}, .padding = {kernel / 2, kernel / 2}};
  const int64_t out = (n.extent - 1) / stride + 1;
  return {.inputs = {bf16({8, channels, n.extent, n.extent}),
                     bf16({n.channels, channels, kernel, kernel}), bf16({8, n.channels, out, out})},
          .function = [=](Tensors in) -> std::vector<Tensor> {
            const Tensor y = conv(in[0], in[1], {}, options);
            if (!gradients) return {y};
            return with_gradients(y, in[2], in.first(2));
          },
          .tolerance = 2e-2};
}

// Computes results from y, the attention over the first three inputs.
using Attended = std::function<std::vector<Tensor>(const Tensor& y, Tensors in)>;
Problem attend(const Sizes& n, const Attended& function) {
  const Type heads = bf16({2, n.heads, n.length, 64});
  return {.inputs = {heads, heads, heads, heads},
          .function =
              [=](Tensors in) {
                return function(attention(in[0], in[1], in[2], {.causal = true}), in);
              },
          .tolerance = 3e-2};
}
// Returns the log-sum-exp of each row, which a backward pass reads.
Tensor statistics_of(const Tensor& y) {
  return make_node(op("attention_logsumexp"), y->inputs, y->attrs);
}

// Returns a linear layer and its update, whose state outlives the step.
Problem training(const Sizes& n, bool offloaded) {
  const Variable weight("weight", f32({n.inner, n.columns}));
  for (size_t i = 0; i < weight.floats().size(); ++i)
    weight.floats()[i] = 0.02f * std::sin(static_cast<float>(i));
  // SGD is linear in the gradient and keeps rounding differences small, where Adam could flip
  // signs.
  auto optimizer = std::make_shared<optim::SGD>(std::vector{weight},
                                                optim::SGDOptions{.lr = 100, .momentum = 0.9});
  Problem made{.inputs = {f32({n.rows, n.inner})},
               .function = [=](Tensors in) -> std::vector<Tensor> {
                 const Tensor loss = mean(square(matmul(in[0], weight) - 1.0));
                 optimizer->step(grad(loss, optimizer->parameters()));
                 return {loss, sum(weight.value(), {.axes = {0}})};
               },
               .tolerance = 1e-4};
  if (offloaded)
    made.options.offload = {.categories = {Category::optimizer_state, Category::parameter},
                            .least = 1};
  return made;
}

Problem embedding_and_loss(const Sizes& n) {
  return {.inputs = {ids({n.rows / 8}), bf16({n.vocabulary, n.inner})},
          .function = [](Tensors in) -> std::vector<Tensor> {
            const Tensor x = embedding(in[0], in[1]) * 0.02;  // keeps probabilities away from 1
            const Tensor logits = matmul(x, transpose(in[1]));
            const Tensor loss = cross_entropy(widen(logits), in[0]);
            return {loss, grad(loss, in.subspan(1, 1))[0]};
          },
          .tolerance = 2e-2,
          .classes = n.vocabulary};
}

using Make = std::function<Problem(const Sizes&)>;
struct Rung {
  std::string name;
  Make make;
};

std::vector<Rung> plain_rungs() {
  return {
      {"elementwise",
       [](const Sizes& n) -> Problem {
         return {.inputs = {f32({n.rows, n.columns})},
                 .function = [](Tensors in) { return std::vector{exp(in[0]) * 2.0 + in[0]}; }};
       }},
      {"bfloat16",
       [](const Sizes& n) -> Problem {
         return {.inputs = {bf16({n.rows, n.columns})},
                 .function = [](Tensors in) { return std::vector{gelu_tanh(in[0])}; },
                 .tolerance = 1e-2};
       }},
      {"reduce",
       [](const Sizes& n) -> Problem {
         return {.inputs = {f32({n.rows, n.columns})}, .function = [](Tensors in) {
                   return std::vector{sum(in[0], {.axes = {0}}), sum(in[0], {.axes = {1}})};
                 }};
       }},
      {"softmax",
       [](const Sizes& n) -> Problem {
         return {.inputs = {f32({n.rows, n.columns})},
                 .function = [](Tensors in) { return std::vector{softmax(in[0])}; }};
       }},
      {"layer_norm",
       [](const Sizes& n) -> Problem {
         const Type x = f32({n.rows, n.inner}), row = f32({n.inner});
         return {.inputs = {x, row, row, x},
                 .function =
                     [](Tensors in) {
                       return with_gradients(layer_norm(in[0], in[1], in[2]), in[3], in.first(3));
                     },
                 .tolerance = 1e-4};
       }},
  };
}

std::vector<Rung> product_rungs() {
  return {
      {"product_f32",
       [](const Sizes& n) { return product(n, DType::f32, Precision::as_written, 1e-4); }},
      {"product_tf32",
       [](const Sizes& n) { return product(n, DType::f32, Precision::tf32, 1e-2); }},
      {"product_bf16",
       [](const Sizes& n) { return product(n, DType::bf16, Precision::as_written, 2e-2); }},
      {"product_f16",
       [](const Sizes& n) { return product(n, DType::f16, Precision::as_written, 2e-2); }},
      {"bias",
       [](const Sizes& n) {
         return epilogue(n, {f32({n.columns})}, [](const Tensor& product, Tensors in) {
           return std::vector{biased(product, in[2])};
         });
       }},
      {"gelu",
       [](const Sizes& n) {
         return epilogue(
             n, {}, [](const Tensor& product, Tensors) { return std::vector{gelu_tanh(product)}; });
       }},
      {"gelu_and_sum",
       [](const Sizes& n) {
         return epilogue(n, {}, [](const Tensor& product, Tensors) {
           return std::vector{product, gelu_tanh(product)};
         });
       }},
      {"bias_gelu",
       [](const Sizes& n) {
         return epilogue(n, {f32({n.columns})}, [](const Tensor& product, Tensors in) {
           return std::vector{gelu_tanh(biased(product, in[2]))};
         });
       }},
      {"bias_gelu_and_sum",
       [](const Sizes& n) {
         return epilogue(n, {f32({n.columns})}, [](const Tensor& product, Tensors in) {
           const Tensor sum = biased(product, in[2]);
           return std::vector{sum, gelu_tanh(sum)};
         });
       }},
      {"gelu_gradient",
       [](const Sizes& n) {
         return epilogue(n, {bf16({n.rows, n.columns})}, [](const Tensor& product, Tensors in) {
           const Tensor y = gelu_tanh(in[2]);
           return std::vector{y->op->gradient(y, product)[0]};
         });
       }},
      {"bias_gradient",
       [](const Sizes& n) -> Problem {
         return {.inputs = {bf16({n.rows, n.columns}), bf16({n.rows, n.inner})},
                 .function =
                     [](Tensors in) {
                       return std::vector{wide_matmul(transpose(in[0]), in[1]),
                                          sum(widen(in[0]), {.axes = {0}})};
                     },
                 .tolerance = 2e-2};
       }},
  };
}

std::vector<Rung> library_rungs() {
  return {
      {"conv1x1", [](const Sizes& n) { return convolution(n, n.channels, 1, 1, false); }},
      {"conv3x3", [](const Sizes& n) { return convolution(n, n.channels, 3, 1, false); }},
      {"conv7x7_stride2", [](const Sizes& n) { return convolution(n, 3, 7, 2, false); }},
      {"conv1x1_gradients", [](const Sizes& n) { return convolution(n, n.channels, 1, 1, true); }},
      {"conv3x3_gradients", [](const Sizes& n) { return convolution(n, n.channels, 3, 2, true); }},
      {"attention",
       [](const Sizes& n) {
         return attend(n, [](const Tensor& y, Tensors) { return std::vector{y}; });
       }},
      {"statistics",
       [](const Sizes& n) {
         return attend(n, [](const Tensor& y, Tensors) { return std::vector{statistics_of(y)}; });
       }},
      {"attention_and_statistics",
       [](const Sizes& n) {
         return attend(n,
                       [](const Tensor& y, Tensors) { return std::vector{y, statistics_of(y)}; });
       }},
      {"attention_gradient",
       [](const Sizes& n) {
         return attend(
             n, [](const Tensor& y, Tensors in) { return with_gradients(y, in[3], in.first(3)); });
       }},
      {"vocabulary", embedding_and_loss},
      {"graph", [](const Sizes& n) { return training(n, false); }},
      {"offload", [](const Sizes& n) { return training(n, true); }},
  };
}

std::vector<Rung> rungs() {
  std::vector<Rung> all = plain_rungs();
  for (const auto& more : {product_rungs(), library_rungs()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Draws inputs, equal in every call, so that device and CPU get the same ones.
std::vector<Tensor> draw(const Problem& problem) {
  std::minstd_rand random(1);
  std::vector<Tensor> all;
  for (const Type& type : problem.inputs) {
    const auto count = static_cast<size_t>(type.elements());
    if (type.dtype == DType::i64) {
      std::vector<int64_t> elements(count);
      for (int64_t& id : elements) id = static_cast<int64_t>(random()) % problem.classes;
      all.push_back(tensor(elements, type.shape));
      continue;
    }
    std::vector<double> elements(count);
    for (double& element : elements) element = static_cast<double>(random()) * 0x1p-30 - 1;
    all.push_back(tensor(elements, type.shape, type.dtype));
  }
  return all;
}

constexpr int runs = 3;
using Results = std::vector<std::vector<double>>;

// Returns the elements of every result of every run; facts on the plan go to `facts`.
Results run_on(const std::string& device, const Rung& rung, const Sizes& sizes, json& facts) {
  Problem problem = rung.make(sizes);
  problem.options.device = device;
  CompiledStep step(problem.function, problem.options);
  const std::vector<Tensor> inputs = draw(problem);
  Stopwatch build;
  const Executable& executable = step.prepare(problem.inputs);
  facts["build_ms"] = build.milliseconds();
  for (const Launch& planned : executable.plan().launches)
    facts["kernels"].push_back({{"kernel", planned.kernel}, {"workspace", planned.workspace}});
  Results all;
  for (int i = 0; i < runs; ++i) {
    Stopwatch watch;
    std::vector<std::vector<double>> results;
    for (const Tensor& result : step.run(inputs)) results.push_back(result.to_doubles());
    facts["run_ms"].push_back(watch.milliseconds());
    all.insert(all.end(), results.begin(), results.end());
  }
  return all;
}

// Returns the largest difference, relative to the largest element of its result.
double distance(const Results& got, const Results& want) {
  double most = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double largest = 1e-30, apart = 0;
    for (size_t j = 0; j < want[i].size(); ++j) {
      const double off = std::abs(got[i][j] - want[i][j]);
      apart = std::isnan(off) ? INFINITY : std::max(apart, off);
      largest = std::max(largest, std::abs(want[i][j]));
    }
    most = std::max(most, apart / largest);
  }
  return most;
}

// Compiles the kernels into the cache, for a machine that has the device.
void build(const Rung& rung, const Sizes& sizes, const std::string& device) {
  Problem problem = rung.make(sizes);
  problem.options.device = device;
  CompiledStep(problem.function, problem.options).prepare(problem.inputs);
}

// Copies bytes to the device and back, without a kernel.
void copy_there_and_back(const std::string& device, bool small, json& facts) {
  DeviceMemory& memory = library(device).memory();
  if (memory.is_host()) {
    facts["note"] = "the memory of this device is the host's";
    return;
  }
  const size_t bytes = small ? 100'003 : 100'000'003;
  std::vector<std::byte> sent(bytes), received(bytes);
  for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i * 7919 >> 5);
  const auto buffer = memory.allocate(bytes);
  Stopwatch watch;
  memory.write(buffer->data, sent.data(), bytes);
  memory.read(received.data(), buffer->data, bytes);
  facts["run_ms"].push_back(watch.milliseconds());
  WEFT_CHECK(sent == received, "[rung] {} bytes came back changed.", bytes);
}

struct Arguments {
  std::string device = "cuda";
  bool small = false, only_build = false;
};

void climb(const std::string& name, const Arguments& arguments, json& facts) {
  const auto& [device, small, only_build] = arguments;
  if (name == "copy" && only_build) return;
  if (name == "copy") return copy_there_and_back(device, small, facts);
  const std::vector<Rung> all = rungs();
  const auto rung = std::ranges::find(all, name, &Rung::name);
  WEFT_CHECK(rung != all.end(), "[rung] no rung is named '{}'. Hint: --list names them.", name);
  const Sizes& sizes = small ? small_sizes : full_sizes;
  if (only_build) return build(*rung, sizes, device);
  json of_the_cpu;
  const Results got = run_on(device, *rung, sizes, facts);
  facts["selection"] = library(device).kernels().selection();
  const double apart = distance(got, run_on("cpu", *rung, sizes, of_the_cpu));
  const double tolerance = rung->make(sizes).tolerance;
  facts["apart"] = std::isfinite(apart) ? json(apart) : json("not a number");
  facts["allowed"] = tolerance;
  WEFT_CHECK(apart <= tolerance, "[rung] {} is {:.2g} of its largest element off. Allowed: {:.2g}.",
             name, apart, tolerance);
}
}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  Arguments arguments;
  if (const auto at = std::ranges::find(words, "--device");
      at != words.end() && at + 1 != words.end()) {
    arguments.device = *(at + 1);
    words.erase(at, at + 2);
  }
  arguments.small = std::erase(words, "--small") > 0;
  arguments.only_build = std::erase(words, "--build") > 0;
  if (words == std::vector<std::string>{"--list"}) {
    print("copy");
    for (const Rung& rung : rungs()) print("{}", rung.name);
    return 0;
  }
  if (words.size() != 1) {
    fmt::print(stderr, "usage: gpu_rung --list | RUNG [--device NAME] [--small] [--build]\n");
    return 2;
  }
  json facts = {{"rung", words[0]}, {"state", "passed"}};
  int code = 0;
  try {
    climb(words[0], arguments, facts);
  } catch (const Error& error) {
    code = static_cast<int>(error.kind());
    facts["state"] = "failed";
    facts["error"] = error.what();
  } catch (const std::exception& error) {
    code = 1;
    facts["state"] = "failed";
    facts["error"] = error.what();
  }
  print("{}", io::json_text(facts));
  return code;
}
