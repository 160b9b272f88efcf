// An Emitter collects the nodes and initializers of an ONNX graph; export rows say which nodes an
// operation of weft becomes. Internal to weft/onnx.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/ir/op_def.h"
#include "weft/onnx/file/model.h"

namespace weft::onnx {

// NotSymbolic says why a graph cannot be exported for any number of rows.
struct NotSymbolic {
  std::string reason;
};

// An attribute of ONNX is a list.
inline std::vector<int64_t> list(const Dims& dims) { return {dims.begin(), dims.end()}; }

class Emitter {
 public:
  using Attributes = std::map<std::string, Attribute, std::less<>>;
  using Names = std::vector<std::string>;

  explicit Emitter(Model& model) : model_(model) {}

  // ---- nodes; each returns the name of its result
  std::string add(std::string_view op, Names inputs, Attributes attributes = {});
  // Adds a node of several results and returns the name of result `which`.
  std::string add_result(std::string_view op, Names inputs, Attributes attributes, size_t which);
  std::string cast(const std::string& x, DType from, DType to);
  std::string reshape(const std::string& x, const weft::Node& like);  // to the shape of `like`
  std::string unsqueeze(const std::string& x, int64_t axis) {
    return add("Unsqueeze", {x, integers({axis})});
  }

  // ---- constants
  std::string number(double value, DType dtype);  // shape []
  std::string integers(const std::vector<int64_t>& values);
  // A small float constant with axes becomes a Constant node: as an initializer it would read back
  // as a trainable parameter.
  std::string constant(const Tensor& value, std::string_view name = "constant");
  std::string initializer(const std::string& name, Tensor value);

  // ---- extents. Where the number of rows is symbolic, an extent is fixed or a multiple of it.
  // Returns the multiple for an axis; 0 where the extent is fixed.
  int64_t batches(const weft::Node& value, int axis) const;
  // Returns the multiple for a number that is `here`, and `there` for one row more; nullopt where
  // the number depends on the rows in another way.
  std::optional<int64_t> multiple_of_rows(int64_t here, int64_t there) const;
  std::string rows();  // the number of rows, i64 [1]
  // Returns the extent of an axis. Throws NotSymbolic where it depends on the number of rows.
  int64_t fixed(const weft::Node& value, int axis) const;
  std::string extent(const weft::Node& value, int axis);         // i64 [1]
  std::string extent_number(const weft::Node& value, int axis);  // i64 []
  std::string shape(const weft::Node& value);                    // i64 [rank]
  // Returns the operand of an Expand from shape `from` to the shape of `to`. It is 1 along axes
  // that have the extent already.
  std::string expansion(const weft::Node& to, const Shape& from);

  void require(int64_t opset);  // raises the operator set to at least `opset`
  void set_module(const std::string* module) { module_ = module; }
  std::string unused_name(const std::string& wanted);

  // Sets the same graph with one row more (by node of this graph), the number of rows of this
  // graph, and the input whose first axis is the rows.
  void set_other(std::unordered_map<const weft::Node*, const weft::Node*> other, int64_t batch,
                 std::string rows_input);
  bool is_symbolic() const { return !other_.empty(); }
  const weft::Node& other(const weft::Node& node) const;

 private:
  Model& model_;
  const std::string* module_ = nullptr;
  std::unordered_set<std::string> names_;
  std::map<std::string, std::string> constants_;  // by type, shape and bytes
  std::unordered_map<const weft::Node*, const weft::Node*> other_;
  int64_t batch_ = 0;
  std::string rows_input_, rows_;  // rows_: the number of rows, i64 [1]; "" before its first use
};

using Operands = std::span<const std::string>;

struct ExportRow {
  std::string_view op;    // name of the operation in weft
  std::string_view onnx;  // the ONNX operator that it equals, where `emit` is null
  std::string (*emit)(Emitter& to, const weft::Node& node, Operands x) = nullptr;
  // Whether an operand may have any shape that broadcasts to the node's.
  bool elementwise = false;
  // Whether an operand may broadcast along all axes but the last two, along which it is whole.
  bool broadcasts_batch = false;
  // Returns whether the row exports a node; otherwise the node is decomposed. Null: always.
  bool (*takes)(const weft::Node& node) = nullptr;
};
std::span<const ExportRow> elementwise_export_rows();
std::span<const ExportRow> movement_export_rows();
std::span<const ExportRow> layer_export_rows();
std::span<const ExportRow> quantization_export_rows();
// Returns null for an operation without a row that takes it.
const ExportRow* find_export_row(const weft::Node& node);

// A Match is an expression that one operator of ONNX computes.
struct Match {
  std::vector<Value> operands;  // empty: absent
  std::function<std::string(Emitter& to, Operands x)> emit;
};
// Matches the expression that ends in a value, and whose inner nodes have no other users, to one
// operator; nullopt: no match.
std::optional<Match> match_expression(const Value& value, const Uses& uses);
// Matches quantize_affine, dequantize or fake_quantize to QuantizeLinear, DequantizeLinear or both.
std::optional<Match> match_quantization(const Value& value);
// Returns whether every recurrent layer of a graph can become an LSTM or GRU node: its users read
// only its hidden states.
bool has_recurrent_layers_of_onnx(const weft::Graph& graph);

// Emits a convolution; `bias` is empty where the convolution has none.
std::string emit_conv(Emitter& to, const weft::Node& node, const std::string& x,
                      const std::string& weight, const std::string& bias);

}  // namespace weft::onnx
