// Measures the energy use of this machine's CPUs, by their own counters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// EnergyMeter counts the energy of all CPU packages since its construction, whichever process
// used it. Source: the Linux kernel's Documentation/power/powercap/powercap.rst (Intel's RAPL,
// which AMD's CPUs implement too).
class EnergyMeter {
 public:
  explicit EnergyMeter(const std::string& folder = "/sys/class/powercap");

  // Reads the counters, which wrap after about ten minutes at full load: call it more often.
  void read();
  // Returns the energy up to the last read; nullopt where there is no readable counter.
  std::optional<double> joules() const;

 private:
  struct Package {
    std::string counter;                     // path of the file with the count in microjoules
    uint64_t range = 0, last = 0, used = 0;  // microjoules; the counter wraps at `range`
  };
  std::vector<Package> packages_;
};

}  // namespace weft
