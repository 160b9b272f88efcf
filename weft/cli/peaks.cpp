#include "weft/cli/peaks.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "weft/base/env.h"
#include "weft/base/log.h"
#include "weft/base/parallel.h"
#include "weft/io/files.h"

namespace weft::cli {
namespace {
// Four numbers and what they were measured on, one line each.
std::string file_text(const cpu::Peaks& peaks) {
  return fmt::format("{} {} {} {}\n{}\n{} threads\n", peaks.f32, peaks.f64, peaks.bf16,
                     peaks.bandwidth, cpu::this_machine().model, thread_count());
}

std::string cache_file() { return cache_directory() + "/machine-peaks"; }

std::optional<cpu::Peaks> cached() {
  if (!std::filesystem::exists(cache_file())) return std::nullopt;
  std::string text = io::read_file(cache_file(), 4096);
  cpu::Peaks peaks;
  int fields = std::sscanf(text.c_str(), "%lf %lf %lf %lf", &peaks.f32, &peaks.f64, &peaks.bf16,
                           &peaks.bandwidth);
  if (fields != 4 || file_text(peaks) != text) return std::nullopt;  // of another machine
  return peaks;
}

// In a child, before this process has threads; nullopt where that is not possible.
std::optional<cpu::Peaks> measure_in_child() {
  int ends[2];
  if (pipe(ends) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    cpu::Peaks peaks = cpu::measure_peaks();
    bool written = write(ends[1], &peaks, sizeof peaks) == sizeof peaks;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  cpu::Peaks peaks;
  bool whole = child > 0 && read(ends[0], &peaks, sizeof peaks) == sizeof peaks;
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return whole ? std::optional(peaks) : std::nullopt;
}

void keep(const cpu::Peaks& peaks) {
  std::error_code ignored;
  std::filesystem::create_directories(cache_directory(), ignored);
  try {
    io::write_file_atomically(cache_file(), file_text(peaks));
  } catch (const Error& error) {
    log::debug(1, "the peaks of this machine are not kept: {}", error.what());
  }
}
}  // namespace

cpu::Peaks machine_peaks() {
  if (auto peaks = cached()) return *peaks;
  auto peaks = measure_in_child();
  if (!peaks) return {};
  keep(*peaks);
  return *peaks;
}

cpu::Peaks measure_machine_peaks(double seconds) {
  cpu::Peaks peaks = cpu::measure_peaks(seconds / 4);
  keep(peaks);
  return peaks;
}

MachineSpec machine_spec() {
  cpu::Peaks peaks = machine_peaks();
  return {.flops_per_s = 1e9 * peaks.f32, .bytes_per_s = 1e9 * peaks.bandwidth};
}

}  // namespace weft::cli
