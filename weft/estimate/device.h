// Describes a device to estimates: its peaks, its memory, and what joins it to others.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft {
struct DeviceModel;
}

namespace weft::estimate {

// A Number is the type in which a product's factors are read; sums are float32 or wider.
enum class Number : uint8_t { f64, f32, tf32, f16, bf16, i8, f8, f4 };
inline constexpr int number_count = 8;
std::string_view name(Number number);  // "bf16"
std::optional<Number> find_number(std::string_view name);
double bytes_of(Number number);  // of an element; a half for f4

struct Device {
  std::string id;            // "h100"
  std::string architecture;  // "Hopper": devices of one share constants (constants.h)
  std::array<double, number_count> flops_per_s = {};  // dense; a multiply-add is two. 0: unknown
  double bytes_per_s = 0;                             // memory
  double processors = 0;        // that share the tiles of a product; 0: one array of units
  double peer_bytes_per_s = 0;  // in one direction to devices of the same host; 0: by the host
  double host_bytes_per_s = 0;  // in one direction to the host's memory
  double watts = 0;             // the limit of the data sheet; 0: unknown
  double limit_watts = 0;       // a lower one that is set; 0: none

  double peak(Number number) const { return flops_per_s[static_cast<size_t>(number)]; }
};

// Returns what the catalogue knows of a device. Devices of one family share an architecture, which
// is the first word of the catalogue's ("Hopper (GH100)"), or TPU.
Device device_of(const DeviceModel& model);

}  // namespace weft::estimate
