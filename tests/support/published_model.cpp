#include "tests/support/published_model.h"

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "weft/io/safetensors.h"
#include "weft/models/config_json.h"
#include "weft/models/family.h"
#include "weft/nn/module.h"

namespace weft::test {
namespace {
using nlohmann::json;

// Returns the tokenizer.json of a byte pair encoding without merges.
json tokenizer_of(int64_t ids) {
  json vocabulary = {{"<s>", 0}, {"</s>", 1}, {"\n", 2}};
  for (char c = ' '; c <= '~' && std::ssize(vocabulary) < ids; ++c)
    vocabulary[std::string(1, c)] = vocabulary.size();
  json special = json::array();
  for (const char* token : {"<s>", "</s>"})
    special.push_back({{"id", vocabulary[token]},
                       {"content", token},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
  return {{"version", "1.0"},
          {"added_tokens", special},
          {"decoder", {{"type", "Fuse"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}};
}
}  // namespace

void write_published(const std::string& folder, const PublishedModel& model) {
  namespace fs = std::filesystem;
  fs::create_directories(folder);
  auto write = [&](const char* name, const json& contents) {
    std::ofstream(fs::path(folder) / name) << contents.dump(2);
  };
  const json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"vocab_size", model.vocabulary},
                       {"hidden_size", 16},
                       {"intermediate_size", 24},
                       {"num_hidden_layers", model.layers},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"max_position_embeddings", model.context},
                       {"hidden_act", "silu"},
                       {"rms_norm_eps", 1e-6},
                       {"rope_theta", 10000.0},
                       {"initializer_range", 0.3},
                       {"tie_word_embeddings", false},
                       {"torch_dtype", "float32"}};
  write("config.json", config);
  write("tokenizer.json", tokenizer_of(model.ids));
  write("tokenizer_config.json",
        {{"bos_token", "<s>"},
         {"eos_token", "</s>"},
         {"chat_template",
          "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "}});
  write("generation_config.json", {{"eos_token_id", 1}, {"do_sample", false}});
  manual_seed(7);
  const nn::BuildScope scope({.dtype = DType::f32});
  const auto net = models::make_decoder(models::parse_options(config.dump(), "config.json"));
  io::save_safetensors((fs::path(folder) / "model.safetensors").string(), io::state_of(*net));
}

}  // namespace weft::test
