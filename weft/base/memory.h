// What this machine has of memory, and what of it a process can have.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft {

size_t machine_memory();    // bytes; limits of control groups and of the process count
size_t available_memory();  // of it, what is free or can be freed
size_t mappable_memory();   // what this process may still map (ulimit -v), touched or not
size_t resident_memory();   // of it, what this process holds
size_t peak_memory();       // and the most that it ever held

// Throws Error(does_not_fit) if `what` take more than is available. What the process holds counts
// as available: it may be part of these bytes.
void check_fits(std::string_view what, size_t bytes);

}  // namespace weft
