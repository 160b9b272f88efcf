// Saves a small Llama as a folder that transformers reads, loads that folder, and continues two
// texts at once.
#include <filesystem>

#include <weft/infer/generate.h>
#include <weft/models/config_json.h>
#include <weft/models/llama.h>
#include <weft/weft.h>

using namespace weft;

int main() {
  const std::string folder = std::filesystem::temp_directory_path() / "weft-example-09";
  std::filesystem::remove_all(folder);
  models::Llama small({.vocab_size = 256,
                       .max_position_embeddings = 64,
                       .hidden_size = 32,
                       .intermediate_size = 64,
                       .num_hidden_layers = 2,
                       .num_attention_heads = 4,
                       .num_key_value_heads = 2,
                       .initializer_range = 0.3});
  io::save_folder(small, folder, {{"config.json", models::json_text(small.config())}});

  models::Pretrained model = models::load_pretrained(folder);
  print("{} ids, context {}, {} bytes are views of the file", model.vocabulary, model.context,
        model.loaded.mapped_bytes);

  // A published model has a tokenizer; this one reads bytes.
  data::TextCodec codec = io::Vocabulary::bytes();
  auto tokens =
      infer::make_token_model(*model.model, model.vocabulary, model.context, {.batch = 2});
  infer::TokenModelPlan plan = tokens->plan(16);
  print("weights {} bytes, cache {}, arena {}", plan.weight_bytes, plan.cache_bytes,
        plan.arena_bytes());

  std::vector<std::vector<int32_t>> prompts = {codec.encode("to be"), codec.encode("or not")};
  auto texts = infer::generate(*tokens, codec, prompts,
                               {.max_new_tokens = 8, .sampling = {.temperature = 0}});
  for (const infer::Generated& text : texts)
    print("{} tokens, ended by {}, the first with log probability {:.3f}", text.tokens.size(),
          infer::name(text.finish), text.log_probabilities[0]);
  std::filesystem::remove_all(folder);
}
