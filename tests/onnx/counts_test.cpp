// Tests that files of few bytes which ask for absurdly much are refused before they take memory.
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "weft/onnx/net/net.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::test;

namespace {
using Attributes = std::map<std::string, onnx::Attribute, std::less<>>;
using Counts = std::vector<int64_t>;

onnx::Model model_of(onnx::Node node, std::vector<onnx::Initializer> initializers = {}) {
  node.outputs = {"y"};
  return {.file = "net.onnx",
          .ir_version = 8,
          .opsets = {{"", 18}, {"own", 1}},
          .graph = {.nodes = {std::move(node)},
                    .initializers = std::move(initializers),
                    .inputs = {{.name = "x", .dtype = DType::f32}},
                    .outputs = {{.name = "y"}}}};
}
// Returns the error of the net's forward pass of images [1, 4, 8, 8].
std::string refusal(const onnx::Model& model) {
  return error_of([&] {
    const onnx::Net net(model);
    const ModeScope inference(Mode::eval);
    net(std::array{input({DType::f32, {1, 4, 8, 8}}, 0)});
  });
}
}  // namespace

TEST_CASE("operators refuse numbers that no memory would hold") {
  struct Row {
    const char* op;
    Attributes attributes;
    const char* message;
  };
  const Row rows[] = {
      {"DepthToSpace", {{"blocksize", int64_t{1} << 32}}, "its blocksize is from 1 to 2."},
      {"DepthToSpace", {{"blocksize", int64_t{0}}}, "its blocksize is from 1 to 2."},
      {"SpaceToDepth", {{"blocksize", int64_t{1} << 62}}, "its blocksize is from 1 to 8."},
      {"LRN", {{"size", int64_t{0}}}, "its size is at least 1"},
      {"MaxPool",
       {{"kernel_shape", Counts{1 << 10, 1 << 10}}, {"pads", Counts{1 << 10, 1 << 10, 0, 0}}},
       "its kernel has more than 65536 places."},
      {"AveragePool",
       {{"kernel_shape", Counts{1 << 30, 1 << 30}}, {"pads", Counts(4, 1 << 30)}},
       "its kernel has more than 65536 places."},
      {"LpPool",
       {{"kernel_shape", Counts{1 << 30, 1 << 30}}, {"pads", Counts(4, 1 << 30)}},
       "its kernel has more than 65536 places."},
      {"MaxPool", {{"kernel_shape", Counts(2, int64_t{1} << 62)}}, "its kernel is from 1 to "},
  };
  for (const Row& row : rows) {
    CAPTURE(row.op);
    const std::string error =
        refusal(model_of({.op = row.op, .inputs = {"x"}, .attributes = row.attributes}));
    CHECK_MESSAGE(error.find(row.message) != std::string::npos, error);
  }
  for (const double scale : {1e9, 1e7}) {
    const std::string error = refusal(model_of(
        {.op = "Resize", .inputs = {"x", "", "scales"}},
        {{.name = "scales", .value = tensor(std::vector{1.0, 1.0, scale, 1.0}, {4}, DType::f32)}}));
    CHECK_MESSAGE(
        error.find("axis 2 is resized to at most 16777216 elements.") != std::string::npos, error);
  }
}

TEST_CASE("operators whose result no machine holds are refused by name") {
  const int64_t many = int64_t{1} << 39;
  const auto shape = [&](const char* name, const std::vector<int64_t>& extents) {
    return onnx::Initializer{.name = name,
                             .value = tensor(extents, {static_cast<int64_t>(extents.size())})};
  };
  const auto check = [](const std::string& error, const std::string& message) {
    CHECK_MESSAGE(error.find(message) != std::string::npos, error);
  };
  check(refusal(model_of({.op = "Pad", .inputs = {"x", "pads"}},
                         {shape("pads", {0, 0, 0, 0, 0, 0, 0, many})})),
        "net.onnx: node 0 (Pad): its output 'y' is f32[1, 4, 8, 549755813896], more than 1 TiB");
  check(refusal(model_of({.op = "Expand", .inputs = {"x", "shape"}},
                         {shape("shape", {many, 4, 8, 8})})),
        "net.onnx: node 0 (Expand): its output 'y' is f32[549755813888, 4, 8, 8], more than 1 TiB");
  check(refusal(model_of({.op = "ConstantOfShape", .inputs = {"shape"}}, {shape("shape", {many})})),
        "net.onnx: node 0 (ConstantOfShape): its output 'y' is f32[549755813888], more than 1 TiB");
}

TEST_CASE("a number that is folded from very many is refused, and concatenations stay nested") {
  onnx::Model model = model_of({.op = "Expand", .inputs = {"x", "s"}},
                               {{.name = "c0", .value = tensor(std::vector<int64_t>{1}, {1})}});
  const auto set_doublings = [&](int count) {
    std::vector<onnx::Node> nodes;
    nodes.reserve(static_cast<size_t>(count) + 2);
    const auto name = [](int i) { return "c" + std::to_string(i); };
    for (int i = 0; i < count; ++i)
      nodes.push_back({.op = "Concat",
                       .inputs = {name(i), name(i)},
                       .outputs = {name(i + 1)},
                       .attributes = {{"axis", int64_t{0}}}});
    nodes.push_back({.op = "ReduceMax", .inputs = {name(count)}, .outputs = {"s"}});
    nodes.push_back(model.graph.nodes.back());
    model.graph.nodes = std::move(nodes);
  };
  set_doublings(13);
  CHECK(refusal(model) == "none");
  set_doublings(25);
  CHECK(refusal(model).find("node 26 (Expand): operand 1 ('s') is folded from i64[33554432]. At "
                            "most 16777216 elements are computed before the model runs.") !=
        std::string::npos);
}

TEST_CASE("two inputs of one name are refused") {
  onnx::Model model = model_of({.op = "Relu", .inputs = {"x"}});
  model.graph.inputs.push_back(model.graph.inputs.front());
  CHECK(refusal(model) == "data: [onnx] net.onnx: a graph has two inputs 'x'.");
}

TEST_CASE("a window of more channels than there are sums those that are there") {
  const onnx::Net net(model_of({.op = "LRN",
                                .inputs = {"x"},
                                .attributes = {{"size", int64_t{1} << 40}, {"alpha", 0x1p40}}}));
  const Tensor x = ones({1, 2, 1, 1}) * 3.0;
  const std::vector<double> found = net(std::array{x})[0].to_doubles();
  for (const double y : found) CHECK(y == doctest::Approx(3 / std::pow(1 + 18.0, 0.75)));
}

TEST_CASE("what a file declares is compared behind a call of a function, too") {
  onnx::Model model = model_of({.op = "same", .domain = "own", .inputs = {"x"}});
  onnx::Function& function = model.functions.emplace_back(
      onnx::Function{.name = "same", .domain = "own", .inputs = {"a"}, .outputs = {"b"}});
  function.opsets = model.opsets;
  function.nodes = {{.op = "Neg", .inputs = {"a"}, .outputs = {"b"}}};
  model.graph.nodes[0].outputs = {"t"};
  model.graph.nodes.push_back({.op = "Abs", .inputs = {"t"}, .outputs = {"y"}});
  model.graph.values["y"] = {.name = "y", .dtype = DType::i64};
  CHECK(refusal(model).find("'y' is declared as i64") != std::string::npos);
}

TEST_CASE("numbers that are all zero have a dynamic scale of one") {
  onnx::Model model = model_of({.op = "DynamicQuantizeLinear", .inputs = {"x"}});
  model.graph.nodes[0].outputs = {"y", "scale", "zero"};
  model.graph.outputs.push_back({.name = "scale"});
  const std::vector<Tensor> found = onnx::Net(model)(std::array{zeros({2, 2})});
  CHECK(found[0].to_doubles() == std::vector<double>(4, 0));
  CHECK(found[1].item() == 1);
}

TEST_CASE("functions that call each other exponentially often are refused") {
  onnx::Model model = model_of({.op = "f40", .domain = "own", .inputs = {"x"}});
  for (int i = 0; i <= 40; ++i) {
    onnx::Function& function = model.functions.emplace_back(
        onnx::Function{.name = "f" + std::to_string(i), .domain = "own"});
    function.inputs = {"a"};
    function.outputs = {"b"};
    function.opsets = model.opsets;
    const std::string inner = "f" + std::to_string(i - 1);
    if (i == 0)
      function.nodes = {{.op = "Neg", .inputs = {"a"}, .outputs = {"b"}}};
    else
      function.nodes = {{.op = inner, .domain = "own", .inputs = {"a"}, .outputs = {"t"}},
                        {.op = inner, .domain = "own", .inputs = {"t"}, .outputs = {"b"}}};
  }
  CHECK(refusal(model).find("its loops and functions are unrolled to more than 262144 operators") !=
        std::string::npos);
}
