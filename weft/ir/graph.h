// Graph: a whole step (forward, backward, update) as roots over values.
//
// Semantics. Every value is computed at most once from the state at the start of the step.
// Variables are read at the start and assigned at the end: every reader of a variable sees the old
// value, and all assignments take effect together. A value that no root reaches is not computed.
// Inputs are bound per run, in order. Order of execution is any topological order; passes choose
// it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/ir/node_map.h"
#include "weft/ir/value.h"

namespace weft {

// What a byte is for, as the memory table reports it.
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

// State that outlives a step: parameters, optimiser state, running statistics, counters.
struct VariableState {
  // Zeros, where no storage is given.
  VariableState(std::string name, Type type, Category category = Category::parameter,
                std::shared_ptr<Storage> storage = nullptr);

  std::string name;  // "blocks.0.attn.qkv.weight"; unique among what is saved together
  Type type;
  Category category;
  bool frozen = false;               // a parameter that does not train
  std::shared_ptr<Storage> storage;  // row-major elements
  std::weak_ptr<Node> leaf;          // by which handles outside of steps read it; owned by them
  // Its elements rounded to a narrower type, while a planned step reads them there; each of them
  // owns what it is a copy of.
  std::vector<std::weak_ptr<VariableState>> copies;
  std::shared_ptr<VariableState> copy_of;
};
// The copy of a variable in that type: the one that there is, or a new one, which nobody has made
// yet, with room for so many bytes.
std::shared_ptr<VariableState> copy_in(const std::shared_ptr<VariableState>& variable, DType type,
                                       size_t room);
// Those of them that live.
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
  // Every node that a root reaches, inputs before users, ascending ids.
  std::vector<Value> nodes() const;
};

// The nodes of a graph, and who reads each.
class Uses {
 public:
  explicit Uses(const Graph& graph);
  const std::vector<Value>& nodes() const { return nodes_; }  // as Graph::nodes()
  // In the order of the graph; one that reads an operand twice is there twice.
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

// Rebuilds a graph bottom-up. `rule` gets a node whose inputs are already rewritten and returns its
// replacement (of the same type), or an empty Value to keep it.
Graph rewrite(const Graph& graph, const std::function<Value(const Value& node)>& rule);
// The same, and replacements are rewritten in turn, with all that they are made of, until the rule
// keeps every node.
Graph rewrite_fully(const Graph& graph, const std::function<Value(const Value& node)>& rule);

// Throws InternalError naming the node if a rule of value.h or graph.h is broken.
void verify(const Graph& graph);

std::string to_text(
    const Graph& graph);  // one line per node: "%12 = add(%3, %11) : f32[4, 8]  # blocks.0"
std::string to_dot(const Graph& graph);
// Equal for graphs of equal structure, attributes and types, whatever the ids.
uint64_t structural_hash(const Graph& graph);

}  // namespace weft
