// A Call is a node of an ONNX graph while it is imported: its operands, attributes, and the version
// of its operator set. Operators (operators.h) are functions of a Call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/onnx/file/model.h"
#include "weft/onnx/file/types.h"

namespace weft::onnx {

class Interpreter;

// Returns a new leaf over the elements of a constant. A captured step would warn of an older leaf.
Tensor leaf_of(const Tensor& constant);

class Call {
 public:
  Call(Interpreter& interpreter, const Node& node, std::vector<Tensor> inputs, int64_t opset,
       std::string place)
      : interpreter_(interpreter),
        node_(node),
        inputs_(std::move(inputs)),
        opset_(opset),
        place_(std::move(place)) {}

  const Node& node() const { return node_; }
  int64_t opset() const { return opset_; }
  Interpreter& interpreter() const { return interpreter_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }  // empty: absent

  // ---- operands
  size_t size() const { return inputs_.size(); }
  bool has(size_t input) const { return input < size() && inputs_[input].defined(); }
  const Tensor& operator[](size_t input) const;  // refuses a node without it
  Tensor optional(size_t input) const { return has(input) ? inputs_[input] : Tensor(); }
  // Returns all operands. Refuses a node without operands, or with one left out.
  std::vector<Tensor> all() const;
  // Returns whether an operand derives from constants alone, so that its elements can be known.
  bool is_constant(size_t input) const;
  // bits() returns the bits of each number of an operand, 2 or 4, or 0 for the whole type;
  // with_bits() notes the bits of a result.
  int bits(size_t input) const;
  Tensor with_bits(const Tensor& result, int bits) const;
  // Notes that an operand's elements index an axis of this extent (Interpreter::note_indices).
  void note_indices(size_t input, int64_t extent) const;
  // Return the elements of a constant operand, at once. Refuse one that is known only when the
  // model runs.
  std::vector<int64_t> integers(size_t input) const;
  std::vector<double> numbers(size_t input) const;
  int64_t integer_at(size_t input) const;
  double number_at(size_t input) const;

  // ---- attributes
  bool has(std::string_view attribute) const;
  int64_t integer(std::string_view attribute) const;  // refuses a node without it
  int64_t integer(std::string_view attribute, int64_t fallback) const;
  bool flag(std::string_view attribute, bool fallback = false) const {
    return integer(attribute, fallback ? 1 : 0) != 0;
  }
  double number(std::string_view attribute) const;
  double number(std::string_view attribute, double fallback) const;
  std::string text(std::string_view attribute, const std::string& fallback = "") const;
  std::vector<int64_t> integers(std::string_view attribute) const;  // empty: absent
  std::vector<double> numbers(std::string_view attribute) const;
  std::vector<std::string> texts(std::string_view attribute) const;
  Tensor tensor(std::string_view attribute) const;  // empty: absent
  const Graph& graph(std::string_view attribute) const;
  // Returns the type with this number in TensorProto.DataType. Refuses a type that weft lacks.
  ElementType type_of(int64_t onnx_type) const;

  // Returns the axis of an attribute in [0, rank).
  int axis(std::string_view attribute, int64_t fallback, int rank) const;
  int axis_in(int64_t axis, int rank) const;
  // Returns axes in [0, rank), in the order given, from an operand (from opset `since` on) or an
  // attribute "axes"; nullopt where the node gives none.
  std::optional<std::vector<int>> axes(size_t input, int64_t since, int rank) const;

  // ---- results
  size_t results() const { return node_.outputs.size(); }
  bool wants(size_t result) const { return result < results() && !node_.outputs[result].empty(); }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    refuse_text(fmt::format(format, std::forward<Args>(args)...));
  }
  const std::string& place() const { return place_; }

 private:
  [[noreturn]] void refuse_text(const std::string& what) const;
  // Refuses a constant operand that is computed from values of too many elements.
  void check_folds(size_t input) const;
  const Attribute* find(std::string_view attribute) const;
  template <class T>
  const T& required(std::string_view attribute, const char* kind) const;
  template <class T>
  const T* find_as(std::string_view attribute, const char* kind) const;

  Interpreter& interpreter_;
  const Node& node_;
  std::vector<Tensor> inputs_;
  int64_t opset_;
  std::string place_;
};

}  // namespace weft::onnx
