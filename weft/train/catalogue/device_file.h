// Reads devices from catalogue files: those that are shipped (catalogue/*.yaml), which the build's
// program cmake/write_catalogue.cpp turns into a table, and those of users. docs/devices.md has the
// schema.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device/device_model.h"

namespace weft::train {

// A DeviceFile owns what its devices view.
struct DeviceFile {
  std::vector<DeviceModel> devices;
  std::deque<DeviceSource> sources;  // those of the file itself

  std::deque<std::string> texts;
  std::deque<std::vector<std::string_view>> lists;
  std::deque<std::vector<const DeviceSource*>> citations;
  std::deque<std::vector<Price>> prices;
  std::deque<std::vector<DeviceModel::Unusual>> unusual;
};

// Devices may cite `known` sources, which must outlive the file, beside the file's own. Throws
// Error(usage), one line that begins with the place ("mine.yaml:12"), for a field that is unknown,
// has the wrong type or lies outside its range, for figures that contradict each other, and for
// what must be there and is not. `cites_all`: every group of figures must name its sources.
DeviceFile read_devices(std::string_view yaml, const std::string& name,
                        std::span<const DeviceSource> known, bool cites_all = false);

}  // namespace weft::train
