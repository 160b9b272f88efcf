// Fuzzes the index of a model folder: what is accepted names plain files alone.
#include "tests/fuzz/fuzz.h"
#include "weft/io/model_folder.h"

using namespace weft;

namespace {
const std::string valid[] = {
    R"({"metadata":{"total_size":3},"weight_map":{"a.0":"model-1.safetensors","b":"x.safetensors"}})",
    R"({"weight_map":{"a":"../x.safetensors"}})",
    R"({"weight_map":{"":"\u0000.safetensors","b":"/x.safetensors"}})"};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    for (const auto& [tensor, shard] : io::parse_weight_index(text, "input"))
      if (shard.find('/') != std::string::npos || shard.find('\0') != std::string::npos ||
          shard.starts_with('.') || !shard.ends_with(".safetensors"))
        std::abort();
  });
  return 0;
}
