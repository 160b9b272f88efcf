// The device under test: the BACKEND of the environment, which must be there, or OpenCL's, if there
// is one.
#pragma once

#include <cstdlib>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/skip.h"
#include "weft/backends/cuda/cuda_backend.h"
#include "weft/backends/opencl/opencl.h"
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
    skipped(error.what());
    return false;
  }
}

// The device under test as another one, of this name, for the rest of the process.
inline std::string opened_once_more(const std::string& name) {
  static std::set<std::string> opened;
  if (opened.insert(name).second)
    register_library(name, [] { return device() == "cuda" ? cuda_library() : opencl_library(); });
  return name;
}

// The second device, or the one under test once more.
inline std::string another_device() {
  std::string second = device() + ":1";
  try {
    library(second).memory();
    return second;
  } catch (const Error&) {
    return opened_once_more("another");
  }
}

}  // namespace weft::testing
