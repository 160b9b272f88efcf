// Writes down where the threads of this process are, for a rank that ends because one is lost.
#pragma once

#include <string>

#include "weft/comm/message.h"
#include "weft/device/world.h"

namespace weft::comm {

// Loads what stacks() needs, so that it also works when memory or locks are not to be had.
void prepare_stacks();
// Returns the native stack of each thread: "thread 4411 weft, running", and a line for each frame,
// the innermost first. Interrupts each thread for a moment. A thread that blocks signals has no
// stack there.
std::string stacks();

// Writes a text, the rank's last beat in these words, and stacks().
void write_fault(const std::string& path, const std::string& text, const Beat& beat,
                 const RankDescription& words);

}  // namespace weft::comm
