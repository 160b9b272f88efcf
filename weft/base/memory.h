// What this machine has of memory, and what of it a process can have.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

// For plans: bytes, of which limits of control groups and of the process count. Where addresses are
// limited they leave 16 MiB, by which the heap of another process may differ.
size_t machine_memory();
size_t available_memory();     // of it, what is free or can be freed
bool addresses_are_limited();  // by ulimit -v
size_t mappable_memory();      // what this process may still map (ulimit -v), touched or not
size_t resident_memory();      // of it, what this process holds
size_t peak_memory();          // and the most that it ever held

struct MemoryLimits {
  size_t most, available;  // bytes
};
// Limits of the control groups that `list` (as /proc/self/cgroup) names and of all that hold them,
// of either version, below `root` (as /sys/fs/cgroup): the least of each.
MemoryLimits group_limits(const std::string& list, const std::string& root);

// Throws Error(does_not_fit) if `what` take more than is available. What the process holds counts
// as available: it may be part of these bytes.
void check_fits(std::string_view what, size_t bytes);

}  // namespace weft
