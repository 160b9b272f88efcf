// Tests what weft exports as ONNX: every operation and the models of the zoo, read back by the
// importer, which interprets ONNX's operators, and compared with weft's own graph.
#include "weft/onnx/export/export.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <set>
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/interpreter.h"
#include "tests/support/op_cases.h"
#include "tests/support/peers.h"
#include "tests/support/planned.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/numbers/hash.h"
#include "weft/io/npy.h"
#include "weft/models/model.h"
#include "weft/onnx/net/net.h"
#include "weft/ops/ops.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;
using weft::test::TemporaryFolder;

namespace {
struct Drawn {
  Graph graph;                  // of inputs
  std::vector<Value> operands;  // data leaves
  Value value;                  // on them
};

// Draws a use of an op. Integers that its operands are stay opaque: the exporter must not take them
// for tokens, which are valid indices.
Drawn draw(const OpDef& def, DType dtype, uint64_t seed) {
  Random random(
      hash_combine(hash_combine(hash_text(def.name), static_cast<uint64_t>(dtype)), seed));
  Drawn drawn;
  CaseSource source{.random = random, .operand = [&](const Type& type, double low, double high) {
                      Value data = random_values(type, low, high, random);
                      if (type.dtype != DType::i4x2) drawn.operands.push_back(data);
                      return data;
                    }};
  drawn.value = draw_case(def, dtype, source);
  std::vector<Value> inputs;
  inputs.reserve(drawn.operands.size());
  for (size_t i = 0; i < drawn.operands.size(); ++i)
    inputs.push_back(input(drawn.operands[i].type(), static_cast<int>(i)));
  const Graph whole{.inputs = {}, .outputs = {drawn.value}, .assignments = {}};
  drawn.graph = rewrite(whole, [&](const Value& node) {
    for (size_t i = 0; i < drawn.operands.size(); ++i)
      if (node.node() == drawn.operands[i].node())
        return is_integer(node.dtype()) ? bitwise_xor(inputs[i], 0) : inputs[i];
    return Value();
  });
  drawn.graph.inputs = inputs;
  return drawn;
}

std::vector<std::string> names(const char* kind, size_t count) {
  std::vector<std::string> all;
  all.reserve(count);
  for (size_t i = 0; i < count; ++i) all.push_back(fmt::format("{}{}", kind, i));
  return all;
}

onnx::Exported exported(const Graph& graph) {
  return onnx::export_model([&](int64_t) { return graph; },
                            {.inputs = names("x", graph.inputs.size()),
                             .outputs = names("y", graph.outputs.size()),
                             .batch = 1});
}

double tolerance_of(DType dtype) {
  return dtype == DType::f64    ? 1e-6
         : dtype == DType::bf16 ? 2e-2
         : dtype == DType::f16  ? 4e-3
                                : 2e-5;
}

// Returns what differs where the op is exported, written, read and interpreted.
std::string round_trip(const Drawn& drawn, const TemporaryFolder& folder) {
  const std::string path = folder.file("op.onnx");
  onnx::write(exported(drawn.graph).model, path);
  const onnx::Net net(onnx::read(path));
  const Value got = net(drawn.operands)[0];
  if (drawn.value.dtype() == DType::i4x2)  // bytes in the file
    return difference(interpret(got), interpret(cast(drawn.value, DType::u8)), 0);
  if (!(got.type() == drawn.value.type()))
    return fmt::format("got {}, expected {}", to_string(got.type()), to_string(drawn.value.type()));
  return difference(interpret(got), interpret(drawn.value), tolerance_of(got.dtype()));
}
}  // namespace

TEST_CASE("every operation that is exported has its values when read back") {
  const TemporaryFolder folder;
  for (const OpDef* def : registered_ops()) {
    if (!has_cases(*def) || !onnx::is_exported(*def) || !is_in_part(def->name)) continue;
    for (DType dtype : dtypes_of(*def)) {
      if (def->reinterprets && size_of(dtype) == 2) continue;  // has no other type
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const Drawn drawn = draw(*def, dtype, seed);
        INFO(def->name << " " << name(dtype) << " seed " << seed << "\n" << to_text(drawn.graph));
        try {
          CHECK(round_trip(drawn, folder) == "");
        } catch (const std::exception& error) {
          CHECK(std::string(error.what()) == "");
        }
      }
    }
  }
}

TEST_CASE("only random numbers, parts of ranks and the gradients of pooling have no export") {
  std::vector<std::string_view> refused;
  for (const OpDef* def : registered_ops())
    if (def->kind != OpKind::collective && !onnx::is_exported(*def)) refused.push_back(def->name);
  CHECK(refused == std::vector<std::string_view>{"avg_pool_gradient", "max_pool_gradient",
                                                 "part_at", "random_uniform", "random_uniform_part",
                                                 "round_stochastic"});
}

// ---- models

namespace {
struct ZooModel {
  std::string name;
  nn::Options config;
  TaskShape task;
  std::vector<std::string> operators;  // that its export has
};

std::vector<ZooModel> zoo_models() {
  const TaskShape characters{InputKind::tokens, {16}, 65},
      digits{InputKind::images, {1, 28, 28}, 10};
  const TaskShape colours{InputKind::images, {3, 32, 32}, 10};
  const nn::Options recurrent{{"hidden_size", int64_t{32}}, {"num_hidden_layers", int64_t{2}}};
  nn::Options transformer = recurrent;
  transformer.set("num_attention_heads", int64_t{4});
  return {{"mlp", {}, {InputKind::features, {20}, 10}, {"Gemm", "Relu"}},
          {"lenet5", {}, digits, {"Conv", "Gemm"}},
          {"cnn", {}, digits, {"Conv", "MaxPool"}},
          {"resnet20", {}, colours, {"Conv", "BatchNormalization", "ReduceMean", "Gemm"}},
          {"lstm", recurrent, characters, {"LSTM", "Gather"}},
          {"gru", recurrent, characters, {"GRU", "Gather"}},
          {"gpt", transformer, characters, {"LayerNormalization", "Softmax", "Gather"}},
          {"llama", transformer, characters, {"Softmax", "Gather"}},
          {"bert", transformer, characters, {"LayerNormalization", "Softmax", "Gather"}}};
}

// Made is a model of the zoo whose statistics of batches are not those that it begins with.
std::unique_ptr<Model> made(const ZooModel& zoo) {
  manual_seed(5);
  auto model = make_model(zoo.name, zoo.config, zoo.task);
  Random random(7);
  for (const Variable& variable : model->variables())
    if (variable.category() == Category::buffer_state && is_float(variable.dtype()))
      for (float& each : variable.floats()) each = static_cast<float>(0.5 + random.unit());
  return model;
}

Tensor rows_for(const ZooModel& zoo, int64_t batch) {
  Random random(11);
  const Type type = zoo.task.batch(batch);
  return random_values(type, is_float(type.dtype) ? -1 : 0, is_float(type.dtype) ? 1 : 64, random);
}

onnx::Exported exported(const ZooModel& zoo, const Model& model) {
  return onnx::export_model(
      [&](int64_t batch) {
        const ModeScope inference(Mode::eval);
        const Tensor x = input(zoo.task.batch(batch), 0);
        return Graph{.inputs = {x}, .outputs = {model(x)}, .assignments = {}};
      },
      {.inputs = {"x"}, .outputs = {"logits"}});
}

Tensor output_of(const Model& model, const Tensor& x) {
  const ModeScope inference(Mode::eval);
  return model(x).eval();
}
}  // namespace

TEST_CASE("models of the zoo that are exported take any number of rows and have their outputs") {
  const TemporaryFolder folder;
  for (const ZooModel& zoo : zoo_models()) {
    INFO(zoo.name);
    const auto model = made(zoo);
    const onnx::Exported out = exported(zoo, *model);
    CHECK(out.fixed == "");
    std::set<std::string> operators;
    for (const onnx::Node& node : out.model.graph.nodes) operators.insert(node.op);
    for (const std::string& op : zoo.operators) CHECK_MESSAGE(operators.contains(op), op);
    onnx::write(out.model, folder.file("model.onnx"));
    const onnx::Net net(onnx::read(folder.file("model.onnx")));
    CHECK(net.inputs()[0].shape->front().symbol == "batch");
    for (const int64_t batch : {1, 3}) {
      const Tensor x = rows_for(zoo, batch);
      const ModeScope inference(Mode::eval);
      const Tensor got = net(std::array{x})[0].eval();
      CHECK(difference(got, output_of(*model, x), 1e-5) == "");
    }
    // Parameters keep their names.
    std::set<std::string> names;
    for (const Variable& variable : net.variables()) names.insert(variable.name());
    for (const Variable& variable : model->parameters())
      CHECK_MESSAGE(names.contains(variable.name()), variable.name());
  }
}

TEST_CASE("a file whose weights are large has them beside it, and has the same outputs") {
  const TemporaryFolder folder;
  const ZooModel zoo = zoo_models()[0];
  const auto model = made(zoo);
  const onnx::Exported out = exported(zoo, *model);
  onnx::write(out.model, folder.file("a.onnx"), {.most_inline_bytes = 1000});
  onnx::write(out.model, folder.file("b.onnx"));
  CHECK(std::filesystem::file_size(folder.file("a.onnx")) < 8000);
  CHECK(std::filesystem::exists(folder.file("a.onnx.data")));
  CHECK(!std::filesystem::exists(folder.file("b.onnx.data")));
  const onnx::Net net(onnx::read(folder.file("a.onnx")));
  const Tensor x = rows_for(zoo, 2);
  CHECK(difference(net(std::array{x})[0].eval(), output_of(*model, x), 1e-5) == "");
  // A link out of the folder is not followed, and the initializer is named.
  const TemporaryFolder other;
  std::filesystem::copy(folder.file("a.onnx"), other.file("a.onnx"));
  std::filesystem::create_symlink(folder.file("a.onnx.data"), other.file("a.onnx.data"));
  try {
    onnx::read(other.file("a.onnx"));
    FAIL("the link was followed");
  } catch (const Error& error) {
    const std::string what = error.what();
    CHECK(error.kind() == ErrorKind::data);
    CHECK(what.starts_with("[onnx] " + other.file("a.onnx") + ": initializer '"));
    CHECK(what.find("has external data that is not read: ") != std::string::npos);
    CHECK(what.find(" is a link that leaves its folder") != std::string::npos);
    CHECK((what.ends_with('.') && !what.ends_with("..")));
  }
}

TEST_CASE("constants that number the rows, or are multiples of their number, follow them") {
  const auto build = [](auto&& constant) {
    return [constant](int64_t rows) {
      const Value x = input({DType::f32, {rows, 3}}, 0);
      Graph graph;
      graph.inputs = {x};
      graph.outputs = {x + cast(constant(rows), DType::f32)};
      return graph;
    };
  };
  using Elements = std::vector<int64_t>;
  const auto numbers = [](int64_t rows) {
    Elements all(static_cast<size_t>(rows));
    std::iota(all.begin(), all.end(), 0);
    return Tensor(tensor(all, {rows, 1}));
  };
  const auto counts = [](int64_t rows) { return Tensor(tensor(Elements{rows, 7, 5 * rows}, {3})); };
  const auto check = [&](auto&& constant) {
    const onnx::Exported out =
        onnx::export_model(build(constant), {.inputs = {"x"}, .outputs = {"y"}});
    CHECK(out.fixed == "");
    const onnx::Net net(out.model);
    for (int64_t rows : {1, 2, 5}) {
      const Tensor x =
          tensor(std::vector<double>(static_cast<size_t>(3 * rows), 0.25), {rows, 3}, DType::f32);
      const Tensor expected = x + cast(constant(rows), DType::f32);
      CHECK(net(std::array{x})[0].to_doubles() == expected.to_doubles());
    }
  };
  check(numbers);
  check(counts);
  // A square of their number is neither.
  CHECK(onnx::export_model(
            build([](int64_t rows) { return Tensor(tensor(Elements{rows * rows, 0, 0}, {3})); }),
            {.inputs = {"x"}, .outputs = {"y"}})
            .fixed != "");
}

TEST_CASE("equal models give equal bytes") {
  const TemporaryFolder folder;
  const ZooModel zoo = zoo_models()[3];
  const auto model = made(zoo);
  onnx::write(exported(zoo, *model).model, folder.file("a.onnx"));
  onnx::write(exported(zoo, *model).model, folder.file("b.onnx"));
  CHECK(test::contents_of(folder.file("a.onnx")) == test::contents_of(folder.file("b.onnx")));
}

TEST_CASE("what is written reads as it was: functions, their defaults, graphs and metadata") {
  onnx::Model model{
      .file = "", .ir_version = 9, .producer = "test", .opsets = {{"", 18}, {"f", 1}}};
  model.metadata["key"] = "value";
  const onnx::Graph branch{.name = "then",
                           .nodes = {{.op = "Identity", .inputs = {"x"}, .outputs = {"z"}}},
                           .outputs = {{.name = "z"}}};
  model.graph = {
      .name = "g",
      .nodes = {{.op = "If",
                 .name = "choice",
                 .inputs = {"c"},
                 .outputs = {"y"},
                 .attributes = {{"then_branch", std::make_shared<const onnx::Graph>(branch)},
                                {"floats", std::vector<double>{0.5, -2}},
                                {"text", std::string("abc")},
                                {"texts", std::vector<std::string>{"a", ""}},
                                {"number", 0.25},
                                {"count", int64_t{-3}}}}},
      .inputs = {{.name = "x", .dtype = DType::bf16, .shape = {{{-1, "n"}, {4, ""}}}}},
      .outputs = {{.name = "y"}}};
  onnx::Function function{.name = "F", .domain = "f", .inputs = {"a"}, .outputs = {"b"}};
  function.defaults["alpha"] = 0.5;
  function.nodes = {{.op = "Elu",
                     .inputs = {"a"},
                     .outputs = {"b"},
                     .attributes = {},
                     .references = {{"alpha", "alpha"}}}};
  model.functions.push_back(function);
  const TemporaryFolder folder;
  onnx::write(model, folder.file("m.onnx"));
  const onnx::Model read = onnx::read(folder.file("m.onnx"));
  CHECK(read.opsets == model.opsets);
  CHECK(read.metadata == model.metadata);
  CHECK(read.producer == "test");
  const onnx::Node& node = read.graph.nodes.at(0);
  CHECK(std::get<double>(node.attributes.at("number")) == 0.25);
  CHECK(std::get<int64_t>(node.attributes.at("count")) == -3);
  CHECK(std::get<std::vector<double>>(node.attributes.at("floats")) == std::vector{0.5, -2.0});
  CHECK(std::get<std::vector<std::string>>(node.attributes.at("texts")).at(0) == "a");
  const auto& then =
      std::get<std::shared_ptr<const onnx::Graph>>(node.attributes.at("then_branch"));
  CHECK(then->nodes.at(0).op == "Identity");
  CHECK(read.graph.inputs.at(0).shape->at(0).symbol == "n");
  CHECK(read.graph.inputs.at(0).dtype == DType::bf16);
  CHECK(std::get<double>(read.functions.at(0).defaults.at("alpha")) == 0.5);
  CHECK(read.functions.at(0).nodes.at(0).references.at("alpha") == "alpha");
}

TEST_CASE(
    "random numbers are refused by their module, and a batch that changes the graph is fixed") {
  const auto build = [](int64_t) {
    const Tensor step = input({DType::i64, {}}, 0);
    return Graph{
        .inputs = {step}, .outputs = {uniform({4}, {.step = step}) + 1.0}, .assignments = {}};
  };
  CHECK_THROWS_WITH_AS(
      onnx::export_model(build, {.inputs = {"step"}, .outputs = {"y"}}),
      "[onnx] no operator of ONNX computes these operations: random_uniform. Hint: export the "
      "forward pass, in evaluation mode.",
      Error);
  const auto unrolled = [](int64_t batch) {
    const Tensor x = input({DType::f32, {batch, 4}}, 0);
    Tensor sum = x[0];
    for (int64_t i = 1; i < batch; ++i) sum = sum + x[i];
    return Graph{.inputs = {x}, .outputs = {sum}, .assignments = {}};
  };
  const onnx::Exported out = onnx::export_model(unrolled, {.inputs = {"x"}, .outputs = {"y"}});
  CHECK(out.fixed == "reshape depends on it");
  CHECK(out.model.graph.inputs[0].shape->front().extent == 1);
  const auto counted = [](int64_t batch) {
    const Tensor x = input({DType::f32, {batch, 4}}, 0);
    const Tensor odd = tensor(std::vector{2 * batch + 1}, {1});
    return Graph{.inputs = {x}, .outputs = {x * cast(odd, DType::f32)}, .assignments = {}};
  };
  CHECK(onnx::export_model(counted, {.inputs = {"x"}, .outputs = {"y"}}).fixed ==
        "a constant has a number that is no multiple of it");
}

TEST_SUITE("slow onnx") {
  TEST_CASE("onnxruntime runs the zoo's exported models with weft's outputs") {
    const std::string python = python_with("onnxruntime");
    if (python.empty()) return;
    const TemporaryFolder folder;
    std::string folders;
    for (const ZooModel& zoo : zoo_models()) {
      const auto model = made(zoo);
      const std::string of = folder.file(zoo.name);
      std::filesystem::create_directory(of);
      onnx::write(exported(zoo, *model).model, of + "/model.onnx");
      for (const int64_t batch : {1, 3}) {
        const Tensor x = rows_for(zoo, batch);
        io::write_npy(fmt::format("{}/input_{}.npy", of, batch), x);
        io::write_npy(fmt::format("{}/output_{}.npy", of, batch), output_of(*model, x));
      }
      folders += fmt::format(" '{}'", of);
    }
    const std::string said = folder.file("said");
    const int status = std::system(
        fmt::format("{} tests/pytorch/check_onnx.py{} >'{}' 2>&1", python, folders, said).c_str());
    const std::string lines = test::contents_of(said);
    REQUIRE_MESSAGE(status == 0, lines);
    MESSAGE(lines);
    std::istringstream stream(lines);
    size_t count = 0;
    for (std::string line; std::getline(stream, line); ++count) {
      const nlohmann::json model = nlohmann::json::parse(line);
      CHECK_MESSAGE(model.at("difference") < 1e-5, line);
      CHECK_MESSAGE(model.at("largest") > 1e-2, line);
    }
    CHECK(count == zoo_models().size());
  }
}
