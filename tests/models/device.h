// The device under test: the BACKEND of the environment, which must be there, or OpenCL's, if there
// is one.
#pragma once

#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include "weft/base/error.h"
#include "weft/device/registry.h"

namespace weft::testing {

inline std::string device() {
  const char* name = std::getenv("BACKEND");
  return name != nullptr ? name : "opencl";
}

// False, once said, where there is no device, and none is asked for.
inline bool has_device() {
  try {
    library(device()).memory();
    return true;
  } catch (const Error& error) {
    if (std::getenv("BACKEND") != nullptr) throw;
    MESSAGE("skipped: " << std::string(error.what()));
    return false;
  }
}

}  // namespace weft::testing
