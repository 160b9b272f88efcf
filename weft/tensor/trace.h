// Capture: what a step reads and assigns while its function runs. Internal to tensor/.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "weft/tensor/compile.h"

namespace weft::detail {

struct Trace {
  struct Touched {
    std::shared_ptr<VariableState> state;
    Value leaf, current;
  };
  std::vector<Touched> touched;                            // in order of first use
  std::unordered_map<const VariableState*, size_t> place;  // of each in `touched`
  Mode mode = Mode::train;
  int64_t next_stream = 0;
  bool uses_random = false;

  Touched& touch(const std::shared_ptr<VariableState>& state);
};

// The capture in progress on this thread, or null.
Trace* active_trace();

// Runs `function` on input leaves of these types and returns the whole step.
Graph capture(const CompiledStep::Function& function, std::span<const Type> types, Mode mode);

}  // namespace weft::detail
