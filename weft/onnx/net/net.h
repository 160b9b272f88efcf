// A Net is an ONNX model as a module of weft: its float initializers are parameters under their
// names, and calling it builds its graph in weft's operations, for inference or for training.
//
//   onnx::Net net(onnx::read("resnet.onnx"));
//   auto step = compile([&](Tensor x) { return net({x})[0]; });
//
// Shapes are static in weft: the shapes of a call's inputs bind the symbolic extents of the file,
// and values that the file computes from shapes are folded.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/nn/module.h"
#include "weft/onnx/file/model.h"

namespace weft::onnx {

// An IndexInput is an input whose elements index an axis of `extent` elements in a node.
struct IndexInput {
  size_t input;
  int64_t extent;
  std::string node;  // its name in errors
};

class Net : public nn::Module {
 public:
  // Throws Error(data) for a model with operators that weft lacks (the message lists all of them
  // with their counts), for values that form a cycle or come from nowhere, and for a node with
  // operands, outputs or attributes that its operator does not have in the file's operator set.
  explicit Net(Model model);
  Net(nn::Module& parent, Model model);  // its variables have the same names as without a parent
  ~Net() override;

  const Model& model() const { return model_; }
  const std::vector<ValueInfo>& inputs() const { return model_.graph.inputs; }
  const std::vector<ValueInfo>& outputs() const { return model_.graph.outputs; }

  // Returns which inputs decide shapes (the second operand of a Reshape). Their elements must be
  // known when the graph is built, so that a compiled step captures them.
  const std::vector<bool>& static_inputs() const { return static_inputs_; }

  // Returns the outputs of the model. Inputs are in the order of the file. Throws Error(data) that
  // names a node which does not take its operands, and Error(usage) for inputs of other types than
  // the file's. Appends to `indices`, if not null, the inputs that nodes use as indices unchanged,
  // so that whoever knows their elements can check them.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs,
                                 std::vector<IndexInput>* indices = nullptr) const;

  // Returns the types of the inputs; `extents` binds symbolic extents by name. Throws Error(usage)
  // that lists the extents that are unbound, and for a name that no extent has.
  using Extents = std::map<std::string, int64_t, std::less<>>;
  std::vector<Type> input_types(const Extents& extents) const;

 private:
  friend class Interpreter;

  void add_variables();
  // Returns the path under which nn::OutputScope keeps a value, as the result of a layer.
  std::string path_of(const std::string& value) const;

  Model model_;
  std::vector<bool> static_inputs_;
  mutable bool has_warned_ = false;                         // of shapes that are not as declared
  std::map<std::string, Variable, std::less<>> variables_;  // by the initializer's name
};

// Throws Error(usage) unless the inputs have the types that a model says, and Error(data) for an
// input that is no tensor of weft's types. Messages begin with `model`.
void check_inputs(const std::string& model, std::span<const ValueInfo> wanted,
                  std::span<const Type> inputs);
std::vector<Type> types_of(std::span<const Tensor> tensors);
// Returns "f32[batch, 3, 224, 224]", or what else the value is.
std::string to_string(const ValueInfo& value);
// Returns the name by which an extent that is not known is bound: its symbol, or INPUT.AXIS.
std::string symbol_of(const ValueInfo& input, size_t axis);

}  // namespace weft::onnx
