// Which of several kernels does an operation. A rule of thumb says so until they are measured
// (WEFT_TUNE=1); what was measured is kept in the cache, for this machine, and holds from then on.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace weft {

class Selection {
 public:
  // What the cache has for this machine; nothing where it cannot be read. `machine`: what a
  // measurement stands for, device and versions of libraries.
  explicit Selection(const std::string& machine);

  // The kernel that an earlier measurement found for the signature.
  std::optional<std::string> find(const std::string& signature) const;
  // From now on, and in the cache.
  void keep(const std::string& signature, const std::string& kernel);
  // From now on, before what was measured: a run goes on as it began.
  void prefer(const std::map<std::string, std::string>& kernels);

 private:
  std::string path_;  // empty: no cache
  std::map<std::string, std::string> kernels_;
};

bool tunes();  // WEFT_TUNE

}  // namespace weft
