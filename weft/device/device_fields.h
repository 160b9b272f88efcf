// Lists the fields of a device that are a number or a text: what catalogue files are read, checked,
// printed and documented by.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "weft/device/device_model.h"

namespace weft {

struct DeviceField {
  using Number = double& (*)(DeviceModel&);
  using Whole = int& (*)(DeviceModel&);
  using Text = std::string_view& (*)(DeviceModel&);

  std::string_view path;  // "memory.gb_per_s"
  std::variant<Number, Whole, Text> member;
  std::string_view doc;      // with the unit
  double low = 0, high = 0;  // of numbers: what lies outside is a mistake, probably of the unit

  // Returns the number; 0 for texts.
  double number(const DeviceModel& device) const;
  std::string_view text(const DeviceModel& device) const;
  std::string_view group() const;  // "memory"; "" for the fields of the device itself
  std::string_view key() const;    // "gb_per_s"
};

// Returns the fields in the order of a file, which is that of the members of DeviceModel.
std::span<const DeviceField> device_fields();
const DeviceField* find_device_field(std::string_view path);

}  // namespace weft
