#include "weft/cli/measure/peaks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/backends/cpu/peaks.h"
#include "weft/base/host/parallel.h"
#include "weft/base/logging.h"
#include "weft/comm/launcher.h"
#include "weft/io/files.h"
#include "weft/planner/machine_spec.h"

namespace fs = std::filesystem;

namespace weft::cli {
namespace {
constexpr double seconds_each = 0.25;                // per peak
constexpr auto busy_for = std::chrono::minutes(10);  // then the peaks are measured again

cpu::Peaks highest(cpu::Peaks peaks) {
  if (const auto earlier = cpu::cached_peaks()) {
    peaks.f32 = std::max(peaks.f32, earlier->peaks.f32);
    peaks.f64 = std::max(peaks.f64, earlier->peaks.f64);
    peaks.bf16 = std::max(peaks.bf16, earlier->peaks.bf16);
    peaks.bandwidth = std::max(peaks.bandwidth, earlier->peaks.bandwidth);
  }
  const auto path = cpu::peaks_file();
  if (!path) return peaks;
  try {
    io::write_file_atomically(*path, cpu::text_of({.peaks = peaks, .busy = machine_is_busy()}));
  } catch (const Error& error) {
    logging::debug(1, "the measured peaks of this machine are not cached: {}", error.what());
  }
  return peaks;
}

// Returns whether this process runs the program weft. Another one, such as Python, would take the
// arguments for its own: the name of a script.
bool is_program() {
  std::error_code failure;
  return fs::read_symlink("/proc/self/exe", failure).filename() == "weft";
}

// Measures in a child process, so that this one never holds the memory for the bandwidth test.
void measure_in_child_process() {
  if (!is_program()) return;
  const pid_t child = fork();
  if (child == 0) {
    for (const std::string_view name : comm::rank_variables())
      unsetenv(std::string(name).c_str());  // no rank
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
  const auto path = cpu::peaks_file();
  auto found = cpu::cached_peaks();
  if (found && found->busy) {
    std::error_code gone;
    auto age = fs::file_time_type::clock::now() - fs::last_write_time(*path, gone);
    if (age >= busy_for) found.reset();
  }
  if (!found && path) {  // the child hands its peaks over in the cache
    measure_in_child_process();
    found = cpu::cached_peaks();
  }
  return found ? found->peaks : cpu::Peaks();
}

cpu::Peaks measure_machine_peaks() { return highest(cpu::measure_peaks(seconds_each)); }

MachineSpec machine_spec(const std::string& device) {
  return machine_spec_by(device, machine_peaks);
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
