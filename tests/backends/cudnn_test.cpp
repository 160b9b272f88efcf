// cuDNN plans for a GPU that need not be present: they are built from the properties of an H200 as
// cuDNN serializes them.
// This is one file because convolutions and attention are planned from the same properties.
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/skip.h"
#include "weft/backends/cuda/cuda_backend.h"
#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/cudnn_attention.h"
#include "weft/backends/cuda/cudnn_conv.h"
#include "weft/backends/cuda/shared_library.h"
#include "weft/base/error.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft::cuda::cudnn {
namespace {
using namespace testing;

constexpr const char* h200 = R"({
  "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
  "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "totalGlobalMem": 150754820096,
  "multiProcessorCount": 132, "warpSize": 32, "maxGridSize": [2147483647, 65535, 65535],
  "maxBlockSize": [1024, 1024, 64], "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
  "maxCtasPerSM": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "oversizedSharedMemoryPerBlock": 0, "reservedSharedMemoryPerBlock": 1024,
  "l2CacheSize": 62914560, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
  "memoryBusWidth": 6144, "smCountOrigin": 0})";

// Returns the reason why the library does not load, or "" if it loads.
std::string why_not(const std::string& library, const std::string& hint) {
  try {
    cuda::SharedLibrary loaded({library}, hint);
    return "";
  } catch (const Error& none) {
    return none.what();
  }
}
// Returns whether a driver is present. cuDNN needs one to describe a GPU and to compile attention,
// but needs no GPU for that.
bool has_driver() {
  const std::string none = why_not("libcuda.so.1", "cuDNN plans with NVIDIA's driver.");
  if (!none.empty()) skipped(none);
  return none.empty();
}

// Returns the device properties, or reports a skipped test and returns null where a part of cuDNN
// is missing.
Descriptor h200_properties() {
  if (sanitized) {
    skipped("cuDNN finds its parts by its run path, which sanitizers hide from dlopen");
    return nullptr;
  }
  if (const std::string none = why_not("libcudnn.so.9", "tools/setup.sh --cuda"); !none.empty()) {
    skipped(none);
    return nullptr;
  }
  return has_driver() ? properties_from(h200) : nullptr;
}

std::optional<KernelChoice> choice_of(const Value& node) {
  static const std::unique_ptr<KernelLibrary> library = cuda_library();
  std::vector<Placement> operands;
  for (const Value& input : node->inputs)
    operands.push_back({-1, 0, row_major_strides(input.shape())});
  return library->kernels().choose(*node.node(), operands);
}
bool is_cudnns(const Value& node) {
  const std::optional<KernelChoice> choice = choice_of(node);
  return choice && choice->kernel == "cudnn:" + std::string(node->op->name);
}

struct Geometry {
  int64_t batch, channels, extent, outputs, kernel, stride = 1, padding = 0, dilation = 1,
                                                    groups = 1;
};

// Returns a convolution and its two gradients.
std::vector<Value> nodes_of(const Geometry& g, DType dtype) {
  const Value x = input({dtype, {g.batch, g.channels, g.extent, g.extent}}, 0);
  const Value weight = input({dtype, {g.outputs, g.channels / g.groups, g.kernel, g.kernel}}, 1);
  const Value y = conv(x, weight, {},
                       {.stride = {g.stride, g.stride},
                        .padding = {g.padding, g.padding},
                        .dilation = {g.dilation, g.dilation},
                        .groups = g.groups});
  const Value wanted[] = {x, weight};
  std::vector<Value> nodes = gradients(y, wanted, input(y.type(), 2));
  nodes.push_back(y);
  return nodes;
}

Value with(const Value& node, std::string_view attribute) {
  return make_node(*node->op, node->inputs, node->attrs.with({attribute, int64_t{1}}));
}
Value in_tf32(const Value& node) {
  return make_node(*node->op, node->inputs, node->attrs, {.tf32 = true});
}

// Checks that all three have an engine that fits in the workspace of their kernel choice.
void check_convolutions(const std::vector<Geometry>& geometries, const std::vector<DType>& dtypes) {
  const Descriptor properties = h200_properties();
  if (properties == nullptr) return;
  const auto has_plan = [&](const weft::Node& node) {
    conv_graph(node).plans(properties, conv_rules(node), "conv", 1);
  };
  for (const Geometry& geometry : geometries)
    for (DType dtype : dtypes)
      for (const Value& node : nodes_of(geometry, dtype)) {
        CAPTURE(node->op->name);
        CAPTURE(to_string(node->inputs[0].type()));
        CAPTURE(to_string(node->inputs[1].type()));
        REQUIRE(is_cudnns(node));
        CHECK_NOTHROW(has_plan(*node.node()));
        if (dtype == DType::f32) CHECK_NOTHROW(has_plan(*in_tf32(node).node()));
      }
}

// Returns the convolutions of ResNet-50 on images of 224 x 224 (He et al. 2016).
std::vector<Geometry> resnet50(int64_t batch) {
  std::vector<Geometry> all{{batch, 3, 224, 64, 7, 2, 3}};
  int64_t channels = 64, extent = 56;
  for (int64_t width : {64, 128, 256, 512}) {
    const int64_t stride = width == 64 ? 1 : 2;
    all.push_back({batch, channels, extent, width, 1});
    all.push_back({batch, width, extent, width, 3, stride, 1});
    all.push_back({batch, channels, extent, 4 * width, 1, stride});
    channels = 4 * width;
    extent /= stride;
    all.push_back({batch, width, extent, channels, 1});
    all.push_back({batch, channels, extent, width, 1});
    all.push_back({batch, width, extent, width, 3, 1, 1});
  }
  return all;
}

std::vector<Geometry> odd_geometries(int count) {
  std::mt19937 random(1);
  auto below = [&](int64_t end) { return static_cast<int64_t>(random()) % end; };
  std::vector<Geometry> all;
  while (static_cast<int>(all.size()) < count) {
    const int64_t groups = below(3) == 0 ? 1 + below(4) : 1;
    const Geometry g{.batch = 1 + below(5),
                     .channels = groups * (1 + below(40)),
                     .extent = 1 + below(30),
                     .outputs = groups * (1 + below(40)),
                     .kernel = 1 + below(7),
                     .stride = 1 + below(3),
                     .padding = below(4),
                     .dilation = 1 + below(3),
                     .groups = groups};
    if (g.extent + 2 * g.padding > g.dilation * (g.kernel - 1)) all.push_back(g);
  }
  return all;
}

Value heads_in(DType dtype, const Shape& shape, int index) { return input({dtype, shape}, index); }

Value attend(DType dtype, const Shape& q, const Shape& k, bool causal) {
  return attention(heads_in(dtype, q, 0), heads_in(dtype, k, 1), heads_in(dtype, k, 2),
                   {.causal = causal});
}
// Returns the gradient decomposed into a separate forward pass and backward kernel, as used where
// no library has a kernel that recomputes the forward pass.
Value gradient_of(const Value& y) {
  const Value wanted[] = {y->inputs[0]};
  Value node = gradients(y, wanted, input(y.type(), 3))[0];
  while (!node->is("attention_gradient")) node = node->inputs[0];
  return node->op->decompose(*node.node());
}
AttentionStrides strides_by_token(const Heads& heads) {
  const Dims order{0, 2, 1, 3};
  return {dense_strides(heads.q(), order), dense_strides(heads.k(), order),
          dense_strides(heads.v(), order), dense_strides(heads.y(), order)};
}
// Builds a channels-last 3 x 3 convolution in bfloat16, or one of its gradients.
const Shape conv_image{8, 64, 28, 28}, conv_filter{64, 64, 3, 3};
cuda::cudnn::Graph convolution_graph(Direction direction) {
  cuda::cudnn::Graph graph;
  const auto tensor = [&](const Shape& shape) {
    return graph.tensor(DType::bf16, shape, dense_strides(shape, {0, 2, 3, 1}), 64);
  };
  const cuda::cudnn::Tensor x = tensor(conv_image), weight = tensor(conv_filter),
                            y = tensor(conv_image);
  graph.conv(direction, x, weight, y, {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}});
  return graph;
}
}  // namespace

TEST_SUITE("cudnn") {
  TEST_CASE("cuDNN runs convolutions: channels-last where they use tensor cores") {
    const Geometry geometry{2, 16, 8, 24, 3, 1, 1};
    for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
      for (const Value& node : nodes_of(geometry, dtype)) {
        const std::optional<KernelChoice> choice = choice_of(node);
        REQUIRE(choice);
        CHECK(choice->kernel == "cudnn:" + std::string(node->op->name));
        const bool narrow = size_of(dtype) == 2;
        CHECK(choice->result_order == (narrow ? Dims{0, 2, 3, 1} : Dims{0, 1, 2, 3}));
        CHECK(choice->operand_order == std::vector<Dims>(2, choice->result_order));
        if (dtype == DType::f32) CHECK(choice_of(in_tf32(node))->result_order == Dims{0, 2, 3, 1});
      }
  }
  TEST_CASE("float32 sums of 16-bit convolutions are widened from cuDNN's 16-bit result") {
    const Geometry geometry{2, 16, 8, 24, 3, 1, 1};
    for (const Value& node : nodes_of(geometry, DType::bf16)) {
      const Value sums = with(node, "wide");
      REQUIRE(sums.dtype() == DType::f32);
      CHECK(is_cudnns(sums));
      CHECK(choice_of(sums)->workspace >= choice_of(node)->workspace + node.type().bytes());
    }
  }
  TEST_CASE("convolutions that cuDNN lacks are left to other libraries") {
    const Value image = input({DType::i32, {1, 3, 5, 5}}, 0),
                none = input({DType::f32, {0, 3, 5, 5}}, 0);
    CHECK(!is_cudnns(conv(image, input({DType::i32, {2, 3, 3, 3}}, 1))));
    CHECK(!is_cudnns(conv(none, input({DType::f32, {2, 3, 3, 3}}, 1))));
  }
  TEST_CASE("an H200 has engines for every convolution of ResNet-50") {
    check_convolutions(resnet50(256), {DType::bf16});
  }
  TEST_CASE("an H200 has engines for convolutions of any geometry and type") {
    check_convolutions(odd_geometries(30), {DType::bf16, DType::f16, DType::f32, DType::f64});
  }
  TEST_CASE("heuristics return as many engines as requested with the best first") {
    const Descriptor properties = h200_properties();
    if (properties == nullptr) return;
    const cuda::cudnn::Graph graph = convolution_graph(Direction::forward);
    const size_t bytes = Type{DType::bf16, conv_image}.bytes();
    for (size_t most : {1, 2, 8}) {
      const std::vector<ExecutionPlan> plans =
          graph.plans(properties, {.workspace = 1 << 20}, "", most);
      REQUIRE(plans.size() == most);
      for (const ExecutionPlan& plan : plans) {
        CHECK(plan.workspace() <= 1 << 20);
        CHECK(plan.bytes() ==
              std::vector<size_t>{bytes, Type{DType::bf16, conv_filter}.bytes(), bytes});
      }
    }
  }
  TEST_CASE("engines that no heuristic lists are found by number and planned") {
    const Descriptor properties = h200_properties();
    if (properties == nullptr) return;
    const cuda::cudnn::Graph graph = convolution_graph(Direction::forward);
    std::set<int64_t> numbers;
    for (const auto& engine : graph.engines(properties, {})) numbers.insert(engine.number);
    const size_t named = numbers.size();
    const auto others = graph.unnamed_engines(properties, {});
    MESSAGE(named << " engines are named, " << others.size() << " are not");
    const bool is_real = std::getenv("BACKEND") == nullptr;  // a fake one names all engines
    if (is_real) CHECK(!others.empty());
    int built = 0;
    for (const auto& engine : others) {
      CHECK(numbers.insert(engine.number).second);
      try {
        built += graph.plan(properties, engine).bytes().size() == 3 ? 1 : 0;
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::device);
      }
    }
    if (is_real) CHECK(built > 0);
  }
  TEST_CASE("a serialized plan survives a round trip through JSON") {
    const Descriptor properties = h200_properties();
    if (properties == nullptr) return;
    const cuda::cudnn::Graph graph = convolution_graph(Direction::weight_gradient);
    const ExecutionPlan built = graph.plans(properties, {.workspace = 8 << 20}, "", 1).front();
    REQUIRE(!built.json().empty());
    const std::optional<ExecutionPlan> read = graph.plan_from(properties, built.json());
    REQUIRE(read);
    CHECK(read->workspace() == built.workspace());
    CHECK(read->json() == built.json());
    CHECK(!graph.plan_from(properties, "{}"));
    CHECK(!graph.plan_from(properties, built.json().substr(0, built.json().size() / 2)));
  }
  // This test runs on the device that BACKEND names: the fake GPU or a real one.
  TEST_CASE("a tuned selection applies only to the same graph, strides and engine rules") {
    const char* backend = std::getenv("BACKEND");
    if (backend == nullptr || std::string(backend) != "cuda") return;
    const std::unique_ptr<gpu::Device> device = cuda::open_device();
    const Shape image{8, 64, 28, 28}, filter{64, 64, 3, 3};
    // Returns the new selections: key to rank.
    auto select = [&](const Dims& order, const EngineRules& rules) {
      const std::map<std::string, std::string> before = device->selected();
      cuda::cudnn::Graph graph;
      const cuda::cudnn::Tensor x = graph.tensor(DType::f32, image, dense_strides(image, order),
                                                 64),
                                weight = graph.tensor(DType::f32, filter,
                                                      dense_strides(filter, order), 64),
                                y = graph.tensor(DType::f32, image, dense_strides(image, order),
                                                 64);
      graph.conv(Direction::forward, x, weight, y,
                 {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}});
      CHECK(graph.select(*device, rules, "conv").workspace() <= rules.workspace);
      std::map<std::string, std::string> now = device->selected();
      std::erase_if(now, [&](const auto& entry) { return before.contains(entry.first); });
      return now;
    };
    const Dims rows{0, 1, 2, 3}, channels_last{0, 2, 3, 1};
    const size_t bytes = size_t{8} << 20;
    const auto first = select(channels_last, {.workspace = bytes});
    REQUIRE(first.size() == 1);
    CHECK(first.begin()->second.starts_with("0: engine "));
    CHECK(select(channels_last, {.workspace = bytes}).empty());
    device->prefer({{first.begin()->first, "1"}});  // as a measurement or a plan does
    for (const auto& other :
         {select(rows, {.workspace = bytes}), select(channels_last, {.workspace = 2 * bytes}),
          select(rows, {.workspace = bytes, .exact = true})}) {
      REQUIRE(other.size() == 1);
      CHECK(other.begin()->second.starts_with("0: engine "));
    }
    CHECK(select(channels_last, {.workspace = bytes}).empty());
    const std::string second = device->selected().at(first.begin()->first);
    CHECK(second.starts_with("1: engine "));
    // A resumed run prefers the selection that its plan records.
    device->prefer({{first.begin()->first, second}});
    CHECK(select(channels_last, {.workspace = bytes}).empty());
    CHECK(device->selected().at(first.begin()->first) == second);
  }
  TEST_CASE("invalid serialized device properties are refused") {
    if (h200_properties() == nullptr) return;
    CHECK_THROWS_AS(properties_from("{}"), Error);
  }

  TEST_CASE("cuDNN runs 16-bit attention without a mask") {
    const Shape shape{2, 4, 24, 64};
    for (DType dtype : {DType::bf16, DType::f16})
      for (bool causal : {false, true}) {
        const Value y = attend(dtype, shape, shape, causal);
        CHECK(is_cudnns(y));
        CHECK(is_cudnns(gradient_of(y)));
      }
    CHECK(is_cudnns(attend(DType::bf16, shape, {2, 2, 40, 64}, false)));
    CHECK(!is_cudnns(attend(DType::f32, shape, shape, true)));
    CHECK(!is_cudnns(attend(DType::bf16, {2, 4, 24, 36}, {2, 4, 24, 36}, true)));
    CHECK(!is_cudnns(attend(DType::bf16, {2, 4, 24, 256}, {2, 4, 24, 256}, true)));
    CHECK(!is_cudnns(attention(heads_in(DType::bf16, shape, 0), heads_in(DType::bf16, shape, 1),
                               heads_in(DType::bf16, shape, 2),
                               {.mask = input({DType::boolean, {24, 24}}, 3)})));
  }
  TEST_CASE(
      "the backward pass of attention reads the statistics that cuDNN's forward pass stored") {
    const std::unique_ptr<KernelLibrary> library = cuda_library("h200");
    auto kernels_of = [&](int64_t queries) {
      const Shape shape{2, 4, queries, 64};
      const Value y = attend(DType::bf16, shape, shape, false), dy = input(y.type(), 3);
      weft::Graph graph{.inputs = y->inputs, .outputs = gradients(y, y->inputs, dy)};
      graph.inputs.push_back(dy);
      graph.outputs.push_back(y);
      std::vector<std::string> kernels;
      for (const Launch& launch : make_plan(graph, {.library = library.get()}).launches)
        if (launch.kernel.find(":attention") != std::string::npos) kernels.push_back(launch.kernel);
      return kernels;
    };
    CHECK(kernels_of(24) ==
          std::vector<std::string>{"cudnn:attention.and_logsumexp", "cudnn:attention_backward"});
    CHECK(kernels_of(1) ==
          std::vector<std::string>{"weft:attention.and_logsumexp", "weft:attention_backward"});
  }
  TEST_CASE("operands of attention are copied where their vectors would be misaligned") {
    const Shape shape{2, 4, 24, 64};
    const Value y = attend(DType::bf16, shape, shape, true);
    const Dims rows = row_major_strides(shape);
    const Placement whole{0, 0, rows}, shifted{0, 4, rows},
        flipped{0, 0, {-rows[0], rows[1], rows[2], 1}};
    const auto choice = choose_attention(*y.node(), std::vector{whole, shifted, flipped});
    REQUIRE(choice);
    CHECK(choice->operand_order == std::vector<Dims>{{}, {0, 2, 1, 3}, {0, 2, 1, 3}});
    CHECK(choice->alignment == 16);  // else token-major operands are never copied
  }
  TEST_CASE("misaligned token-major operands of attention are copied") {
    const std::unique_ptr<KernelLibrary> library = cuda_library("h200");
    for (int64_t begin : {0, 4, 8}) {
      CAPTURE(begin);
      const Shape by_token{2, 24, 4, 64};
      const Value memory = input({DType::bf16, {2 * 24 * 4 * 64 + 8}}, 0);
      const Value heads =
          permute(reshape(slice(memory, 0, begin, begin + element_count(by_token)), by_token),
                  {0, 2, 1, 3});
      const Value k = heads_in(DType::bf16, {2, 4, 24, 64}, 1);
      const Value y = attention(heads, k, k, {.causal = true});
      std::string kernels;
      for (const Launch& launch :
           make_plan({.inputs = {memory, k}, .outputs = {y}}, {.library = library.get()}).launches)
        kernels += launch.kernel + " ";
      CHECK(kernels.starts_with(begin == 4 ? "copy cudnn:attention " : "cudnn:attention "));
    }
  }
  TEST_CASE("an H200 has engines for attention and its gradient") {
    const Descriptor properties = h200_properties();
    if (properties == nullptr) return;
    struct Form {
      Shape q, k;
      bool causal;
    };
    const std::vector<Form> forms{
        {{64, 12, 1024, 64}, {64, 12, 1024, 64}, true},  // GPT-2
        {{8, 12, 1024, 64}, {8, 12, 1024, 64}, true},    // all sequences at once
        {{8, 12, 128, 64}, {8, 12, 128, 64}, false},     // BERT
        {{2, 3, 77, 40}, {2, 3, 77, 40}, true},         {{1, 8, 100, 128}, {1, 2, 300, 128}, false},
    };
    for (const Form& form : forms) {
      CAPTURE(to_string(form.q));
      const Value y = attend(DType::bf16, form.q, form.k, form.causal);
      Heads heads(*y.node());
      const size_t workspace = choice_of(y)->workspace;
      auto has_plan = [&](const cuda::cudnn::Graph& graph, size_t bytes) {
        CHECK_NOTHROW(graph.plans(properties, {.workspace = bytes}, "attention", 1));
      };
      has_plan(attention_graph(heads, strides_by_token(heads), false), workspace);
      if (form.q != form.k) continue;
      const KernelChoice gradient = choice_of(gradient_of(y)).value();
      CHECK(gradient.kernel == "cudnn:attention_backward");
      has_plan(attention_graph(heads, strides_by_token(heads), true), workspace);
      // A run processes some sequences at a time and gives the engine the rest of the workspace.
      const GradientScratch scratch(heads);
      REQUIRE(scratch.bytes() == gradient.workspace);
      heads.batch = scratch.batch;
      const AttentionStrides strides = strides_by_token(heads);
      has_plan(attention_gradient_graph(heads, strides, strides.y, strides.q), scratch.engine);
    }
  }
}
}  // namespace weft::cuda::cudnn
