// Selects among several kernels for an operation. Heuristics decide until kernels are measured
// (WEFT_TUNE=1); results of measurements persist in the cache, for this machine.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace weft {

class Selection {
 public:
  // Reads the cache for this machine, ignoring files that are not private. `machine` identifies the
  // device and the versions of libraries, on which a measurement depends.
  explicit Selection(const std::string& machine);

  // Returns the kernel that an earlier measurement found for the signature.
  std::optional<std::string> find(const std::string& signature) const;
  // Records a measurement, here and in the cache.
  void record(const std::string& signature, const std::string& kernel);
  // Makes these kernels override measurements, so that a resumed run continues as it began.
  void prefer(const std::map<std::string, std::string>& kernels);

 private:
  std::string path_;  // empty: no cache
  std::map<std::string, std::string> kernels_;
};

bool tunes();  // WEFT_TUNE

}  // namespace weft
