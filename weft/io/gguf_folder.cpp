#include "weft/io/gguf_folder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/io/gguf_architecture.h"
#include "weft/io/gguf_tokenizer.h"
#include "weft/io/json.h"
#include "weft/io/text.h"

namespace weft::io {
namespace {
using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const Gguf& file, const std::string& what) {
  throw Error(ErrorKind::data, "[gguf] {}: {}.", file.name(), what);
}

const GgufArchitecture& checked_architecture(const Gguf& file) {
  if (const auto files = whole_number(file.metadata(), "split.count"); files && *files > 1)
    throw Error(ErrorKind::usage,
                "[gguf] {}: it is one of the {} files of a split model, which weft does not read. "
                "Hint: llama-gguf-split --merge joins them.",
                file.name(), *files);
  if (const GgufArchitecture* found = architecture_of(file.metadata())) return *found;
  const std::string* name = text(file.metadata(), "general.architecture");
  if (name == nullptr) fail(file, "general.architecture is missing");
  throw Error(ErrorKind::usage, "[gguf] {}: weft has no architecture '{}'. Known: {}.", file.name(),
              printable(*name), known_architectures());
}

// ArchitectureMetadata reads the keys of one architecture.
struct ArchitectureMetadata {
  const Gguf& file;
  const GgufArchitecture& architecture;

  std::string key(std::string_view suffix) const {
    return fmt::format("{}.{}", architecture.name, suffix);
  }
  std::optional<int64_t> whole(std::string_view suffix) const {
    return whole_number(file.metadata(), key(suffix));
  }
  std::optional<double> real(std::string_view suffix) const {
    return real_number(file.metadata(), key(suffix));
  }
  int64_t required(std::string_view suffix) const {
    const auto found = whole(suffix);
    if (!found) fail(file, fmt::format("{} is missing, or no whole number", key(suffix)));
    return *found;
  }
};

// Returns the value of a key as JSON; null where it is absent. A list of equal values becomes the
// one value: some files give the number of heads for each layer.
Json value_of(const ArchitectureMetadata& metadata, std::string_view suffix) {
  const GgufValue* value = find(metadata.file.metadata(), metadata.key(suffix));
  if (value == nullptr) return nullptr;
  const auto refuse = [&] {
    fail(metadata.file, fmt::format("{} is no number", metadata.key(suffix)));
  };
  return std::visit(
      [&]<class Value>(const Value& held) -> Json {
        if constexpr (std::is_arithmetic_v<Value>) {
          // Rounds a float32 to its shortest decimals: 1e-05, as config.json had it, not
          // 9.99999975e-06.
          if constexpr (std::is_same_v<Value, float>) return std::stod(fmt::format("{}", held));
          return held;
        } else if constexpr (std::is_same_v<Value, GgufArray>) {
          return std::visit(
              [&]<class List>(const List& list) -> Json {
                if constexpr (!std::is_same_v<List, NoArrays>) {
                  if constexpr (std::is_integral_v<typename List::value_type>) {
                    if (!list.empty() && std::ranges::count(list, list.front()) == std::ssize(list))
                      return static_cast<typename List::value_type>(list.front());
                    throw Error(ErrorKind::usage,
                                "[gguf] {}: {} differs from layer to layer, which weft's models "
                                "do not.",
                                metadata.file.name(), metadata.key(suffix));
                  }
                }
                refuse();
                return nullptr;
              },
              held);
        }
        refuse();
        return nullptr;
      },
      *value);
}

std::vector<double> numbers_of(const Gguf& file, const char* tensor) {
  const Tensor found = file.tensor(tensor);
  if (found.dtype() != DType::f32)
    fail(file, fmt::format("tensor '{}' must be f32. Got {}", tensor, to_string(found.type())));
  return found.to_doubles();
}

// Returns `rope_scaling`; null if positions are not scaled. Factors that are stored as a tensor
// become longrope's factors, whichever rule computed them.
Json rope_scaling(const ArchitectureMetadata& metadata, const Json& config) {
  const Gguf& file = metadata.file;
  const auto original = metadata.whole("rope.scaling.original_context_length");
  if (file.find("rope_freqs.weight") != nullptr) {
    const std::vector<double> factors = numbers_of(file, "rope_freqs.weight");
    return {{"rope_type", "longrope"},
            {"short_factor", factors},
            {"long_factor", factors},
            {"attention_factor", 1.0},
            {"original_max_position_embeddings", config.at("max_position_embeddings")}};
  }
  if (file.find("rope_factors_long.weight") != nullptr &&
      file.find("rope_factors_short.weight") != nullptr) {
    Json scaling = {{"type", "longrope"},
                    {"short_factor", numbers_of(file, "rope_factors_short.weight")},
                    {"long_factor", numbers_of(file, "rope_factors_long.weight")}};
    if (const auto factor = metadata.real("rope.scaling.attn_factor"))
      scaling["attention_factor"] = *factor;
    if (original && metadata.architecture.model_type != "phi3")
      scaling["original_max_position_embeddings"] = *original;
    return scaling;
  }
  const std::string* type = text(file.metadata(), metadata.key("rope.scaling.type"));
  auto factor = metadata.real("rope.scaling.factor");
  if (!factor) factor = metadata.real("rope.scale_linear");
  const std::string kind = type != nullptr ? *type : factor ? "linear" : "none";
  if (kind == "none" || (kind == "linear" && factor.value_or(1) == 1)) return nullptr;
  if (kind != "linear" && kind != "yarn")
    throw Error(ErrorKind::usage, "[gguf] {}: weft does not read {} '{}'.", file.name(),
                metadata.key("rope.scaling.type"), printable(kind));
  Json scaling = {{"rope_type", kind}, {"factor", factor.value_or(1)}};
  if (kind == "yarn")
    scaling["original_max_position_embeddings"] =
        original.value_or(config.at("max_position_embeddings").get<int64_t>());
  return scaling;
}

// Adds the keys of config.json that the metadata lacks because llama.cpp has their values in its
// code.
void add_unsaid(const ArchitectureMetadata& metadata, Json& config) {
  const std::string_view type = metadata.architecture.model_type;
  if (type == "gemma2" || type == "gemma3_text") {
    // Attention scores are divided by the root of head_dim, but in the 27B models by the root of
    // hidden_size over the number of heads.
    const int64_t layers = metadata.required("block_count");
    const bool is_27b =
        (type == "gemma2" && layers == 46) || (type == "gemma3_text" && layers == 62);
    const int64_t width = metadata.required("embedding_length");
    const int64_t heads = std::max<int64_t>(1, metadata.required("attention.head_count"));
    config["query_pre_attn_scalar"] =
        is_27b ? width / heads : metadata.whole("attention.key_length").value_or(256);
    config["head_dim"] = metadata.whole("attention.key_length").value_or(256);
  }
  if (type == "gemma3_text")
    config["rope_local_base_freq"] = metadata.real("rope.freq_base_swa").value_or(10000.0);
  if (!config.contains("rope_theta")) {
    if (type == "gemma3_text") config["rope_theta"] = 1e6;
    if (type == "mixtral" || type == "smollm3") config["rope_theta"] = 10000.0;
  }
  const auto original = metadata.whole("rope.scaling.original_context_length");
  if (original && type == "phi3") config["original_max_position_embeddings"] = *original;
  const auto rotated = metadata.whole("rope.dimension_count");
  if (rotated && (type == "gpt_neox" || type == "phi3"))
    config[type == "phi3" ? "partial_rotary_factor" : "rotary_pct"] =
        static_cast<double>(*rotated * metadata.required("attention.head_count")) /
        static_cast<double>(std::max<int64_t>(1, metadata.required("embedding_length")));
  const auto has = [&](std::string_view tensor) { return metadata.file.find(tensor) != nullptr; };
  if (type == "gpt2") {
    config["activation_function"] = "gelu_new";
  } else if (type == "gpt_neox") {
    config["attention_bias"] = has("blk.0.attn_qkv.bias");
  } else {
    if (has("blk.0.attn_output.bias")) config["attention_bias"] = true;
    if (has("blk.0.ffn_down.bias")) config["mlp_bias"] = true;
  }
  if (type == "qwen2") config["use_sliding_window"] = false;
}

// Returns "quantization_config": the block format of each module whose weight is in blocks.
Json quantization_of(const Gguf& file, const GgufArchitecture& architecture) {
  Json formats = Json::object();
  for (const Gguf::Entry& entry : file.entries()) {
    if (entry.format == nullptr) continue;
    const auto name = published_name(architecture, entry.name);
    if (!name) continue;  // published() says so
    formats[name->substr(0, name->rfind(".weight"))] = entry.format->name;
  }
  return {{"quant_method", "gguf"}, {"formats", std::move(formats)}};
}

// Adds the ids of special tokens as config.json and generation_config.json have them.
void add_token_ids(const Gguf& file, Json& config) {
  const auto id = [&](std::string_view name) {
    return whole_number(file.metadata(), fmt::format("tokenizer.ggml.{}_token_id", name));
  };
  if (const auto bos = id("bos")) config["bos_token_id"] = *bos;
  if (const auto pad = id("padding")) config["pad_token_id"] = *pad;
  std::vector<int64_t> ends;
  const auto add = [&](int64_t token) {
    if (std::ranges::find(ends, token) == ends.end()) ends.push_back(token);
  };
  for (const char* name : {"eos", "eot", "eom"})
    if (const auto end = id(name)) add(*end);
  // llama.cpp knows these ends of a turn by their text.
  constexpr std::array<std::string_view, 7> turns = {"<|eot_id|>",    "<|im_end|>",    "<|end|>",
                                                     "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
                                                     "<EOT>"};
  const auto* tokens = list<std::string>(file.metadata(), "tokenizer.ggml.tokens");
  const auto* types = list<int32_t>(file.metadata(), "tokenizer.ggml.token_type");
  if (tokens != nullptr && types != nullptr)
    for (size_t i = 0; i < std::min(tokens->size(), types->size()); ++i)
      if (((*types)[i] == GgufTokenKind::control || (*types)[i] == GgufTokenKind::user_defined) &&
          std::ranges::find(turns, (*tokens)[i]) != turns.end())
        add(static_cast<int64_t>(i));
  if (ends.size() == 1) config["eos_token_id"] = ends.front();
  if (ends.size() > 1) config["eos_token_id"] = ends;
}

std::string tokenizer_config_json(const Gguf& file) {
  Json config = Json::object();
  const auto* tokens = list<std::string>(file.metadata(), "tokenizer.ggml.tokens");
  for (const auto& [key, of] :
       std::array<std::pair<const char*, const char*>, 4>{{{"bos_token", "bos"},
                                                           {"eos_token", "eos"},
                                                           {"unk_token", "unknown"},
                                                           {"pad_token", "padding"}}}) {
    const auto id = whole_number(file.metadata(), fmt::format("tokenizer.ggml.{}_token_id", of));
    if (id && tokens != nullptr && *id >= 0 && *id < std::ssize(*tokens))
      config[key] = (*tokens)[static_cast<size_t>(*id)];
  }
  if (const std::string* chat = text(file.metadata(), "tokenizer.chat_template"))
    config["chat_template"] = *chat;
  return json_text(config, 2) + "\n";
}
}  // namespace

std::string config_json(const Gguf& file) {
  const GgufArchitecture& architecture = checked_architecture(file);
  const ArchitectureMetadata metadata{file, architecture};
  Json config = {{"architectures", {architecture.causal}}, {"model_type", architecture.model_type}};
  for (const auto& [suffix, key] : architecture.keys) {
    Json value = value_of(metadata, suffix);
    // llama.cpp, too, requires the epsilon of norms: it has no default, because families differ in
    // it.
    if (value.is_null() && suffix.ends_with("epsilon"))
      fail(file, fmt::format("{} is missing", metadata.key(suffix)));
    if (!value.is_null()) config[std::string(key)] = std::move(value);
  }
  for (const char* suffix : {"block_count", "context_length", "embedding_length"})
    static_cast<void>(metadata.required(suffix));
  const Gguf::Entry* tokens = file.find("token_embd.weight");
  if (tokens == nullptr || tokens->shape().size() != 2)
    fail(file, "there is no matrix 'token_embd.weight'");
  config["vocab_size"] = tokens->shape()[0];
  config["tie_word_embeddings"] = file.find("output.weight") == nullptr;
  const bool scales = architecture.model_type != "gpt2" && architecture.model_type != "gpt_neox";
  if (scales)
    if (Json scaling = rope_scaling(metadata, config); !scaling.is_null())
      config["rope_scaling"] = std::move(scaling);
  add_unsaid(metadata, config);
  add_token_ids(file, config);
  config["quantization_config"] = quantization_of(file, architecture);
  return json_text(config, 2) + "\n";
}

std::optional<std::string> text_of_folder(const Gguf& file, std::string_view name) {
  if (name == "config.json") return config_json(file);
  const std::string* tokenizer = text(file.metadata(), "tokenizer.ggml.model");
  const bool has_none = tokenizer != nullptr && *tokenizer == no_tokenizer;
  if (has_none && name.starts_with("tokenizer")) return std::nullopt;
  if (name == "tokenizer.json") return tokenizer_json(file);
  if (name == "tokenizer_config.json") return tokenizer_config_json(file);
  if (name != "generation_config.json") return std::nullopt;
  Json config = Json::object();
  add_token_ids(file, config);
  return json_text(config, 2) + "\n";
}

TensorFile published(const Gguf& file) {
  const GgufArchitecture& architecture = checked_architecture(file);
  // These tensors are rotary factors: config_json() gives them as rope_scaling.
  constexpr std::array<std::string_view, 3> factors = {
      "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};
  std::vector<TensorFile::Entry> entries;
  std::shared_ptr<Buffer> buffer = file.buffer();
  for (const Gguf::Entry& entry : file.entries()) {
    if (std::ranges::find(factors, entry.name) != factors.end()) continue;
    const auto name = published_name(architecture, entry.name);
    if (!name)
      throw Error(ErrorKind::usage, "[gguf] {}: weft's {} has no tensor '{}'.", file.name(),
                  architecture.name, printable(entry.name));
    entries.push_back({*name, entry.type, entry.offset, entry.format});
  }
  return {file.name(), std::move(buffer), std::move(entries),
          [&architecture](std::string_view name) {
            return gguf_name(architecture, name).value_or(std::string(name));
          }};
}

}  // namespace weft::io
