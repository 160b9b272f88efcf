#include "weft/passes/graph/cse.h"

#include <algorithm>
#include <bit>

#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/hash.h"
#include "weft/ir/op_def.h"

namespace weft {
namespace {
uint64_t hash_of(const Dims& dims) {
  return hash_bytes(dims.begin(), static_cast<size_t>(dims.size()) * sizeof(int64_t));
}
uint64_t hash_of(const std::string& text) { return hash_text(text); }
uint64_t hash_of(int64_t number) { return static_cast<uint64_t>(number); }
uint64_t hash_of(double number) { return std::bit_cast<uint64_t>(number); }
uint64_t hash_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

bool same_bits(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  if (auto* number = std::get_if<double>(&a))
    return hash_of(*number) == hash_of(std::get<double>(b));
  return a == b;
}

bool same_attributes(const Attrs& a, const Attrs& b) {
  return std::equal(a.entries().begin(), a.entries().end(), b.entries().begin(), b.entries().end(),
                    [](const Attrs::Entry& x, const Attrs::Entry& y) {
                      return x.key == y.key && same_bits(x.value, y.value);
                    });
}

const void* bytes_of(const Node& node) { return node.has_data() ? node.data() : nullptr; }
}  // namespace

uint64_t UniqueNodes::hash(const Node& node) const {
  uint64_t hash = hash_combine(hash_of(node.op), hash_of(node.type.shape));
  hash = hash_combine(hash, static_cast<uint64_t>(node.type.dtype));
  hash = hash_combine(hash, hash_combine(hash_of(bytes_of(node)), hash_of(node.variable.get())));
  uint64_t inputs = 0;
  for (const Value& input : node.inputs)  // the hash ignores the order of commutative operands
    inputs = node.op->commutes ? inputs + hash_combine(1, hash_of(input.node()))
                               : hash_combine(inputs, hash_of(input.node()));
  hash = hash_combine(hash, inputs);
  if (compare_attributes_)
    for (const auto& [key, value] : node.attrs.entries())
      hash = hash_combine(hash, std::visit([](const auto& attr) { return hash_of(attr); }, value));
  return hash;
}

bool UniqueNodes::equal(const Node& a, const Node& b) const {
  if (a.op != b.op || a.type != b.type || a.variable != b.variable || bytes_of(a) != bytes_of(b))
    return false;
  if (compare_attributes_ && (a.annotations != b.annotations || !same_attributes(a.attrs, b.attrs)))
    return false;
  auto same = [](const Value& x, const Value& y) { return x.node() == y.node(); };
  if (std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(), same))
    return true;
  return a.op->commutes && same(a.inputs[0], b.inputs[1]) && same(a.inputs[1], b.inputs[0]);
}

Value UniqueNodes::operator()(const Value& value) {
  if (value->op->leaf == LeafKind::input) return value;
  uint64_t key = hash(*value.node());
  auto [begin, end] = known_.equal_range(key);
  for (auto it = begin; it != end; ++it) {
    const Value& first = it->second;
    if (!equal(*first.node(), *value.node())) continue;
    first->origin.backward &= value->origin.backward;  // shared with the forward pass: part of it
    return first;
  }
  known_.emplace(key, value);
  return value;
}

}  // namespace weft
