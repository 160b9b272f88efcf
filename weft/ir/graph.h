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

#include "weft/base/file_range.h"
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

class DeviceMemory;

// State that outlives a step: parameters, optimiser state, running statistics, counters.
struct VariableState {
  std::string name;  // "blocks.0.attn.qkv.weight"; unique among what is saved together
  Type type;
  Category category = Category::parameter;
  std::shared_ptr<Buffer> buffer;  // row-major elements; null until they are first touched
  std::weak_ptr<Node> leaf;        // by which handles outside of steps read it; owned by them

  FileRange file;  // where they lie instead of in memory; `buffer` then maps it

  Buffer& elements();  // zeros at first, which take no memory while nobody asks for them
  // The same in the memory of a device, where they stay until elements() brings them back. They
  // take the place that they left there again, while another holds the allocation that it is of.
  Buffer& elements_on(DeviceMemory& memory);
  void copy_to(std::byte* to);  // from where they are, and stay
  bool is_away() const { return away_ != nullptr; }
  bool lies_on(const DeviceMemory& memory) const { return away_ != nullptr && device_ == &memory; }
  // There, or could at once.
  bool has_place_on(const DeviceMemory& memory) const;
  // Steps of that device copy from `buffer` and to it from now on; null: the host does, as whoever
  // asks for elements(). Waits for what another may still do there.
  void lend_to(DeviceMemory* device);
  // The elements go there. Where they were, nobody must look for them any more: see `moves`.
  void move_to(const FileRange& range);
  void move_to(std::shared_ptr<Buffer> memory);  // of the host
  void move_to(DeviceMemory& device, std::shared_ptr<Buffer> memory);
  static inline int moves = 0;  // of all variables: addresses are those of this count

 private:
  std::shared_ptr<Buffer> away_;  // on `device_`; null: in `buffer`
  DeviceMemory* device_ = nullptr;
  std::byte* left_ = nullptr;  // where they lay there before, as long as `left_owner_` lives
  std::weak_ptr<void> left_owner_;
  DeviceMemory* borrower_ = nullptr;
};
// Gives handles that read the present value bytes of their own, before it changes.
void detach_readers(VariableState& state);

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
