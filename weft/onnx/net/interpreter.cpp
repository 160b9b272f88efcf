#include "weft/onnx/net/interpreter.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weft/base/logging.h"
#include "weft/io/files.h"
#include "weft/ir/op_def.h"
#include "weft/ir/variable.h"
#include "weft/nn/layer.h"
#include "weft/onnx/operators/operators.h"
#include "weft/onnx/operators/unrounded.h"

namespace weft::onnx {
namespace {
using io::printable;

// Turns "/layer1/layer1.0/conv1/Conv" into the path of a module.
std::string module_of(const Node& node) {
  std::string path = node.name.empty() ? node.op : node.name;
  if (path.starts_with('/')) path.erase(0, 1);
  std::ranges::replace(path, '/', '.');
  return path;
}
}  // namespace

const Tensor* Interpreter::find(std::string_view name) const {
  for (size_t i = scopes_.size(); i-- > visible_;)
    if (const auto found = scopes_[i].find(name); found != scopes_[i].end()) return &found->second;
  return nullptr;
}

bool Interpreter::is_constant(const Tensor& value) {
  std::vector<const weft::Node*> open{value.node()};
  while (!open.empty()) {
    const weft::Node& node = *open.back();
    if (constant_.contains(node.id)) {
      open.pop_back();
      continue;
    }
    bool constant = node.variable == nullptr && node.op->leaf != LeafKind::input &&
                    node.op->kind != OpKind::random;
    bool ready = true;
    for (const Tensor& input : node.inputs) {
      const auto known = constant_.find(input->id);
      if (known == constant_.end()) {
        open.push_back(input.node());
        ready = false;
      } else {
        constant = constant && known->second;
      }
    }
    if (!ready) continue;
    constant_[node.id] = constant;
    open.pop_back();
  }
  return constant_.at(value->id);
}

int Interpreter::bits_of(const Tensor& value) const {
  const auto found = bits_.find(value->id);
  return found == bits_.end() ? 0 : found->second;
}
void Interpreter::set_bits(const Tensor& value, int bits) {
  if (bits > 0) bits_[value->id] = bits;
}

Variable Interpreter::variable_of(const Tensor& value) const {
  if (value->variable == nullptr) return {};
  for (const auto& [name, variable] : net_.variables_)
    if (variable.state() == value->variable) return variable;
  return {};
}

void Interpreter::add_initializers(const Graph& graph, bool outermost) {
  Scope& scope = scopes_.back();
  for (const Initializer& each : graph.initializers) {
    const auto variable = net_.variables_.find(each.name);
    scope[each.name] = outermost && variable != net_.variables_.end() ? variable->second.value()
                                                                      : leaf_of(each.value);
    set_bits(scope[each.name], each.bits);
  }
}

Tensor Interpreter::output(const std::string& name, const std::string& of) const {
  const Tensor* found = find(name);
  if (found == nullptr || !found->defined())
    throw Error(ErrorKind::data, "[onnx] {}: nothing computes '{}', an output of {}.",
                printable(file_), printable(name), of);
  return *found;
}

std::vector<Tensor> Interpreter::outputs_of(const Graph& graph, const std::string& of) {
  std::vector<Tensor> outputs;
  outputs.reserve(graph.outputs.size());
  for (const ValueInfo& each : graph.outputs) {
    outputs.push_back(output(each.name, of));
    check_declared(each, outputs.back());
  }
  return outputs;
}

bool Interpreter::fits(const ValueInfo& info, const Shape& shape) {
  if (!info.shape) return true;
  if (std::ssize(*info.shape) != shape.size()) return false;
  for (int axis = 0; axis < shape.size(); ++axis) {
    const Dim& dim = (*info.shape)[static_cast<size_t>(axis)];
    int64_t extent = dim.extent >= 0 ? dim.extent : shape[axis];
    if (!dim.symbol.empty()) extent = extents_.emplace(dim.symbol, shape[axis]).first->second;
    if (extent != shape[axis]) return false;
  }
  return true;
}

void Interpreter::check_declared(const ValueInfo& info, const Tensor& value) {
  if (!info.refused.empty() || (info.dtype && *info.dtype != value.dtype()))
    throw Error(ErrorKind::data, "[onnx] {}: '{}' is declared as {} and computed as {}.",
                printable(file_), printable(info.name), to_string(info), to_string(value.type()));
  // A nested graph (of If, Loop, Scan) may run more than once, with other shapes each time.
  if (depth_ == 0 && !fits(info, value.shape()))
    misfits_.push_back(fmt::format("'{}' is declared as {} and computed as {}",
                                   printable(info.name), printable(to_string(info)),
                                   to_string(value.type())));
}

void Interpreter::warn_of_shapes() const {
  if (misfits_.empty() || std::exchange(net_.has_warned_, true)) return;
  logging::warn("[onnx] {}: {}{}.", printable(file_), misfits_[0],
                misfits_.size() == 1
                    ? ""
                    : fmt::format(", and {} others are not as declared", misfits_.size() - 1));
}

std::vector<Tensor> Interpreter::run(std::span<const Tensor> inputs) {
  const Model& model = net_.model();
  scopes_.emplace_back();
  add_initializers(model.graph, true);
  for (size_t i = 0; i < inputs.size(); ++i) {
    scopes_.back()[model.graph.inputs[i].name] = inputs[i];
    leaves_.push_back(inputs[i].node());
    set_bits(inputs[i], model.graph.inputs[i].bits);
    fits(model.graph.inputs[i], inputs[i].shape());  // binds the symbolic extents
  }
  graph_ = &model.graph;
  run_nodes(model.graph.nodes, model.opsets);
  std::vector<Tensor> outputs = outputs_of(model.graph, "the graph");
  scopes_.pop_back();
  warn_of_shapes();
  return outputs;
}

void Interpreter::note_indices(const Tensor& value, int64_t extent, const std::string& place) {
  if (indices_ == nullptr || graph_ != &net_.model().graph) return;
  // Looks through casts and through views of all elements, which do not change the indices.
  Value from = value;
  while (from->inputs.size() == 1 && from->inputs[0].elements() == value.elements() &&
         (from->op->view != nullptr || from->is("cast")) && !is_float(from->inputs[0].dtype()))
    from = from->inputs[0];
  const auto leaf = std::ranges::find(leaves_, from.node());
  if (leaf != leaves_.end())
    indices_->push_back({static_cast<size_t>(leaf - leaves_.begin()), extent, place});
}

std::vector<Tensor> Interpreter::run_inside(const Graph& graph, std::vector<Tensor> inputs,
                                            const Call& call) {
  if (++depth_ > deepest) call.refuse("more than {} graphs are inside each other", deepest);
  if (inputs.size() != graph.inputs.size())
    call.refuse("its graph takes {} values. Got {}", graph.inputs.size(), inputs.size());
  const Opsets* opsets = opsets_;
  scopes_.emplace_back();
  add_initializers(graph, false);
  for (size_t i = 0; i < inputs.size(); ++i)
    scopes_.back()[graph.inputs[i].name] = std::move(inputs[i]);
  const Graph* around = std::exchange(graph_, &graph);
  run_nodes(graph.nodes, *opsets);
  std::vector<Tensor> outputs = outputs_of(graph, call.place());
  scopes_.pop_back();
  graph_ = around;
  opsets_ = opsets;
  --depth_;
  return outputs;
}

std::vector<Tensor> Interpreter::call_function(const Function& function, const Call& call) {
  if (++depth_ > deepest) call.refuse("more than {} functions call each other", deepest);
  // Nodes of the function take the attributes that they refer to from the call, or from its
  // defaults.
  std::vector<Node> nodes = function.nodes;
  auto given = function.defaults;
  for (const auto& [name, value] : call.node().attributes) given.insert_or_assign(name, value);
  for (Node& node : nodes)
    for (const auto& [own, outer] : node.references)
      if (const auto found = given.find(outer); found != given.end())
        node.attributes.insert_or_assign(own, found->second);
  const Opsets* opsets = opsets_;
  const size_t visible = std::exchange(visible_, scopes_.size());
  scopes_.emplace_back();
  for (size_t i = 0; i < function.inputs.size(); ++i)
    scopes_.back()[function.inputs[i]] = call.optional(i);
  const Graph* around = std::exchange(graph_, nullptr);
  run_nodes(nodes, function.opsets.empty() ? *opsets : function.opsets);
  graph_ = around;
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < function.outputs.size() && i < call.results(); ++i)
    outputs.push_back(call.wants(i) ? output(function.outputs[i], call.place()) : Tensor());
  scopes_.pop_back();
  visible_ = visible;
  opsets_ = opsets;
  --depth_;
  return outputs;
}

void Interpreter::run_nodes(std::span<const Node> nodes, const Opsets& opsets) {
  for (size_t i = 0; i < nodes.size(); ++i) run_node(nodes[i], i, opsets);
}

void Interpreter::run_node(const Node& node, size_t index, const Opsets& opsets) {
  opsets_ = &opsets;
  const std::string place = place_of(file_, node, index);
  std::vector<Tensor> inputs;
  for (const std::string& name : node.inputs) {
    const Tensor* found = name.empty() ? nullptr : find(name);
    if (!name.empty() && found == nullptr)
      throw Error(ErrorKind::data, "[onnx] {}: it reads '{}', which nothing computes.", place,
                  printable(name));
    inputs.push_back(found == nullptr ? Tensor() : *found);
  }
  const Function* function = find_function(net_.model(), node);
  const std::optional<DType> rounded =
      function == nullptr ? unround_operands(node, inputs) : std::nullopt;
  const auto opset = opsets.find(node.domain);
  const Call call(*this, node, std::move(inputs), opset == opsets.end() ? 1 : opset->second, place);
  if (++operators_ > most_operators)
    call.refuse("its loops and functions are unrolled to more than {} operators", most_operators);
  std::vector<Tensor> results;
  const OriginScope origin(interned(module_of(node)), UserLocation());
  const CallSite site(UserLocation(), node.op);
  try {
    results = function != nullptr ? call_function(*function, call)
                                  : find_operator(node.domain, node.op)->build(call);
    if (rounded && results[0].dtype() == DType::f32) results[0] = cast(results[0], *rounded);
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.starts_with("[onnx] ")) throw;
    throw Error(ErrorKind::data, "[onnx] {}: {}", place, what);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    if (i >= results.size() || !results[i].defined())
      call.refuse("weft does not compute its output {} ('{}')", i, printable(node.outputs[i]));
    if (results[i].type().bytes() > most_value_bytes)
      call.refuse("its output '{}' is {}, more than 1 TiB", printable(node.outputs[i]),
                  to_string(results[i].type()));
    if (graph_ != nullptr)
      if (const auto said = graph_->values.find(node.outputs[i]); said != graph_->values.end())
        check_declared(said->second, results[i]);
    scopes_.back()[node.outputs[i]] = results[i];
    if (depth_ == 0) nn::OutputScope::note(net_.path_of(node.outputs[i]), results[i]);
  }
}

}  // namespace weft::onnx
