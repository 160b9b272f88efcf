// Finds the specification of a device by its name ("cuda:h200"). Where this machine's CPU is the
// device, or executes it, its peaks are measured ones; the peaks of a device outside the catalogue
// are unknown.
#pragma once

#include <functional>
#include <string>

#include "weft/backends/cpu/machine.h"
#include "weft/device/spec.h"

namespace weft {

// `host_peaks` returns the peaks of this CPU, and is called only where they are needed.
MachineSpec machine_spec_by(const std::string& device,
                            const std::function<cpu::Peaks()>& host_peaks);
// Returns the same without measuring: peaks that no earlier run cached are unknown.
MachineSpec known_machine_spec(const std::string& device);

}  // namespace weft
