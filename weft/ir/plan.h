// Plan: the step as it runs. Steps in order, each one kernel; an arena offset for each stored
// value.
//
// A value of the graph is either *stored* (it has bytes in a Slot), *viewed* (a movement of a
// stored value: same bytes, other offset and strides) or *fused* (it exists only inside one
// kernel).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/ir/value.h"

namespace weft {

// Where the bytes of a slot lie.
enum class Space : uint8_t {
  arena,     // offset into the workspace arena
  state,     // a variable's own bytes
  constant,  // a "data" leaf's own bytes
  file,      // outside of memory: a variable's range of a file, or an offset into the plan's own
};

// One piece of memory, contiguous, that values live in.
struct Slot {
  Type type;  // elements are counted in the dtype; the shape is that of the first value stored
  Category category = Category::activation;
  Space space = Space::arena;
  size_t bytes = 0;   // rounded up to buffer_alignment in the arena
  size_t offset = 0;  // in the arena, or in the plan's file; set by the memory pass
  int first = 0,
      last =
          0;  // steps between which it is live; -1: before the first, steps.size(): after the last
  Value value;  // the first value stored in it (name, module, variable, data)
};

// Where element [i0, i1, ...] of a value lies: slot + (offset + sum i_k * strides_k) *
// size_of(dtype).
struct Placement {
  int slot = -1;
  int64_t offset = 0;  // in elements
  Dims strides;        // in elements; 0 for broadcast axes, negative for flipped ones
};

// One operand or result of a step.
struct Access {
  Value value;
  Placement at;
};

// Whether element i of `a`, in row-major order, lies at the address of element i of `b` (slots
// aside).
bool same_elements(const Access& a, const Access& b);
// Of one slot, whether they have an element in common; where axes run backwards, they count as if
// they had.
bool share_elements(const Access& a, const Access& b);

// What the loops of a kernel read more often than once.
struct Reread {
  double bytes = 0;      // of operands, for each reading but the first
  double in_flight = 0;  // bytes that the rows take at which the threads of one processor of a GPU
                         // are at a time, operands and results
};

// Why a kernel reads from memory what another one makes, instead of being one with it. Of several
// reasons the first is told.
enum class FusionRefusal : uint8_t {
  none,        // nothing was refused: fusion was skipped
  copied,      // a kernel reads it in another order than it is stored in
  gathered,    // the reader reads it at places of its own choosing
  compressed,  // what the backward pass reads of it is kept in a narrower type
  other_axes,  // the reader's loops run over other axes, or it reads a view
  too_large,   // more nodes than a kernel may have
  cycle,       // a third kernel reads one and leads to the other
  stored,      // the kernel of another reader makes and stores it
};
struct UnfusedOperand {
  const Node* operand = nullptr;
  FusionRefusal reason = FusionRefusal::none;
};

// One kernel. `body` lists what it computes, inputs before users; a fused kernel's body is loops
// over one iteration space (see value.h), a library kernel's is usually one node.
//
// A transfer moves the bytes of its operand to its result, one of which lies in a file. It has no
// body, and only begins there: nobody touches the result, or writes the operand, before the step
// that awaits it, whose operand is the side in the arena. Transfers are done in the order of their
// steps.
struct Step {
  enum class Kind : uint8_t { fused, library, transfer, await };
  Kind kind = Kind::fused;
  std::string kernel;  // "add.relu", "dnnl:matmul"
  std::vector<Value> body;
  std::vector<Access> operands;  // values the body reads from memory: distinct ones of a fused
                                 // kernel; the inputs in order of a library kernel's (first)
                                 // node, then what else it reads
  std::vector<Access> results;   // values of the body that others need
  std::vector<UnfusedOperand> unfused;  // of a fused kernel: the operands that others make
  // Result index -> operand index whose memory it may take over when the operand dies here; only
  // pairs that the kernel reads and writes at the same element and in that order. The memory pass
  // leaves those that it granted: there, and only there, result and operand share their bytes.
  std::vector<std::pair<int, int>> in_place;
  size_t workspace = 0;         // bytes of scratch
  size_t most_workspace = 0;    // that the kernel can use: the memory pass gives what is free
  int workspace_slot = -1;      // set by the memory pass where workspace > 0
  double flops = 0, bytes = 0;  // bytes: least traffic, each operand and result once
  Reread reread;                // by the loops of the kernel
  std::string module;           // path of the last node that has one
  bool padded = false;          // operands and results have the room that the kernel asked for
  bool again = false;           // run before with the same operands, for the memory between
  // So many kernels of one form (KernelCompiler::form) in one launch: their bodies, operands and
  // results stand one after the other, as many of each. Then the workspace is the table of where
  // their elements lie: a constant, as long as no address changes.
  int parts = 1;
};
// One of them, as a step by itself.
Step part_of(const Step& step, int part);

// The new value of a variable, at the end of the step.
struct Assign {
  int state_slot = -1;
  Access value;  // dense and row-major; where a step stores it, or where it already lies
  bool copy =
      true;  // moved to the state slot after the last step, in order of the list; false where
             // the alias pass lets a step write it there: `value` then lies in the state slot
};

struct Plan {
  std::vector<Slot> slots;
  std::vector<Step> steps;
  std::vector<Access> inputs;   // in binding order
  std::vector<Access> outputs;  // in the graph's order
  std::vector<Assign> assigns;
  size_t arena_bytes = 0;
  size_t file_bytes = 0;       // of slots in files that are no variables
  size_t live_peak_bytes = 0;  // most bytes live at once in the arena: no allocator can use fewer

  double flops() const;
};

std::string to_text(const Plan& plan);  // one line per step: slots, offsets, kernels
// Equal for plans of equal text whose kernels compute the same.
uint64_t content_hash(const Plan& plan);

// Throws InternalError naming the step and slot if a promise is broken: every operand holds its
// value when it is read, no two live slots overlap in the arena, results overwrite only what
// in_place grants, what is being transferred is left alone. Before the memory pass (arena_bytes is
// 0) only the order of reads and writes is checked.
void verify(const Plan& plan);

}  // namespace weft
