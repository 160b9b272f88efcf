#include "weft/io/gguf_architecture.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include <fmt/format.h>

namespace weft::io {
namespace {
constexpr NamePair llama_keys[] = {{"block_count", "num_hidden_layers"},
                                   {"context_length", "max_position_embeddings"},
                                   {"embedding_length", "hidden_size"},
                                   {"feed_forward_length", "intermediate_size"},
                                   {"attention.head_count", "num_attention_heads"},
                                   {"attention.head_count_kv", "num_key_value_heads"},
                                   {"attention.key_length", "head_dim"},
                                   {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                   {"rope.freq_base", "rope_theta"},
                                   {"attention.sliding_window", "sliding_window"},
                                   {"attn_logit_softcapping", "attn_logit_softcapping"},
                                   {"final_logit_softcapping", "final_logit_softcapping"},
                                   {"expert_count", "num_local_experts"},
                                   {"expert_used_count", "num_experts_per_tok"}};
constexpr NamePair gpt2_keys[] = {
    {"block_count", "n_layer"},         {"context_length", "n_positions"},
    {"embedding_length", "n_embd"},     {"feed_forward_length", "n_inner"},
    {"attention.head_count", "n_head"}, {"attention.layer_norm_epsilon", "layer_norm_epsilon"}};
constexpr NamePair neox_keys[] = {{"block_count", "num_hidden_layers"},
                                  {"context_length", "max_position_embeddings"},
                                  {"embedding_length", "hidden_size"},
                                  {"feed_forward_length", "intermediate_size"},
                                  {"attention.head_count", "num_attention_heads"},
                                  {"attention.layer_norm_epsilon", "layer_norm_eps"},
                                  {"rope.freq_base", "rotary_emb_base"},
                                  {"use_parallel_residual", "use_parallel_residual"}};

// Returns the concatenation of tables of names.
template <size_t... rows>
constexpr auto joined(const NamePair (&... tables)[rows]) {
  std::array<NamePair, (rows + ...)> all;
  auto* to = all.data();
  ((to = std::ranges::copy(tables, to).out), ...);
  return all;
}

constexpr NamePair decoder_tensors[] = {{"token_embd", "model.embed_tokens"},
                                        {"output_norm", "model.norm"},
                                        {"output", "lm_head"},
                                        {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
                                        {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
                                        {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"}};
// These projections are matrices of their own, where Phi-3 joins them.
constexpr NamePair separate_tensors[] = {{"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
                                         {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
                                         {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
                                         {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
                                         {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
                                         {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
                                         {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"}};
constexpr auto llama_tensors =
    joined(decoder_tensors, separate_tensors,
           {{"blk.#.attn_qkv", "model.layers.#.self_attn.qkv_proj"},
            {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
            {"blk.#.ffn_gate_inp", "model.layers.#.block_sparse_moe.gate"},
            {"blk.#.ffn_gate_exps", "model.layers.#.block_sparse_moe.experts.w1"},
            {"blk.#.ffn_down_exps", "model.layers.#.block_sparse_moe.experts.w2"},
            {"blk.#.ffn_up_exps", "model.layers.#.block_sparse_moe.experts.w3"}});
constexpr auto phi3_tensors =
    joined(decoder_tensors, {{"blk.#.attn_qkv", "model.layers.#.self_attn.qkv_proj"},
                             {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
                             {"blk.#.ffn_up", "model.layers.#.mlp.gate_up_proj"}});
// These norms are after attention and perceptron, and in Gemma before them, too.
constexpr auto post_norm_tensors =
    joined(decoder_tensors, separate_tensors,
           {{"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm"},
            {"blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm"},
            {"blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm"}});
constexpr NamePair gpt2_tensors[] = {{"token_embd", "transformer.wte"},
                                     {"position_embd", "transformer.wpe"},
                                     {"output_norm", "transformer.ln_f"},
                                     {"output", "lm_head"},
                                     {"blk.#.attn_norm", "transformer.h.#.ln_1"},
                                     {"blk.#.attn_qkv", "transformer.h.#.attn.c_attn"},
                                     {"blk.#.attn_output", "transformer.h.#.attn.c_proj"},
                                     {"blk.#.ffn_norm", "transformer.h.#.ln_2"},
                                     {"blk.#.ffn_up", "transformer.h.#.mlp.c_fc"},
                                     {"blk.#.ffn_down", "transformer.h.#.mlp.c_proj"}};
constexpr NamePair neox_tensors[] = {
    {"token_embd", "gpt_neox.embed_in"},
    {"output_norm", "gpt_neox.final_layer_norm"},
    {"output", "embed_out"},
    {"blk.#.attn_norm", "gpt_neox.layers.#.input_layernorm"},
    {"blk.#.attn_qkv", "gpt_neox.layers.#.attention.query_key_value"},
    {"blk.#.attn_output", "gpt_neox.layers.#.attention.dense"},
    {"blk.#.ffn_norm", "gpt_neox.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_up", "gpt_neox.layers.#.mlp.dense_h_to_4h"},
    {"blk.#.ffn_down", "gpt_neox.layers.#.mlp.dense_4h_to_h"}};

constexpr std::array architectures{
    GgufArchitecture{"gemma2", "gemma2", "Gemma2ForCausalLM", llama_keys, post_norm_tensors},
    GgufArchitecture{"gemma3", "gemma3_text", "Gemma3ForCausalLM", llama_keys, post_norm_tensors},
    GgufArchitecture{"gpt2", "gpt2", "GPT2LMHeadModel", gpt2_keys, gpt2_tensors, false, true},
    GgufArchitecture{"gptneox", "gpt_neox", "GPTNeoXForCausalLM", neox_keys, neox_tensors, false,
                     true},
    GgufArchitecture{"llama", "llama", "LlamaForCausalLM", llama_keys, llama_tensors, true, true},
    GgufArchitecture{"llama", "mistral", "MistralForCausalLM", llama_keys, llama_tensors, true,
                     true},
    GgufArchitecture{"llama", "mixtral", "MixtralForCausalLM", llama_keys, llama_tensors, true,
                     true},
    GgufArchitecture{"olmo2", "olmo2", "Olmo2ForCausalLM", llama_keys, post_norm_tensors},
    GgufArchitecture{"phi3", "phi3", "Phi3ForCausalLM", llama_keys, phi3_tensors},
    GgufArchitecture{"qwen2", "qwen2", "Qwen2ForCausalLM", llama_keys, llama_tensors, false, true},
    GgufArchitecture{"qwen3", "qwen3", "Qwen3ForCausalLM", llama_keys, llama_tensors},
    GgufArchitecture{"smollm3", "smollm3", "SmolLM3ForCausalLM", llama_keys, llama_tensors, true}};

// If `name` matches `from`, with a layer's number in place of "#", returns `to` with the same
// number.
std::optional<std::string> renamed(std::string_view name, std::string_view from,
                                   std::string_view to) {
  const size_t hole = from.find('#');
  if (hole == std::string_view::npos)
    return name == from ? std::optional(std::string(to)) : std::nullopt;
  const std::string_view before = from.substr(0, hole), after = from.substr(hole + 1);
  if (!name.starts_with(before) || !name.ends_with(after) ||
      name.size() <= before.size() + after.size())
    return std::nullopt;
  const std::string_view number =
      name.substr(before.size(), name.size() - before.size() - after.size());
  if (number.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  std::string result(to);
  return result.replace(result.find('#'), 1, number);
}

// Returns the name of a tensor on the other side: its module is renamed, and ".weight" or ".bias"
// stays. In folders, a layer's experts are one tensor, without an ending.
std::optional<std::string> other_name(const GgufArchitecture& architecture, std::string_view name,
                                      std::string_view NamePair::* from,
                                      std::string_view NamePair::* to) {
  std::string_view ending;
  for (std::string_view each : {".weight", ".bias"})
    if (name.ends_with(each)) ending = each;
  const std::string_view module = name.substr(0, name.size() - ending.size());
  for (const NamePair& pair : architecture.tensors) {
    std::optional<std::string> other = renamed(module, pair.*from, pair.*to);
    if (!other) continue;
    const bool is_stack = pair.second.find(".experts.") != std::string_view::npos;
    if (ending.empty() != (is_stack && from == &NamePair::second)) continue;
    if (is_stack) return to == &NamePair::second ? *other : *other + ".weight";
    return *other + std::string(ending);
  }
  return std::nullopt;
}

template <class T>
std::optional<T> number(const GgufMetadata& metadata, std::string_view key, bool real) {
  const GgufValue* value = find(metadata, key);
  if (value == nullptr) return std::nullopt;
  return std::visit(
      [&]<class Value>(const Value& held) -> std::optional<T> {
        if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
          if (std::is_integral_v<Value> || real) return static_cast<T>(held);
        }
        return std::nullopt;
      },
      *value);
}
}  // namespace

const GgufArchitecture* architecture_of(const GgufMetadata& metadata) {
  const std::string* name = text(metadata, "general.architecture");
  if (name == nullptr) return nullptr;
  if (*name == "llama") {
    if (whole_number(metadata, "llama.expert_count").value_or(0) > 0)
      return architecture_of_type("mixtral");
    if (whole_number(metadata, "llama.attention.sliding_window").value_or(0) > 0)
      return architecture_of_type("mistral");
    return architecture_of_type("llama");
  }
  const auto* found = std::ranges::find(architectures, *name, &GgufArchitecture::name);
  return found != architectures.end() ? found : nullptr;
}

const GgufArchitecture* architecture_of_type(std::string_view model_type) {
  const auto* found = std::ranges::find(architectures, model_type, &GgufArchitecture::model_type);
  return found != architectures.end() ? found : nullptr;
}

std::string known_architectures() {
  std::string names;
  std::string_view last;
  for (const GgufArchitecture& each : architectures) {
    if (each.name == last) continue;
    names += (names.empty() ? "" : ", ") + std::string(each.name);
    last = each.name;
  }
  return names;
}

std::optional<std::string> published_name(const GgufArchitecture& architecture,
                                          std::string_view name) {
  return other_name(architecture, name, &NamePair::first, &NamePair::second);
}
std::optional<std::string> gguf_name(const GgufArchitecture& architecture, std::string_view name) {
  return other_name(architecture, name, &NamePair::second, &NamePair::first);
}

std::string with_metadata_keys(const GgufArchitecture& architecture, std::string message) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  for (size_t begin = 0; (begin = message.find_first_of(letters, begin)) != std::string::npos;) {
    size_t end = std::min(message.find_first_not_of(letters, begin), message.size());
    const std::string_view word = std::string_view(message).substr(begin, end - begin);
    const auto key = std::ranges::find(architecture.keys, word, &NamePair::second);
    if (key != architecture.keys.end()) {
      const std::string there = fmt::format("{}.{}", architecture.name, key->first);
      message.replace(begin, end - begin, there);
      end = begin + there.size();
    }
    begin = end;
  }
  return message;
}

std::optional<int64_t> whole_number(const GgufMetadata& metadata, std::string_view key) {
  return number<int64_t>(metadata, key, /*real=*/false);
}
std::optional<double> real_number(const GgufMetadata& metadata, std::string_view key) {
  return number<double>(metadata, key, /*real=*/true);
}
std::optional<bool> truth(const GgufMetadata& metadata, std::string_view key) {
  const GgufValue* value = find(metadata, key);
  const bool* held = value != nullptr ? std::get_if<bool>(value) : nullptr;
  return held != nullptr ? std::optional(*held) : std::nullopt;
}
const std::string* text(const GgufMetadata& metadata, std::string_view key) {
  const GgufValue* value = find(metadata, key);
  return value != nullptr ? std::get_if<std::string>(value) : nullptr;
}

}  // namespace weft::io
