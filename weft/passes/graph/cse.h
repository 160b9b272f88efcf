// Common subexpression elimination: merges nodes of equal operation, inputs, attributes and type.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "weft/ir/value.h"

namespace weft {

class UniqueNodes {
 public:
  explicit UniqueNodes(bool compare_attributes = true) : compare_attributes_(compare_attributes) {}
  // Returns the first node that was passed in and equals `value`, whose inputs must be unique
  // already. Inputs of the graph are never merged. Random operations are, as they are
  // functions of their key.
  Value operator()(const Value& value);

 private:
  uint64_t hash(const Node& node) const;
  bool equal(const Node& a, const Node& b) const;

  bool compare_attributes_;
  std::unordered_multimap<uint64_t, Value> known_;
};

}  // namespace weft
