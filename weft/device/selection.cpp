#include "weft/device/selection.h"

#include <filesystem>
#include <fstream>

#include "weft/base/env.h"
#include "weft/base/hash.h"
#include "weft/base/logging.h"

namespace weft {

bool tunes() { return env_flag("WEFT_TUNE"); }

Selection::Selection(const std::string& machine) {
  if (cache_directory().empty()) return;
  const std::filesystem::path folder = std::filesystem::path(cache_directory()) / "selection";
  path_ = folder / to_hex(hash_text(machine));
  std::ifstream file(path_);
  // A line that is torn or foreign names no signature, or no kernel that there is.
  for (std::string line; std::getline(file, line);)
    if (size_t tab = line.find('\t'); tab != std::string::npos)
      kernels_[line.substr(tab + 1)] = line.substr(0, tab);
}

std::optional<std::string> Selection::find(const std::string& signature) const {
  auto found = kernels_.find(signature);
  return found == kernels_.end() ? std::nullopt : std::optional(found->second);
}

void Selection::keep(const std::string& signature, const std::string& kernel) {
  kernels_[signature] = kernel;
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  std::ofstream file(path_, std::ios::app);
  file << kernel + '\t' + signature + '\n' << std::flush;  // one write, whole among others'
  if (!file) logging::debug(1, "kernel selection: cannot write {}", path_);
}

void Selection::prefer(const std::map<std::string, std::string>& kernels) {
  for (const auto& [signature, kernel] : kernels) kernels_[signature] = kernel;
}

}  // namespace weft
