#include "weft/onnx/operators/signature.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/onnx/operators/operators.h"

namespace weft::onnx {
namespace {
using io::printable;

int64_t number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  WEFT_ASSERT(error == std::errc() && end == text.data() + text.size(), "'{}' is no number", text);
  return value;
}

// A Dated is a word of a signature and the operator sets in which it holds.
struct Dated {
  std::string_view word;
  int64_t first = 1, last = std::numeric_limits<int64_t>::max();
  bool holds(int64_t opset) const { return first <= opset && opset <= last; }
};

Dated dated(std::string_view text) {
  const size_t at = text.find('@');
  Dated result{.word = text.substr(0, at)};
  if (at == std::string_view::npos) return result;
  const std::string_view sets = text.substr(at + 1);
  const size_t dash = sets.find('-');
  if (dash != 0) result.first = number(sets.substr(0, dash));
  if (dash != std::string_view::npos) result.last = number(sets.substr(dash + 1));
  return result;
}

std::vector<Dated> words(std::string_view text) {
  std::vector<Dated> all;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    if (space > 0) all.push_back(dated(text.substr(0, space)));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return all;
}

struct Parts {
  std::string_view operands, results, attributes;
};
Parts parts_of(std::string_view signature) {
  const size_t arrow = signature.find("->");
  WEFT_ASSERT(arrow != std::string_view::npos, "signature '{}' has no arrow", signature);
  const std::string_view behind = signature.substr(arrow + 2);
  const size_t colon = std::min(behind.find(':'), behind.size());
  return {.operands = signature.substr(0, arrow),
          .results = behind.substr(0, colon),
          .attributes = behind.substr(std::min(colon + 1, behind.size()))};
}

size_t count_of(std::string_view word) {
  return word == "*" ? std::numeric_limits<size_t>::max() : static_cast<size_t>(number(word));
}

// Counts names without empty ones at the end, which stand for nothing.
size_t count_of(const std::vector<std::string>& names) {
  size_t count = names.size();
  while (count > 0 && names[count - 1].empty()) --count;
  return count;
}

// Returns a clause on what a node has beyond a signature, "" if nothing; `name` and `when` say
// whose signature.
std::string excess(const Node& node, const Signature& signature, std::string_view name,
                   std::string_view when) {
  const size_t operands = count_of(node.inputs), results = count_of(node.outputs);
  if (operands > signature.operands)
    return fmt::format("it has {} operands, and {} takes at most {}{}", operands, name,
                       signature.operands, when);
  if (results > signature.results)
    return fmt::format("it has {} outputs, and {} gives at most {}{}", results, name,
                       signature.results, when);
  const auto unknown = [&](const auto& each) {
    return std::ranges::find(signature.attributes, each.first) == signature.attributes.end();
  };
  auto text = [&](std::string_view attribute) {
    return fmt::format("{} has no attribute '{}'{}", name, printable(attribute), when);
  };
  const auto value = std::ranges::find_if(node.attributes, unknown);
  if (value != node.attributes.end()) return text(value->first);
  const auto reference = std::ranges::find_if(node.references, unknown);
  return reference != node.references.end() ? text(reference->first) : "";
}
}  // namespace

Signature signature_of(const Operator& op, int64_t opset) {
  Signature signature;
  const Parts parts = parts_of(op.signature);
  for (const Dated& each : words(parts.operands))
    if (each.word.empty())
      signature.since = each.first;
    else if (each.holds(opset))
      signature.operands = count_of(each.word);
  for (const Dated& each : words(parts.results))
    if (each.holds(opset)) signature.results = count_of(each.word);
  for (const Dated& each : words(parts.attributes))
    if (each.holds(opset)) signature.attributes.push_back(each.word);
  return signature;
}

std::string excess_of(const Node& node, const Operator& op, int64_t opset) {
  const Signature signature = signature_of(op, opset);
  const std::string of = op.domain.empty() ? "" : fmt::format(" of {}", op.domain);
  if (opset < signature.since)
    return fmt::format("{} is in opsets{} from {} on, and the file uses {}", op.name, of,
                       signature.since, opset);
  return excess(node, signature, op.name, fmt::format(" in opset {}{}", opset, of));
}

std::string excess_of(const Node& node, const Function& function) {
  Signature signature{.operands = function.inputs.size(), .results = function.outputs.size()};
  for (const std::string& name : function.attributes) signature.attributes.emplace_back(name);
  for (const auto& [name, value] : function.defaults) signature.attributes.emplace_back(name);
  return excess(node, signature, fmt::format("function {}", printable(function.name)), "");
}

}  // namespace weft::onnx
