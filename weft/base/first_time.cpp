#include "weft/base/first_time.h"

#include <mutex>
#include <set>

namespace weft {

bool is_first_time(const std::string& text) {
  constexpr size_t most = 1000;
  // Texts of the whole process: whoever reads the warnings reads those of all its threads.
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  return said.size() < most && said.insert(text).second;
}

}  // namespace weft
