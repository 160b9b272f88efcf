// Writes an ONNX file of a single node.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/onnx/file/model.h"

namespace weft::test {

// The output has the dtype of the input, and a shape that the file does not say.
inline void write_net(const std::string& path, onnx::Node node, DType dtype,
                      std::vector<onnx::Dim> shape) {
  onnx::Model model;
  model.ir_version = 8;
  model.opsets = {{"", 17}};
  model.graph.inputs = {{.name = "x", .dtype = dtype, .shape = std::move(shape), .refused = {}}};
  for (const std::string& output : node.outputs)
    model.graph.outputs.push_back({.name = output, .dtype = dtype, .shape = {}, .refused = {}});
  model.graph.nodes = {std::move(node)};
  onnx::write(model, path);
}

inline void write_identity(const std::string& path, DType dtype, std::vector<onnx::Dim> shape) {
  write_net(path, {.op = "Identity", .inputs = {"x"}, .outputs = {"y"}}, dtype, std::move(shape));
}

}  // namespace weft::test
