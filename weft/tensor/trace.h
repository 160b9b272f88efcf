// A Trace captures what a step reads and assigns while its function runs. Internal to tensor/.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/tensor/compile.h"

namespace weft::detail {

struct Trace {
  struct Touched {
    std::shared_ptr<VariableState> state;
    Tensor leaf, current;
  };
  std::vector<Touched> touched;                            // in order of first use
  std::unordered_map<const VariableState*, size_t> place;  // index in `touched`
  Mode mode = Mode::train;
  std::unordered_set<int64_t> streams;  // streams of random numbers that the step draws from

  Touched& touch(const std::shared_ptr<VariableState>& state);
  // Returns a stream that follows the module's path, so that draws of other modules do not change
  // its numbers. A path that draws several times gets the next free streams.
  int64_t new_stream(std::string_view module);
};

// Returns the capture in progress on this thread, or null.
Trace* active_trace();

// Runs `function` on input leaves of these types and returns the whole step.
Graph capture(const CompiledStep::Function& function, std::span<const Type> types, Mode mode);

// Copies the present value for handles that read it, before the variable changes.
void detach_readers(VariableState& state);

}  // namespace weft::detail
