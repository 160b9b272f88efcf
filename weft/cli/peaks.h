// What this machine can do at best, measured once per processor and kept in the cache folder.
#pragma once

#include <string>

#include "weft/backends/cpu/machine.h"
#include "weft/device/spec.h"

namespace weft::cli {

// Peaks on thread_count() threads: from the cache, else measured by another process of this
// program, so that this one neither grows nor starts threads. What a busy machine gave is measured
// again after some minutes; the best that was seen holds. Zeros where there is no cache.
cpu::Peaks machine_peaks();
// Measures here and now, for one to three seconds, and keeps the result.
cpu::Peaks measure_machine_peaks();

bool machine_is_busy();  // with others, so that what is measured now is slower than the machine
// The specification of a device by its name ("cuda:h200"). Where this machine's processor is the
// device, or runs it, peaks are the measured ones; a device that the catalogue lacks has unknown
// ones.
MachineSpec machine_spec(const std::string& device);
// The same without measuring: unknown peaks where none are kept.
MachineSpec known_machine_spec(const std::string& device);

// What a user should know of a machine without instructions for products of this type; "": nothing.
std::string lacks_instructions(DType products, const cpu::Machine& machine);
std::string lacks_instructions(DType products, const MachineSpec& device);  // not of the host

}  // namespace weft::cli
