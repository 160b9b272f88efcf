// Declares what tests of errors around NVIDIA GPUs share: views of a run on a simulated driver
// (tests/fake_cuda/fake.h).
#pragma once

#include <dlfcn.h>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/support/exit_codes.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/skip.h"

namespace weft::test {
namespace fs = std::filesystem;

using Settings = Workplace::Environment;

// Returns settings with a folder of all the driver's libraries but one, as a wheel may have; with
// `instead`, that one under this name.
inline Settings without(const FakeGpu& place, const std::string& library,
                        const std::string& instead = "") {
  const fs::path to = place.path("cuda-without-" + library + instead);
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(FakeGpu::libraries())) {
    const std::string name = entry.path().filename().string();
    if (name != library)
      fs::copy(entry.path(), to / name, fs::copy_options::copy_symlinks);
    else if (!instead.empty())
      fs::copy(entry.path(), to / instead, fs::copy_options::copy_symlinks);
  }
  return {{"WEFT_CUDA_PATH", to.string()}, {"PATH", "/usr/bin"}};
}

inline bool is_among_the_systems(const std::string& library) {
  if (dlopen(library.c_str(), RTLD_LAZY) == nullptr) return false;
  testing::skipped("there is a " + library + " among the system's libraries");
  return true;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Reads a run's plan.json, which lists the number of kernels of each step and those of each module.
inline nlohmann::json plans_of(const FakeGpu& place) {
  return nlohmann::json::parse(place.read("runs/tiny/plan.json"))["plans"];
}
inline size_t lines_with(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace weft::test
