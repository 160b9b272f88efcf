// Parses --on: devices of the catalogue, and how many of each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {
struct DeviceModel;
}

namespace weft::cli {

// A CountedName is "h100x8" in its parts; `count` is "" where the text has none.
struct CountedName {
  std::string_view name, count;
};
CountedName split_count(std::string_view text);

inline constexpr int64_t most_devices = 65536;

// DevicesOn are as many devices as "h100x8" says.
struct DevicesOn {
  const DeviceModel* model = nullptr;
  int64_t count = 1;
  bool is_counted = false;   // the user gave the number
  std::string text() const;  // "h100x8"
};
// Parses --on for estimates. "all" is each device of the catalogue, "allx8" eight of each. Throws
// Error(usage) for a name that the catalogue lacks and a count outside of 1 to most_devices.
std::vector<DevicesOn> estimated_devices(const std::string& names);

}  // namespace weft::cli
