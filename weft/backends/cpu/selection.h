// Which of several kernels does an operation. A rule of thumb says so until they are measured here
// (WEFT_TUNE=1); what was measured is kept in the cache, for this machine, and holds from then on.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/backends/cpu/kernels.h"

namespace weft::cpu {

class Selection {
 public:
  Selection();  // what the cache has for this machine; nothing where it cannot be read

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

// What a measurement stands for: another processor, number of cores or version of a library has its
// own. "Intel(R) Xeon(R), 2 cores, avx512 amx, oneDNN 2.6.3".
std::string machine_identity();

bool tunes();  // WEFT_TUNE

// Runs each on operands that lie as given, or as it asks for, and returns the fastest. Takes a few
// runs of each, and memory for operands and result.
const KernelChoice& fastest(const Node& node, std::span<const Placement> operands,
                            const Family& family, std::span<const KernelChoice> choices);

// Of the fastest kernel that there is for the node, measured here and now; 0: there is none.
double least_milliseconds(const Node& node, std::span<const Placement> operands);

}  // namespace weft::cpu
