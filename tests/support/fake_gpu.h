// Runs the program under test with a driver that simulates an NVIDIA GPU (tests/fake_cuda/fake.h).
#pragma once

#include <string>
#include <vector>

#include "tests/support/program.h"

namespace weft::test {

// FakeGpu is a workplace with the recipe tiny.yaml, a GPT of one layer that trains on the GPU.
class FakeGpu : public Workplace {
 public:
  FakeGpu();

  static std::string libraries();  // the folder of the simulated libraries

  // `more` may select other libraries (WEFT_CUDA_PATH).
  Outcome run(const std::vector<std::string>& arguments, Environment more = {}) const;
  // Runs `weft train tiny.yaml`.
  Outcome train(const Environment& more = {}, const std::vector<std::string>& flags = {}) const;
};

}  // namespace weft::test
