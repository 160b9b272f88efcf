// Declares the state behind a Variable. It has a header of its own, so that programs that hold
// variables do not compile graphs and their maps of nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/ir/mesh.h"
#include "weft/ir/value.h"

namespace weft {

struct VariableState;

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

// A Derivation says that a variable holds the result of an expression of other variables. The
// runtime computes it again after one of those variables was written.
struct Derivation {
  Value expression;  // of variable leaves and constants
  std::vector<std::shared_ptr<VariableState>> sources;
  std::vector<uint64_t> seen;  // each source's writes at the last computation; empty: never
};

// Variables are state that outlives a step: parameters, optimizer state, statistics, counters.
struct VariableState {
  // Makes zeros where no storage is given.
  VariableState(std::string name, Type type, Category category = Category::parameter,
                std::shared_ptr<Storage> storage = nullptr);

  const uint64_t id;  // never given twice in a process
  std::string name;   // "blocks.0.attn.qkv.weight"; unique within a checkpoint
  Type type;
  Category category;
  bool frozen = false;  // a parameter that does not train
  // `layout` says which part of the variable `storage` has (lay_out), and `ranges` where that is in
  // the whole, whose type is `type`; without ranges it is all of it.
  Layout layout;
  std::vector<PartRange> ranges;
  std::shared_ptr<Storage> storage;  // row-major elements
  std::weak_ptr<Node> leaf;  // the node that handles outside of steps hold to read the variable
  // `copies` hold the elements in narrower types, which planned steps read instead. Each copy owns
  // the variable that it copies.
  std::vector<std::weak_ptr<VariableState>> copies;
  std::shared_ptr<VariableState> copy_of;
  std::shared_ptr<Derivation> derivation;  // null: elements of its own
};
// Gives a variable another layout, in which its storage has this rank's part of the elements that
// it has now; these are of the whole.
void lay_out(VariableState& variable, Layout layout, const Mesh& mesh);
// Throws Error(usage) if this rank has a part of the variable. Outside of steps that all ranks run,
// others do not wait to exchange parts.
void must_be_whole(const VariableState& variable);
// Copies this rank's part of the whole's row-major bytes into the variable.
void take_part(VariableState& variable, const std::byte* whole);

// Returns the variable's copy in `type`. If there is none yet, makes one with `room` bytes of
// storage, which is not yet filled.
std::shared_ptr<VariableState> copy_in(const std::shared_ptr<VariableState>& variable, DType type,
                                       size_t room);
// Returns the copies that are still alive.
std::vector<std::shared_ptr<VariableState>> copies_of(const VariableState& variable);

}  // namespace weft
