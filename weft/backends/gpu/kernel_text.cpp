#include "weft/backends/gpu/kernel_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/codegen/gpu_scalar.h"

namespace weft::gpu {

std::string KernelText::filled(std::string_view text, const Words& more) const {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = std::min(text.find('$', at), text.size());
    result += text.substr(at, begin - at);
    if (begin == text.size()) break;
    size_t end = begin + 1;
    while (end < text.size() && text[end] >= 'a' && text[end] <= 'z') ++end;
    const std::string_view word = text.substr(begin + 1, end - begin - 1);
    if (auto meaning = more.find(word); meaning != more.end()) {
      result += filled(meaning->second);
    } else {
      meaning = words_.find(word);
      WEFT_ASSERT(meaning != words_.end(), "nothing stands for ${}", word);
      result += meaning->second;
    }
    at = end;
  }
  return result;
}

KernelText::KernelText(const Launch& launch, loop::GpuLanguage language,
                       const std::string& prefix) {
  std::string parameters;
  auto add = [&](const char* kind, size_t count) {
    for (size_t i = 0; i < count; ++i)
      parameters += fmt::format("GLOBAL u8* {0}{1}_memory, i64 {0}{1}_at, ", kind, i);
  };
  add("in", launch.operands.size());
  add("out", launch.results.size());
  set("parameters", parameters + "GLOBAL u8* scratch_memory, i64 scratch_at");
  set("prefix", prefix);
  set("local", language == loop::GpuLanguage::cuda ? "" : "__local");
}

void KernelText::launch(int64_t groups, int threads, std::string_view body) {
  set("threads", threads);
  const std::string function = filled("$prefix_") + std::to_string(kernel_.launches.size());
  kernel_.launches.push_back({function, groups, threads});
  kernel_.source += fmt::format("\nKERNEL({}) {}({}) {{", threads, function, filled("$parameters"));
  kernel_.source += filled(body) + "}\n";
}

loop::GpuKernel KernelText::finish(size_t scratch) {
  kernel_.scratch = scratch;
  return std::move(kernel_);
}

std::string literal(double value) { return fmt::format("{:a}f", static_cast<float>(value)); }

std::string pointer(const char* kind, size_t index, const Access& access) {
  return fmt::format("(GLOBAL {0}*)({1}{2}_memory + {1}{2}_at) + {3}",
                     loop::memory_type(access.value.dtype()), kind, index, access.at.offset);
}

int vector_of(DType dtype, std::span<const int64_t> counts) {
  int vector = 16 / static_cast<int>(size_of(dtype));
  while (std::ranges::any_of(counts, [&](int64_t count) { return count % vector != 0; }))
    vector /= 2;
  return vector;
}

}  // namespace weft::gpu
