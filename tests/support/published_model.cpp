#include "tests/support/published_model.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/io/safetensors.h"
#include "weft/models/config_json.h"
#include "weft/models/families/encoders.h"
#include "weft/models/family.h"
#include "weft/nn/module.h"

namespace weft::test {
namespace {
using nlohmann::json;

// Returns the tokenizer.json of a byte-level encoding without merges, in which other characters
// stand for a line's end and a space.
json tokenizer_of(const std::vector<std::string>& special, int64_t ids) {
  json vocabulary, added = json::array();
  for (const std::string& token : special) {
    const size_t id = vocabulary.size();
    vocabulary[token] = id;
    added.push_back({{"id", id},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  vocabulary["\u010a"] = vocabulary.size();
  vocabulary["\u0120"] = vocabulary.size();
  for (char c = '!'; c <= '~' && std::ssize(vocabulary) < ids; ++c)
    vocabulary[std::string(1, c)] = vocabulary.size();
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}};
}

void write_json(const std::string& folder, const char* name, const json& contents) {
  std::ofstream(std::filesystem::path(folder) / name) << contents.dump(2);
}
void write_weights(const std::string& folder, const nn::Module& net) {
  io::save_safetensors((std::filesystem::path(folder) / "model.safetensors").string(),
                       io::state_of(net));
}

// EncoderParts are what the families of encoders call the same.
struct EncoderParts {
  std::string prefix;  // of architectures
  std::vector<std::string> special;
  std::string cls, sep, mask;
  json sizes;
};
EncoderParts parts_of(const PublishedEncoder& encoder) {
  const json sizes = {{"hidden_size", 16},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 4},
                      {"intermediate_size", 24}};
  if (encoder.family == "roberta")
    return {"Roberta", {"<s>", "<pad>", "</s>", "<unk>"}, "<s>", "</s>", "<mask>", sizes};
  const std::vector<std::string> special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
  if (encoder.family == "bert") return {"Bert", special, "[CLS]", "[SEP]", "[MASK]", sizes};
  return {"DistilBert", special,
          "[CLS]",      "[SEP]",
          "[MASK]",     {{"dim", 16}, {"n_layers", 2}, {"n_heads", 4}, {"hidden_dim", 24}}};
}
}  // namespace

void write_published(const std::string& folder, const PublishedModel& model) {
  namespace fs = std::filesystem;
  fs::create_directories(folder);
  auto write = [&](const char* name, const json& contents) { write_json(folder, name, contents); };
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"vocab_size", model.vocabulary},
                 {"hidden_size", model.width},
                 {"intermediate_size", model.width * 3 / 2},
                 {"num_hidden_layers", model.layers},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"max_position_embeddings", model.context},
                 {"hidden_act", "silu"},
                 {"rms_norm_eps", 1e-6},
                 {"rope_theta", 10000.0},
                 {"initializer_range", model.initializer_range},
                 {"tie_word_embeddings", false},
                 {"torch_dtype", "float32"}};
  if (model.experts > 0)
    config.update({{"architectures", {"MixtralForCausalLM"}},
                   {"model_type", "mixtral"},
                   {"num_local_experts", model.experts},
                   {"num_experts_per_tok", 2}});
  write("config.json", config);
  write("tokenizer.json", tokenizer_of({"<s>", "</s>"}, model.ids));
  write("tokenizer_config.json",
        {{"bos_token", "<s>"},
         {"eos_token", "</s>"},
         {"chat_template",
          "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "}});
  write("generation_config.json", {{"eos_token_id", 1}, {"do_sample", false}});
  manual_seed(7);
  const nn::BuildScope scope({.dtype = DType::f32});
  const auto net = models::make_decoder(models::parse_options(config.dump(), "config.json"));
  if (model.experts > 0)
    io::write_safetensors(folder + "/model.safetensors", models::published_tensors(*net));
  else
    write_weights(folder, *net);
}

void write_published_encoder(const std::string& folder, const PublishedEncoder& encoder) {
  std::filesystem::create_directories(folder);
  const EncoderParts parts = parts_of(encoder);
  const std::string architecture = parts.prefix + encoder.head;
  json config = {{"architectures", {architecture}},
                 {"model_type", encoder.family},
                 {"vocab_size", 110},
                 {"max_position_embeddings", encoder.positions},
                 {"pad_token_id", encoder.family == "roberta" ? 1 : 0}};
  config.update(parts.sizes);
  write_json(folder, "config.json", config);
  std::vector<std::string> special = parts.special;
  if (encoder.mask) special.push_back(parts.mask);
  json tokenizer = tokenizer_of(special, 110);
  const json& ids = tokenizer["model"]["vocab"];
  tokenizer["post_processor"] = {{"type", "BertProcessing"},
                                 {"cls", {parts.cls, ids[parts.cls]}},
                                 {"sep", {parts.sep, ids[parts.sep]}}};
  write_json(folder, "tokenizer.json", tokenizer);
  json about = {{"cls_token", parts.cls}, {"sep_token", parts.sep}};
  if (encoder.mask) about["mask_token"] = parts.mask;
  write_json(folder, "tokenizer_config.json", about);
  // A model without a head has some net's weights: it is refused before they are read.
  const std::string net = encoder.head == "Model" ? parts.prefix + "ForMaskedLM" : architecture;
  manual_seed(7);
  const nn::BuildScope scope({.dtype = DType::f32});
  for (const models::EncoderFamily& family : models::encoder_families())
    if (family.name == encoder.family)
      write_weights(folder, *family.make(models::parse_options(config.dump(), "config.json"), net));
}

std::string sixty_lines() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += fmt::format("Line {} of a text.\n", i);
  return text;
}

std::string mixture_recipe(const TemporaryFolder& folder, int64_t experts) {
  const std::string model = folder.file(fmt::format("mixtral-{}", experts));
  write_published(model, {.width = 32, .experts = experts});
  return fmt::format(
      "model: {{pretrained: {}}}\n"
      "data: {{format: text, path: {}, seq_len: 16, val_split: 0.31}}\n",
      model, folder.file("text", sixty_lines()));
}

}  // namespace weft::test
