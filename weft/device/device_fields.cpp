#include "weft/device/device_fields.h"

#include <algorithm>
#include <string>
#include <vector>

namespace weft {
namespace {
using Units = DeviceModel::Units;
using Clock = DeviceModel::Clock;
using Memory = DeviceModel::Memory;
using Cache = DeviceModel::Cache;
using DeviceLink = DeviceModel::DeviceLink;
using Power = DeviceModel::Power;
using Measured = DeviceModel::Measured;

template <auto member>
auto& at(DeviceModel& device) {
  return device.*member;
}
template <auto group, auto member>
auto& at(DeviceModel& device) {
  return device.*group.*member;
}

constexpr PeakKind kinds[] = {
    {"f64", &Peaks::f64, "float64, vector units"},
    {"f64_matrix", &Peaks::f64_matrix, "float64, matrix units"},
    {"f32", &Peaks::f32, "float32, vector units"},
    {"f32_matrix", &Peaks::f32_matrix, "float32, matrix units"},
    {"tf32", &Peaks::tf32, "float32 rounded to 19 bits, matrix units"},
    {"f16", &Peaks::f16, "float16, matrix units, sums in float32"},
    {"f16_acc16", &Peaks::f16_acc16, "float16, matrix units, sums in float16"},
    {"f16_vector", &Peaks::f16_vector, "float16, vector units"},
    {"bf16", &Peaks::bf16, "bfloat16, matrix units, sums in float32"},
    {"f8", &Peaks::f8, "float8, matrix units, sums in float32"},
    {"f8_acc16", &Peaks::f8_acc16, "float8, matrix units, sums in float16"},
    {"f6", &Peaks::f6, "float6, matrix units"},
    {"f4", &Peaks::f4, "float4, matrix units"},
    {"i8", &Peaks::i8, "int8, matrix units"},
    {"i4", &Peaks::i4, "int4, matrix units"}};

template <auto group>
constexpr DeviceField::Number peak_members[] = {
    at<group, &Peaks::f64>,        at<group, &Peaks::f64_matrix>, at<group, &Peaks::f32>,
    at<group, &Peaks::f32_matrix>, at<group, &Peaks::tf32>,       at<group, &Peaks::f16>,
    at<group, &Peaks::f16_acc16>,  at<group, &Peaks::f16_vector>, at<group, &Peaks::bf16>,
    at<group, &Peaks::f8>,         at<group, &Peaks::f8_acc16>,   at<group, &Peaks::f6>,
    at<group, &Peaks::f4>,         at<group, &Peaks::i8>,         at<group, &Peaks::i4>};

using D = DeviceModel;
const DeviceField before_peaks[] = {
    {"id", at<&D::id>, "name for --on, of lower-case letters, digits, '-' and '.'"},
    {"name", at<&D::name>, "full name, as its driver reports it"},
    {"vendor", at<&D::vendor>, "who makes it"},
    {"year", at<&D::year>, "of its launch", 1990, 2100},
    {"architecture", at<&D::architecture>, "generation and chip"},
    {"units.processors", at<&D::units, &Units::processors>, "processors: SM, CU, cores of a CPU", 1,
     100'000},
    {"units.processor", at<&D::units, &Units::processor>, "what a processor is called"},
    {"units.cores", at<&D::units, &Units::cores>, "lanes for float32 in all processors", 1, 1e6},
    {"units.matrix_units", at<&D::units, &Units::matrix_units>, "in all processors", 1, 1e6},
    {"units.array", at<&D::units, &Units::array>, "rows and columns of a systolic array", 4, 1024},
    {"clock_mhz.base", at<&D::clock_mhz, &Clock::base>, "MHz", 50, 10'000},
    {"clock_mhz.boost", at<&D::clock_mhz, &Clock::boost>, "MHz", 50, 10'000},
    {"clock_mhz.matrix", at<&D::clock_mhz, &Clock::matrix>,
     "MHz at which matrix units reach their peak", 50, 10'000}};
const DeviceField after_peaks[] = {
    {"memory.label_gb", at<&D::memory, &Memory::label_gb>, "GB as the vendor prints them", 0.125,
     16'384},
    {"memory.reported_gib", at<&D::memory, &Memory::reported_gib>, "GiB that the driver reports",
     0.125, 16'384},
    {"memory.kind", at<&D::memory, &Memory::kind>, "HBM3, GDDR6, '8x DDR5-4800'"},
    {"memory.bus_bits", at<&D::memory, &Memory::bus_bits>, "width of its bus", 8, 65'536},
    {"memory.gb_per_s", at<&D::memory, &Memory::gb_per_s>, "10^9 bytes a second", 0.5, 50'000},
    {"cache.l2_mib", at<&D::cache, &Cache::l2_mib>, "MiB", 0.01, 4096},
    {"cache.last_level_mib", at<&D::cache, &Cache::last_level_mib>, "MiB of the cache behind L2",
     0.01, 4096},
    {"cache.l1_kib", at<&D::cache, &Cache::l1_kib>, "KiB of each processor", 1, 65'536},
    {"cache.shared_kib", at<&D::cache, &Cache::shared_kib>, "KiB of each processor", 1, 65'536},
    {"cache.registers_kib", at<&D::cache, &Cache::registers_kib>, "KiB of each processor", 1,
     65'536},
    {"link.host", at<&D::link, &DeviceLink::host>, "what joins it to the host: PCIe 5.0 x16"},
    {"link.host_gb_per_s", at<&D::link, &DeviceLink::host_gb_per_s>,
     "10^9 bytes a second in one direction", 0.01, 10'000},
    {"link.peer", at<&D::link, &DeviceLink::peer>, "what joins it to others of its kind: NVLink 4"},
    {"link.peer_links", at<&D::link, &DeviceLink::peer_links>, "how many", 1, 1024},
    {"link.peer_gb_per_s", at<&D::link, &DeviceLink::peer_gb_per_s>,
     "10^9 bytes a second in one direction, all links together", 0.01, 10'000},
    {"power.watts", at<&D::power, &Power::watts>, "W", 0.1, 50'000},
    {"power.term", at<&D::power, &Power::term>, "what the figure is: maximum TDP"},
    {"measured.bf16_tflops", at<&D::measured, &Measured::bf16_tflops>,
     "best product in bfloat16, TFLOP/s", 0.001, 1e6},
    {"measured.f8_tflops", at<&D::measured, &Measured::f8_tflops>,
     "best product in float8, TFLOP/s", 0.001, 1e6},
    {"measured.gb_per_s", at<&D::measured, &Measured::gb_per_s>, "best copy, 10^9 bytes a second",
     0.5, 50'000},
    {"measured.condition", at<&D::measured, &Measured::condition>, "shape, versions of programs"}};

struct Paths {
  std::vector<std::string> texts;  // the fields view them
  std::vector<DeviceField> fields;
};

Paths all_fields() {
  Paths all;
  const std::span<const PeakKind> peaks = peak_kinds();
  all.texts.reserve(3 * peaks.size());
  all.fields.assign(std::begin(before_peaks), std::end(before_peaks));
  const auto add = [&](std::string_view group, std::span<const DeviceField::Number> members,
                       double low, double high) {
    for (size_t i = 0; i < peaks.size(); ++i) {
      all.texts.push_back(std::string(group) + "." + std::string(peaks[i].name));
      all.fields.push_back({all.texts.back(), members[i], peaks[i].doc, low, high});
    }
  };
  add("per_clock", peak_members<&D::per_clock>, 1, 1e7);
  add("dense_tflops", peak_members<&D::dense_tflops>, 0.0001, 1e6);
  add("sparse_tflops", peak_members<&D::sparse_tflops>, 0.0001, 1e6);
  all.fields.insert(all.fields.end(), std::begin(after_peaks), std::end(after_peaks));
  return all;
}
}  // namespace

std::span<const PeakKind> peak_kinds() { return kinds; }

std::string_view name(DeviceKind kind) {
  constexpr std::string_view names[] = {"gpu", "cpu", "tpu", "npu", "asic", "soc"};
  return names[static_cast<size_t>(kind)];
}

double DeviceField::number(const DeviceModel& device) const {
  auto& fields = const_cast<DeviceModel&>(device);  // members are read, not written
  if (const auto* real = std::get_if<Number>(&member)) return (*real)(fields);
  if (const auto* whole = std::get_if<Whole>(&member)) return (*whole)(fields);
  return 0;
}
std::string_view DeviceField::text(const DeviceModel& device) const {
  const auto* text = std::get_if<Text>(&member);
  return text == nullptr ? "" : (*text)(const_cast<DeviceModel&>(device));
}
std::string_view DeviceField::group() const {
  const size_t dot = path.find('.');
  return dot == std::string_view::npos ? "" : path.substr(0, dot);
}
std::string_view DeviceField::key() const { return path.substr(path.find('.') + 1); }

std::span<const DeviceField> device_fields() {
  static const Paths all = all_fields();
  return all.fields;
}
const DeviceField* find_device_field(std::string_view path) {
  const auto fields = device_fields();
  const auto found = std::ranges::find(fields, path, &DeviceField::path);
  return found == fields.end() ? nullptr : &*found;
}

}  // namespace weft
