// The program under test beside a driver that only pretends to have an NVIDIA GPU
// (tests/fake_cuda/fake.h).
#pragma once

#include <string>
#include <vector>

#include "tests/support/program.h"

namespace weft::test {

// A place with the recipe tiny.yaml, of a GPT of one layer that trains on the GPU.
class FakeGpu : public Workplace {
 public:
  FakeGpu();

  static std::string libraries();  // the folder of all that pretends

  // `more` may name other libraries (WEFT_CUDA_PATH).
  Outcome run(const std::vector<std::string>& arguments, Environment more = {}) const;
  // `weft train tiny.yaml`
  Outcome train(const Environment& more = {}, const std::vector<std::string>& flags = {}) const;
};

}  // namespace weft::test
