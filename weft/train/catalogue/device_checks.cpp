#include "weft/train/catalogue/device_checks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/device/device_fields.h"

namespace weft::train {
namespace {
// Bits a second of a pin, in 10^9, by the kinds of memory that are sold.
struct PinRate {
  std::string_view memory;
  double low, high;
};
constexpr PinRate pin_rates[] = {
    {"GDDR3", 1.4, 2.2},    {"GDDR5", 3.5, 9},   {"GDDR5X", 10, 12},   {"GDDR6", 10, 20.5},
    {"GDDR6X", 18.5, 23.5}, {"GDDR7", 27.5, 32}, {"HBM2", 1.35, 2.45}, {"HBM2e", 2.4, 3.65},
    {"HBM3", 4.7, 5.7},     {"HBM3e", 5.5, 8.1}, {"LPDDR5", 6.3, 6.5}, {"LPDDR5X", 7.4, 9.7}};

// Lanes for float32 in a multiprocessor, by the generations of CUDA.
int cores_of_processor(const DeviceModel& device) {
  if (device.vendor == "AMD" && device.kind == DeviceKind::gpu) return 64;
  if (device.capability >= 86 || device.capability == 61) return 128;
  if (device.capability >= 60) return 64;
  return device.capability == 35   ? 192
         : device.capability == 20 ? 32
         : device.capability == 10 ? 8
                                   : 0;
}

class Checker {
 public:
  Checker(const DeviceModel& device, const FieldLines& lines) : device_(device), lines_(lines) {}

  void check() const {
    const DeviceModel& d = device_;
    check_sparse();
    if (d.kind != DeviceKind::npu) check_order();
    check_clocks();
    check_memory();
    check_balance();
    check_measured();
    const int cores = cores_of_processor(d);
    if (cores > 0 && d.units.cores > 0 && d.units.processors > 0 &&
        d.units.cores != cores * d.units.processors)
      wrong("units.cores", "is {}, but {} processors of {} have {}", d.units.cores,
            d.units.processors, cores, cores * d.units.processors);
  }

 private:
  template <class... Args>
  void wrong(std::string_view field, fmt::format_string<Args...> format, Args&&... args) const {
    if (std::ranges::find(device_.unusual, field, &DeviceModel::Unusual::field) !=
        device_.unusual.end())
      return;
    throw Error(ErrorKind::usage, "{}: {}: {} {}.", lines_.at(field), device_.id, field,
                fmt::format(format, std::forward<Args>(args)...));
  }
  static bool near(double a, double b, double tolerance) {
    return std::abs(a / b - 1) <= tolerance;
  }
  static std::string in(std::string_view group, const PeakKind& kind) {
    return fmt::format("{}.{}", group, kind.name);
  }

  // With structured sparsity, two of four weights are zero: twice the dense rate.
  void check_sparse() const {
    for (const PeakKind& kind : peak_kinds()) {
      const double dense = device_.dense_tflops.*kind.member;
      const double sparse = device_.sparse_tflops.*kind.member;
      if (sparse == 0) continue;
      const std::string field = in("sparse_tflops", kind);
      if (dense == 0)
        wrong(field, "is {}, and the dense peak is missing", sparse);
      else if (sparse < dense)
        wrong(field, "is {}, less than the dense peak of {}", sparse, dense);
      else if (!near(sparse, 2 * dense, 0.015))
        wrong(field, "is {}, not twice the dense peak of {}{}", sparse, dense,
              near(sparse, dense, 0.015) ? ", which looks like a sparse figure" : "");
    }
  }

  // Narrower types are at least as fast.
  void check_order() const {
    const Peaks& peaks = device_.dense_tflops;
    const auto at_most = [&](std::string_view less, double a, std::string_view more, double b) {
      if (a > 0 && b > 0 && b < 0.98 * a)
        wrong(fmt::format("dense_tflops.{}", less), "is {}, above the {} of {}", a, b, more);
    };
    at_most("f64", peaks.f64, "f32", peaks.f32);
    if (device_.kind != DeviceKind::asic) at_most("f32", peaks.f32, "f16", peaks.f16);
    at_most("tf32", peaks.tf32, "f16", peaks.f16);
    at_most("bf16", peaks.bf16, "f8", peaks.f8);
    at_most("f8", peaks.f8, "f4", peaks.f4);
    if (peaks.f16 > 0 && peaks.bf16 > 0 && !near(peaks.f16, peaks.bf16, 0.01))
      wrong("dense_tflops.bf16", "is {}, and f16 is {}", peaks.bf16, peaks.f16);
  }

  // Peaks are processors x operations in a clock x clock.
  void check_clocks() const {
    const auto& clock = device_.clock_mhz;
    for (const PeakKind& kind : peak_kinds()) {
      const double each = device_.per_clock.*kind.member;
      const double peak = device_.dense_tflops.*kind.member;
      if (each == 0 || peak == 0 || device_.units.processors == 0) continue;
      const bool is_vector = kind.name == "f32" || kind.name == "f64" || kind.name == "f16_vector";
      const double boost = clock.boost > 0 ? clock.boost : clock.base;
      const double most = !is_vector && clock.matrix > 0 ? clock.matrix : boost;
      // CPUs are sold with a clock of one core; all cores together are between the two.
      const double least = device_.kind == DeviceKind::cpu && clock.base > 0 ? clock.base : most;
      if (most == 0) continue;
      const double operations = device_.units.processors * each / 1e6;
      constexpr double rounding = 0.035;
      if (peak < operations * least * (1 - rounding) || peak > operations * most * (1 + rounding))
        wrong(in("dense_tflops", kind), "is {}, but {} processors x {} x {} MHz are {:.4g}{}", peak,
              device_.units.processors, each, most, operations * most,
              peak > 1.8 * operations * most ? ", so it looks like a sparse figure" : "");
    }
  }

  void check_memory() const {
    const auto& memory = device_.memory;
    if (memory.label_gb > 0 && memory.reported_gib > 0 &&
        (memory.reported_gib > memory.label_gb || memory.reported_gib < 0.9 * memory.label_gb))
      wrong("memory.reported_gib", "is {}, and the label says {} GB", memory.reported_gib,
            memory.label_gb);
    if (memory.label_gb > 0 && memory.gb_per_s > 0) {
      const double seconds = memory.label_gb / memory.gb_per_s;
      if (seconds < 0.001 || seconds > 1)
        wrong("memory.gb_per_s", "is {}: {} GB would be read in {:.2g} s, not in 0.001 to 1",
              memory.gb_per_s, memory.label_gb, seconds);
    }
    const std::string_view kind = memory.kind.substr(0, memory.kind.find_first_of(" ,"));
    const auto* const rate = std::ranges::find(pin_rates, kind, &PinRate::memory);
    if (rate != std::end(pin_rates) && memory.bus_bits > 0 && memory.gb_per_s > 0) {
      const double pin = 8 * memory.gb_per_s / memory.bus_bits;
      if (pin < rate->low || pin > rate->high)
        wrong("memory.gb_per_s", "is {}: {:.2f} Gbit/s for each of {} pins, and {} has {} to {}",
              memory.gb_per_s, pin, memory.bus_bits, kind, rate->low, rate->high);
    }
    check_channels();
  }

  // "8x DDR5-4800": channels of 8 bytes, 4,800 million times a second.
  void check_channels() const {
    const std::string_view kind = device_.memory.kind;
    const size_t x = kind.find("x DDR"), dash = kind.find('-');
    if (device_.kind != DeviceKind::cpu || x == kind.npos || dash == kind.npos) return;
    int channels = 0, rate = 0;
    const char* const begin = std::to_address(kind.begin());
    std::from_chars(begin, begin + x, channels);
    std::from_chars(begin + dash + 1, begin + kind.size(), rate);
    const double expected = 8e-3 * channels * rate;
    if (expected > 0 && device_.memory.gb_per_s > 0 &&
        !near(device_.memory.gb_per_s, expected, 0.01))
      wrong("memory.gb_per_s", "is {}, but {} has {:.4g}", device_.memory.gb_per_s, kind, expected);
  }

  void check_balance() const {
    const Peaks& peaks = device_.dense_tflops;
    const double top = std::max({peaks.f32, peaks.tf32, peaks.f16, peaks.bf16});
    if (top == 0) return;
    if (device_.memory.gb_per_s > 0) {
      const double balance = 1e3 * top / device_.memory.gb_per_s;
      if (balance < 1 || balance > 1200)
        wrong("memory.gb_per_s", "is {} beside {} TFLOP/s: {:.3g} operations a byte, not 1 to 1200",
              device_.memory.gb_per_s, top, balance);
    }
    if (device_.power.watts > 0 && top / device_.power.watts > 3.2)
      wrong("power.watts", "is {} beside {} TFLOP/s in 16 bits: {:.3g} a watt, not 3.2 at most",
            device_.power.watts, top, top / device_.power.watts);
  }

  void check_measured() const {
    const auto at_most = [&](std::string_view field, double measured, double peak) {
      if (measured > 0 && peak > 0 && measured > peak)
        wrong(field, "is {}, above the peak of {}", measured, peak);
    };
    at_most("measured.bf16_tflops", device_.measured.bf16_tflops, device_.dense_tflops.bf16);
    at_most("measured.f8_tflops", device_.measured.f8_tflops, device_.dense_tflops.f8);
    at_most("measured.gb_per_s", device_.measured.gb_per_s, device_.memory.gb_per_s);
  }

  const DeviceModel& device_;
  const FieldLines& lines_;
};
}  // namespace

std::string FieldLines::at(std::string_view field) const {
  const auto found = fields.find(field);
  return fmt::format("{}:{}", file, found == fields.end() ? device : found->second);
}

void check_figures(const DeviceModel& device, const FieldLines& lines) {
  Checker(device, lines).check();
}

void check_citations(const DeviceModel& device, const FieldLines& lines) {
  const auto& sources = device.sources;
  struct Group {
    std::string_view name, figures;
    bool is_cited;
  };
  const Group groups[] = {{"chip", "units", !sources.chip.empty()},
                          {"compute", "dense_tflops", !sources.compute.empty()},
                          {"memory", "memory", !sources.memory.empty()},
                          {"cache", "cache", !sources.cache.empty()},
                          {"power", "power", !sources.power.empty()},
                          {"measured", "measured", !device.measured.sources.empty()}};
  for (const DeviceField& field : device_fields()) {
    if (field.number(device) == 0) continue;
    const auto* const group = std::ranges::find(groups, field.group(), &Group::figures);
    if (group != std::end(groups) && !group->is_cited)
      throw Error(ErrorKind::usage, "{}: {}: {} is given, and sources.{} names no source.",
                  lines.at(field.path), device.id, field.path, group->name);
  }
  if (device.link.peer_gb_per_s > 0 && sources.link.empty())
    throw Error(ErrorKind::usage,
                "{}: {}: link.peer_gb_per_s is given, and sources.link names no source.",
                lines.at("link.peer_gb_per_s"), device.id);
}

}  // namespace weft::train
