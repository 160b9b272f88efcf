// Defines the device under test: the one that the environment variable BACKEND names, which must
// exist, or else the OpenCL device, if there is one.
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

// Returns whether the device exists. Where it does not, reports a skipped test, or throws if
// BACKEND names it.
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

// Registers the device under test as another library of this name, which lasts until the process
// ends.
inline std::string opened_once_more(const std::string& name) {
  static std::set<std::string> opened;
  if (opened.insert(name).second)
    register_library(name, [] { return device() == "cuda" ? cuda_library() : opencl_library(); });
  return name;
}

// Names the second device or, where there is none, the device under test opened a second time.
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
