#include "weft/artifact/node_json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/ir/op_def.h"

namespace weft::artifact {
using io::JsonError;
using nlohmann::json;

namespace {
std::vector<int64_t> integers_of(const json& list) {
  if (!list.is_array()) throw JsonError("a list of integers is missing");
  std::vector<int64_t> all;
  for (const json& each : list) {
    if (!each.is_number_integer())
      throw JsonError(fmt::format("must be an integer. Got {}", io::json_text(each)));
    all.push_back(each.get<int64_t>());
  }
  return all;
}
}  // namespace

size_t index_of(const json& number, size_t count, std::string_view what) {
  const int64_t index = number.is_number_integer() ? number.get<int64_t>() : -1;
  if (index < 0 || static_cast<size_t>(index) >= count)
    throw JsonError(fmt::format("{} is {} of {}", what, io::json_text(number), count));
  return static_cast<size_t>(index);
}

Dims dims_of(const json& list) {
  const std::vector<int64_t> all = integers_of(list);
  if (std::ssize(all) > max_rank)
    throw JsonError(fmt::format("{} axes are more than {}", all.size(), max_rank));
  return Dims(all);
}

namespace {

// JSON has no number for these.
json number_json(double number) {
  if (std::isfinite(number)) return number;
  return fmt::format("{}", number);
}
double number_of(const json& text) {
  if (text.is_number()) return text.get<double>();
  if (text == "inf") return INFINITY;
  if (text == "-inf") return -INFINITY;
  if (text == "nan") return NAN;
  throw JsonError(fmt::format("an attribute must be a number. Got {}", io::json_text(text)));
}

json attribute_json(const Attr& attr) {
  if (const auto* integer = std::get_if<int64_t>(&attr)) return {{"integer", *integer}};
  if (const auto* number = std::get_if<double>(&attr)) return {{"number", number_json(*number)}};
  if (const auto* word = std::get_if<std::string>(&attr)) return {{"text", *word}};
  const Dims& dims = std::get<Dims>(attr);
  return {{"dims", std::vector<int64_t>(dims.begin(), dims.end())}};
}
Attr attribute_of(const json& text) {
  if (text.contains("integer")) return io::integer_at(text, "integer");
  if (text.contains("number")) return number_of(text.at("number"));
  if (text.contains("text")) return io::text_at(text, "text");
  return dims_of(io::value_at(text, "dims"));
}
Attrs attributes_of(const json& node) {
  Attrs attrs;
  if (!node.contains("attributes")) return attrs;
  for (const json& each : node.at("attributes"))
    attrs = attrs.with({interned(io::text_at(each, "key")), attribute_of(each)});
  return attrs;
}

Annotations annotations_of(const json& node) {
  Annotations notes{.tf32 = node.contains("tf32"),
                    .compressed = node.contains("compressed"),
                    .fixed = node.contains("fixed")};
  if (node.contains("by_algorithm"))
    notes.by_algorithm = static_cast<int>(io::integer_at(node, "by_algorithm"));
  return notes;
}

// Returns the composite of node i. Its operands come before the node and it has no composite
// itself, so that no node leads back to itself.
Value composite_of(const json& nodes, size_t i, const std::vector<Value>& read) {
  const auto place = static_cast<size_t>(io::integer_at(nodes[i], "composite"));
  const bool leads_back = place >= read.size() || nodes[place].contains("composite") ||
                          std::ranges::any_of(nodes[place].at("inputs"), [&](const json& input) {
                            return input.get<size_t>() >= i;
                          });
  if (leads_back) throw JsonError(fmt::format("node {} has a composite that it may not have", i));
  return read[place];
}

// Reads a node whose inputs have been read.
Value read_node(const json& text, const std::vector<Value>& earlier) {
  const std::string name = io::text_at(text, "op");
  const OpDef* const def = find_op(name);
  if (def == nullptr)
    throw JsonError(fmt::format("no operation is called {}", io::printable(name)));
  const Type type = type_of(io::value_at(text, "type"));
  std::vector<Value> inputs;
  for (const int64_t place : integers_of(io::value_at(text, "inputs"))) {
    if (place < 0 || place >= std::ssize(earlier))
      throw JsonError(fmt::format("{} reads node {}, which does not come before it", name, place));
    inputs.push_back(earlier[static_cast<size_t>(place)]);
  }
  if (def->kind == OpKind::leaf) return make_leaf(*def, type, attributes_of(text));
  if (def->arity >= 0 && std::ssize(inputs) != def->arity)
    throw JsonError(fmt::format("{} takes {} inputs. Got {}", name, def->arity, inputs.size()));
  Value value = make_node(*def, std::move(inputs), attributes_of(text));
  if (value.type() != type)
    throw JsonError(
        fmt::format("{} yields {}. Got {}", name, to_string(value.type()), to_string(type)));
  return value;
}
}  // namespace

json to_json(const Type& type) {
  json text = json::array({std::string(name(type.dtype))});
  for (const int64_t extent : type.shape) text.push_back(extent);
  return text;
}

Type type_of(const json& text) {
  if (!text.is_array() || text.empty() || !text[0].is_string())
    throw JsonError(fmt::format("must be a type. Got {}", io::json_text(text)));
  Type type;
  try {
    type.dtype = parse_dtype(text[0].get<std::string>());
  } catch (const Error& unknown) {
    throw JsonError(unknown.what());
  }
  type.shape = dims_of(json(text.begin() + 1, text.end()));
  for (const int64_t extent : type.shape)
    if (extent < 0) throw JsonError(fmt::format("an extent is {}", extent));
  return type;
}

void NodeWriter::add(const Value& value) {
  std::vector<Value> pending{value};
  while (!pending.empty()) {
    const Value next = std::move(pending.back());
    pending.pop_back();
    if (!next.defined() || !nodes_.emplace(next->id, next).second) continue;
    pending.insert(pending.end(), next->inputs.begin(), next->inputs.end());
    pending.push_back(next->annotations.composite);
  }
}

int64_t NodeWriter::place_of(const Value& value) const {
  return std::distance(nodes_.begin(), nodes_.find(value->id));
}

std::vector<uint64_t> NodeWriter::ids() const {
  std::vector<uint64_t> all;
  all.reserve(nodes_.size());
  for (const auto& [id, value] : nodes_) all.push_back(id);
  return all;
}

json NodeWriter::nodes() const {
  std::map<uint64_t, int64_t> places;
  for (const auto& [id, value] : nodes_) places.emplace(id, std::ssize(places));
  json all = json::array();
  for (const auto& [id, value] : nodes_) {
    const Annotations& notes = value->annotations;
    json node{{"op", std::string(value->op->name)}, {"type", to_json(value.type())}};
    node["inputs"] = json::array();
    for (const Value& input : value->inputs) node["inputs"].push_back(places.at(input->id));
    for (const Attrs::Entry& entry : value->attrs.entries()) {
      json attribute = attribute_json(entry.value);
      attribute["key"] = std::string(entry.key);
      node["attributes"].push_back(std::move(attribute));
    }
    if (notes.tf32) node["tf32"] = true;
    if (notes.compressed) node["compressed"] = true;
    if (notes.fixed) node["fixed"] = true;
    if (notes.by_algorithm) node["by_algorithm"] = *notes.by_algorithm;
    if (notes.composite.defined()) node["composite"] = places.at(notes.composite->id);
    all.push_back(std::move(node));
  }
  return all;
}

std::vector<Value> nodes_of(const json& text, const std::vector<uint64_t>& ids) {
  if (!text.is_array() || text.size() != ids.size())
    throw JsonError(fmt::format("{} nodes have {} ids", text.size(), ids.size()));
  constexpr int deepest = 2000;  // so that walks over nodes may recurse
  std::vector<Value> nodes;
  std::vector<int> depths;
  nodes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    try {
      nodes.push_back(read_node(text[i], nodes));
    } catch (const Error& misuse) {
      throw JsonError(fmt::format("node {}: {}", i, misuse.what()));
    } catch (const InternalError&) {  // such as a missing attribute
      throw JsonError(fmt::format("node {} breaks a rule of its operation", i));
    }
    nodes.back()->id = ids[i];
    depths.push_back(1);
    for (const Value& input : nodes.back()->inputs) {
      const auto place =
          static_cast<size_t>(std::ranges::lower_bound(ids, input->id) - ids.begin());
      depths[i] = std::max(depths[i], depths[place] + 1);
    }
    if (depths[i] > deepest)
      throw JsonError(fmt::format("nodes are nested deeper than {}", deepest));
    nodes.back()->annotations = annotations_of(text[i]);
  }
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i].contains("composite"))
      nodes[i]->annotations.composite = composite_of(text, i, nodes);
  return nodes;
}

}  // namespace weft::artifact
