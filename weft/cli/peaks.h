// What this machine can do at best, measured once per processor and kept in the cache folder.
#pragma once

#include "weft/backends/cpu/machine.h"
#include "weft/device/spec.h"

namespace weft::cli {

// Peaks on thread_count() threads: from the cache, else measured in a child process, so that this one
// neither grows nor starts threads. Call it before anything runs on the team of threads. What a busy
// machine gave is measured again after some minutes; the best that was seen holds.
cpu::Peaks machine_peaks();
// Measures anew, for about `seconds`, and keeps the result.
cpu::Peaks measure_machine_peaks(double seconds);

MachineSpec machine_spec();  // float32's

}  // namespace weft::cli
