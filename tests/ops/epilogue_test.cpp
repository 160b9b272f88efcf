// Tests epilogues and prologues of cuBLASLt: plans use them, and every backend computes what the
// graph means, in one kernel or in faster separate ones; in several where cuBLASLt refuses the
// epilogue (FAKE_CUBLASLT_REFUSES=2).
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/values.h"
#include "weft/device/registry.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/ops/wide.h"
#include "weft/passes/passes.h"
#include "weft/runtime/executable.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Builds products of graph inputs, which are never folded.
struct Product {
  DType type = DType::bf16;
  int64_t columns = 24;
  std::vector<Value> inputs = {};

  Value draw(const Shape& shape, DType dtype) {
    inputs.push_back(input({dtype, shape}, static_cast<int>(inputs.size())));
    return inputs.back();
  }
  Value product() {
    const Value a = draw({2, 3, 16}, type);
    return matmul(a, draw({16, columns}, type));
  }
  Value biased() {
    const Value sum = widen(product());
    return narrow_to(sum + draw({columns}, DType::f32), type);
  }
  Value like_product() { return draw({2, 3, columns}, type); }

  // Returns the names of the CUDA kernels, after checking the values.
  std::string kernels(std::vector<Value> outputs, const PassOptions& more = {}) const {
    const Graph graph{.inputs = inputs, .outputs = std::move(outputs)};
    Random random(5);
    std::vector<Value> given;
    given.reserve(inputs.size());
    for (const Value& leaf : inputs) given.push_back(random_values(leaf.type(), -1.5, 1.5, random));
    const std::vector<Interpreted> want = interpret_with_errors(graph, given);
    for (const char* tunes : {"0", "1"}) {
      setenv("WEFT_TUNE", tunes, 1);
      for (const KernelLibrary* library : backends()) {
        INFO(library->name() << " " << tunes);
        CHECK(disagreement(run_planned(graph, given, *library), want, *library) == "");
      }
      unsetenv("WEFT_TUNE");
    }
    PassOptions options = more;
    options.library = &library("null:cuda:h200");
    options.verify = true;
    std::string names;
    for (const Launch& launch : make_plan(graph, options).launches) names += launch.kernel + " ";
    return names;
  }
};

Value gelu_gradient(const Value& at, const Value& dy) {
  const Value y = gelu_tanh(at);
  return y->op->gradient(y, dy)[0];
}
}  // namespace

TEST_CASE("on CUDA a 16-bit product has a GELU epilogue that can also store its sums") {
  for (const DType type : {DType::bf16, DType::f16}) {
    CAPTURE(name(type));
    Product of{type};
    const Value sum = of.biased(), product = of.product();
    CHECK(of.kernels({gelu_tanh(sum)}) == "cublaslt:matmul.bias.gelu ");
    CHECK(of.kernels({sum, gelu_tanh(sum)}) == "cublaslt:matmul.bias.gelu.and_sum ");
    CHECK(of.kernels({gelu_tanh(product)}) == "cublaslt:matmul.gelu ");
    CHECK(of.kernels({product, gelu_tanh(product)}) == "cublaslt:matmul.gelu.and_sum ");
    // Where values are rematerialized, what is cheap to compute is a kernel of its own.
    CHECK(of.kernels({sum, gelu_tanh(sum)}, {.step = {.recompute = Recompute::full}})
              .starts_with("cublaslt:matmul.bias cast"));
    const Value wide = widen(gelu_tanh(sum));
    CHECK(of.kernels({sum, weft::sum(wide, {.axes = {0}}), weft::sum(wide, {.axes = {1}})},
                     {.step = {.recompute = Recompute::full}}) ==
          "cublaslt:matmul.bias cast.mul.mul.mul+9 cast.mul.mul.mul+9 ");
  }
}

TEST_CASE("on CUDA a 16-bit product has an epilogue for the gradient of GELU") {
  for (const DType type : {DType::bf16, DType::f16}) {
    CAPTURE(name(type));
    Product of{type};
    const Value at = of.like_product(), gradient = gelu_gradient(at, of.product());
    CHECK(of.kernels({gradient}) == "cublaslt:matmul.gelu_gradient ");
    // A sum reads the stored gradient; a sum of unrounded values keeps these out of the product.
    CHECK(of.kernels({gradient, sum(widen(gradient), {.axes = {0, 1}})}) ==
          "cublaslt:matmul.gelu_gradient cast.sum ");
    const Value wide = widen(at) * widen(of.product());
    CHECK(of.kernels({narrow_to(wide, type), sum(wide)}).starts_with("cublaslt:matmul cast.cast"));
  }
}

TEST_CASE("on CUDA the gradient of a bias is an epilogue of the weight gradient") {
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    CAPTURE(name(type));
    Product of{type};
    const Value dy = of.like_product(), x = of.draw({6, 16}, type);
    const Value rows = reshape(dy, {6, of.columns});
    const Value weight = wide_matmul(transpose(rows), x);
    const Value wide = widen(dy), bias = sum(wide, {.axes = {0, 1}});
    CHECK(of.kernels({weight, bias}) == "cublaslt:matmul.bias_gradient ");
    CHECK(of.kernels({weight, sum(wide, {.axes = {2}})}).find("gradient") == std::string::npos);
    CHECK(of.kernels({weight, sum(wide * 2.0, {.axes = {0, 1}})}).find("gradient") ==
          std::string::npos);
    CHECK(of.kernels({wide_matmul(transpose(x), rows), bias}).find("gradient") ==
          std::string::npos);
  }
}

TEST_CASE("on CUDA expressions that only resemble the GELU epilogue get their own kernel") {
  Product of;
  const Value sum = of.biased(), at = of.like_product();
  for (const Value& other : {gelu(sum), silu(sum), narrow_to(widen(gelu_tanh(sum)) * 2.0, of.type),
                             gelu_tanh(sum * 1.25), gelu_gradient(sum, at), sum * gelu_tanh(at),
                             clamp(gelu_tanh(sum), -10, 10), minimum(gelu_tanh(sum), 600.0),
                             gelu_gradient(at, clamp(of.product(), -8, 8))}) {
    const std::string names = of.kernels({other});
    CAPTURE(names);
    CHECK(names.find("gelu") == std::string::npos);
  }
  for (Product of : {Product{.columns = 20}, Product{.type = DType::f32}}) {
    const Value dy = of.product(), sum = of.biased();
    CHECK(of.kernels({gelu_tanh(sum), gelu_gradient(of.like_product(), dy)}).find("gelu") ==
          std::string::npos);
  }
}

// cuBLASLt assumes that the auxiliary matrix of an epilogue is aligned to 16 bytes.
TEST_CASE("on CUDA an auxiliary matrix of an epilogue is copied where misaligned") {
  for (const int64_t begin : {0, 1, 3, 4, 8}) {
    CAPTURE(begin);
    Product of;
    const Value memory = of.draw({2 * 3 * 24 + 8}, of.type);
    const Value at = reshape(slice(memory, 0, begin, begin + 2 * 3 * 24), {2, 3, 24});
    const bool is_aligned = begin % 8 == 0;
    CHECK(of.kernels({gelu_gradient(at, of.product())}) ==
          (is_aligned ? "cublaslt:matmul.gelu_gradient " : "copy cublaslt:matmul.gelu_gradient "));
  }
}

// A part of a concatenation with no other reader is stored directly into the result.
TEST_CASE("on CUDA the gradient of a bias is copied where its destination is misaligned") {
  for (const int64_t before : {3, 32}) {
    CAPTURE(before);
    Product of;
    const Value dy = of.like_product(), x = of.draw({6, 16}, of.type);
    const Value weight = wide_matmul(transpose(reshape(dy, {6, 24})), x);
    const std::vector<Value> parts{neg(of.draw({before}, DType::f32)),
                                   sum(widen(dy), {.axes = {0, 1}})};
    const std::string names = of.kernels({weight, concat(parts, 0)});
    CAPTURE(names);
    CHECK(names.find("cublaslt:matmul.bias_gradient ") != std::string::npos);
    CHECK((names.find("copy") != std::string::npos) == (before == 3));
  }
}

TEST_CASE("on CUDA a bias may begin at any address") {
  const KernelLibrary& cuda = *backends().back();
  if (cuda.name() != "cuda" || getenv("FAKE_CUBLASLT_REFUSES") != nullptr) return;
  Product of{.type = DType::f32};
  const Value sum = of.biased();
  const Graph graph{.inputs = of.inputs, .outputs = {sum}};
  const Plan plan = make_plan(graph, {.library = &cuda});
  REQUIRE(plan.launches.size() == 1);
  Launch launch = plan.launches[0];
  REQUIRE(launch.kernel == "cublaslt:matmul.bias");
  for (const int64_t begin : {0, 1, 3, 4, 7}) {
    CAPTURE(begin);
    launch.operands[2].at.offset = begin;
    std::vector<Placement> at;
    at.reserve(launch.operands.size());
    for (const Access& operand : launch.operands) at.push_back(operand.at);
    const std::vector<Value> results{launch.results[0].value};
    launch.workspace = cuda.kernels().choose_with(launch.body, results, at).value().workspace;
    const std::unique_ptr<Kernel> kernel = cuda.compiler().compile(plan, launch);

    DeviceMemory& memory = cuda.memory();
    std::vector<float> ones(6 * 16, 1), weights(16 * 24, 2), bias(32), got(6 * 24);
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
    std::vector<std::shared_ptr<Buffer>> rooms;
    std::vector<void*> operands;
    for (const auto* numbers : {&ones, &weights, &bias}) {
      rooms.push_back(memory.allocate(numbers->size() * sizeof(float)));
      memory.write(rooms.back()->data, numbers->data(), numbers->size() * sizeof(float));
      operands.push_back(rooms.back()->data);
    }
    const auto result = memory.allocate(got.size() * sizeof(float)),
               scratch = memory.allocate(launch.workspace);
    void* to = result->data;
    kernel->run(operands.data(), &to, scratch->data);
    memory.read(got.data(), result->data, got.size() * sizeof(float));
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(got[i] == 32 + static_cast<float>(static_cast<size_t>(begin) + i % 24));
  }
}

TEST_CASE("on CUDA tuned products are keyed by the alignment of their operands") {
  const KernelLibrary& cuda = *backends().back();
  if (cuda.name() != "cuda") return;
  const std::string shape = ": 1 x 6 x 40 x 16";  // a shape that no other test uses
  const auto measured = [&] {
    std::vector<std::string> names;
    for (const auto& [what, chosen] : cuda.kernels().selection())
      if (what.find(shape) != std::string::npos) names.push_back(what);
    return names;
  };
  setenv("WEFT_TUNE", "1", 1);
  for (const int64_t begin : {0, 8, 1, 2, 9}) {
    Product of;
    const Value memory = of.draw({6 * 16 + 9}, of.type);
    const Value a = reshape(slice(memory, 0, begin, begin + 6 * 16), {6, 16});
    const Value product = matmul(a, of.draw({16, 40}, of.type));
    const auto run = compile_graph({.inputs = of.inputs, .outputs = {product}}, cuda,
                                   std::make_shared<Workspace>());
  }
  unsetenv("WEFT_TUNE");
  const std::vector<std::string> names = measured();
  REQUIRE(names.size() == 3);  // aligned to 16 bytes, to an element, to two elements
  CHECK(std::ranges::count_if(names, [](const std::string& name) {
          return name.find(", aligned to ") != std::string::npos;
        }) == 2);
}

TEST_CASE("on CUDA rows with gaps are copied for a product with an epilogue") {
  Product of;
  const Value x = of.draw({2, 4, 16}, of.type), matrix = of.draw({16, 24}, of.type);
  const Value product = widen(matmul(slice(x, 1, 0, 3), matrix));
  const Value sum = narrow_to(product + of.draw({24}, DType::f32), of.type);
  CHECK(of.kernels({sum, gelu_tanh(sum)}) == "copy cublaslt:matmul.bias.gelu.and_sum ");
}

TEST_CASE("mixed precision rounds the sums that a GELU epilogue stores") {
  Product of{.type = DType::f32};
  const Value sum = of.biased(), last = of.draw({of.columns, 8}, DType::f32);
  const Value y = gelu_tanh(sum), dy = matmul(of.draw({2, 3, 8}, DType::f32), transpose(last));
  const std::string names = of.kernels({matmul(y, last), matmul(gelu_gradient(sum, dy), last)},
                                       {.step = {.precision = Precision::bf16_mixed}});
  CAPTURE(names);
  CHECK(names.find("cublaslt:matmul.bias.gelu.and_sum ") != std::string::npos);
  CHECK(names.find("cublaslt:matmul.gelu_gradient ") != std::string::npos);
}
