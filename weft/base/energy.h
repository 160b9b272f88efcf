// Energy that the processors of this machine take, as their own meters count it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// All packages of the machine since the meter was made, whoever used them. Source: the Linux
// kernel's Documentation/power/powercap/powercap.rst (Intel's RAPL, on AMD's processors too).
class EnergyMeter {
 public:
  explicit EnergyMeter(const std::string& folder = "/sys/class/powercap");

  // Counters wrap, after some ten minutes at full load: read at least that often.
  void read();
  // Up to the last read; nullopt where there is no meter, or it is root's alone.
  std::optional<double> joules() const;

 private:
  struct Package {
    std::string counter;                     // file of microjoules
    uint64_t range = 0, last = 0, used = 0;  // microjoules; the counter begins anew after `range`
  };
  std::vector<Package> packages_;
};

}  // namespace weft
