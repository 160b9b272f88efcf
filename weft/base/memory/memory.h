// Measures the memory of this machine, and the share of it that this process may use.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

// Return budgets for plans, in bytes, within the limits of control groups and of the process. Under
// an address limit they reserve 16 MiB for heap growth, which varies between processes.
size_t machine_memory();
size_t available_memory();     // the part that is free or reclaimable
bool addresses_are_limited();  // by ulimit -v
size_t mappable_memory();      // bytes that this process may still map (ulimit -v), touched or not
size_t resident_memory();      // bytes resident in this process
size_t peak_memory();          // the most that was ever resident
// Returns the part of resident_memory() that is in this range of addresses.
size_t resident_memory(const void* from, size_t bytes);

struct MemoryLimits {
  size_t most, available;  // bytes
};
// Returns the tightest limits of the control groups (v1 or v2) that `list` (as /proc/self/cgroup)
// names and of all their ancestors below `root` (as /sys/fs/cgroup).
MemoryLimits group_limits(const std::string& list, const std::string& root);

// Throws Error(does_not_fit) if `what` takes more than is available. Memory that is resident in
// this process counts as available, as it may be part of `bytes`. `mapped` is the size of files
// that the process maps besides and only reads: the kernel can drop their pages.
void check_fits(std::string_view what, size_t bytes, size_t mapped = 0);

}  // namespace weft
