// The peaks of this machine as an earlier run measured and cached them: one file in the cache
// folder for each instruction set and number of threads.
#pragma once

#include <optional>
#include <string>

#include "weft/backends/cpu/machine.h"

namespace weft::cpu {

struct CachedPeaks {
  Peaks peaks = {};
  bool busy = false;  // other processes slowed the measurement down
};

// Returns the path of the file for thread_count() threads; nullopt: nothing may be cached.
std::optional<std::string> peaks_file();
// Returns nullopt where nothing is cached, or only peaks of another machine.
std::optional<CachedPeaks> cached_peaks();
// Returns the contents of the file that caches these peaks of this machine.
std::string text_of(const CachedPeaks& cached);

}  // namespace weft::cpu
