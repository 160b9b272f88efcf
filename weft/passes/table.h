// Lists the passes: a row of the table has what is known of one pass besides its code. A pass runs,
// can be skipped, and has a fault only if the table says so.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "weft/ir/step_options.h"

namespace weft {

struct PassDef {
  std::string_view name;  // in StepOptions::skip, --explain and WEFT_DEBUG
  std::string_view file;  // under weft/
  std::string_view why;   // one sentence: why it runs where it does
  bool optional = false;  // whether StepOptions::skip may name it
  // If the pass is skipped, `off` takes back the options that ask for it; null: the pass is asked
  // by no option, or looks for its name in `skip`.
  void (*off)(StepOptions& step) = nullptr;
  // Tests of the tests seed these bugs, each described where the pass has it (PassOptions::fault).
  std::vector<std::string_view> faults = {};
};

// Returns the passes in the order in which they run. Others run some of them: bufferize runs fuse,
// fit runs recompute, place_memory() runs join, overlap and memory, and reuse is a part of memory.
std::span<const PassDef> passes();

// Returns the row of a pass, which must exist.
const PassDef& pass_named(std::string_view name);
// Returns the names that StepOptions::skip may contain.
std::vector<std::string_view> optional_passes();
// Throws InternalError unless a row has this fault.
void check_fault(std::string_view fault);

}  // namespace weft
