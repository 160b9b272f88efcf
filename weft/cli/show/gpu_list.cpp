#include "weft/cli/show/gpu_list.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/nvml.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/base/error.h"
#include "weft/cli/show/terminal.h"
#include "weft/device/catalogue.h"

namespace weft::cli {
namespace {
using cuda::GpuState;
using nlohmann::json;

// A Name is a value of --device ("cuda:0"); "" for a GPU that is hidden from CUDA.
using Name = std::string;

// Strips the prefix: "[cuda] no libnvidia-ml.so.1 in .... Hint: ...".
std::string reason_of(const std::string& error) { return error.substr(error.find(' ') + 1); }

struct NvidiaGpu {
  Name name;
  GpuState state;
  std::string unusable;  // why it cannot run steps
};
struct NvidiaGpus {
  std::vector<NvidiaGpu> gpus;
  std::string missing;  // why `gpus` is empty
};
// Matches the GPUs of NVML and CUDA by UUID, as each has its own order.
NvidiaGpus nvidia_gpus() {
  try {
    NvidiaGpus all;
    std::vector<GpuState> gpus = cuda::Nvml().gpus();
    int number = 0;
    for (const std::string& uuid : cuda::uuids()) {
      const auto gpu = std::ranges::find(gpus, uuid, &GpuState::uuid);
      if (gpu != gpus.end()) {
        all.gpus.push_back({fmt::format("cuda:{}", number), std::move(*gpu),
                            reason_of(cuda::why_unusable(number))});
        gpus.erase(gpu);
      }
      ++number;
    }
    for (GpuState& hidden : gpus) all.gpus.push_back({"", std::move(hidden), ""});
    if (all.gpus.empty()) all.missing = "the driver shows no GPU.";
    return all;
  } catch (const Error& error) {
    const std::string reason = reason_of(error.what());
    return {{}, reason.substr(0, reason.find(" Hint:"))};
  }
}

std::vector<std::pair<Name, opencl::DeviceInfo>> opencl_devices() {
  std::vector<std::pair<Name, opencl::DeviceInfo>> all;
  for (opencl::DeviceInfo& device : opencl::devices())
    all.emplace_back(fmt::format("opencl:{}", all.size()), std::move(device));
  return all;
}

// ---- text

std::string name_of(unsigned pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  return std::getline(file, name) ? name : "of another user or container";
}

std::string peak_text(const DeviceModel& gpu) {
  const Peaks& peaks = gpu.dense_tflops;
  std::string text = fmt::format("f32 {:.3g}", peaks.f32);
  if (peaks.tf32 > 0) text += fmt::format(", tf32 {:.4g}", peaks.tf32);
  text += fmt::format(", {} {:.4g}", peaks.bf16 > 0 ? "f16 and bf16" : "f16", gpu.half_tflops());
  if (gpu.measured.bf16_tflops > 0)
    text += fmt::format(" ({:.4g} measured)", gpu.measured.bf16_tflops);
  return text + fmt::format(", f64 {:.3g} TFLOP/s by its data sheet", peaks.f64);
}

std::string bandwidth_text(const DeviceModel& gpu) {
  std::string text = fmt::format("{:.0f} GB/s", gpu.memory.gb_per_s);
  if (gpu.measured.gb_per_s > 0) text += fmt::format(" ({:.0f} measured)", gpu.measured.gb_per_s);
  return text + " by its data sheet";
}

std::string power_text(const GpuState& gpu) {
  std::vector<std::string> parts;
  if (gpu.meters.watts)
    parts.push_back(fmt::format("{:.0f} W", *gpu.meters.watts) +
                    (gpu.watt_limit ? fmt::format(" of {:.0f} W", *gpu.watt_limit) : ""));
  if (gpu.meters.celsius) parts.push_back(fmt::format("{:.0f} °C", *gpu.meters.celsius));
  if (gpu.busy_percent) parts.push_back(fmt::format("{} % busy", *gpu.busy_percent));
  if (!gpu.meters.slowed_by.empty())
    parts.push_back(paint(Colour::yellow, "slowed by: " + gpu.meters.slowed_by));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string clock_text(const GpuState::Clock& clock) {
  return fmt::format("{} of {} MHz", clock.now, clock.most);
}

std::string errors_text(uint64_t errors) {
  if (errors == 0) return "no uncorrected memory errors";
  return paint(Colour::red,
               fmt::format("{} uncorrected memory errors: results may be wrong", errors));
}

void add_rows(Table& table, const NvidiaGpu& nvidia) {
  const auto& [name, gpu, unusable] = nvidia;
  table.row({paint(Colour::bold, name.empty() ? "cuda" : name),
             fmt::format("{}, compute capability {}.{}, driver {}", gpu.name, gpu.capability / 10,
                         gpu.capability % 10, gpu.driver)});
  if (name.empty()) table.row({"hidden", "from CUDA, probably by CUDA_VISIBLE_DEVICES"});
  if (!unusable.empty()) table.row({"unusable", paint(Colour::yellow, unusable)});
  table.row({"memory", fmt::format("{}, {} of it free", size_text(gpu.memory.total),
                                   size_text(gpu.memory.available))});
  for (const cuda::GpuProcess& process : gpu.processes)
    table.row({"used by", fmt::format("process {} ({}): {}", process.pid, name_of(process.pid),
                                      process.bytes ? size_text(*process.bytes) : "unknown")});
  table.row({"clocks", fmt::format("multiprocessors {}, memory {}", clock_text(gpu.multiprocessors),
                                   clock_text(gpu.memory_clock))});
  if (const DeviceModel* known = find_gpu_of_driver(gpu.name)) {
    table.row({"peak", peak_text(*known)});
    table.row({"bandwidth", bandwidth_text(*known)});
  } else {
    table.row(
        {"peak",
         "unknown: the GPU is not in the catalogue (weft list gpus), so plans estimate no times"});
  }
  if (std::string power = power_text(gpu); !power.empty()) table.row({"power", power});
  if (gpu.uncorrected_errors) table.row({"errors", errors_text(*gpu.uncorrected_errors)});
}

void add_rows(Table& table, const Name& name, const opencl::DeviceInfo& device) {
  table.row({paint(Colour::bold, name),
             fmt::format("{}, by {}: {}", device.name, device.platform, device.version)});
  table.row({"driver", device.driver});
  table.row({"memory", fmt::format("{}{}", size_text(device.memory),
                                   device.shares_memory ? ", shared with the host" : "")});
  // OpenCL does not report the throughput of a unit, so no peak is shown; some drivers report no
  // clock.
  table.row({"units", device.clock_mhz > 0
                          ? fmt::format("{} at {} MHz", device.compute_units, device.clock_mhz)
                          : std::to_string(device.compute_units)});
  table.row({"types", fmt::format("{}, {}", device.float64 ? "float64" : "no float64",
                                  device.half ? "float16" : "float16 for storage only")});
}

// ---- JSON

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json to_json(const NvidiaGpu& nvidia) {
  const auto& [name, gpu, unusable] = nvidia;
  json processes = json::array();
  for (const cuda::GpuProcess& process : gpu.processes)
    processes.push_back({{"pid", process.pid}, {"bytes", or_null(process.bytes)}});
  json entry{{"device", name.empty() ? json(nullptr) : json(name)},
             {"unusable", unusable.empty() ? json(nullptr) : json(unusable)},
             {"name", gpu.name},
             {"uuid", gpu.uuid},
             {"driver", gpu.driver},
             {"capability", fmt::format("{}.{}", gpu.capability / 10, gpu.capability % 10)},
             {"memory", gpu.memory.total},
             {"available", gpu.memory.available},
             {"clock_mhz", gpu.multiprocessors.now},
             {"most_clock_mhz", gpu.multiprocessors.most},
             {"memory_clock_mhz", gpu.memory_clock.now},
             {"busy_percent", or_null(gpu.busy_percent)},
             {"watts", or_null(gpu.meters.watts)},
             {"watt_limit", or_null(gpu.watt_limit)},
             {"celsius", or_null(gpu.meters.celsius)},
             {"joules", or_null(gpu.meters.joules)},
             {"slowed_by", gpu.meters.slowed_by},
             {"uncorrected_errors", or_null(gpu.uncorrected_errors)},
             {"processes", processes}};
  if (const DeviceModel* known = find_gpu_of_driver(gpu.name)) {
    const Peaks& peaks = known->dense_tflops;
    entry["peak_gflops"] = {{"f32", 1e3 * peaks.f32},
                            {"f64", 1e3 * peaks.f64},
                            {"tf32", 1e3 * peaks.tf32},
                            {"f16", 1e3 * known->half_tflops()}};
    entry["bandwidth_gb_per_s"] = known->memory.gb_per_s;
    const DeviceModel::Measured& measured = known->measured;
    if (measured.bf16_tflops > 0) entry["measured_gflops"] = {{"f16", 1e3 * measured.bf16_tflops}};
    if (measured.gb_per_s > 0) entry["measured_bandwidth_gb_per_s"] = measured.gb_per_s;
  }
  return entry;
}

json to_json(const Name& name, const opencl::DeviceInfo& device) {
  return {{"device", name},
          {"name", device.name},
          {"platform", device.platform},
          {"version", device.version},
          {"driver", device.driver},
          {"memory", device.memory},
          {"compute_units", device.compute_units},
          {"clock_mhz", device.clock_mhz > 0 ? json(device.clock_mhz) : json(nullptr)},
          {"float64", device.float64},
          {"float16", device.half},
          {"shares_memory", device.shares_memory},
          {"runs_plans", device.runs_plans}};
}
}  // namespace

std::string gpus_text() {
  std::string text;
  auto add = [&](const auto&... device) {
    Table table;
    add_rows(table, device...);
    text += "\n" + table.text();
  };
  auto none = [&](std::string_view kind, std::string_view why) {
    text += "\n" + paint(Colour::dim, fmt::format("{}: {}", kind, why)) + "\n";
  };
  const NvidiaGpus nvidia = nvidia_gpus();
  for (const NvidiaGpu& gpu : nvidia.gpus) add(gpu);
  if (!nvidia.missing.empty()) none("cuda", nvidia.missing);
  const auto others = opencl_devices();
  for (const auto& [name, device] : others) add(name, device);
  if (others.empty()) none("opencl", opencl::why_no_device());
  return text;
}

json gpus_json() {
  const NvidiaGpus nvidia = nvidia_gpus();
  json result{{"gpus", json::array()}, {"opencl", json::array()}};
  for (const NvidiaGpu& gpu : nvidia.gpus) result["gpus"].push_back(to_json(gpu));
  for (const auto& [name, device] : opencl_devices())
    result["opencl"].push_back(to_json(name, device));
  if (result["opencl"].empty()) result["opencl_missing"] = opencl::why_no_device();
  if (!nvidia.missing.empty()) result["gpus_missing"] = nvidia.missing;
  return result;
}

}  // namespace weft::cli
