// Holds machine code of generated kernels that came from a file, or that goes into one. Thread
// safe.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device/kernel_code.h"

namespace weft::loop {

class CodeStore {
 public:
  // The store of this process, as code is executed wherever it came from.
  static CodeStore& instance();

  // From now on the code of kernels that are compiled is collected, for collected().
  void collect();
  std::vector<KernelCode> collected() const;  // by ascending key
  // Adds code that find() returns from then on. It is executed.
  void add(const std::vector<KernelCode>& codes);

  // Returns the code of a kernel by the text of its loops.
  std::optional<KernelCode> find(std::string_view text) const;
  // Collects the code of a kernel that was compiled, if collect() was called.
  void note(std::string_view text, KernelCode code);

 private:
  mutable std::mutex mutex_;
  bool collects_ = false;
  std::map<std::string, KernelCode> added_, collected_;  // by key
};

}  // namespace weft::loop
