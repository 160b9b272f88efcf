// Returns the peaks of this machine, which are measured once per CPU and kept in the cache folder.
#pragma once

#include <string>

#include "weft/backends/cpu/machine.h"
#include "weft/device/spec.h"

namespace weft::cli {

// Returns the peaks on thread_count() threads: from the cache, else measured by another process of
// this program, so that this one neither grows nor starts threads. Results of a busy machine are
// measured again after some minutes, and the best values are kept. Returns zeros without a cache.
cpu::Peaks machine_peaks();
// Measures in this process, for one to three seconds, and caches the result.
cpu::Peaks measure_machine_peaks();

bool machine_is_busy();  // whether other processes would slow down measurements
// Returns the specification of a device as machine_spec_by() does, by machine_peaks().
MachineSpec machine_spec(const std::string& device);

// Returns a remark on a machine without instructions for products of this type; "": none.
std::string lacks_instructions(DType products, const cpu::Machine& machine);
std::string lacks_instructions(DType products, const MachineSpec& device);  // not for the host

}  // namespace weft::cli
