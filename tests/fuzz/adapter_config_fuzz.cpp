// Fuzzes adapter_config.json.
#include "tests/fuzz/fuzz.h"
#include "weft/models/adapter.h"
#include "weft/models/config_json.h"

using namespace weft;

namespace {
const std::string valid[] = {
    R"({"peft_type":"LORA","task_type":"CAUSAL_LM","base_model_name_or_path":"b","r":4,"bias":"none",
"lora_alpha":8,"lora_dropout":0.1,"use_rslora":true,"use_dora":false,"rank_pattern":{},
"modules_to_save":null,"target_modules":["q_proj"],"fan_in_fan_out":false})",
    R"({"peft_type":"LORA","alpha_pattern":{"q":2},"lora_bias":true,"layer_replication":[]})"};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  bool is_json = false;
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    models::parse_options(text, "input");
    is_json = true;
  });
  if (is_json)
    fuzz::expect_value_or_error(ErrorKind::usage, [&] {
      if (models::parse_adapter_config(text, "input").lora.r < 1) std::abort();
    });
  return 0;
}
