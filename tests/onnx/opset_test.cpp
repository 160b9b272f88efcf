// Tests forms of operators in old opsets, control flow and quantization by models that
// tests/onnx/make_models.py wrote, whose expected outputs NumPy computed.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/onnx/compare.h"
#include "tests/support/peers.h"
#include "tests/support/temporary_folder.h"
#include "weft/onnx/net/net.h"
#include "weft/onnx/operators/operators.h"
#include "weft/onnx/operators/signature.h"
#include "weft/tensor/compile.h"

using namespace weft;
namespace fs = std::filesystem;

namespace {
fs::path source(const char* folder) {
  const char* root = std::getenv("SRC");
  REQUIRE_MESSAGE(root != nullptr, "set SRC to the root of the sources");
  return fs::path(root) / folder;
}

std::string message_of(const fs::path& file) {
  try {
    const onnx::Net net(onnx::read(file.string()));
    CompiledStep step([&](std::span<const Tensor> inputs) { return net(inputs); },
                      {.mode = Mode::eval});
    step.run(std::vector<Tensor>{ones({2, 3}).eval()});
  } catch (const Error& error) {
    return error.kind() == ErrorKind::data ? error.what() : "another kind";
  }
  return "";
}

// Rows of docs/onnx-operators.md: | `Name` | domain | since | read or why not |
std::set<std::string> documented() {
  std::ifstream page(source("docs/onnx-operators.md"));
  std::set<std::string> names;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `") || !line.ends_with("| read |")) continue;
    const size_t end = line.find('`', 3), domain = line.find("| ", end) + 2;
    const std::string where = line.substr(domain, line.find(" |", domain) - domain);
    names.insert((where == "ai.onnx" ? "" : where) + "." + line.substr(3, end - 3));
  }
  return names;
}
}  // namespace

TEST_CASE("old forms of operators, loops and branches give NumPy's outputs") {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(source("tests/onnx/opsets")))
    files.push_back(entry.path());
  std::ranges::sort(files);
  REQUIRE(files.size() > 30);
  for (const char* device : {"cpu", "reference"})
    for (const fs::path& file : files) {
      INFO(file.stem().string(), " on ", device);
      const onnx::Net net(onnx::read(file.string()));
      CompiledStep step([&](std::span<const Tensor> inputs) { return net(inputs); },
                        {.mode = Mode::eval, .device = device});
      const std::span<const Tensor> results = step.run(std::vector<Tensor>{});
      REQUIRE(results.size() % 2 == 0);
      for (size_t i = 0; i < results.size(); i += 2) {
        const std::string what =
            difference(results[i].eval(), results[i + 1].eval(), {.relative = 1e-5});
        CHECK_MESSAGE(what.empty(), what);
      }
    }
}

TEST_CASE("models that weft cannot read are refused in one line that names the place") {
  struct Row {
    const char *file, *message;
  };
  for (const Row& row : {
           Row{"unknown_operators",
               "weft lacks 2 of its operators: NonMaxSuppression (1), "
               "my.ops.Fancy (2)."},
           {"cycle", "a cycle."},
           {"nowhere", "node 'sum' (Add): it reads 'absent', which nothing computes."},
           {"twice", "'y' is computed twice."},
           {"old_opset", "it uses opset 6; weft reads 7 to 28."},
           {"new_opset", "it uses opset 99; weft reads 7 to 28."},
           {"shapes", "node 'product' (MatMul): [matmul]"},
           {"attribute", "node 'soft' (Softmax): axis 7 is outside of its operand"},
           {"dynamic_shape", "is known only when the model runs."},
           {"endless_loop", "it has more than 4096 steps, which weft does not unroll."},
           {"unknown_attribute", "node 'act' (Relu): Relu has no attribute 'foo' in opset 17."},
           {"old_attribute", "node 'less' (Squeeze): Squeeze has no attribute 'axes' in opset 13."},
           {"two_attributes", "node 'act' (Elu) has two attributes 'alpha'."},
           {"operands",
            "node 'act' (Relu): it has 2 operands, and Relu takes at most 1 in opset 13."},
           {"outputs",
            "node 'act' (Relu): it has 2 outputs, and Relu gives at most 1 in opset 13."},
           {"old_operands", "it has 3 operands, and Clip takes at most 1 in opset 10."},
           {"new_operator",
            "node 'act' (Gelu): Gelu is in opsets from 20 on, and the file uses 17."},
           {"no_operator_set", "(Binarizer): the file names no operator set of ai.onnx.ml."},
           {"function", "node 'call' (Double): function Double has no attribute 'by'."},
           {"reference",
            "(Elu): attribute 'alpha' refers to one of a function, and the node is in "
            "none."},
           {"output_type", "'y' is declared as i64[2, 3] and computed as f32[2, 3]."},
           {"inner_type", "'h' is declared as i64[2, 3] and computed as f32[2, 3]."},
       }) {
    INFO(row.file);
    const fs::path file = source("tests/onnx/refused") / fmt::format("{}.onnx", row.file);
    const std::string message = message_of(file);
    INFO(message);
    CHECK(message.starts_with("[onnx] "));
    CHECK(message.find(file.string()) != std::string::npos);
    CHECK(message.find(row.message) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("operator sets of ai.onnx.ml that weft does not know are refused") {
  const weft::test::TemporaryFolder folder;
  onnx::Model model = onnx::read(source("tests/onnx/opsets/quantize_and_back.onnx").string());
  for (const int64_t opset : {0, 99}) {
    model.opsets["ai.onnx.ml"] = opset;
    onnx::write(model, folder.file("ml.onnx"));
    CHECK(message_of(folder.file("ml.onnx"))
              .ends_with(fmt::format("ml.onnx: it uses opset {} of ai.onnx.ml; weft reads 1 to 5.",
                                     opset)));
  }
}

TEST_CASE("a quantized and dequantized value passes the gradient where it did not saturate") {
  const onnx::Net net(onnx::read(source("tests/onnx/opsets/quantize_and_back.onnx").string()));
  const std::vector<Variable> all = net.parameters();
  REQUIRE(all.size() == 1);  // the scale is no parameter
  auto step = compile([&] { return grad(sum(net(std::span<const Tensor>())[0]), all)[0]; });
  // x / scale + zero, in u8: [3.5, 4.5, -15, 403], [250.5, 251.5, 255, -70].
  CHECK(step().eval().to_doubles() == std::vector<double>{1, 1, 0, 0, 1, 1, 1, 0});
}

TEST_SUITE("slow onnx") {
  TEST_CASE("operators have the operands, results and attributes of the onnx package's schemas") {
    const std::string python = weft::testing::python_with("onnx");
    if (python.empty()) return;
    const weft::test::TemporaryFolder folder;
    std::ofstream file(folder.file("signatures"));
    const auto text = [](size_t count) {
      return count == SIZE_MAX ? std::string("*") : std::to_string(count);
    };
    for (const onnx::Operator* each : onnx::all_operators())
      for (int64_t opset = 1; opset <= onnx::newest_opset; ++opset) {
        const onnx::Signature signature = onnx::signature_of(*each, opset);
        file << fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\n", each->domain, each->name, opset,
                            signature.since, text(signature.operands), text(signature.results),
                            fmt::join(signature.attributes, " "));
      }
    file.close();
    const int status = std::system(fmt::format("{} '{}' '{}' >'{}' 2>&1", python,
                                               source("tests/onnx/check_signatures.py").string(),
                                               folder.file("signatures"), folder.file("said"))
                                       .c_str());
    const std::string said = weft::test::contents_of(folder.file("said"));
    CHECK_MESSAGE(status == 0, said);
  }
}

TEST_CASE("docs/onnx-operators.md lists the operators that weft reads") {
  std::set<std::string> read;
  for (const onnx::Operator* each : onnx::all_operators())
    read.insert(fmt::format("{}.{}", each->domain, each->name));
  if (const char* list = std::getenv("WEFT_ONNX_OPERATORS")) {  // for tools/onnx_cases.py --table
    std::ofstream file(list);
    for (const std::string& name : read) file << name << '\n';
    return;
  }
  CHECK(documented() == read);
}
