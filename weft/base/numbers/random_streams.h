// Assigns streams of random numbers to paths, so that the numbers that a module draws do not depend
// on other modules.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_set>

namespace weft {

class RandomStreams {
 public:
  // Returns a stream (weft/base/numbers/philox.h) in [0, 2^31) that follows the path. A path that
  // asks again, or whose hash collides with another path's, gets the next free stream.
  int64_t next(std::string_view path);
  bool empty() const { return taken_.empty(); }

 private:
  std::unordered_set<int64_t> taken_;
};

}  // namespace weft
