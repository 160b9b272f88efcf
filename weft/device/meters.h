// What a device can do at best, and what it says of itself while it works.
#pragma once

#include <optional>
#include <string>

#include "weft/device/spec.h"

namespace weft {

// nullopt: it does not say.
struct DeviceMeters {
  std::optional<double> joules = {};  // since some moment before the process began
  std::optional<double> watts = {}, celsius = {};
  std::string slowed_by = {};  // what holds its clocks down, in words; "": nothing
};

class Meters {
 public:
  virtual ~Meters() = default;
  // Unknown peaks where no device is here or nobody knows it.
  virtual MachineSpec spec() const = 0;
  virtual DeviceMeters read() const { return {}; }
};

// Of any processor (processor_spec), which does not say more.
const Meters& host_meters();

}  // namespace weft
