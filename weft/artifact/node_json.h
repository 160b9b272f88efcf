// Writes the nodes of a launch as JSON, and reads them. Launches of equal bodies have equal text,
// as it has no ids: these stand beside it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "weft/ir/value.h"

namespace weft::artifact {

nlohmann::json to_json(const Type& type);  // ["f32", 2, 3]
Type type_of(const nlohmann::json& text);  // throws io::JsonError

// Returns a number as the index of one of `count` things; throws io::JsonError, which says what it
// is.
size_t index_of(const nlohmann::json& number, size_t count, std::string_view what);
Dims dims_of(const nlohmann::json& list);

// A NodeWriter collects the nodes that values lead to.
class NodeWriter {
 public:
  void add(const Value& value);
  // Returns the place of a node in nodes(), once all values have been added. Calls of add() after
  // it may move nodes.
  int64_t place_of(const Value& value) const;
  // Returns the nodes, inputs before users.
  nlohmann::json nodes() const;
  std::vector<uint64_t> ids() const;  // of nodes()

 private:
  std::map<uint64_t, Value> nodes_;  // by id
};

// Makes nodes from what a NodeWriter wrote, with these ids, and checks that each has the type that
// its operation infers. Throws io::JsonError for anything else.
std::vector<Value> nodes_of(const nlohmann::json& text, const std::vector<uint64_t>& ids);

}  // namespace weft::artifact
