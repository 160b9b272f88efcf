// Describes a device by its data sheet: one entry of the catalogue (catalogue/*.yaml,
// docs/devices.md).
#pragma once

#include <span>
#include <string_view>

namespace weft {

// A number of 0 and an empty text are unknown, here and in all parts of a device.

// Peaks are 10^12 operations a second; a multiply-add counts as two.
struct Peaks {
  double f64 = 0, f64_matrix = 0, f32 = 0, f32_matrix = 0, tf32 = 0;
  double f16 = 0, f16_acc16 = 0, f16_vector = 0, bf16 = 0;
  double f8 = 0, f8_acc16 = 0, f6 = 0, f4 = 0, i8 = 0, i4 = 0;
};
struct PeakKind {
  std::string_view name = {};  // of the member: "bf16"
  double Peaks::* member;
  std::string_view doc = {};
};
std::span<const PeakKind> peak_kinds();

enum class DeviceKind { gpu, cpu, tpu, npu, asic, soc };
std::string_view name(DeviceKind kind);

// A DeviceSource is a document that has figures of devices.
struct DeviceSource {
  std::string_view id = {}, title = {}, where = {}, kind = {}, note = {};
  bool seen = true;  // false: no copy was read, the figures were checked otherwise
};

struct Price {
  double usd = 0;  // of one device, or of its use for an hour
  std::string_view provider = {}, date = {};
  const DeviceSource* source = nullptr;
  bool spot = false;
};

struct DeviceModel {
  std::string_view id = {};    // as in --on h200
  std::string_view name = {};  // as its driver reports it, if weft knows that
  std::span<const std::string_view> aliases = {};
  DeviceKind kind = DeviceKind::gpu;
  std::string_view vendor = {};
  int year = 0;
  std::string_view architecture = {};
  int capability = 0;  // of CUDA; 90: 9.0

  struct Units {
    int processors = 0;
    std::string_view processor = {};  // what a processor is called: "SM"
    int cores = 0, matrix_units = 0;
    int array = 0;  // rows and columns of a systolic array
  } units = {};
  struct Clock {
    double base = 0, boost = 0, matrix = 0;
  } clock_mhz = {};
  Peaks per_clock = {};  // operations of one processor in a clock
  Peaks dense_tflops = {}, sparse_tflops = {};
  struct Memory {
    double label_gb = 0;      // as the vendor prints it
    double reported_gib = 0;  // as the driver reports it
    std::string_view kind = {};
    int bus_bits = 0;
    double gb_per_s = 0;
  } memory = {};
  struct Cache {
    double l2_mib = 0, last_level_mib = 0;
    double l1_kib = 0, shared_kib = 0, registers_kib = 0;  // of one processor
  } cache = {};
  struct DeviceLink {
    std::string_view host = {};
    double host_gb_per_s = 0;  // in one direction
    std::string_view peer = {};
    int peer_links = 0;
    double peer_gb_per_s = 0;  // in one direction, all links together
  } link = {};
  struct Power {
    double watts = 0;
    std::string_view term = {};  // what the figure is: "maximum TDP"
  } power = {};
  // The best that somebody measured: of a matrix product, and of a copy.
  struct Measured {
    double bf16_tflops = 0, f8_tflops = 0, gb_per_s = 0;
    std::string_view condition = {};
    std::span<const DeviceSource* const> sources = {};
  } measured = {};
  struct Prices {
    Price launch = {};
    std::span<const Price> purchase = {}, rental = {};
  } price = {};
  // These documents have the figures above, by group.
  struct Sources {
    std::span<const DeviceSource* const> chip = {}, compute = {}, memory = {}, cache = {},
                                         link = {}, power = {};
  } sources = {};
  // A figure that contradicts what others suggest (`field`), and why it is right all the same.
  struct Unusual {
    std::string_view field = {}, why = {};
  };
  std::span<const Unusual> unusual = {};
  std::span<const std::string_view> notes = {};  // above all where well-known accounts are wrong

  // Returns the memory that a driver reports, or what the vendor prints where that is unknown.
  double memory_bytes() const {
    return memory.reported_gib > 0 ? 0x1p30 * memory.reported_gib : 1e9 * memory.label_gb;
  }
  // Returns the peak of matrix products in 16 bits.
  double half_tflops() const { return dense_tflops.f16 > 0 ? dense_tflops.f16 : dense_tflops.bf16; }
};

// The devices of catalogue/*.yaml and the documents that they cite, as the build's program
// cmake/write_catalogue.cpp wrote them.
std::span<const DeviceModel> shipped_devices();
std::span<const DeviceSource> shipped_sources();

}  // namespace weft
