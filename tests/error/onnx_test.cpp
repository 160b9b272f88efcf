// Tests ONNX files that weft refuses; tests/onnx/make_models.py wrote them.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/error/tiny_run.h"
#include "weft/io/npy.h"
#include "weft/onnx/file/model.h"

using namespace weft::test;

namespace {
std::string kept(const std::string& file) {
  std::ifstream stream(std::string(std::getenv("SRC")) + "/tests/onnx/" + file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

struct Models : Workplace {
  Models() { weft::io::write_npy(path("x.npy"), weft::ones({2, 3}).eval()); }
  // Returns what is wrong with how the model of tests/onnx/refused is refused, or "".
  std::string refuses(const std::string& name, const std::string& message) const {
    write(name + ".onnx", kept("refused/" + name + ".onnx"));
    return fails_with(weft({"run", name + ".onnx", "--input", "x.npy"}), data_code, message);
  }
};
}  // namespace

TEST_CASE_FIXTURE(Models, "an ONNX file that weft cannot read is refused, with all it lacks") {
  CHECK(refuses("unknown_operators",
                "[onnx] unknown_operators.onnx: weft lacks 2 of its operators: "
                "NonMaxSuppression (1), my.ops.Fancy (2).") == "");
  CHECK(refuses("old_opset", "old_opset.onnx: it uses opset 6; weft reads 7 to 28.") == "");
  CHECK(refuses("new_opset", "new_opset.onnx: it uses opset 99; weft reads 7 to 28.") == "");
  CHECK(refuses("cycle",
                "cycle.onnx: node 0 (Add): it reads what follows from its own result: "
                "a cycle.") == "");
  CHECK(refuses("nowhere", "node 'sum' (Add): it reads 'absent', which nothing computes.") == "");
  CHECK(refuses("twice", "twice.onnx: 'y' is computed twice.") == "");
}

TEST_CASE_FIXTURE(Models, "a node that does not take its operands is named") {
  CHECK(refuses("shapes", "node 'product' (MatMul): [matmul]") == "");
  CHECK(refuses("attribute",
                "node 'soft' (Softmax): axis 7 is outside of its operand, which has 2 axes.") ==
        "");
  CHECK(refuses("endless_loop",
                "node 'loop' (Loop): it has more than 4096 steps, which weft does "
                "not unroll.") == "");
}

TEST_CASE_FIXTURE(Models, "what the operator of a node does not have is refused, not ignored") {
  CHECK(refuses("unknown_attribute",
                "unknown_attribute.onnx: node 'act' (Relu): Relu has no attribute 'foo' in opset "
                "17.") == "");
  CHECK(refuses("old_attribute", "Squeeze has no attribute 'axes' in opset 13.") == "");
  CHECK(refuses("two_attributes", "node 'act' (Elu) has two attributes 'alpha'.") == "");
  CHECK(refuses("operands",
                "node 'act' (Relu): it has 2 operands, and Relu takes at most 1 in opset 13.") ==
        "");
  CHECK(refuses("outputs",
                "node 'act' (Relu): it has 2 outputs, and Relu gives at most 1 in opset 13.") ==
        "");
  CHECK(refuses("new_operator",
                "node 'act' (Gelu): Gelu is in opsets from 20 on, and the file uses 17.") == "");
  CHECK(refuses("no_operator_set",
                "node 'step' (Binarizer): the file names no operator set of ai.onnx.ml.") == "");
  CHECK(refuses("function", "node 'call' (Double): function Double has no attribute 'by'.") == "");
}

TEST_CASE_FIXTURE(Models, "an input that indexes outside of an axis is refused") {
  namespace onnx = weft::onnx;
  onnx::Model model;
  model.ir_version = 8;
  model.opsets = {{"", 17}};
  model.graph.inputs = {
      {.name = "ids", .dtype = weft::DType::i64, .shape = {{{.extent = 2}, {.extent = 3}}}}};
  model.graph.outputs = {
      {.name = "y", .dtype = weft::DType::f32, .shape = {{{.extent = 6}, {.extent = 4}}}}};
  model.graph.initializers = {
      {.name = "table", .value = weft::ones({5, 4}).eval()},
      {.name = "shape", .value = weft::tensor(std::vector<int64_t>{6}, {1}).eval()}};
  model.graph.nodes = {
      {.op = "Reshape", .name = "flat", .inputs = {"ids", "shape"}, .outputs = {"flat"}},
      {.op = "Gather", .name = "embedding", .inputs = {"table", "flat"}, .outputs = {"y"}}};
  onnx::write(model, path("net.onnx"));
  const auto runs_with = [&](int64_t id) {
    weft::io::write_npy(path("ids.npy"),
                        weft::tensor(std::vector<int64_t>{0, 1, 2, 3, id, 4}, {2, 3}));
    return weft({"run", "net.onnx", "--input", "ids.npy"});
  };
  const std::string place = "[onnx] net.onnx: node 'embedding' (Gather): input 'ids' has ";
  CHECK(fails_with(runs_with(5), data_code, place + "5 at [1, 1], an index of 5 elements.") == "");
  CHECK(fails_with(runs_with(-6), data_code, place + "-6 at [1, 1], an index of 5 elements.") ==
        "");
  CHECK(runs_with(-5).code == 0);
}

TEST_CASE_FIXTURE(Models, "a value of another type than the file says is refused, a shape said") {
  CHECK(refuses("output_type",
                "output_type.onnx: 'y' is declared as i64[2, 3] and computed as f32[2, 3].") == "");
  CHECK(refuses("inner_type", "'h' is declared as i64[2, 3] and computed as f32[2, 3].") == "");

  write("shape.onnx", kept("refused/output_type.onnx"));
  weft::onnx::Model model = weft::onnx::read(path("shape.onnx"));
  weft::onnx::ValueInfo& y = model.graph.outputs[0];
  y.dtype = weft::DType::f32;
  const auto says = [&](const std::string& shape) {
    weft::onnx::write(model, path("shape.onnx"));
    return goes_on_with(weft({"run", "shape.onnx", "--input", "x.npy"}),
                        fmt::format("[onnx] shape.onnx: 'y' is declared as f32{} and computed as "
                                    "f32[2, 3].",
                                    shape));
  };
  y.shape = {{{2, ""}, {4, ""}}};
  CHECK(says("[2, 4]") == "");
  y.shape = {{{-1, "n"}, {-1, "n"}}};  // one symbol for two extents
  CHECK(says("[n, n]") == "");
}

TEST_CASE_FIXTURE(Models, "every verb says in the same words that an ONNX file is not there") {
  using Words = std::vector<std::string>;
  for (const Words& words : {Words{"run", "m.onnx", "--input", "x.npy"},
                             {"plan", "m.onnx"},
                             {"eval", "m.onnx"},
                             {"profile", "m.onnx"},
                             {"train", "m.onnx"},
                             {"finetune", "m.onnx"},
                             {"inspect", "m.onnx"},
                             {"convert", "m.onnx", "out.onnx", "--to", "onnx"},
                             {"convert", "m.onnx", "out", "--to", "safetensors"},
                             {"quantize", "m.onnx", "out.onnx", "--to", "int8", "--dynamic"},
                             {"prune", "m.onnx", "out"},
                             {"generate", "m.onnx", "--prompt", "a"},
                             {"chat", "m.onnx"},
                             {"merge", "m.onnx", "out"}}) {
    INFO(words[0]);
    CHECK(fails_with(weft(words), usage, "weft: error: m.onnx: there is no such file.") == "");
  }
  for (const char* key : {"model.pretrained", "distillation.teacher"}) {
    Words words{"train",    "--data.dataset",
                "addition", "--data.digits",
                "1",        "--steps",
                "1",        "--train.global_batch_size",
                "4",        fmt::format("--{}", key),
                "m.onnx"};
    if (std::string(key) != "model.pretrained") words.insert(words.end(), {"--model.name", "gpt"});
    CHECK(fails_with(weft(words), usage, fmt::format("{}: m.onnx: there is no such file.", key)) ==
          "");
  }
  write("there.onnx", kept("opsets/loop_11.onnx"));
  CHECK(fails_with(weft({"convert", "there.onnx", "out", "--to", "safetensors"}), usage,
                   "an ONNX file is converted with --to onnx. Got --to safetensors.") == "");
}

TEST_CASE_FIXTURE(Models, "an ONNX file that is cut anywhere, or is none, is refused") {
  const std::string whole = kept("opsets/loop_11.onnx");
  REQUIRE(whole.size() > 200);
  for (const size_t size : {whole.size() / 8, whole.size() / 2, whole.size() - 1}) {
    write("cut.onnx", whole.substr(0, size));
    CHECK(fails_with(weft({"run", "cut.onnx"}), data_code, "[onnx] cut.onnx: ") == "");
  }
  write("text.onnx", "this is no model");
  CHECK(fails_with(weft({"run", "text.onnx"}), data_code,
                   "text.onnx: its bytes are no ONNX message") == "");
}
