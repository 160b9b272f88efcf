#include "weft/backends/cpu/peaks.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "weft/base/host/parallel.h"
#include "weft/base/host/private_folder.h"

namespace weft::cpu {
namespace {
// Identifies the machine on which the peaks were measured.
std::string machine_text() {
  return fmt::format("{}, {}, {} threads", this_machine().model, name(isa()), thread_count());
}
}  // namespace

std::optional<std::string> peaks_file() {
  const auto folder = private_cache("peaks");
  if (!folder) return std::nullopt;
  const auto path = fmt::format("{}/{}-{}-threads", *folder, name(isa()), thread_count());
  return may_write(path) ? std::optional(path) : std::nullopt;
}

std::optional<CachedPeaks> cached_peaks() {
  const auto path = peaks_file();
  const auto content = path ? read_private(*path) : std::nullopt;
  if (!content) return std::nullopt;
  std::istringstream file(*content);
  CachedPeaks cached;
  Peaks& peaks = cached.peaks;
  std::string load, machine;
  file >> peaks.f32 >> peaks.f64 >> peaks.bf16 >> peaks.bandwidth >> load;
  std::getline(file >> std::ws, machine);
  if (!file || machine != machine_text()) return std::nullopt;
  if (std::min({peaks.f32, peaks.f64, peaks.bf16, peaks.bandwidth}) <= 0) return std::nullopt;
  cached.busy = load == "busy";
  return cached;
}

std::string text_of(const CachedPeaks& cached) {
  const Peaks& peaks = cached.peaks;
  return fmt::format("{} {} {} {} {}\n{}\n", peaks.f32, peaks.f64, peaks.bf16, peaks.bandwidth,
                     cached.busy ? "busy" : "quiet", machine_text());
}
}  // namespace weft::cpu
