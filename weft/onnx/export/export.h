// Exports a graph of weft as an ONNX model: each node becomes nodes of ONNX's operators, variables
// become initializers under their names, and the parts of a module have its path in their names.
//
//   auto build = [&](int64_t batch) -> weft::Graph {
//     const ModeScope inference(Mode::eval);
//     const Tensor x = input({DType::f32, {batch, 784}}, 0);
//     return {.inputs = {x}, .outputs = {model(x)}};
//   };
//   onnx::write(onnx::export_model(build, {.inputs = {"features"}, .outputs = {"logits"}}).model,
//               "mlp.onnx");
//
// An operation without an ONNX operator is decomposed, and its parts are exported.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/onnx/file/model.h"

namespace weft::onnx {

// Builds the graph of a forward pass for `batch` rows; its inputs are leaves of input().
using BuildGraph = std::function<weft::Graph(int64_t batch)>;

struct ExportOptions {
  std::vector<std::string> inputs, outputs;  // names, in the graph's order
  // Number of rows that the exported model takes. Absent: any number (the symbolic extent "batch")
  // where the graphs for all numbers agree, else one row.
  std::optional<int64_t> batch = {};
  std::string name = "weft";  // of the graph
};

struct Exported {
  Model model;
  std::string fixed;  // why the batch is fixed although it was not given; "" where it is symbolic
};

// The operator set that an exported file names, unless one of its operators is newer.
inline constexpr int64_t export_opset = 18;

// Initializers share the memory of the variables. Throws Error(usage) that names the operation and
// its module where ONNX has no operator for it: for random numbers and some gradients.
Exported export_model(const BuildGraph& build, const ExportOptions& options);

// Returns whether a node of this operation can be exported, by itself or by its parts.
bool is_exported(const OpDef& def);

}  // namespace weft::onnx
