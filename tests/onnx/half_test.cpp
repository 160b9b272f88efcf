// Tests operators of ONNX with sums inside in float16: each sums more than 65,504, or squares to
// it, and has a result far below. Operands "yN" are results of earlier rows.
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/onnx/compare.h"
#include "tests/support/interpreter.h"
#include "weft/ir/graph.h"
#include "weft/onnx/export/export.h"
#include "weft/onnx/net/net.h"
#include "weft/ops/ops.h"

using namespace weft;

namespace {
using Attributes = std::map<std::string, onnx::Attribute, std::less<>>;
using Ints = std::vector<int64_t>;

// Whole quarters from 24 to 31.75, which float16 holds as they are.
Tensor quarters(const Shape& shape, DType dtype) {
  std::vector<double> numbers(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = 24 + 0.25 * static_cast<double>(i * 37 % 32);
  return tensor(numbers, shape, dtype);
}

struct Row {
  std::string op;
  Attributes attributes;
  std::vector<std::string> operands = {"image"};
  std::string domain = "";
};

// The operands are initializers, so that a net takes none.
onnx::Model model_of(const std::vector<Row>& rows, DType dtype) {
  onnx::Model model{.file = "half", .ir_version = 11, .producer = "", .opsets = {{"", 23}}};
  const auto add = [&](const char* name, const Tensor& value) {
    model.graph.initializers.push_back({.name = name, .value = value.eval()});
  };
  add("image", quarters({1, 4, 64, 64}, dtype));
  add("rows", quarters({2, 4096}, dtype));
  add("columns", quarters({4096, 2}, dtype));
  add("volume", quarters({1, 1, 4, 32, 32}, dtype));
  add("large", quarters({2, 4}, dtype) * 1024);
  add("by_row", full({2, 1}, 0.5, dtype));
  add("spectrum", quarters({1, 512, 1}, dtype) * 8);  // its transform takes the square of this
  add("scores", quarters({2, 3, 4096}, dtype) * -1);
  add("classes", zeros({2, 4096}, DType::i64));
  add("weights", quarters({3}, dtype));
  add("last", tensor({1.0}, {1}, DType::i64));
  add("pixels", quarters({1, 4, 2, 2}, dtype) * 16);
  add("ones", full({4}, 1, dtype));
  add("tiny", full({1}, 0x1p-10, dtype));
  add("centred", (quarters({2, 4096}, dtype) - 28) * 200);
  add("halves", quarters({1, 64}, dtype) * 0.5);
  add("minus", quarters({2, 4}, dtype) * -1024);
  add("square",
      tensor({3.0, 1.0, -2.0, 0.5, 1.0, 4.0, 0.25, 2.0, -1.0, 2.0, 5.0, 1.0, 0.5, 1.0, 2.0, 6.0},
             {1, 4, 4}, dtype));
  add("two", full({}, 2, dtype));
  add("three", full({}, 3, dtype));
  add("by_half", full({}, 0.5, dtype));
  add("chosen", tensor({1.0, 0.0}, {2, 1}, DType::boolean));
  add("column", full({4096, 1}, 1, dtype));
  add("shares", full({4096, 1}, 0x1p-12, dtype));
  add("window", full({4, 1, 64, 64}, 1, dtype));
  add("count", full({}, 4096, dtype));
  add("share", full({}, 0x1p-12, dtype));
  add("quarter", full({}, 0.25, dtype));
  add("one", full({}, 1, DType::i64));
  add("end", full({}, 4095, DType::i64));
  add("as_image", tensor({1.0, 2.0, 64.0, 64.0}, {4}, DType::i64));
  for (const Row& row : rows) {
    const std::string y = fmt::format("y{}", model.graph.nodes.size());
    model.graph.nodes.push_back({.op = row.op,
                                 .domain = row.domain,
                                 .name = y,
                                 .inputs = row.operands,
                                 .outputs = {y},
                                 .attributes = row.attributes});
    model.graph.outputs.push_back({.name = y});
  }
  return model;
}

std::vector<Row> rows(DType dtype) {
  const Ints square{64, 64};
  const int64_t type = dtype == DType::f16 ? 10 : 1;  // by its number in ONNX
  return {
      {"ReduceMean", {}},
      {"ReduceL2", {}},
      {"ReduceLogSum", {}},
      {"ReduceLogSumExp", {}, {"rows", "last"}},
      {"LpNormalization", {{"axis", int64_t{1}}}, {"rows"}},
      {"LpNormalization", {{"axis", int64_t{1}}, {"p", int64_t{1}}}, {"rows"}},
      {"MeanVarianceNormalization", {}},
      {"LRN", {{"size", int64_t{4}}, {"alpha", 1.0}}, {"pixels"}},
      {"LpPool", {{"kernel_shape", square}}},
      {"LpPool", {{"kernel_shape", square}, {"p", int64_t{3}}}},
      {"GlobalLpPool", {}},
      {"GlobalAveragePool", {}},
      {"GlobalAveragePool", {}, {"volume"}},
      {"AveragePool", {{"kernel_shape", square}, {"pads", Ints{0, 0, 1, 1}}}},
      {"InstanceNormalization", {}, {"image", "ones", "ones"}},
      {"LayerNormalization", {}, {"rows", "by_row"}},
      {"RMSNormalization", {}, {"rows", "by_row"}},
      {"Mean", {}, {"large", "large", "large"}},
      {"Gemm", {{"alpha", 0.0009765625}}, {"rows", "columns"}},
      {"Einsum", {{"equation", std::string("ab,cb,d->a")}}, {"rows", "rows", "tiny"}},
      {"DFT", {{"inverse", int64_t{1}}}, {"spectrum", "", "last"}},
      {"NegativeLogLikelihoodLoss", {}, {"scores", "classes", "weights"}},
      // Norms in parts, whose squares and their means pass 65,504, too.
      {"Mul", {}, {"centred", "centred"}},
      {"ReduceMean", {}, {"y22", "last"}},
      {"Sqrt", {}, {"y23"}},
      {"Div", {}, {"centred", "y24"}},
      {"ReduceMean", {}, {"centred", "last"}},
      {"Sub", {}, {"centred", "y26"}},
      {"Pow", {}, {"y27", "two"}},
      {"ReduceMean", {}, {"y28", "last"}},
      {"Sqrt", {}, {"y29"}},
      {"Div", {}, {"y27", "y30"}},
      {"Reshape", {}, {"y22", "as_image"}},
      {"GlobalAveragePool", {}, {"y32"}},
      {"Sqrt", {}, {"y33"}},
      {"AveragePool", {{"kernel_shape", square}}, {"y32"}},
      {"Sqrt", {}, {"y35"}},
      {"ReduceSumSquare", {{"keepdims", int64_t{0}}}, {"centred", "last"}},
      {"Unsqueeze", {}, {"y37", "last"}},
      {"Max", {}, {"y38", "tiny"}},
      {"Sqrt", {}, {"y39"}},
      {"Div", {}, {"centred", "y40"}},
      {"Exp", {}, {"halves"}},
      {"ReduceSum", {}, {"y42"}},
      {"Log", {}, {"y43"}},
      {"Sum", {}, {"large", "large", "large", "minus"}},
      {"Det", {}, {"square"}},
      {"Pow", {}, {"pixels", "three"}},
      {"ReduceMean", {}, {"y47"}},
      {"Pow", {}, {"y48", "by_half"}},
      // Sums by other names: products by one number or by themselves, prefixes, and additions.
      {"MatMul", {}, {"rows", "column"}},
      {"Div", {}, {"y50", "count"}},
      {"Gemm", {}, {"rows", "column"}},
      {"Mul", {}, {"y52", "share"}},
      {"Einsum", {{"equation", std::string("ij->i")}}, {"rows"}},
      {"Div", {}, {"y54", "count"}},
      {"Einsum", {{"equation", std::string("ij,ij->i")}}, {"centred", "centred"}},
      {"Sqrt", {}, {"y56"}},
      {"MatMul", {}, {"y22", "shares"}},
      {"Sqrt", {}, {"y58"}},
      {"Transpose", {{"perm", Ints{1, 0}}}, {"rows"}},
      {"MatMul", {}, {"rows", "y60"}},
      {"Sqrt", {}, {"y61"}},
      {"Conv", {{"group", int64_t{4}}}, {"image", "window"}},
      {"Div", {}, {"y63", "count"}},
      {"CumSum", {}, {"rows", "one"}},
      {"Gather", {{"axis", int64_t{1}}}, {"y65", "end"}},
      {"Mul", {}, {"y66", "share"}},
      {"Add", {}, {"large", "large"}},
      {"Add", {}, {"y68", "large"}},
      {"Div", {}, {"y69", "three"}},
      {"Sum", {}, {"large", "large", "large"}},
      {"Add", {}, {"y71", "large"}},
      {"Mul", {}, {"y72", "quarter"}},
      {"Pow", {}, {"centred", "two"}},
      {"Add", {}, {"y22", "y74"}},
      {"Sqrt", {}, {"y75"}},
      // Other operators, types, or terms stand between a sum and what scales it.
      {"ReduceSum", {}, {"rows", "last"}},
      {"Neg", {}, {"y77"}},
      {"LeakyRelu", {}, {"y78"}},
      {"Relu", {}, {"y77"}},
      {"Concat", {{"axis", int64_t{1}}}, {"y79", "y80"}},
      {"Div", {}, {"y81", "count"}},
      {"Where", {}, {"chosen", "y77", "y80"}},
      {"Add", {}, {"y83", "by_row"}},
      {"Mul", {}, {"y84", "share"}},
      {"Cast", {{"to", int64_t{1}}}, {"y23"}},  // of squares, which onnxruntime's blocks take
      {"Sqrt", {}, {"y86"}},
      {"Cast", {{"to", type}}, {"y87"}},
      {"Div", {}, {"centred", "y88"}},
      {"Abs", {}, {"large"}},
      {"Add", {}, {"y90", "y90"}},
      {"Mul", {}, {"y91", "by_half"}},
      {"Abs", {}, {"column"}},
      {"Abs", {}, {"rows"}},
      {"MatMul", {}, {"y94", "y93"}},  // of a mask that is computed
      {"Div", {}, {"y95", "count"}},
      // A graph that asks about a sum is told of the number that it has, which is rounded.
      {"ReduceMean", {}, {"pixels", "last"}},
      {"ReduceMin", {}, {"y97", "last"}},
      {"Sub", {}, {"y97", "y98"}},
      {"Sqrt", {}, {"y99"}},
  };
}

std::vector<Tensor> results(DType dtype) {
  return testing::interpret(onnx::Net(model_of(rows(dtype), dtype))(std::span<const Tensor>{}));
}
}  // namespace

TEST_CASE("sums inside of operators of float16 pass its largest number") {
  const std::vector<Tensor> half = results(DType::f16), whole = results(DType::f32);
  REQUIRE(half.size() == rows(DType::f16).size());
  for (size_t i = 0; i < half.size(); ++i) {
    INFO(rows(DType::f16)[i].op);
    CHECK(difference(testing::interpret(cast(half[i], DType::f16)),
                     testing::interpret(cast(whole[i], DType::f16)), {.relative = 0x1p-10}) == "");
  }
}

TEST_CASE("sums of float16 are compared as they are computed, and asked as they are given") {
  onnx::Model model{.file = "half", .ir_version = 11, .producer = "", .opsets = {{"", 23}}};
  model.graph.initializers = {
      {.name = "x", .value = (quarters({3, 5, 7}, DType::f16) * 0.37).eval()},
      {.name = "last", .value = tensor({-1.0}, {1}, DType::i64).eval()}};
  const auto add = [&](const char* op, std::vector<std::string> operands, const char* result,
                       Attributes attributes = {}) {
    model.graph.nodes.push_back({.op = op,
                                 .name = result,
                                 .inputs = std::move(operands),
                                 .outputs = {result},
                                 .attributes = std::move(attributes)});
    model.graph.outputs.push_back({.name = result});
  };
  const Attributes flat{{"keepdims", int64_t{0}}};
  add("ReduceMean", {"x", "last"}, "mean", flat);
  add("ReduceMax", {"mean", "last"}, "most");
  add("Equal", {"mean", "most"}, "is_most");
  add("ReduceMin", {"mean", "last"}, "least");
  add("Less", {"mean", "least"}, "is_less");
  add("Sub", {"mean", "least"}, "above");
  add("ReduceSum", {"large"}, "sum");
  add("IsInf", {"sum"}, "is_infinite");
  model.graph.initializers.push_back(
      {.name = "large", .value = (quarters({64}, DType::f16) * 512).eval()});
  const std::vector<Tensor> found = testing::interpret(onnx::Net(model)(std::span<const Tensor>{}));
  const auto count = [&](size_t i, double least) {
    return std::ranges::count_if(found[i].to_doubles(), [&](double x) { return x >= least; });
  };
  CHECK(count(2, 1) >= 3);  // one in each row, and those that round alike
  CHECK(count(4, 1) == 0);
  CHECK(count(5, 0) == 15);
  CHECK(found[7].item() == 1);
}

// Runtimes may sum in the type of what they sum.
TEST_CASE("exported means of float16 sum float32") {
  const Tensor x = input({DType::f16, {2, 3, 8, 8}}, 0);
  for (const Tensor& y : {mean(x, {.axes = {2, 3}}), global_avg_pool(x), variance(x, {.axes = {3}}),
                          norm(x, {.axes = {1}}), layer_norm(x)}) {
    const onnx::Model model =
        onnx::export_model(
            [&](int64_t) { return Graph{.inputs = {x}, .outputs = {y}, .assignments = {}}; },
            {.inputs = {"x"}, .outputs = {"y"}, .batch = 2})
            .model;
    CHECK(model.graph.nodes.front().op == "Cast");
    CHECK(model.graph.nodes.back().op == "Cast");
  }
}
