// A Graph is a whole step (forward, backward, update) as roots over values.
//
// Semantics: every value is computed at most once, from the state at the start of the step.
// Variables are read at the start and assigned at the end, so every reader of a variable sees the
// old value, and all assignments take effect together. A value that no root reaches is not
// computed. Inputs are bound per run, in order. Any topological order is a valid execution order;
// passes choose one.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/ir/node_map.h"
#include "weft/ir/value.h"
#include "weft/ir/variable.h"

namespace weft {

struct Graph {
  struct Assignment {
    Value variable;  // a "variable" leaf
    Value value;     // same type
  };
  std::vector<Value> inputs;  // "input" leaves in binding order; unused ones stay
  std::vector<Value> outputs;
  std::vector<Assignment> assignments;

  std::vector<Value> roots() const;
  // Returns every node that a root reaches, inputs before users, by ascending id.
  std::vector<Value> nodes() const;
};

// Uses lists the nodes of a graph and the users of each.
class Uses {
 public:
  explicit Uses(const Graph& graph);
  const std::vector<Value>& nodes() const { return nodes_; }  // as Graph::nodes()
  // Returns the users in the order of the graph; a user that reads the node twice is listed twice.
  std::span<const Node* const> of(const Node* node) const;
  bool is_root(const Node* node) const;
  int count(const Node* node) const;  // users plus roots that name it

 private:
  struct Range {
    size_t first = 0, count = 0;  // a range of `users_`
    int roots = 0;
  };
  std::vector<Value> nodes_;
  NodeMap<Range> ranges_;
  std::vector<const Node*> users_;
};

// Rebuilds a graph bottom-up. `rule` receives a node whose inputs are already rewritten and returns
// its replacement (of the same type), or an empty Value to keep the node.
Graph rewrite(const Graph& graph, const std::function<Value(const Value& node)>& rule);
// Like rewrite(), but rewrites replacements and their inputs, too, until the rule keeps all nodes.
Graph rewrite_fully(const Graph& graph, const std::function<Value(const Value& node)>& rule);

// Throws InternalError naming the node if a rule of tensor.h, node.h or graph.h is broken.
void verify(const Graph& graph);

std::string to_text(
    const Graph& graph);  // one line per node: "%12 = add(%3, %11) : f32[4, 8]  # blocks.0"
std::string to_dot(const Graph& graph);
// Returns a hash of structure, attributes, types and the storage of computed leaves. It does not
// depend on ids.
uint64_t structural_hash(const Graph& graph);

}  // namespace weft
