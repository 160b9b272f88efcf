#include "tests/support/fake_gpu.h"

#include <cstdlib>

#include <doctest/doctest.h>

namespace weft::test {

FakeGpu::FakeGpu() {
  write("tiny.yaml",
        "name: tiny\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
        "num_attention_heads: 2}}\n"
        "data: {format: text, path: poem.txt, seq_len: 8}\nlog: {every: 1}\n"
        "train: {steps: 6, global_batch_size: 4, device: cuda}\ncheckpoint: {every: 2}\n");
  write("poem.txt", std::string(2000, 'o'));
}

std::string FakeGpu::libraries() {
  const char* build = std::getenv("BUILD");
  REQUIRE_MESSAGE(build != nullptr, "set BUILD to the build folder");
  return std::string(build) + "/tests/fake_cuda";
}

Outcome FakeGpu::run(const std::vector<std::string>& arguments, Environment more) const {
  more.try_emplace("WEFT_CUDA_PATH", libraries());
  return weft(arguments, more);
}

Outcome FakeGpu::train(const Environment& more, const std::vector<std::string>& flags) const {
  std::vector<std::string> arguments{"train", "tiny.yaml"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return run(arguments, more);
}

}  // namespace weft::test
