// During its lifetime, OpenCL devices that are opened count as lacking float64.
#pragma once

#include <cstdlib>

namespace weft::test {

class NoFloat64 {
 public:
  NoFloat64() { setenv("WEFT_NO_FLOAT64", "1", 1); }
  ~NoFloat64() { unsetenv("WEFT_NO_FLOAT64"); }
  NoFloat64(const NoFloat64&) = delete;
  NoFloat64& operator=(const NoFloat64&) = delete;
};

}  // namespace weft::test
