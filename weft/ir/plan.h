// A Plan is the step as it runs: kernel launches in order, and a slot for each stored value. It is
// a value: it has no pointer into the graph that was planned, nor to variables or their elements.
// Bindings (bindings.h) say which storage its slots stand for. Only while passes make a plan are
// its values those of the graph.
//
// A value of the graph is either *stored* (it has bytes in a Slot), *viewed* (a movement of a
// stored value: same bytes, other offset and strides) or *fused* (it exists only inside one
// kernel).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/ir/value.h"
#include "weft/ir/variable.h"

namespace weft {

// Space says where a slot's bytes are allocated.
enum class Space : uint8_t {
  arena,     // offset into the workspace arena
  state,     // a variable's own bytes
  constant,  // a "data" leaf's own bytes
  file,  // outside of memory: a variable's range of a file, or an offset into the plan's own file
  argument,  // memory that the caller of each run lends for an input or a result
};

// A PlanVariable is a variable that a plan reads or assigns, or that such a variable is made from.
struct PlanVariable {
  std::string name;
  Type type;
  Category category = Category::parameter;
  uint64_t id = 0;   // VariableState::id
  int copy_of = -1;  // index of the variable whose elements this one has in a narrower type
  // The runtime computes a derived variable from these variables; empty for all others.
  std::vector<int> sources = {};
};

// A Slot is one contiguous piece of memory that holds values.
struct Slot {
  Type type;  // elements are counted in the dtype; the shape is that of the first value stored
  Category category = Category::activation;
  Space space = Space::arena;
  size_t bytes = 0;   // rounded up to buffer_alignment in the arena
  size_t offset = 0;  // in the arena, or in the plan's file; set by the memory pass
  // The slot is live from launch `first` to launch `last`. -1 is before the first launch,
  // launches.size() is after the last.
  int first = 0, last = 0;
  int variable = -1;  // index in Plan::variables; -1: the slot holds no variable
  Value value;        // the first value stored in it: its operation and module
};

// Element [i0, i1, ...] of a value is at slot + (offset + sum i_k * strides_k) * size_of(dtype).
struct Placement {
  int slot = -1;
  int64_t offset = 0;  // in elements
  Dims strides;        // in elements; 0 for broadcast axes, negative for flipped ones
};

// An Access is one operand or result of a launch. Accesses of the same value have the same id in
// all launches (Node::id), though not the same node.
struct Access {
  Value value;
  Placement at;
};

// Returns whether element i of `a`, in row-major order, has the same offset as element i of `b`,
// for every i; slots are not compared.
bool same_elements(const Access& a, const Access& b);
// Returns whether two accesses of one slot share an element; always true for negative strides.
bool share_elements(const Access& a, const Access& b);

// A Reread counts the bytes that the loops of a kernel read more than once.
struct Reread {
  double bytes = 0;      // operands' bytes for every read after the first
  double in_flight = 0;  // bytes of operands and results of the rows that the threads of one GPU
                         // multiprocessor work on at a time
};

// FusionRefusal says why a kernel reads from memory what another kernel computes, instead of being
// fused with it. Of several reasons the first is reported.
enum class FusionRefusal : uint8_t {
  none,        // not refused: fusion was skipped
  copied,      // a kernel reads it in another order than it is stored in
  gathered,    // the reader gathers: it reads at indices of its own choice
  compressed,  // activation compression: the backward pass reads it in a narrower type
  other_axes,  // the reader's loops run over other axes, or it reads a view
  too_large,   // more nodes than a kernel may have
  cycle,       // a third kernel reads the value, and the reader depends on that kernel
  stored,      // the kernel of another reader computes and stores it
};
struct UnfusedOperand {
  uint64_t operand = 0;  // id of the value
  FusionRefusal reason = FusionRefusal::none;
};

// A Launch is one kernel launch of the plan. `body` lists the nodes that it computes, inputs before
// users. The body of a fused kernel is loops over one iteration space (see tensor.h); that of a
// library kernel is usually one node.
//
// A transfer copies its operand to its result, one of which is in a file. It has no body and runs
// asynchronously: until the launch that awaits it, no other launch may touch the result or write
// the operand. The operand of an await is the transfer's side in the arena. Transfers run in the
// order of their launches.
// A collective exchanges its operand, which is in the arena, with other ranks (ops/collective.h).
// It runs asynchronously, too: the operands of the launch that awaits it are its result and, where
// the two do not share a slot, its operand.
struct Launch {
  enum class Kind : uint8_t { fused, library, transfer, await, collective };
  Kind kind = Kind::fused;
  std::string kernel;  // its name, for people: "add.relu", "dnnl:matmul"
  int algorithm = 0;   // KernelChoice::algorithm: what the library compiles
  std::vector<Value> body;
  // Values that the body reads from memory. Fused: each value once; library: the inputs of the
  // first node in order, then the other values.
  std::vector<Access> operands;
  std::vector<Access> results;          // values of the body that others read
  std::vector<UnfusedOperand> unfused;  // operands that other fused kernels compute
  // `in_place` has pairs of a result and an operand whose memory the result may reuse when the
  // operand dies here: only pairs that the kernel reads and writes at the same element, in that
  // order. The memory pass leaves only the pairs that it granted; no others share their bytes.
  std::vector<std::pair<int, int>> in_place;
  size_t workspace = 0;       // bytes of scratch
  size_t most_workspace = 0;  // bytes for a faster algorithm, if the arena has space
  int workspace_slot = -1;    // set by the memory pass where workspace > 0
  size_t packed_bytes =
      0;  // bytes of repacked variables outside of all slots (KernelChoice::packed_bytes)
  std::string
      packed_layout;  // launches of one layout share `packed_bytes` (KernelChoice::packed_layout)
  int objects = 0;    // objects that the library makes for the kernel (KernelChoice::objects)
  double flops = 0, bytes = 0;  // bytes: least traffic, each operand and result once
  Reread reread;                // repeated reads of the kernel's loops
  std::string module;           // path of the last node that has one
  bool padded = false;          // operands and results have the padding that the kernel asked for
  bool rematerialized = false;  // an earlier launch had the same operands
  // `parts` is the number of kernels of one form (KernelCompiler::form) in this launch. Bodies,
  // operands and results are concatenated, the same number for each part. The workspace is then the
  // table of the parts' addresses, which stays constant as long as no address changes.
  int parts = 1;
};
// Returns one part as a launch of its own.
Launch part_of(const Launch& launch, int part);

// An Assign gives a variable its new value at the end of the step.
struct Assign {
  int state_slot = -1;
  Access value;  // dense and row-major; the slot where a launch stores it or where it already is
  // Whether the value is copied to the state slot after the last launch, in list order. False where
  // the alias pass lets a launch write it to the state slot: `value` is then in that slot.
  bool copy = true;
};

struct Plan {
  std::vector<PlanVariable> variables;
  std::vector<Slot> slots;
  std::vector<Launch> launches;
  std::vector<Access> inputs;   // in binding order
  std::vector<Access> outputs;  // in the graph's order
  std::vector<Assign> assigns;
  size_t arena_bytes = 0;
  size_t file_bytes = 0;       // bytes of slots in files other than variables
  size_t live_peak_bytes = 0;  // most bytes live at once in the arena: no allocator can use fewer

  double flops() const;
  // Returns the variable of a slot that has one.
  const PlanVariable& variable(const Slot& slot) const {
    return variables[static_cast<size_t>(slot.variable)];
  }
  // Returns a pair that is equal for slots, of all plans of a process, that hold the same variable.
  // Copies in a narrower type are made for each plan where no earlier plan keeps them alive.
  std::pair<uint64_t, DType> identity(const Slot& slot) const {
    const PlanVariable& held = variable(slot);
    const bool is_copy = held.copy_of >= 0;
    return {is_copy ? variables[static_cast<size_t>(held.copy_of)].id : held.id, held.type.dtype};
  }
};

std::string to_text(const Plan& plan);  // one line per launch: slots, offsets, kernels
// Returns a hash that is equal for plans of equal text whose kernels compute the same.
uint64_t content_hash(const Plan& plan);

// Throws InternalError naming the launch and slot if an invariant is broken: every operand holds
// its value when it is read, no two live slots overlap in the arena, results overwrite only what
// in_place grants, and slots under transfer are left alone. Before the memory pass (arena_bytes is
// 0) only the order of reads and writes is checked.
void verify(const Plan& plan);
// Checks, at any stage, the part of it about transfers and collectives: each begins before its
// await, and no launch between the two touches what it moves.
void verify_transfers(const Plan& plan);

}  // namespace weft
