// Finds the launcher that started this process as a rank, by its environment variables.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::comm {

// A Place is what a launcher says of a rank.
struct Place {
  std::string launcher;  // "Open MPI"
  int rank = 0, size = 1;
  int local_rank = 0;
  bool is_on_one_host = false;  // all ranks are, as the launcher says
  std::string job;  // differs between the jobs that run at once; "" where the launcher has none
  std::string variables = {};  // that say so: "RANK=3 and WORLD_SIZE=4"
  std::string address;         // of rank 0, "HOST:PORT"; "": ranks find it in a file (meeting.h)
};

// Returns the place of this process; nullopt where it is no rank, or the only one. Throws
// Error(usage) where a launcher's variables contradict each other, or two launchers do.
std::optional<Place> find_place();

// The variables that make a process a rank. A program that a rank starts for itself must not have
// them.
std::vector<std::string_view> rank_variables();

}  // namespace weft::comm
