#include "weft/cli/measure/peaks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/backends/opencl/cl_device.h"
#include "weft/base/host/parallel.h"
#include "weft/base/host/private_folder.h"
#include "weft/base/logging.h"
#include "weft/device/registry.h"
#include "weft/io/files.h"

namespace fs = std::filesystem;

namespace weft::cli {
namespace {
constexpr double seconds_each = 0.25;                // per peak
constexpr auto busy_for = std::chrono::minutes(10);  // then the peaks are measured again

// Identifies the machine on which the peaks were measured.
std::string machine_text() {
  return fmt::format("{}, {}, {} threads", cpu::this_machine().model, name(isa()), thread_count());
}
// Returns nullopt where nothing may be cached.
std::optional<std::string> cache_file() {
  const auto folder = private_cache("peaks");
  if (!folder) return std::nullopt;
  const auto path = fmt::format("{}/{}-{}-threads", *folder, name(isa()), thread_count());
  return may_keep(path) ? std::optional(path) : std::nullopt;
}

struct Kept {
  cpu::Peaks peaks;
  bool busy = false;
};
// Returns nullopt where nothing is cached, or only peaks of another machine.
std::optional<Kept> kept(const std::optional<std::string>& path) {
  const auto content = path ? read_private(*path) : std::nullopt;
  if (!content) return std::nullopt;
  std::istringstream file(*content);
  Kept result;
  std::string load, machine;
  file >> result.peaks.f32 >> result.peaks.f64 >> result.peaks.bf16 >> result.peaks.bandwidth >>
      load;
  std::getline(file >> std::ws, machine);
  if (!file || machine != machine_text()) return std::nullopt;
  const cpu::Peaks& peaks = result.peaks;
  if (std::min({peaks.f32, peaks.f64, peaks.bf16, peaks.bandwidth}) <= 0) return std::nullopt;
  result.busy = load == "busy";
  return result;
}

cpu::Peaks keep(cpu::Peaks peaks) {
  const auto path = cache_file();
  if (auto earlier = kept(path)) {
    peaks.f32 = std::max(peaks.f32, earlier->peaks.f32);
    peaks.f64 = std::max(peaks.f64, earlier->peaks.f64);
    peaks.bf16 = std::max(peaks.bf16, earlier->peaks.bf16);
    peaks.bandwidth = std::max(peaks.bandwidth, earlier->peaks.bandwidth);
  }
  if (!path) return peaks;
  try {
    io::write_file_atomically(
        *path, fmt::format("{} {} {} {} {}\n{}\n", peaks.f32, peaks.f64, peaks.bf16,
                           peaks.bandwidth, machine_is_busy() ? "busy" : "quiet", machine_text()));
  } catch (const Error& error) {
    logging::debug(1, "the measured peaks of this machine are not cached: {}", error.what());
  }
  return peaks;
}

// Measures in a child process, so that this one never holds the memory for the bandwidth test.
void measure_in_child_process() {
  const pid_t child = fork();
  if (child == 0) {
    setenv("WEFT_THREADS", std::to_string(thread_count()).c_str(), 1);
    const int nowhere = open("/dev/null", O_WRONLY);  // the parent already printed the warnings
    if (dup2(nowhere, 1) < 0 || dup2(nowhere, 2) < 0) _exit(1);
    execl("/proc/self/exe", "weft", "devices", "--measure", nullptr);
    _exit(1);
  }
  if (child > 0) waitpid(child, nullptr, 0);
}
}  // namespace

bool machine_is_busy() {
  double load = 0;
  return getloadavg(&load, 1) == 1 && load > 0.5 * cpu::this_machine().cores;
}

cpu::Peaks machine_peaks() {
  const auto path = cache_file();
  auto found = kept(path);
  if (found && found->busy) {
    std::error_code gone;
    auto age = fs::file_time_type::clock::now() - fs::last_write_time(*path, gone);
    if (age >= busy_for) found.reset();
  }
  if (!found && path) {  // the child hands its peaks over in the cache
    measure_in_child_process();
    found = kept(path);
  }
  return found ? found->peaks : cpu::Peaks();
}

cpu::Peaks measure_machine_peaks() { return keep(cpu::measure_peaks(seconds_each)); }

namespace {
bool is_processor(const std::string& opencl_device) {
  return std::ranges::any_of(opencl::devices(), [&](const opencl::DeviceInfo& device) {
    return device.name == opencl_device && device.is_processor;
  });
}

// `find` returns the peaks of this CPU.
MachineSpec spec_with(const std::string& device, cpu::Peaks (*find)()) {
  const KernelLibrary& backend = library(device);
  MachineSpec spec = backend.meters().spec();
  if (backend.on_host() || (!spec.known() && is_processor(spec.name))) {
    const cpu::Peaks peaks = find();
    spec.flops_per_s = 1e9 * peaks.f32;
    spec.bytes_per_s = 1e9 * peaks.bandwidth;
    spec.f64_flops_per_s = 1e9 * peaks.f64;
    if (backend.on_host()) spec.bf16_flops_per_s = 1e9 * peaks.bf16;
    spec.basis = "peaks measured on this machine";
  }
  return spec;
}
}  // namespace

MachineSpec machine_spec(const std::string& device) { return spec_with(device, machine_peaks); }

MachineSpec known_machine_spec(const std::string& device) {
  return spec_with(device, [] { return kept(cache_file()).value_or(Kept()).peaks; });
}

namespace {
std::string lacks(const std::string& machine, DType products) {
  return fmt::format(
      "{} has no instructions for matrix products in {}: they are computed in float32, which saves "
      "memory but no time.",
      machine, products == DType::bf16 ? "bfloat16" : "float16");
}
}  // namespace

std::string lacks_instructions(DType products, const cpu::Machine& machine) {
  return products != DType::bf16 || machine.has_bf16() ? "" : lacks(machine.model, products);
}

std::string lacks_instructions(DType products, const MachineSpec& device) {
  const bool has = (products != DType::bf16 || device.bf16_flops_per_s > 0) &&
                   (products != DType::f16 || device.f16_flops_per_s > 0);
  return has || !device.known() ? "" : lacks(device.name, products);
}

}  // namespace weft::cli
