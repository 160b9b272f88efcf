#include "weft/estimate/device.h"

#include <utility>

#include "weft/device/device_model.h"

namespace weft::estimate {

std::string_view name(Number number) {
  constexpr std::array<std::string_view, number_count> names{"f64",  "f32", "tf32", "f16",
                                                             "bf16", "i8",  "f8",   "f4"};
  return names[static_cast<size_t>(number)];
}

std::optional<Number> find_number(std::string_view wanted) {
  for (int each = 0; each < number_count; ++each)
    if (name(static_cast<Number>(each)) == wanted) return static_cast<Number>(each);
  return std::nullopt;
}

double bytes_of(Number number) {
  constexpr std::array<double, number_count> bytes{8, 4, 4, 2, 2, 1, 1, 0.5};
  return bytes[static_cast<size_t>(number)];
}

Device device_of(const DeviceModel& model) {
  Device device{
      .id = std::string(model.id),
      .architecture = model.kind == DeviceKind::tpu
                          ? "TPU"
                          : std::string(model.architecture.substr(0, model.architecture.find(' '))),
      .bytes_per_s = 1e9 * model.memory.gb_per_s,
      .processors = static_cast<double>(model.units.processors),
      .peer_bytes_per_s = 1e9 * model.link.peer_gb_per_s,
      .host_bytes_per_s = 1e9 * model.link.host_gb_per_s,
      .watts = model.power.watts};
  const Peaks& peaks = model.dense_tflops;
  const std::pair<Number, double> known[] = {{Number::f64, peaks.f64},   {Number::f32, peaks.f32},
                                             {Number::tf32, peaks.tf32}, {Number::f16, peaks.f16},
                                             {Number::bf16, peaks.bf16}, {Number::i8, peaks.i8},
                                             {Number::f8, peaks.f8},     {Number::f4, peaks.f4}};
  for (const auto& [number, tflops] : known)
    device.flops_per_s[static_cast<size_t>(number)] = 1e12 * tflops;
  return device;
}

}  // namespace weft::estimate
