#include "weft/onnx/export/export.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/memory/storage.h"
#include "weft/ir/variable.h"
#include "weft/onnx/export/emitter.h"
#include "weft/tensor/tensor.h"

namespace weft::onnx {
namespace {

// Returns whether a node becomes no node of ONNX: its users read its operand instead.
bool is_alias(const weft::Node& node) {
  return node.is("broadcast") || node.op->scalar == ScalarOp::identity;
}
bool has_row(const weft::Node& node, bool recurrent_layers) {
  const bool is_recurrent = node.is("lstm") || node.is("gru");
  return is_recurrent ? recurrent_layers : find_export_row(node) != nullptr;
}

// Decomposes operations that have no export row, until only rows and leaves remain.
weft::Graph lowered(const weft::Graph& graph) {
  const bool layers = has_recurrent_layers_of_onnx(graph);
  return rewrite_fully(graph, [&](const Value& value) {
    const weft::Node& node = *value.node();
    if (has_row(node, layers) || node.op->decompose == nullptr) return Value();
    return node.op->decompose(node);
  });
}

void check(const weft::Graph& graph) {
  std::set<std::string> refused;
  for (const Value& value : graph.nodes()) {
    const weft::Node& node = *value.node();
    if (node.op->kind == OpKind::leaf || is_alias(node) || find_export_row(node) != nullptr)
      continue;
    refused.insert(node.module().empty() ? std::string(node.op->name)
                                         : fmt::format("{} (in {})", node.op->name, node.module()));
  }
  if (!refused.empty())
    throw Error(ErrorKind::usage,
                "[onnx] no operator of ONNX computes these operations: {}. Hint: export the "
                "forward pass, in evaluation mode.",
                fmt::join(refused, ", "));
}

// A Result is a value of the ONNX graph that stands for a value of weft: its name, and its shape,
// which broadcasts to the shape of weft's value.
struct Result {
  std::string name;
  Shape shape;
};

// An Export is one export of a graph, with the graph for one row more where the rows are symbolic.
class Export {
 public:
  Export(weft::Graph graph, const ExportOptions& options)
      : graph_(std::move(graph)), options_(options), uses_(graph_) {
    model_.producer = "weft";
    model_.opsets[""] = export_opset;
    model_.graph.name = options.name;
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      results_[graph_.inputs[i].node()] = {emitter_.unused_name(options.inputs[i]),
                                           graph_.inputs[i].shape()};
    for (const std::string& name : options.outputs) emitter_.unused_name(name);
  }

  // Throws NotSymbolic where the graphs differ in more than extents.
  void compare(const weft::Graph& other, int64_t batch) {
    std::unordered_map<const weft::Node*, const weft::Node*> pairs;
    std::vector<std::pair<const weft::Node*, const weft::Node*>> waiting;
    const auto meet = [&](const Value& mine, const Value& their) {
      const auto [known, is_new] = pairs.emplace(mine.node(), their.node());
      if (!is_new && known->second != their.node())
        throw NotSymbolic{fmt::format("what reads {} depends on it", mine->op->name)};
      if (is_new) waiting.emplace_back(mine.node(), their.node());
    };
    for (size_t i = 0; i < graph_.inputs.size(); ++i) meet(graph_.inputs[i], other.inputs[i]);
    for (size_t i = 0; i < graph_.outputs.size(); ++i) meet(graph_.outputs[i], other.outputs[i]);
    while (!waiting.empty()) {
      const auto [mine, their] = waiting.back();
      waiting.pop_back();
      if (mine->op != their->op || mine->inputs.size() != their->inputs.size() ||
          mine->type.shape.size() != their->type.shape.size() || mine->variable != their->variable)
        throw NotSymbolic{fmt::format("{} depends on it", mine->op->name)};
      for (size_t i = 0; i < mine->inputs.size(); ++i) meet(mine->inputs[i], their->inputs[i]);
    }
    emitter_.set_other(std::move(pairs), batch, result_of_rows());
  }

  Model run() {
    select();
    for (const Value& value : uses_.nodes())
      if (needed_.contains(value.node())) emit(value);
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      model_.graph.inputs.push_back(
          info(results_.at(graph_.inputs[i].node()).name, graph_.inputs[i]));
    for (size_t i = 0; i < graph_.outputs.size(); ++i) add_output(i);
    rename();
    const int64_t opset = model_.opsets[""];
    // The versions of the format, by the operator set that came with each.
    model_.ir_version = opset >= 25   ? 13
                        : opset == 24 ? 12
                        : opset == 23 ? 11
                        : opset >= 21 ? 10
                        : opset >= 19 ? 9
                                      : 8;
    return std::move(model_);
  }

 private:
  std::string result_of_rows() const {
    return graph_.inputs.empty() ? "" : results_.at(graph_.inputs[0].node()).name;
  }

  // Finds, from the outputs back, which nodes are needed and which expressions become one operator.
  void select() {
    for (const Value& output : graph_.outputs) needed_.insert(output.node());
    const std::vector<Value>& nodes = uses_.nodes();
    for (size_t i = nodes.size(); i-- > 0;) {
      const Value& value = nodes[i];
      if (!needed_.contains(value.node())) continue;
      if (std::optional<Match> match = match_expression(value, uses_)) {
        for (const Value& operand : match->operands)
          if (operand.defined()) needed_.insert(operand.node());
        matches_.emplace(value.node(), std::move(*match));
        continue;
      }
      for (const Value& input : value->inputs) needed_.insert(input.node());
    }
  }

  void emit(const Value& value) {
    const weft::Node& node = *value.node();
    emitter_.set_module(&node.module());
    if (results_.contains(&node)) return;
    if (const auto match = matches_.find(&node); match != matches_.end()) {
      std::vector<std::string> names;
      for (const Value& operand : match->second.operands)
        names.push_back(operand.defined() ? whole(operand) : "");
      results_[&node] = {match->second.emit(emitter_, names), node.type.shape};
      return;
    }
    if (node.op->kind == OpKind::leaf) return emit_leaf(value);
    if (is_alias(node) || adds_leading_axes(node)) {
      results_[&node] = results_.at(node.inputs[0].node());
      return;
    }
    check_attributes(node);
    const ExportRow& row = *find_export_row(node);
    std::vector<std::string> names;
    names.reserve(node.inputs.size());
    Shape shape = row.elementwise || row.broadcasts_batch ? Shape() : node.type.shape;
    for (const Value& input : node.inputs) {
      const Result& operand = results_.at(input.node());
      const bool as_it_is =
          row.elementwise || (row.broadcasts_batch && has_last_two(operand.shape, input.shape()));
      names.push_back(as_it_is ? operand.name : whole(input));
      const Shape& given = as_it_is ? operand.shape : input.shape();
      if (row.elementwise) shape = broadcast(shape, given);
      if (row.broadcasts_batch) shape = broadcast(shape, without_last_two(given));
    }
    if (row.broadcasts_batch)
      for (int i = 2; i > 0; --i) shape.push_back(node.type.shape[node.type.shape.size() - i]);
    results_[&node] = {
        row.emit != nullptr ? row.emit(emitter_, node, names) : emitter_.add(row.onnx, names),
        shape};
  }

  // Returns the shape that `a` and `b` broadcast to, aligned at their last axes.
  static Shape broadcast(const Shape& a, const Shape& b) {
    if (a.size() < b.size()) return broadcast(b, a);
    Shape shape = a;
    for (int i = 0; i < b.size(); ++i) {
      int64_t& extent = shape[a.size() - b.size() + i];
      if (extent == 1) extent = b[i];
    }
    return shape;
  }

  static bool has_last_two(const Shape& part, const Shape& shape) {
    const int a = part.size(), b = shape.size();
    return a >= 2 && part[a - 1] == shape[b - 1] && part[a - 2] == shape[b - 2];
  }
  static Shape without_last_two(const Shape& shape) {
    return Shape(
        std::span(shape.begin(), shape.end()).first(static_cast<size_t>(shape.size() - 2)));
  }

  // Returns whether a reshape only prepends axes of extent 1, as ONNX's broadcasting does by
  // itself.
  static bool adds_leading_axes(const weft::Node& node) {
    if (!node.is("reshape")) return false;
    const Shape &from = node.inputs[0].shape(), &to = node.type.shape;
    const int more = to.size() - from.size();
    if (more <= 0) return false;
    for (int i = 0; i < to.size(); ++i)
      if (to[i] != (i < more ? 1 : from[i - more])) return false;
    return true;
  }

  // Refuses attributes that differ for another number of rows, except shapes: export rows write
  // these in terms of the number of rows.
  void check_attributes(const weft::Node& node) const {
    if (!emitter_.is_symbolic()) return;
    const weft::Node& other = emitter_.other(node);
    for (const Attrs::Entry& entry : node.attrs.entries()) {
      const bool is_shape = entry.key == "shape" || entry.key == "input_shape" ||
                            (entry.key == "stop" && node.is("slice"));
      if (is_shape) continue;
      for (const Attrs::Entry& their : other.attrs.entries())
        if (their.key == entry.key && !(their.value == entry.value))
          throw NotSymbolic{fmt::format("{} has a number that depends on it", node.op->name)};
    }
  }

  void emit_leaf(const Value& value) {
    const weft::Node& node = *value.node();
    const Shape& shape = node.type.shape;
    switch (node.op->leaf) {
      case LeafKind::scalar:
        check_attributes(node);
        results_[&node] = {emitter_.number(node.attrs.number("value"), node.type.dtype), {}};
        return;
      case LeafKind::iota: {
        const auto axis = static_cast<int>(node.attrs.integer("axis"));
        results_[&node] = {emit_iota(node, axis), {}};
        Shape& along = results_[&node].shape;
        for (int i = axis; i < shape.size(); ++i) along.push_back(i == axis ? shape[i] : 1);
        return;
      }
      case LeafKind::data:
        results_[&node] = {emit_data(value), shape};
        return;
      default:
        results_[&node] = {variable(*node.variable), shape};
    }
  }

  // Emits 0 .. extent - 1, with axes of extent 1 behind them.
  std::string emit_iota(const weft::Node& node, int axis) {
    const DType dtype = node.type.dtype;
    const int64_t extent = node.type.shape[axis];
    const int behind = node.type.shape.size() - 1 - axis;
    std::vector<int64_t> ones(static_cast<size_t>(behind), 1);
    if (emitter_.batches(node, axis) == 0) {
      Shape shape{extent};
      for (int64_t one : ones) shape.push_back(one);
      std::vector<double> places(static_cast<size_t>(extent));
      std::iota(places.begin(), places.end(), 0);
      return emitter_.constant(tensor(places, shape, dtype), "positions");
    }
    const std::string end = emitter_.extent_number(node, axis);
    std::string range = emitter_.add(
        "Range", {emitter_.number(0, DType::i64), end, emitter_.number(1, DType::i64)});
    ones.insert(ones.begin(), -1);
    if (behind > 0) range = emitter_.add("Reshape", {range, emitter_.integers(ones)});
    return emitter_.cast(range, DType::i64, dtype);
  }

  std::string emit_data(const Value& value) {
    if (emitter_.is_symbolic()) {
      const weft::Node& other = emitter_.other(*value.node());
      value.eval();
      if (!(other.type == value.type()) ||
          (&other != value.node() &&
           std::memcmp(other.data(), value->data(), value.type().bytes()) != 0))
        return emit_counts(value, other);
    }
    return emitter_.constant(as_bytes(value));
  }
  // Emits integers that depend on the number of rows: the numbers 0, 1, 2, ... of the rows, or a
  // list in which some elements are multiples of that number, as in a shape.
  std::string emit_counts(const Value& value, const weft::Node& other) {
    if (value.dtype() != DType::i64) throw NotSymbolic{"a constant depends on it"};
    const auto elements_of = [](const weft::Node& node) {
      return std::span(reinterpret_cast<const int64_t*>(node.data()),
                       static_cast<size_t>(element_count(node.type.shape)));
    };
    const std::span<const int64_t> mine = elements_of(*value.node()), theirs = elements_of(other);
    if (!(other.type == value.type())) {
      const auto numbers_rows = [](std::span<const int64_t> elements) {
        for (size_t i = 0; i < elements.size(); ++i)
          if (elements[i] != static_cast<int64_t>(i)) return false;
        return true;
      };
      if (value.dim(0) != std::ssize(mine) || !numbers_rows(mine) || !numbers_rows(theirs))
        throw NotSymbolic{"a constant depends on it"};
      return emit_iota(*value.node(), 0);
    }
    std::vector<int64_t> known(mine.begin(), mine.end()), multiples(mine.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      const std::optional<int64_t> multiple = emitter_.multiple_of_rows(mine[i], theirs[i]);
      if (!multiple) throw NotSymbolic{"a constant has a number that is no multiple of it"};
      multiples[i] = *multiple;
      if (multiples[i] != 0) known[i] = 0;
    }
    const std::string counted =
        emitter_.add("Mul", {emitter_.rows(), emitter_.constant(tensor(multiples, value.shape()))});
    const std::string sum =
        emitter_.add("Add", {counted, emitter_.constant(tensor(known, value.shape()))});
    return value.rank() > 0 ? sum : emitter_.add("Squeeze", {sum, emitter_.integers({0})});
  }
  // i4x2 (two numbers in a byte) is exported as u8: weft's operations on its bytes could not be
  // expressed on a 4-bit type of ONNX.
  static Tensor as_bytes(const Value& value) {
    if (value.dtype() != DType::i4x2) return value;
    value.eval();
    return from_buffer(value->storage->buffer(), {DType::u8, value.shape()});
  }

  std::string variable(VariableState& state) {
    if (const auto known = variables_.find(&state); known != variables_.end()) return known->second;
    state.storage->on_host();
    const Tensor elements = from_buffer(state.storage->buffer(), state.type);
    return variables_[&state] = emitter_.initializer(state.name, as_bytes(elements));
  }

  // Returns the name of the value, expanded to its whole shape.
  std::string whole(const Value& value) {
    Result& result = results_.at(value.node());
    if (result.shape == value.shape()) return result.name;
    const auto known = whole_.find(value.node());
    if (known != whole_.end()) return known->second;
    const std::string shape = emitter_.expansion(*value.node(), result.shape);
    return whole_[value.node()] = emitter_.add("Expand", {result.name, shape});
  }

  ValueInfo info(const std::string& name, const Value& value) const {
    std::vector<Dim> dims;
    for (int axis = 0; axis < value.rank(); ++axis) {
      const int64_t multiple = emitter_.batches(*value.node(), axis);
      dims.push_back(multiple == 0   ? Dim{value.dim(axis), ""}
                     : multiple == 1 ? Dim{-1, "batch"}
                                     : Dim{-1, fmt::format("{}*batch", multiple)});
    }
    const DType dtype = value.dtype() == DType::i4x2 ? DType::u8 : value.dtype();
    return {.name = name, .dtype = dtype, .shape = std::move(dims), .refused = {}};
  }

  // Renames the result of a node to the name of the output. An input, an initializer, and a result
  // that is an output already, are copied by an Identity.
  void add_output(size_t i) {
    const Value& output = graph_.outputs[i];
    emitter_.set_module(nullptr);
    std::string name = whole(output);
    const auto is_result = [&](const Node& node) {
      return std::ranges::find(node.outputs, name) != node.outputs.end();
    };
    if (renamed_.contains(name) || std::ranges::none_of(model_.graph.nodes, is_result))
      name = emitter_.add("Identity", {name});
    renamed_[name] = options_.outputs[i];
    model_.graph.outputs.push_back(info(options_.outputs[i], output));
  }
  void rename() {
    for (Node& node : model_.graph.nodes)
      for (std::vector<std::string>* names : {&node.inputs, &node.outputs})
        for (std::string& name : *names)
          if (const auto found = renamed_.find(name); found != renamed_.end()) name = found->second;
  }

  weft::Graph graph_;
  const ExportOptions& options_;
  Uses uses_;
  Model model_;
  Emitter emitter_{model_};
  std::unordered_set<const weft::Node*> needed_;
  std::unordered_map<const weft::Node*, Match> matches_;
  std::unordered_map<const weft::Node*, Result> results_;
  std::unordered_map<const weft::Node*, std::string> whole_;
  std::unordered_map<const VariableState*, std::string> variables_;
  std::unordered_map<std::string, std::string> renamed_;
};

Model export_fixed(const BuildGraph& build, const ExportOptions& options, int64_t batch) {
  const weft::Graph graph = lowered(build(batch));
  check(graph);
  return Export(graph, options).run();
}
}  // namespace

namespace {
const ExportRow* row_of(const OpDef& def) {
  static const std::unordered_map<std::string_view, const ExportRow*> rows = [] {
    std::unordered_map<std::string_view, const ExportRow*> all;
    for (const auto& family : {elementwise_export_rows(), movement_export_rows(),
                               layer_export_rows(), quantization_export_rows()})
      for (const ExportRow& row : family) all.emplace(row.op, &row);
    return all;
  }();
  const auto found = rows.find(def.name);
  return found == rows.end() ? nullptr : found->second;
}
}  // namespace

const ExportRow* find_export_row(const weft::Node& node) {
  const ExportRow* row = row_of(*node.op);
  return row == nullptr || row->takes == nullptr || row->takes(node) ? row : nullptr;
}

bool is_exported(const OpDef& def) {
  const bool is_alias = def.name == "broadcast" || def.scalar == ScalarOp::identity;
  return def.kind == OpKind::leaf || def.decompose != nullptr || is_alias || row_of(def) != nullptr;
}

// Compares the graphs for two and for three rows to find which numbers depend on the number of
// rows. One row would not do: an extent of 1 broadcasts.
Exported export_model(const BuildGraph& build, const ExportOptions& options) {
  constexpr int64_t batch = 2;
  if (options.batch) return {export_fixed(build, options, *options.batch), ""};
  try {
    const weft::Graph graph = lowered(build(batch)), other = lowered(build(batch + 1));
    check(graph);
    Export symbolic(graph, options);
    symbolic.compare(other, batch);
    return {symbolic.run(), ""};
  } catch (const NotSymbolic& why) {
    return {export_fixed(build, options, 1), why.reason};
  }
}

}  // namespace weft::onnx
