#include "weft/device/selection.h"

#include <fstream>
#include <sstream>

#include "weft/base/host/env.h"
#include "weft/base/host/private_folder.h"
#include "weft/base/logging.h"
#include "weft/base/numbers/hash.h"

namespace weft {

bool tunes() { return env_flag("WEFT_TUNE"); }

Selection::Selection(const std::string& machine) {
  const auto folder = private_cache("selection");
  if (!folder) return;
  const std::string path = *folder + "/" + to_hex(hash_text(machine));
  if (may_write(path)) path_ = path;
  std::istringstream file(read_private(path).value_or(""));
  // A torn or foreign line does no harm: it names no known signature or no existing kernel.
  for (std::string line; std::getline(file, line);)
    if (size_t tab = line.find('\t'); tab != std::string::npos)
      kernels_[line.substr(tab + 1)] = line.substr(0, tab);
}

std::optional<std::string> Selection::find(const std::string& signature) const {
  auto found = kernels_.find(signature);
  return found == kernels_.end() ? std::nullopt : std::optional(found->second);
}

void Selection::record(const std::string& signature, const std::string& kernel) {
  kernels_[signature] = kernel;
  if (path_.empty()) return;
  std::ofstream file(path_, std::ios::app);
  file << kernel + '\t' + signature + '\n' << std::flush;  // one write, atomic among processes
  if (!file) logging::debug(1, "kernel selection: cannot write {}", path_);
}

void Selection::prefer(const std::map<std::string, std::string>& kernels) {
  for (const auto& [signature, kernel] : kernels) kernels_[signature] = kernel;
}

}  // namespace weft
