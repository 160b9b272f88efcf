// Fuzzes config.json of all families: an accepted one, as its family writes it, must read back as
// the same model. Labels that one names for an encoder are several.
#include "tests/fuzz/fuzz.h"
#include "weft/models/config_json.h"
#include "weft/models/family.h"
#include "weft/models/pretrained.h"

using namespace weft;

namespace {
const std::string valid[] = {
    R"({"model_type":"llama","vocab_size":96,"hidden_size":32,"intermediate_size":48,
"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"rope_theta":500.0,
"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
"original_max_position_embeddings":32}})",
    R"({"model_type":"gemma3_text","vocab_size":96,"hidden_size":32,"intermediate_size":48,
"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,
"layer_types":["sliding_attention","full_attention"],"sliding_window":null,
"rope_parameters":{"full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":1e6},
"sliding_attention":{"rope_type":"default","rope_theta":1e4}},"final_logit_softcapping":30.0})",
    R"({"model_type":"phi3","vocab_size":96,"hidden_size":32,"intermediate_size":48,
"num_hidden_layers":2,"num_attention_heads":4,"partial_rotary_factor":0.75,
"original_max_position_embeddings":8,"rope_scaling":{"type":"longrope","short_factor":[1.0,1.1,2],
"long_factor":[1,2,3]}})",
    R"({"model_type":"qwen2","vocab_size":96,"hidden_size":32,"intermediate_size":48,
"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"use_sliding_window":true,
"sliding_window":5,"max_window_layers":1,"rope_scaling":{"rope_type":"yarn","factor":4.0}})",
    R"({"model_type":"smollm3","vocab_size":96,"hidden_size":32,"intermediate_size":48,
"num_hidden_layers":4,"num_attention_heads":4,"no_rope_layers":[1,0,1,0]})",
    R"({"model_type":"gpt2","vocab_size":96,"n_embd":32,"n_layer":2,"n_head":4,"n_positions":64,
"n_inner":null,"activation_function":"gelu_new","resid_pdrop":0.1})",
    R"({"model_type":"gpt_neox","vocab_size":96,"hidden_size":64,"intermediate_size":48,
"num_hidden_layers":2,"num_attention_heads":4,"rotary_pct":0.25,"use_parallel_residual":false})",
    R"({"model_type":"mixtral","vocab_size":96,"hidden_size":32,"intermediate_size":48,
"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"num_local_experts":4})",
    R"({"model_type":"bert","architectures":["BertForTokenClassification"],
"id2label":{"0":"O","1":"B-PER","2":3}})",
    R"({"model_type":"roberta","architectures":["RobertaForSequenceClassification"],
"num_labels":3})"};

// Returns the options of JSON, or none where it is no JSON.
nn::Options options_of(const std::string& text) {
  nn::Options options;
  fuzz::expect_value_or_error(ErrorKind::data,
                              [&] { options = models::parse_options(text, "input"); });
  return options;
}
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const nn::Options options = options_of(std::string(reinterpret_cast<const char*>(data), size));
  fuzz::expect_value_or_error(ErrorKind::usage, [&] {
    const auto labels = models::labels_of(options);
    if (labels && labels->names.size() < 2) std::abort();
  });
  fuzz::expect_value_or_error(ErrorKind::usage, [&] {
    const nn::Options text = models::text_part(options);
    const models::Family& family = models::family_of(text);
    const nn::Options written = family.write(family.read(text));
    if (!(family.write(family.read(written)) == written)) std::abort();
    if (!(options_of(models::json_text(written)) == written)) std::abort();
  });
  return 0;
}
