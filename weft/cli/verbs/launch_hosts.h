// Starts a command as the ranks of a run on several hosts, by mpirun.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct Hosts {
  std::vector<std::string> names;  // rank 0 is on the first; each has the next `slots` ranks
  int slots = 1;
};
// Parses "a,b" for so many ranks. Throws Error(usage).
Hosts parse_hosts(const std::string& text, int ranks);

// Returns when all ranks have ended: 8 where one was lost, 75 where they stopped after a save, else
// what mpirun returns. Open MPI 4.1 does not end where a link is cut for good: it is ended five
// seconds after the ranks have said that one is lost.
int launch_on_hosts(const std::vector<std::string>& command, int ranks, const Hosts& hosts);

}  // namespace weft::cli
