#include "weft/onnx/net/net.h"

#include <algorithm>
#include <ranges>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/memory/storage.h"
#include "weft/base/text/suggest.h"
#include "weft/io/files.h"
#include "weft/onnx/net/call.h"
#include "weft/onnx/net/interpreter.h"
#include "weft/onnx/operators/operators.h"
#include "weft/onnx/operators/signature.h"

namespace weft::onnx {
namespace {
using io::printable;

// A Use says how the nodes of a model read an initializer.
struct Use {
  bool as_constant = false, as_buffer = false, as_parameter = false;
  bool as_weight = false;  // as integers that are multiplied or dequantized
};

// Checks the nodes of a model before any is interpreted: that weft has their operators, and that
// their values come from somewhere, in order.
class Checker {
 public:
  explicit Checker(Model& model) : model_(model) {}

  void check() {
    std::set<std::string, std::less<>> known;
    for (const ValueInfo& each : model_.graph.inputs) known.insert(each.name);
    for (Function& function : model_.functions) check_function(function);
    note_functions();
    opsets_ = &model_.opsets;
    check_graph(model_.graph, known, 0);
    note_nodes(model_.graph.nodes);
    if (unknown_.empty()) return;
    std::vector<std::string> list;
    list.reserve(unknown_.size());
    for (const auto& [name, count] : unknown_) list.push_back(fmt::format("{} ({})", name, count));
    throw Error(ErrorKind::data, "[onnx] {}: weft lacks {} of its operators: {}.",
                printable(model_.file), unknown_.size(), fmt::join(list, ", "));
  }
  // Returns whether the elements of a value of the outermost graph must be known at graph build.
  bool is_static(std::string_view name) const { return static_.contains(name); }
  Use use_of(std::string_view initializer) const {
    const auto found = uses_.find(initializer);
    return found == uses_.end() ? Use{} : found->second;
  }

 private:
  using Names = std::set<std::string, std::less<>>;

  void check_function(Function& function) {
    Names known(function.inputs.begin(), function.inputs.end());
    const bool counts = std::exchange(counts_uses_, false);  // the names in a function are its own
    opsets_ = function.opsets.empty() ? &model_.opsets : &function.opsets;
    check_nodes(function.nodes, known, 0);
    counts_uses_ = counts;
  }

  // Finds the inputs of functions that must be known. A function needs what the functions that it
  // calls need, so this repeats until nothing changes.
  void note_functions() {
    for (bool changes = true; changes;) {
      changes = false;
      for (const Function& function : model_.functions) {
        static_.clear();
        note_nodes(function.nodes);
        std::set<size_t>& needed = static_operands_[&function];
        const size_t before = needed.size();
        for (size_t i = 0; i < function.inputs.size(); ++i)
          if (static_.contains(function.inputs[i])) needed.insert(i);
        changes = changes || needed.size() > before;
      }
    }
    static_.clear();
  }

  void check_graph(Graph& graph, Names known, int depth) {
    if (depth > deepest)
      throw Error(ErrorKind::data, "[onnx] {}: more than {} graphs are inside each other.",
                  printable(model_.file), deepest);
    Names inputs;
    for (const ValueInfo& each : graph.inputs) {
      if (!inputs.insert(each.name).second)
        throw Error(ErrorKind::data, "[onnx] {}: a graph has two inputs '{}'.",
                    printable(model_.file), printable(each.name));
      known.insert(each.name);
    }
    for (const Initializer& each : graph.initializers) known.insert(each.name);
    check_nodes(graph.nodes, known, depth);
  }

  // Sorts nodes topologically: each follows the nodes whose results it reads.
  void check_nodes(std::vector<Node>& nodes, Names& known, int depth) {
    Names computed;
    for (const Node& node : nodes)
      for (const std::string& name : node.outputs)
        if (!name.empty() && (known.contains(name) || !computed.insert(name).second))
          throw Error(ErrorKind::data, "[onnx] {}: '{}' is computed twice.", printable(model_.file),
                      printable(name));
    std::vector<Node> sorted, waiting = std::move(nodes);
    sorted.reserve(waiting.size());
    while (!waiting.empty()) {
      std::vector<Node> later;
      for (Node& node : waiting) {
        const bool ready = std::ranges::all_of(node.inputs, [&](const std::string& name) {
          return name.empty() || known.contains(name) || !computed.contains(name);
        });
        if (!ready) {
          later.push_back(std::move(node));
          continue;
        }
        check_node(node, known, sorted.size(), depth);
        for (const std::string& name : node.outputs) known.insert(name);
        sorted.push_back(std::move(node));
      }
      if (later.size() == waiting.size())
        throw Error(ErrorKind::data,
                    "[onnx] {}: it reads what follows from its own result: a cycle.",
                    place_of(model_.file, later.front(), sorted.size()));
      waiting = std::move(later);
    }
    nodes = std::move(sorted);
  }

  void note_nodes(const std::vector<Node>& nodes) {
    for (const Node& node : std::views::reverse(nodes)) note_static(node);
  }

  // The graphs of a node (If, Loop, Scan) compute its results and read values around them. A step
  // of a loop also reads the results of the step before: two rounds pass the need through both.
  void note_graphs(const Node& node, bool is_needed) {
    for (const auto& [name, value] : node.attributes) {
      const auto* graph = std::get_if<std::shared_ptr<const Graph>>(&value);
      if (graph == nullptr) continue;
      const bool loops = !(*graph)->inputs.empty();
      for (int round = 0; round < (loops ? 2 : 1); ++round) {
        bool reads_static = false;
        for (size_t i = 0; i < (*graph)->inputs.size() && i < node.inputs.size(); ++i)
          if (static_.contains((*graph)->inputs[i].name)) {
            static_.insert(node.inputs[i]);
            reads_static = true;
          }
        if (is_needed || reads_static)
          for (const ValueInfo& each : (*graph)->outputs) static_.insert(each.name);
        note_nodes((*graph)->nodes);
      }
    }
  }

  // If a node's result must be known, so must its operands, except where it reads only their shape.
  void note_static(const Node& node) {
    const bool needs_elements = node.op != "Shape" && node.op != "Size";
    const bool is_needed =
        needs_elements && std::ranges::any_of(node.outputs, [&](const std::string& name) {
          return static_.contains(name);
        });
    note_graphs(node, is_needed);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (is_needed || decides(node, i)) static_.insert(node.inputs[i]);
  }

  // Returns whether the elements of an operand decide shapes or what is computed.
  bool decides(const Node& node, size_t input) const {
    if (const Function* function = find_function(model_, node)) {
      const auto found = static_operands_.find(function);
      return found != static_operands_.end() && found->second.contains(input);
    }
    const Operator* op = find_operator(node.domain, node.op);
    return op != nullptr && input < 32 && (op->constants >> input & 1) != 0;
  }

  void check_node(Node& node, const Names& known, size_t index, int depth) {
    const Function* function = find_function(model_, node);
    const Operator* op = function != nullptr ? nullptr : find_operator(node.domain, node.op);
    if (function == nullptr && op == nullptr)
      ++unknown_[printable(node.domain.empty() ? node.op : node.domain + "." + node.op)];
    check_signature(node, function, op, index);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::string& name = node.inputs[i];
      if (name.empty()) continue;
      if (!known.contains(name))
        throw Error(ErrorKind::data, "[onnx] {}: it reads '{}', which nothing computes.",
                    place_of(model_.file, node, index), printable(name));
      if (!counts_uses_) continue;
      const uint32_t bit = i < 32 ? uint32_t{1} << i : 0;
      Use& use = uses_[name];
      if (decides(node, i))
        use.as_constant = true;
      else if (op != nullptr && (op->weights & bit) != 0)
        use.as_weight = true;
      else if (op != nullptr && (op->buffers & bit) != 0)
        use.as_buffer = true;
      else
        use.as_parameter = true;
    }
    for (auto& [name, value] : node.attributes)
      if (const auto* graph = std::get_if<std::shared_ptr<const Graph>>(&value)) {
        auto copy = std::make_shared<Graph>(**graph);
        check_graph(*copy, known, depth + 1);
        value = std::shared_ptr<const Graph>(std::move(copy));
      }
  }

  // Refuses operands, outputs and attributes that a node's operator or function does not have: they
  // would be ignored.
  void check_signature(const Node& node, const Function* function, const Operator* op,
                       size_t index) const {
    std::string excess;
    if (counts_uses_ && !node.references.empty()) {
      excess = fmt::format("attribute '{}' refers to one of a function, and the node is in none",
                           printable(node.references.begin()->first));
    } else if (function != nullptr) {
      excess = excess_of(node, *function);
    } else if (op != nullptr) {
      const auto opset = opsets_->find(node.domain);
      excess = opset != opsets_->end() ? excess_of(node, *op, opset->second)
                                       : fmt::format("the file names no operator set of {}",
                                                     node.domain.empty() ? "ai.onnx" : node.domain);
    }
    if (!excess.empty())
      throw Error(ErrorKind::data, "[onnx] {}: {}.", place_of(model_.file, node, index), excess);
  }

  Model& model_;
  const std::map<std::string, int64_t, std::less<>>* opsets_ = nullptr;  // of the nodes checked
  std::map<std::string, int> unknown_;
  std::map<std::string, Use, std::less<>> uses_;
  bool counts_uses_ = true;  // false in functions
  Names static_;
  std::map<const Function*, std::set<size_t>> static_operands_;
};

// Returns whether an initializer becomes a variable, rather than a constant: floats that are not
// scalars, and the integers of quantized weights and biases.
bool can_be_variable(const Type& type, const Use& use) {
  if (type.shape.empty() || type.elements() == 0) return false;
  if (is_float(type.dtype))
    return !info(type.dtype).stored_only && (use.as_parameter || use.as_buffer);
  return use.as_weight;
}

std::string dims_text(const std::vector<Dim>& dims) {
  std::vector<std::string> texts;
  texts.reserve(dims.size());
  for (const Dim& dim : dims)
    texts.push_back(dim.extent >= 0      ? std::to_string(dim.extent)
                    : dim.symbol.empty() ? "?"
                                         : dim.symbol);
  return fmt::format("[{}]", fmt::join(texts, ", "));
}
}  // namespace

std::string to_string(const ValueInfo& value) {
  if (!value.refused.empty()) return value.refused;
  std::string text = value.dtype ? std::string(name(*value.dtype)) : "?";
  return value.shape ? text + dims_text(*value.shape) : text;
}

std::string symbol_of(const ValueInfo& input, size_t axis) {
  const Dim& dim = (*input.shape)[axis];
  return dim.symbol.empty() ? fmt::format("{}.{}", input.name, axis) : dim.symbol;
}

const Function* find_function(const Model& model, const Node& node) {
  for (const Function& function : model.functions)
    if (function.name == node.op && function.domain == node.domain) return &function;
  return nullptr;
}

Net::Net(Model model) : model_(std::move(model)) { add_variables(); }
Net::Net(nn::Module& parent, Model model) : nn::Module(parent, ""), model_(std::move(model)) {
  add_variables();
}

void Net::add_variables() {
  Checker checker(model_);
  checker.check();
  for (const ValueInfo& each : inputs()) static_inputs_.push_back(checker.is_static(each.name));
  for (const Initializer& each : model_.graph.initializers) {
    const Type& type = each.value.type();
    const Use use = checker.use_of(each.name);
    if (!can_be_variable(type, use) || checker.is_static(each.name)) continue;
    const nn::BuildScope scope(
        {.dtype = use.as_weight ? DType::f32 : type.dtype, .initialize = false});
    const bool is_buffer = use.as_buffer && accumulator(type.dtype) == type.dtype;
    const Variable variable = use.as_weight ? stored(each.name, type)
                              : is_buffer   ? buffer(each.name, type.shape, 0)
                                          : parameter(each.name, type.shape, nn::Init::constant(0));
    if (use.as_buffer && !is_buffer) variable.freeze();
    variable.adopt(each.value->storage->buffer());
    variables_.emplace(each.name, variable);
  }
}

Net::~Net() = default;

std::string Net::path_of(const std::string& value) const {
  return path().empty() ? value : path() + "." + value;
}

void check_inputs(const std::string& model, std::span<const ValueInfo> wanted,
                  std::span<const Type> inputs) {
  WEFT_CHECK(inputs.size() == wanted.size(), "{} takes {} inputs. Got {}.", model, wanted.size(),
             inputs.size());
  std::map<std::string, int64_t, std::less<>> extents;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueInfo& info = wanted[i];
    const std::string name = printable(info.name);
    if (!info.refused.empty())
      throw Error(ErrorKind::data, "{}: input '{}' is {}, which weft does not take.", model, name,
                  info.refused);
    if (info.dtype)
      WEFT_CHECK(inputs[i].dtype == *info.dtype, "{}: input '{}' is {}. Got {}.", model, name,
                 *info.dtype, inputs[i].dtype);
    if (!info.shape) continue;
    const Shape& shape = inputs[i].shape;
    WEFT_CHECK(shape.size() == std::ssize(*info.shape), "{}: input '{}' has the shape {}. Got {}.",
               model, name, dims_text(*info.shape), to_string(shape));
    for (int axis = 0; axis < shape.size(); ++axis) {
      const Dim& dim = (*info.shape)[static_cast<size_t>(axis)];
      int64_t extent = dim.extent;
      if (extent < 0 && !dim.symbol.empty())
        extent = extents.emplace(dim.symbol, shape[axis]).first->second;
      WEFT_CHECK(
          extent < 0 || extent == shape[axis], "{}: input '{}' has the shape {}{}. Got {}.", model,
          name, dims_text(*info.shape),
          dim.extent < 0 ? fmt::format(", where {} is {}", printable(dim.symbol), extent) : "",
          to_string(shape));
    }
  }
}

std::vector<Type> types_of(std::span<const Tensor> tensors) {
  std::vector<Type> types;
  types.reserve(tensors.size());
  for (const Tensor& tensor : tensors) types.push_back(tensor.type());
  return types;
}

std::vector<Tensor> Net::operator()(std::span<const Tensor> inputs,
                                    std::vector<IndexInput>* indices) const {
  check_inputs("[onnx] " + printable(model_.file), this->inputs(), types_of(inputs));
  std::vector<Tensor> values(inputs.begin(), inputs.end());
  for (size_t i = 0; i < values.size(); ++i)  // a captured step warns of older leaves
    if (static_inputs_[i] && values[i]->storage != nullptr) values[i] = leaf_of(values[i]);
  return Interpreter(*this, indices).run(values);
}

std::vector<Type> Net::input_types(const Extents& extents) const {
  std::vector<Type> types;
  std::set<std::string> unbound, known;
  for (const ValueInfo& info : inputs()) {
    if (!info.refused.empty() || !info.dtype || !info.shape)
      throw Error(ErrorKind::data, "[onnx] {}: input '{}' is {}, which cannot be planned for.",
                  printable(model_.file), printable(info.name),
                  info.refused.empty() ? "of no known type" : info.refused);
    Type type{*info.dtype, {}};
    for (size_t axis = 0; axis < info.shape->size(); ++axis) {
      const Dim& dim = (*info.shape)[axis];
      const std::string symbol = symbol_of(info, axis);
      const auto bound = extents.find(symbol);
      if (dim.extent < 0) known.insert(symbol);
      if (dim.extent < 0 && bound == extents.end()) unbound.insert(symbol);
      type.shape.push_back(dim.extent >= 0          ? dim.extent
                           : bound != extents.end() ? bound->second
                                                    : 1);
    }
    types.push_back(type);
  }
  for (const auto& [name, extent] : extents)
    if (!known.contains(name))
      throw Error(
          ErrorKind::usage, "[onnx] {}: its inputs have no extent '{}' to bind.{} {}",
          printable(model_.file), printable(name),
          did_you_mean(name, std::vector<std::string>(known.begin(), known.end())),
          known.empty() ? "All are known." : fmt::format("Known: {}.", fmt::join(known, ", ")));
  if (!unbound.empty())
    throw Error(ErrorKind::usage,
                "[onnx] {}: these extents of its inputs are not known: {}. Hint: --dim {}=1.",
                printable(model_.file), fmt::join(unbound, ", "), *unbound.begin());
  return types;
}

}  // namespace weft::onnx
