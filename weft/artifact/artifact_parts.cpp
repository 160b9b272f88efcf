#include "weft/artifact/artifact_parts.h"

#include <utility>

#include "weft/base/host/parallel.h"
#include "weft/device/registry.h"
#include "weft/io/json.h"

namespace weft::artifact {
using nlohmann::json;

json target_here(const std::string& device) {
  const KernelLibrary& backend = library(device);
  (void)backend.memory();  // memory() opens the device, without which a GPU has no machine()
  return {{"device", backend.name()},
          {"machine", backend.kernels().machine()},
          {"threads", thread_count()},
          {"compiler", backend.compiler().identity()}};
}

json code_text(const KernelCode& code) {
  return {{"key", code.key},
          {"functions", code.functions},
          {"extents", code.extents},
          {"shared_scratch", code.shared_scratch},
          {"scratch_per_thread", code.scratch_per_thread},
          {"work", code.work},
          {"object_bytes", code.object.size()}};
}
KernelCode code_of(const json& text, std::string object) {
  KernelCode code{.key = io::text_at(text, "key"),
                  .object = std::move(object),
                  .functions = io::texts_at(text, "functions"),
                  .extents = io::value_at(text, "extents").get<std::vector<int64_t>>(),
                  .shared_scratch = io::value_at(text, "shared_scratch").get<size_t>(),
                  .scratch_per_thread = io::value_at(text, "scratch_per_thread").get<size_t>(),
                  .work = io::number_at(text, "work")};
  if (code.extents.size() != code.functions.size())
    throw io::JsonError("a kernel has other stages than functions");
  return code;
}
// Returns what is signed: the code, and the machine that it is for.
std::string signed_text(const json& target, const json& kernels,
                        const std::vector<KernelCode>& codes) {
  std::string text = io::json_text(target) + io::json_text(kernels);
  for (const KernelCode& code : codes) text += code.object;
  return text;
}

}  // namespace weft::artifact
