// Starts a command as the ranks of a run, on this host: gives each its place, passes signals on,
// and leaves no process behind.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

int usable_cores();  // of this process

// Returns when all ranks have ended: 8 where one was lost, 75 where they stopped after a save, else
// their highest exit code.
int launch_ranks(std::vector<std::string> command, int ranks);

}  // namespace weft::cli
