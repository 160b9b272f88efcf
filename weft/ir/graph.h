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

namespace weft {

// The category says what a byte is used for, as the memory table reports it.
enum class Category : uint8_t {
  parameter,
  optimizer_state,
  buffer_state,
  input,
  constant,
  activation,
  gradient,
  workspace,
  output,
};
std::string_view name(Category category);

// Variables are state that outlives a step: parameters, optimizer state, statistics, counters.
struct VariableState {
  // Makes zeros where no storage is given.
  VariableState(std::string name, Type type, Category category = Category::parameter,
                std::shared_ptr<Storage> storage = nullptr);

  std::string name;  // "blocks.0.attn.qkv.weight"; unique within a checkpoint
  Type type;
  Category category;
  bool frozen = false;               // a parameter that does not train
  std::shared_ptr<Storage> storage;  // row-major elements
  std::weak_ptr<Node> leaf;  // the leaf through which handles outside of steps read it; they own it
  // Copies of the elements in narrower types, which planned steps read instead. Each copy owns the
  // variable that it is a copy of.
  std::vector<std::weak_ptr<VariableState>> copies;
  std::shared_ptr<VariableState> copy_of;
};
// Returns the variable's copy in `type`. If there is none yet, makes one with `room` bytes of
// storage, which is not yet filled.
std::shared_ptr<VariableState> copy_in(const std::shared_ptr<VariableState>& variable, DType type,
                                       size_t room);
// Returns the copies that are still alive.
std::vector<std::shared_ptr<VariableState>> copies_of(const VariableState& variable);

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
    size_t first = 0, count = 0;  // of `users_`
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

// Throws InternalError naming the node if a rule of value.h or graph.h is broken.
void verify(const Graph& graph);

std::string to_text(
    const Graph& graph);  // one line per node: "%12 = add(%3, %11) : f32[4, 8]  # blocks.0"
std::string to_dot(const Graph& graph);
// Returns a hash of structure, attributes and types that does not depend on ids.
uint64_t structural_hash(const Graph& graph);

}  // namespace weft
