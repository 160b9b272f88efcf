// Fuzzes generation_config.json.
#include "tests/fuzz/fuzz.h"
#include "weft/io/generation_config.h"

using namespace weft;

namespace {
const std::string valid[] = {
    R"({"bos_token_id":1,"eos_token_id":[2,3],"pad_token_id":null,"do_sample":true,)"
    R"("temperature":0.6,"top_k":50,"top_p":0.9,"min_p":0.1,"repetition_penalty":1.1})",
    R"({"eos_token_id":2,"max_length":4096,"max_new_tokens":20})"};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    const io::GenerationConfig config = io::parse_generation_config(text, "input");
    if (!(io::parse_generation_config(text, "input") == config)) std::abort();
  });
  return 0;
}
