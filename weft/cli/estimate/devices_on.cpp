#include "weft/cli/estimate/devices_on.h"

#include <algorithm>
#include <cctype>
#include <ranges>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/numbers/quantity.h"
#include "weft/device/catalogue.h"

namespace weft::cli {

CountedName split_count(std::string_view text) {
  const size_t x = text.rfind('x');
  if (x == std::string_view::npos || x + 1 == text.size()) return {text, ""};
  const std::string_view count = text.substr(x + 1);
  const auto is_digit = [](unsigned char c) { return std::isdigit(c); };
  if (!std::ranges::all_of(count, is_digit)) return {text, ""};
  return {text.substr(0, x), count};
}

std::string DevicesOn::text() const {
  return count == 1 ? std::string(model->id) : fmt::format("{}x{}", model->id, count);
}

std::vector<DevicesOn> estimated_devices(const std::string& names) {
  std::vector<DevicesOn> devices;
  for (const auto& part : std::views::split(names, ',')) {
    const std::string_view whole(part.begin(), part.end());
    std::string_view name = whole;
    DevicesOn on;
    const CountedName counted = split_count(whole);
    if (find_device(whole) == nullptr && !counted.count.empty()) {
      const auto number = parse_count(counted.count);
      if (!number || *number < 1 || *number > most_devices)
        throw Error(ErrorKind::usage, "--on {}: a number of devices is between 1 and {}.", whole,
                    most_devices);
      on.count = *number;
      on.is_counted = true;
      name = counted.name;
    }
    if (name == "all") {
      for (const DeviceModel* each : device_models())
        devices.push_back({each, on.count, on.is_counted});
      continue;
    }
    on.model = find_device(name);
    if (on.model == nullptr)
      throw Error(ErrorKind::usage, "--on {}: no such machine. {}", whole, machine_hint(name));
    devices.push_back(on);
  }
  return devices;
}

}  // namespace weft::cli
