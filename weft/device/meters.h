// Reports peaks of a device and readings of its sensors.
#pragma once

#include <optional>
#include <string>

#include "weft/device/spec.h"

namespace weft {

// DeviceMeters are readings of a device; nullopt: it has no such sensor.
struct DeviceMeters {
  std::optional<double> joules = {};  // since an arbitrary start before the process began
  std::optional<double> watts = {}, celsius = {};
  std::string slowed_by = {};  // why its clocks are throttled; "": they are not
};

class Meters {
 public:
  virtual ~Meters() = default;
  // Returns the device's peaks; unknown where there is no device or no record of its model.
  virtual MachineSpec spec() const = 0;
  virtual DeviceMeters read() const { return {}; }
};

// Returns the meters of any CPU, which have peaks (processor_spec) but no readings.
const Meters& host_meters();

}  // namespace weft
