#include <algorithm>
#include <array>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "tests/backends/kernel_case.h"
#include "tests/support/allocations.h"
#include "tests/support/values.h"
#include "weft/backends/cpu/conv/winograd.h"
#include "weft/base/host/isa.h"
#include "weft/base/memory/buffer.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {

struct ConvGeometry {
  const char* what;
  Shape x, weight;
  ConvOptions options;
};
const std::vector<ConvGeometry> conv_geometries = {
    {"3x3 padded", {2, 3, 9, 7}, {5, 3, 3, 3}, {.padding = {1, 1}}},
    {"1x1", {2, 17, 5, 5}, {3, 17, 1, 1}, {}},
    {"stride 2", {3, 4, 8, 9}, {6, 4, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
    {"stride that leaves a rest", {1, 2, 10, 11}, {3, 2, 3, 2}, {.stride = {3, 2}}},
    {"1x1 with stride", {2, 16, 8, 8}, {32, 16, 1, 1}, {.stride = {2, 2}}},
    {"dilation", {2, 3, 12, 11}, {4, 3, 3, 2}, {.padding = {2, 1}, .dilation = {2, 3}}},
    {"groups", {2, 6, 7, 7}, {9, 2, 3, 3}, {.padding = {1, 1}, .groups = 3}},
    {"wide groups", {2, 32, 6, 6}, {64, 16, 3, 3}, {.padding = {1, 1}, .groups = 2}},
    {"depthwise", {2, 17, 7, 7}, {17, 1, 3, 3}, {.padding = {1, 1}, .groups = 17}},
    {"one channel", {3, 1, 10, 10}, {16, 1, 5, 5}, {.padding = {2, 2}}},
    {"one axis", {2, 3, 17}, {4, 3, 3}, {.stride = {2}, .padding = {1}}},
    {"kernel as large as the image", {2, 3, 4, 4}, {8, 3, 4, 4}, {}},
    {"one of all", {1, 1, 1, 1}, {1, 1, 1, 1}, {}},
    {"padding beyond the kernel", {1, 2, 3, 3}, {2, 2, 2, 2}, {.padding = {3, 2}}},
    {"channels of whole vectors", {2, 32, 9, 9}, {64, 32, 3, 3}, {.padding = {1, 1}}},
    {"tiles that end with the image", {1, 16, 8, 12}, {48, 16, 3, 3}, {.padding = {1, 1}}},
    {"one tile and less", {3, 48, 3, 5}, {32, 48, 3, 3}, {}},
    {"half vectors", {3, 8, 9, 13}, {24, 8, 3, 3}, {.padding = {1, 1}}},
    {"half vectors from whole ones", {2, 32, 10, 6}, {8, 32, 3, 3}, {.padding = {1, 0}}},
    {"rows that would meet in the cache", {1, 256, 4, 5}, {16, 256, 3, 3}, {.padding = {1, 1}}},
    {"more padding than elements", {2, 16, 1, 2}, {16, 16, 3, 3}, {.padding = {2, 2}}},
};
// Covers Winograd's algorithm, which has float32 kernels only. The reference computes 20 million
// products here, so other types skip it.
const ConvGeometry blocks_that_end_early = {
    "blocks of tiles that end early", {9, 64, 17, 14}, {16, 64, 3, 3}, {.padding = {0, 1}}};

// Returns the convolution and its two gradients as nodes on inputs.
std::vector<Value> conv_nodes(const ConvGeometry& geometry, DType dtype) {
  const Value x = input({dtype, geometry.x}, 0), weight = input({dtype, geometry.weight}, 1);
  const Value y = conv(x, weight, {}, geometry.options);
  const Value dy = input(y.type(), 2);
  std::vector<Value> found;
  const Value wanted[] = {x, weight};
  std::vector<Value> open = gradients(y, wanted, dy);
  open.push_back(y);
  while (!open.empty()) {  // skips the reshapes of 1-D convolutions
    Value value = open.back();
    open.pop_back();
    if (value->op->name.starts_with("conv"))
      found.push_back(value);
    else
      open.insert(open.end(), value->inputs.begin(), value->inputs.end());
  }
  REQUIRE(found.size() == 3);
  return found;
}

// Checks every available kernel of the convolution and of its gradients.
void check_conv_kernels(const ConvGeometry& geometry, DType dtype) {
  for (const Value& node : conv_nodes(geometry, dtype)) {
    const std::vector<std::string> kernels = kernels_of(node);
    REQUIRE(!kernels.empty());
    for (const std::string& kernel : kernels) {
      KernelCase conv_case(node, {}, false, 1, kernel);
      REQUIRE(conv_case.step().kernel == kernel);
      conv_case.run();
      const std::string wrong = conv_case.disagreement();
      CHECK_MESSAGE(wrong.empty(), geometry.what, " ", name(dtype), " ", wrong);
    }
  }
}

// Each geometry has float32 and one of the other types, each type every third geometry; the slow
// test has all.
TEST_CASE("convolutions and their gradients agree with the reference in every geometry and type") {
  const DType others[] = {DType::f64, DType::bf16, DType::f16};
  for (size_t i = 0; i < conv_geometries.size(); ++i)
    for (DType dtype : {DType::f32, others[i % 3]}) check_conv_kernels(conv_geometries[i], dtype);
  check_conv_kernels(blocks_that_end_early, DType::f32);
}
TEST_SUITE("slow convolutions") {
  TEST_CASE("convolutions and their gradients agree with the reference in all types") {
    for (DType dtype : {DType::f64, DType::bf16, DType::f16})
      for (const ConvGeometry& geometry : conv_geometries) check_conv_kernels(geometry, dtype);
  }
}

TEST_CASE("a convolution by tiles has the same bits by a kept weight and on any threads") {
  Random random(1);
  for (const auto& [batch, extent, channels, outputs] :
       std::initializer_list<std::array<int64_t, 4>>{
           {1, 13, 32, 96}, {2, 17, 16, 48}, {9, 12, 8, 24}, {1, 4, 144, 160}}) {
    cpu::Convolution conv{.batch = batch,
                          .channels = channels,
                          .outputs = outputs,
                          .in = {extent, extent},
                          .out = {extent, extent},
                          .kernel = {3, 3},
                          .stride = {1, 1},
                          .padding = {1, 1},
                          .dilation = {1, 1}};
    REQUIRE(cpu::winograd_can(conv));
    const Tensor x = random_values({DType::f32, conv.x_shape()}, -1, 1, random);
    const Tensor weight = random_values({DType::f32, conv.weight_shape()}, -1, 1, random);
    const auto packed = Buffer::allocate(cpu::winograd_packed_bytes(conv));
    cpu::winograd_pack_weight(conv, weight->data(), packed->data);
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 3})
      for (const bool kept : {false, true}) {
        conv.packed_weight = kept;
        const auto workspace = Buffer::allocate(cpu::winograd_workspace(conv, threads));
        std::vector<float>& y =
            results.emplace_back(static_cast<size_t>(element_count(conv.y_shape())));
        cpu::winograd_convolve(conv, x->data(), kept ? packed->data : weight->data(), y.data(),
                               workspace->data, threads);
        CHECK(y == results.front());
      }
  }
}

TEST_CASE("convolutions with 1x1 filters can run as matrix products") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (const Value& node : conv_nodes({"1x1", {2, 17, 5, 5}, {3, 17, 1, 1}, {}}, dtype)) {
      std::vector<std::string> expected{"weft:matmul"};
      const Isa least = dtype == DType::f32 ? Isa::avx512 : Isa::avx512_bf16;  // for its products
      if (isa() >= least) {
        expected.insert(expected.begin(), {"dnnl:matmul", "dnnl:matmul.packed"});
      }
      if (isa() >= (dtype == DType::f32 ? Isa::avx2 : Isa::avx512_bf16))
        expected.insert(expected.begin(), "dnnl:" + std::string(node->op->name));
      // The rows of this product are the three output channels.
      if (node->is("conv_weight_gradient")) expected.push_back("weft:skinny_matmul");
      CHECK(fmt::to_string(fmt::join(kernels_of(node), " ")) ==
            fmt::to_string(fmt::join(expected, " ")));
    }
}

TEST_CASE("convolutions of 16-bit floats can return their float32 sums") {
  for (DType dtype : {DType::bf16, DType::f16})
    for (const ConvGeometry& geometry : conv_geometries)
      for (const Value& node : conv_nodes(geometry, dtype)) {
        Value sums = make_node(*node->op, node->inputs, node->attrs.with({"wide", int64_t{1}}));
        REQUIRE(sums.dtype() == DType::f32);
        KernelCase conv_case(sums);
        conv_case.run();
        const std::string wrong = conv_case.disagreement();
        CHECK_MESSAGE(wrong.empty(), geometry.what, " ", name(dtype), " ", wrong);
      }
}

TEST_CASE("a second run of a convolution is independent of the first run's data") {
  for (const Value& node : conv_nodes(conv_geometries[0], DType::f32)) {
    KernelCase conv_case(node);
    conv_case.run();
    conv_case.run();
    CHECK(conv_case.disagreement() == "");
  }
}

TEST_CASE("convolutions over empty operands return empty results or zeros") {
  for (DType dtype : {DType::f32, DType::f64})
    for (auto [x, weight] : {std::pair<Shape, Shape>{{0, 3, 5, 5}, {4, 3, 3, 3}},
                             {{2, 3, 5, 5}, {0, 3, 3, 3}},
                             {{2, 0, 5, 5}, {4, 0, 3, 3}}})
      for (const Value& node : conv_nodes({"empty", x, weight, {}}, dtype)) {
        KernelCase conv_case(node);
        conv_case.run();
        CHECK(conv_case.disagreement() == "");
      }
}

TEST_CASE("activations of convolutions are channels-last and weights row-major") {
  for (const Value& node : conv_nodes(conv_geometries[0], DType::f32)) {
    KernelCase conv_case(node);
    const bool gives_weight = node->is("conv_weight_gradient");
    CHECK(conv_case.choice().operand_order[0] == Dims{0, 2, 3, 1});
    CHECK(conv_case.choice().result_order == (gives_weight ? Dims{} : Dims{0, 2, 3, 1}));
  }
}

TEST_CASE("convolutions allocate less than 1 KiB while they run and free all of it") {
  if (!can_watch_allocations()) return;
  for (DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (int i : {2, 5, 14})
      for (const Value& node : conv_nodes(conv_geometries[static_cast<size_t>(i)], dtype)) {
        KernelCase conv_case(node);
        conv_case.run();
        const Allocations used = allocations_of([&] { conv_case.run(); });
        CHECK_MESSAGE(used.most_live < 1024, conv_case.step().kernel);
        CHECK(used.kept == 0);
      }
}
}  // namespace
}  // namespace weft::testing
