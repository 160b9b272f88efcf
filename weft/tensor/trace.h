// A Trace captures what a step reads and assigns while its function runs. This header is internal
// to tensor/.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "weft/base/numbers/random_streams.h"
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
  RandomStreams streams;  // random streams of the modules that draw in the step, by their paths

  Touched& touch(const std::shared_ptr<VariableState>& state);
};

// Returns the capture in progress on this thread, or null.
Trace* active_trace();

// Runs `function` on input leaves of these types and returns the whole step.
Graph capture(const CompiledStep::Function& function, std::span<const Type> types, Mode mode);

// Gives handles that read the variable a copy of its present value, before it changes.
void detach_readers(VariableState& state);

}  // namespace weft::detail
