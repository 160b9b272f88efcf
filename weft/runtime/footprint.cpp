#include "weft/runtime/footprint.h"

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>

#include "weft/base/host/parallel.h"
#include "weft/ir/op_def.h"

namespace weft {
namespace {
// Returns a key that is equal for kernels that approximately share their machine code.
std::string form_of(const Launch& launch) {
  std::string text = launch.kernel;
  for (const auto* accesses : {&launch.operands, &launch.results})
    for (const Access& access : *accesses)
      text += fmt::format(" {}+{}:{}", to_string(access.value.type()), access.at.offset,
                          to_string(access.at.strides));
  return text;
}
}  // namespace

size_t runtime_bytes(int threads, std::span<const Plan* const> plans) {
  constexpr size_t kibibyte = 1024;
  size_t kernels = 0, objects = 0;
  std::set<std::string> generated;
  for (const Plan* plan : plans) {
    kernels += plan->launches.size();
    for (const Launch& launch : plan->launches)
      if (launch.kind == Launch::Kind::fused)
        generated.insert(form_of(launch));
      else
        objects += static_cast<size_t>(launch.objects);
  }
  const int compiling = std::min(threads, compile_threads());
  // The operating system maps more of the library's code than a run touches: neighbours of each
  // page, or huge pages of 2 MiB where segments of the file are aligned for them.
  return 62 * 1024 * kibibyte + static_cast<size_t>(compiling) * 2048 * kibibyte +
         static_cast<size_t>(threads) * 64 * kibibyte + kernels * 16 * kibibyte +
         generated.size() * 16 * kibibyte + objects * 5 * kibibyte;
}

}  // namespace weft
