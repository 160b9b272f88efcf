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
  // Returns result `which` of a node with several.
  std::string add_result(std::string_view op, Names inputs, Attributes attributes, size_t which);
  std::string cast(const std::string& x, DType from, DType to);
  std::string reshape(const std::string& x, const weft::Node& like);  // to the shape of `like`
  std::string unsqueeze(const std::string& x, int64_t axis) {
    return add("Unsqueeze", {x, integers({axis})});
  }

  // ---- constants
  std::string number(double value, DType dtype);  // shape []
  std::string integers(const std::vector<int64_t>& values);
  // Floats with axes become Constant nodes, as initializers of floats are what trains.
  std::string constant(const Tensor& value, std::string_view name = "constant");
  std::string initializer(const std::string& name, Tensor value);

  // ---- extents. A graph for any number of rows has extents that are multiples of that number.
  // Returns that multiple for an axis; 0 where the extent is fixed.
  int64_t batches(const weft::Node& value, int axis) const;
  // Returns the same of a number that is `here`, and `there` for one row more; nullopt where it
  // depends on the number of rows in another way.
  std::optional<int64_t> multiple_of_rows(int64_t here, int64_t there) const;
  std::string rows();  // their number, i64 [1]
  // Returns the extent of an axis. Throws NotSymbolic where it depends on the number of rows.
  int64_t fixed(const weft::Node& value, int axis) const;
  std::string extent(const weft::Node& value, int axis);         // i64 [1]
  std::string extent_number(const weft::Node& value, int axis);  // i64 []
  std::string shape(const weft::Node& value);                    // i64 [rank]
  // Returns the shape that extends a value of shape `from` to `to`; extents that it has already may
  // be 1 there.
  std::string expansion(const weft::Node& to, const Shape& from);

  void require(int64_t opset);  // the operator that follows is this new
  void set_module(const std::string* module) { module_ = module; }
  std::string unused_name(const std::string& wanted);

  // Sets what the rows share: the same graph for another batch, and the input that has the rows.
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
  std::string_view op;    // weft's
  std::string_view onnx;  // the operator that it is, where `emit` is null
  std::string (*emit)(Emitter& to, const weft::Node& node, Operands x) = nullptr;
  // Operands of an elementwise row may be any that broadcast to the node's shape.
  bool elementwise = false;
  // All axes of its operands but the last two may be such; the last two are whole.
  bool broadcasts_batch = false;
  // Returns whether the row takes a node; others are decomposed. Null: it takes all.
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
// Returns what a node, together with those that it alone reads, is as one operator.
std::optional<Match> match_expression(const Value& value, const Uses& uses);
// Returns what a quantization or its inverse is.
std::optional<Match> match_quantization(const Value& value);
// Returns whether every recurrent layer of a graph is one of ONNX's, as its users read no more of
// it than the states.
bool has_recurrent_layers_of_onnx(const weft::Graph& graph);

// Emits a convolution; an empty bias is none.
std::string emit_conv(Emitter& to, const weft::Node& node, const std::string& x,
                      const std::string& weight, const std::string& bias);

}  // namespace weft::onnx
