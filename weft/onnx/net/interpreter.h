// Interprets the nodes of an ONNX graph: each adds its operations to weft's graph. Internal to
// weft/onnx.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/onnx/net/call.h"
#include "weft/onnx/net/net.h"

namespace weft::onnx {

inline constexpr int deepest = 64;  // nesting of functions and graphs
// Nested calls and loops may run exponentially many operators in the size of a file.
inline constexpr int64_t most_operators = int64_t{1} << 18;
inline constexpr size_t most_value_bytes = size_t{1} << 40;  // more than any machine holds

class Interpreter {
 public:
  explicit Interpreter(const Net& net, std::vector<IndexInput>* indices = nullptr)
      : net_(net), file_(net.model().file), indices_(indices) {}

  // Returns the outputs of the whole model.
  std::vector<Tensor> run(std::span<const Tensor> inputs);
  // Returns the outputs of a graph that is an attribute (of If, Loop, Scan). The graph may also
  // read values of the graphs around it.
  std::vector<Tensor> run_inside(const Graph& graph, std::vector<Tensor> inputs, const Call& call);
  // Returns the variable of the model whose present state `value` is; empty for any other value.
  Variable variable_of(const Tensor& value) const;
  // Returns whether a value derives from constants alone: from no input, variable or random number.
  bool is_constant(const Tensor& value);
  // An integer of two or four bits is held in a byte; bits_of() tells how many bits it has.
  int bits_of(const Tensor& value) const;
  void set_bits(const Tensor& value, int bits);
  // Notes that a node indexes an axis by the elements of a value, if they are those of a model
  // input and the node runs in any case.
  void note_indices(const Tensor& value, int64_t extent, const std::string& place);

 private:
  using Scope = std::map<std::string, Tensor, std::less<>>;
  using Opsets = std::map<std::string, int64_t, std::less<>>;

  const Tensor* find(std::string_view name) const;
  void run_nodes(std::span<const Node> nodes, const Opsets& opsets);
  void run_node(const Node& node, size_t index, const Opsets& opsets);
  std::vector<Tensor> call_function(const Function& function, const Call& call);
  void add_initializers(const Graph& graph, bool outermost);
  Tensor output(const std::string& name, const std::string& of) const;
  std::vector<Tensor> outputs_of(const Graph& graph, const std::string& of);
  // Compares a value with its declaration in the file. Refuses another type; notes another shape,
  // of which the model warns, as onnxruntime does.
  void check_declared(const ValueInfo& info, const Tensor& value);
  bool fits(const ValueInfo& info, const Shape& shape);
  void warn_of_shapes() const;

  const Net& net_;
  const std::string& file_;
  std::vector<IndexInput>* indices_;       // null: the caller wants none
  std::vector<const weft::Node*> leaves_;  // the inputs of the model
  std::deque<Scope> scopes_;               // innermost last
  size_t visible_ = 0;  // index of the outermost scope that names are looked up in
  const Opsets* opsets_ = nullptr;
  const Graph* graph_ = nullptr;  // the graph whose nodes run; null in a function
  std::map<std::string, int64_t, std::less<>> extents_;  // by symbol
  std::vector<std::string> misfits_;                     // values of another shape than declared
  int depth_ = 0;
  int64_t operators_ = 0;                        // count of operators that have run
  std::unordered_map<uint64_t, bool> constant_;  // by the node's id
  std::unordered_map<uint64_t, int> bits_;       // likewise
};

// Returns the model's own function that a node calls; null if it calls an operator.
const Function* find_function(const Model& model, const Node& node);

}  // namespace weft::onnx
