// Checks the figures of a device against each other and against arithmetic.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "weft/device/device_model.h"

namespace weft::train {

// These are the lines of the file that have a device's fields: "memory.gb_per_s" -> 12.
struct FieldLines {
  std::string file;
  int device = 0;
  std::map<std::string, int, std::less<>> fields;

  // Returns "mine.yaml:12" for a field, or for the device where the field is not given.
  std::string at(std::string_view field) const;
};

// Throws Error(usage) for the first contradiction, which the device does not call unusual.
void check_figures(const DeviceModel& device, const FieldLines& lines);
// Throws Error(usage) if a group of figures names no source.
void check_citations(const DeviceModel& device, const FieldLines& lines);

}  // namespace weft::train
