// Reads and writes the tokenizers of GGUF files as tokenizer.json: SentencePiece's BPE ("llama"),
// whose merges follow from the scores of its tokens, and byte-level BPE ("gpt2"), whose
// pre-tokenizer llama.cpp names in "tokenizer.ggml.pre". This is one file because reading and
// writing share the rules of splitting and the kinds of tokens.
#include "weft/io/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/text/utf8.h"
#include "weft/io/gguf_architecture.h"
#include "weft/io/gguf_folder.h"
#include "weft/io/json.h"
#include "weft/io/text.h"

namespace weft::io {
namespace {
using Json = nlohmann::ordered_json;

using Kind = GgufTokenKind;

// Split is a pre-tokenizer of byte-level BPE that llama.cpp has a name for: `pattern` is its
// regular expression; empty: GPT-2's, which is built into ByteLevel.
struct Split {
  std::string_view name;  // "tokenizer.ggml.pre"
  std::string_view pattern = {};
  bool digits = false;  // each digit alone
  bool ignore_merges = false;
  bool nfc = false;
};
#define WEFT_CL100K(numbers)                                            \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers \
  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
constexpr std::array splits{
    Split{.name = "gpt-2"},
    Split{.name = "gpt2"},
    Split{.name = "olmo"},
    Split{.name = "smollm", .digits = true},
    Split{.name = "llama-bpe", .pattern = WEFT_CL100K("\\p{N}{1,3}"), .ignore_merges = true},
    Split{.name = "llama3", .pattern = WEFT_CL100K("\\p{N}{1,3}"), .ignore_merges = true},
    Split{.name = "llama-v3", .pattern = WEFT_CL100K("\\p{N}{1,3}"), .ignore_merges = true},
    Split{.name = "dbrx", .pattern = WEFT_CL100K("\\p{N}{1,3}")},
    Split{.name = "smaug-bpe", .pattern = WEFT_CL100K("\\p{N}{1,3}")},
    Split{.name = "qwen2", .pattern = WEFT_CL100K("\\p{N}"), .nfc = true},
    Split{.name = "deepseek-r1-qwen", .pattern = WEFT_CL100K("\\p{N}"), .nfc = true}};
#undef WEFT_CL100K

constexpr std::string_view space = "\u2581";  // SentencePiece writes a space as this
constexpr size_t most_token_bytes = 1024;     // the longest token that merges are derived for

// TokenList is the tokens of a file, by id.
struct TokenList {
  const Gguf& file;
  const std::vector<std::string>& tokens;
  const std::vector<int32_t>* kinds;

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::data, "[gguf] {}: {}.", file.name(), what);
  }
  int32_t kind(size_t id) const { return kinds != nullptr ? (*kinds)[id] : Kind::normal; }
  std::optional<size_t> special(std::string_view name) const {
    const auto id = whole_number(file.metadata(), fmt::format("tokenizer.ggml.{}_token_id", name));
    if (!id) return std::nullopt;
    if (*id < 0 || *id >= std::ssize(tokens))
      fail(fmt::format("tokenizer.ggml.{}_token_id is {}, of {} tokens", name, *id, tokens.size()));
    return static_cast<size_t>(*id);
  }
  bool flag(std::string_view name, bool otherwise) const {
    return truth(file.metadata(), fmt::format("tokenizer.ggml.{}", name)).value_or(otherwise);
  }
};

TokenList tokens_in(const Gguf& file) {
  const auto* tokens = list<std::string>(file.metadata(), "tokenizer.ggml.tokens");
  TokenList all{file, tokens != nullptr ? *tokens : std::vector<std::string>(),
                list<int32_t>(file.metadata(), "tokenizer.ggml.token_type")};
  if (tokens == nullptr) all.fail("tokenizer.ggml.tokens is missing, or no list of texts");
  if (all.kinds != nullptr && all.kinds->size() != tokens->size())
    all.fail(fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens",
                         all.kinds->size(), tokens->size()));
  return {file, *tokens, all.kinds};
}

Json added_tokens(const TokenList& all) {
  Json added = Json::array();
  for (size_t id = 0; id < all.tokens.size(); ++id) {
    const int32_t kind = all.kind(id);
    if (kind != Kind::control && kind != Kind::user_defined && kind != Kind::unknown) continue;
    added.push_back({{"id", id},
                     {"content", all.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", kind != Kind::user_defined}});
  }
  return added;
}

Json vocab_json(const TokenList& all) {
  Json vocab = Json::object();
  auto& object = vocab.get_ref<Json::object_t&>();
  object.reserve(all.tokens.size());
  std::unordered_map<std::string_view, size_t> seen;
  // The first of equal tokens counts: padding repeats tokens. Appends to the object's vector,
  // because insertion by key searches an ordered object linearly.
  for (size_t id = 0; id < all.tokens.size(); ++id)
    if (seen.emplace(all.tokens[id], id).second)
      static_cast<std::vector<std::pair<const std::string, Json>>&>(object).emplace_back(
          all.tokens[id], id);
  return vocab;
}

// Puts the tokens around a text that the file asks for.
Json post_processor(const TokenList& all, bool adds_bos) {
  Json single = Json::array(), specials = Json::object();
  const auto add = [&](std::string_view name) {
    const auto id = all.special(name);
    if (!id) return;
    const std::string& token = all.tokens[*id];
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    specials[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
  };
  if (adds_bos) add("bos");
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (all.flag("add_eos_token", false)) add("eos");
  if (single.size() == 1) return nullptr;
  Json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 0}}}});
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(specials)}};
}

// Returns the merges of SentencePiece's BPE: all pairs of tokens whose concatenation is a token, by
// falling score of that token (transformers' generate_merges).
Json merges_of_scores(const TokenList& all, const std::vector<float>& scores) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < all.tokens.size(); ++id)
    if (all.kind(id) == Kind::normal || all.kind(id) == Kind::user_defined)
      ids.emplace(all.tokens[id], id);
  struct Merge {
    size_t left, right, whole;
  };
  std::vector<Merge> merges;
  for (size_t id = 0; id < all.tokens.size(); ++id) {
    const std::string_view token = all.tokens[id];
    if (all.kind(id) != Kind::normal) continue;
    if (token.size() > most_token_bytes)
      all.fail(fmt::format("token {} has {} bytes, over the limit of {}", id, token.size(),
                           most_token_bytes));
    const size_t first = merges.size();
    for (size_t at = 1; at < token.size(); ++at) {
      const bool is_within = (static_cast<uint8_t>(token[at]) & 0xc0) == 0x80;
      if (is_within) continue;
      const auto left = ids.find(token.substr(0, at)), right = ids.find(token.substr(at));
      if (left != ids.end() && right != ids.end())
        merges.push_back({left->second, right->second, id});
    }
    std::sort(merges.begin() + static_cast<ptrdiff_t>(first), merges.end(),
              [](const Merge& a, const Merge& b) {
                return std::tie(a.left, a.right) < std::tie(b.left, b.right);
              });
  }
  std::ranges::stable_sort(
      merges, [&](const Merge& a, const Merge& b) { return scores[a.whole] > scores[b.whole]; });
  Json result = Json::array();
  for (const Merge& merge : merges)
    result.push_back({all.tokens[merge.left], all.tokens[merge.right]});
  return result;
}

std::string sentence_piece(const TokenList& all) {
  const auto* scores = list<float>(all.file.metadata(), "tokenizer.ggml.scores");
  if (scores == nullptr || scores->size() != all.tokens.size())
    all.fail(fmt::format("tokenizer.ggml.scores must be {} numbers of f32", all.tokens.size()));
  const bool prefixes = all.flag("add_space_prefix", true);
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}};
  Json normalizers = Json::array(), decoders = Json::array();
  if (prefixes) normalizers.push_back({{"type", "Prepend"}, {"prepend", space}});
  normalizers.push_back(replace);
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefixes)
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  Json model = {{"type", "BPE"},
                {"fuse_unk", true},
                {"byte_fallback", true},
                {"vocab", vocab_json(all)},
                {"merges", merges_of_scores(all, *scores)}};
  if (const auto unknown = all.special("unknown")) model["unk_token"] = all.tokens[*unknown];
  return json_text(
      Json{{"version", "1.0"},
           {"added_tokens", added_tokens(all)},
           {"normalizer", {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}}},
           {"pre_tokenizer", nullptr},
           {"post_processor", post_processor(all, all.flag("add_bos_token", true))},
           {"decoder", {{"type", "Sequence"}, {"decoders", std::move(decoders)}}},
           {"model", std::move(model)}});
}

const Split& split_of(const TokenList& all) {
  const std::string* name = text(all.file.metadata(), "tokenizer.ggml.pre");
  // Files older than this key use GPT-2's pre-tokenizer; others without it are split wrongly by
  // llama.cpp, too.
  const std::string_view wanted = name != nullptr ? std::string_view(*name) : "gpt-2";
  const auto* found = std::ranges::find(splits, wanted, &Split::name);
  if (found != splits.end()) return *found;
  std::string known;
  for (const Split& split : splits) known += (known.empty() ? "" : ", ") + std::string(split.name);
  throw Error(ErrorKind::usage,
              "[gguf] {}: weft does not split text as tokenizer.ggml.pre '{}' does. Known: {}.",
              all.file.name(), printable(wanted), known);
}

Json pre_tokenizer(const Split& split) {
  Json byte_level = {{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", true},
                     {"use_regex", split.pattern.empty()}};
  if (split.pattern.empty() && !split.digits) return byte_level;
  const Json first = split.digits ? Json{{"type", "Digits"}, {"individual_digits", true}}
                                  : Json{{"type", "Split"},
                                         {"pattern", {{"Regex", split.pattern}}},
                                         {"behavior", "Isolated"},
                                         {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {first, std::move(byte_level)}}};
}

std::string byte_level(const TokenList& all) {
  const auto* merges = list<std::string>(all.file.metadata(), "tokenizer.ggml.merges");
  if (merges == nullptr) all.fail("tokenizer.ggml.merges is missing, or no list of texts");
  const Split& split = split_of(all);
  const Json normalizer = split.nfc ? Json{{"type", "NFC"}} : Json(nullptr);
  return json_text(Json{
      {"version", "1.0"},
      {"added_tokens", added_tokens(all)},
      {"normalizer", normalizer},
      {"pre_tokenizer", pre_tokenizer(split)},
      {"post_processor", post_processor(all, all.flag("add_bos_token", split.ignore_merges))},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
      {"model",
       {{"type", "BPE"},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", split.ignore_merges},
        {"vocab", vocab_json(all)},
        {"merges", *merges}}}});
}

// ---- tokenizer.json as metadata

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw Error(ErrorKind::usage, "{}: {}, which llama.cpp has no tokenizer for.", file, what);
}

// Returns the name of the rule by which a pre-tokenizer splits text for byte-level merges; "" if it
// is not byte-level.
std::string_view split_name(const Json& tokenizer, const std::string& file) {
  Json parts = Json::array();
  if (const auto found = tokenizer.find("pre_tokenizer");
      found != tokenizer.end() && found->is_object())
    parts = found->value("type", "") == "Sequence" ? found->value("pretokenizers", Json::array())
                                                   : Json::array({*found});
  bool is_byte_level = false, digits = false, prefixed = false;
  std::string pattern;
  for (const Json& part : parts) {
    const std::string type = part.value("type", "");
    if (type == "ByteLevel") {
      is_byte_level = true;
      prefixed = part.value("add_prefix_space", true);
    } else if (type == "Digits") {
      digits = part.value("individual_digits", false);
    } else if (type == "Split") {
      pattern = part.value("pattern", Json::object()).value("Regex", "");
    }
  }
  if (!is_byte_level) return "";
  if (prefixed) refuse(file, "the pre-tokenizer puts a space before each text");
  for (const Split& split : splits)
    if (split.pattern == pattern && split.digits == digits &&
        split.ignore_merges == tokenizer.at("model").value("ignore_merges", false))
      return split.name;
  refuse(file, fmt::format("text is split by '{}'", printable(pattern)));
}

struct IdTokens {
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;
};
// Returns the tokens by id, up to the model's vocabulary.
IdTokens tokens_of(const Json& tokenizer, int64_t vocabulary, const std::string& file,
                   bool has_bytes) {
  IdTokens all;
  all.tokens.resize(static_cast<size_t>(vocabulary));
  all.kinds.assign(all.tokens.size(), Kind::unused);
  const auto set = [&](int64_t id, const std::string& token, int32_t kind) {
    if (id < 0 || id >= vocabulary)
      throw Error(ErrorKind::data, "{}: token '{}' has id {}, of {} of the model.", file,
                  printable(token), id, vocabulary);
    all.tokens[static_cast<size_t>(id)] = token;
    all.kinds[static_cast<size_t>(id)] = kind;
  };
  const Json& model = tokenizer.at("model");
  const std::string unknown_token =
      model.contains("unk_token") && model["unk_token"].is_string() ? model["unk_token"] : "";
  for (const auto& [token, id] : model.at("vocab").items()) {
    const bool is_byte = has_bytes && token.size() == 6 && token.starts_with("<0x");
    set(id.get<int64_t>(), token,
        is_byte                                            ? Kind::byte
        : !unknown_token.empty() && token == unknown_token ? Kind::unknown
                                                           : Kind::normal);
  }
  for (const Json& added : tokenizer.value("added_tokens", Json::array())) {
    const std::string token = added.at("content");
    if (has_bytes && token == unknown_token) continue;
    set(added.at("id"), token, added.value("special", false) ? Kind::control : Kind::user_defined);
  }
  for (size_t id = 0; id < all.tokens.size(); ++id)
    if (all.kinds[id] == Kind::unused) all.tokens[id] = fmt::format("[PAD{}]", id);
  return all;
}

std::pair<std::string, std::string> halves_of(const Json& merge) {
  if (merge.is_array()) return {merge.at(0), merge.at(1)};
  const std::string both = merge;
  const size_t at = both.find(' ');
  return {both.substr(0, at), at == std::string::npos ? "" : both.substr(at + 1)};
}

// Returns scores that reproduce the order of merges: a token's score is the negative rank of the
// first merge that makes it.
std::vector<float> scores_of(const Json& merges, const IdTokens& all) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < all.tokens.size(); ++id) ids.emplace(all.tokens[id], id);
  std::vector<float> scores(all.tokens.size(), 0);
  int64_t rank = 0;
  for (const Json& merge : merges) {
    const auto [left, right] = halves_of(merge);
    const auto found = ids.find(left + right);
    --rank;
    if (found != ids.end() && scores[found->second] == 0)
      scores[found->second] = static_cast<float>(rank);
  }
  // A token that no merge makes is a single character; SentencePiece gives it the least score.
  for (size_t id = 0; id < all.tokens.size(); ++id)
    if (scores[id] == 0 && all.kinds[id] == Kind::normal) scores[id] = static_cast<float>(rank - 1);
  return scores;
}

// Returns whether the template puts the token before a text, or behind it.
bool adds(const Json& tokenizer, const std::optional<std::string>& token, bool before) {
  std::vector<Json> parts;
  const auto found = tokenizer.find("post_processor");
  if (!token || found == tokenizer.end() || !found->is_object()) return false;
  parts.push_back(*found);
  if (found->value("type", "") == "Sequence") {
    parts.clear();
    for (const Json& part : found->value("processors", Json::array())) parts.push_back(part);
  }
  for (const Json& part : parts) {
    const Json single = part.value("single", Json::array());
    if (single.empty()) continue;
    const Json& edge = before ? single.front() : single.back();
    if (edge.contains("SpecialToken") && edge["SpecialToken"].value("id", "") == *token)
      return true;
  }
  return false;
}
}  // namespace

std::string tokenizer_json(const Gguf& file) {
  const TokenList all = tokens_in(file);
  const std::string* kind = text(file.metadata(), "tokenizer.ggml.model");
  if (kind == nullptr) all.fail("tokenizer.ggml.model is missing");
  if (*kind == "llama") return sentence_piece(all);
  if (*kind == "gpt2") return byte_level(all);
  throw Error(ErrorKind::usage,
              "[gguf] {}: weft does not read a tokenizer of kind '{}'. Known: "
              "llama, gpt2.",
              file.name(), printable(*kind));
}

GgufMetadata tokenizer_metadata(const GgufTokenizer& from) try {
  const std::string& file = from.file;
  Json tokenizer;
  try {
    parse_json(from.tokenizer);  // refuses deep nesting; errors name the line
    tokenizer = Json::parse(from.tokenizer);
  } catch (const JsonError& error) {
    throw Error(ErrorKind::data, "{}: {}.", file, error.what());
  }
  const Json& model = tokenizer.at("model");
  const std::string type = model.value("type", "BPE");
  if (type != "BPE") refuse(file, fmt::format("the model is {}", printable(type)));
  const std::string_view split = split_name(tokenizer, file);
  const bool has_bytes = split.empty();
  if (has_bytes && !model.value("byte_fallback", false))
    refuse(file, "merges are neither of bytes nor with a fallback to bytes");
  IdTokens all = tokens_of(tokenizer, from.vocabulary, file, has_bytes);
  GgufMetadata metadata;
  const auto add = [&](const char* key, GgufValue value) {
    metadata.emplace_back(fmt::format("tokenizer.ggml.{}", key), std::move(value));
  };
  add("model", std::string(has_bytes ? "llama" : "gpt2"));
  if (!has_bytes) add("pre", std::string(split));
  if (has_bytes) {
    add("scores", GgufArray(scores_of(model.at("merges"), all)));
    const std::string normalizer = json_text(tokenizer.value("normalizer", Json()));
    const std::string pre = json_text(tokenizer.value("pre_tokenizer", Json()));
    const bool prefixes = normalizer.find("\"Prepend\"") != std::string::npos ||
                          (pre.find("\"Metaspace\"") != std::string::npos &&
                           pre.find("\"never\"") == std::string::npos);
    add("add_space_prefix", prefixes);
  } else {
    std::vector<std::string> merges;
    for (const Json& merge : model.at("merges")) {
      const auto [left, right] = halves_of(merge);
      merges.push_back(fmt::format("{} {}", left, right));
    }
    add("merges", GgufArray(std::move(merges)));
  }
  const auto id_of = [&](const std::optional<std::string>& token) -> std::optional<uint32_t> {
    if (!token) return std::nullopt;
    const auto found = std::ranges::find(all.tokens, *token);
    if (found == all.tokens.end()) return std::nullopt;
    return static_cast<uint32_t>(found - all.tokens.begin());
  };
  const std::pair<const char*, const std::optional<std::string>*> specials[] = {
      {"bos_token_id", &from.bos},
      {"eos_token_id", &from.eos},
      {"unknown_token_id", &from.unknown},
      {"padding_token_id", &from.pad}};
  for (const auto& [key, token] : specials)
    if (const auto id = id_of(*token)) add(key, *id);
  add("add_bos_token", adds(tokenizer, from.bos, /*before=*/true));
  add("add_eos_token", adds(tokenizer, from.eos, /*before=*/false));
  add("tokens", GgufArray(std::move(all.tokens)));
  add("token_type", GgufArray(std::move(all.kinds)));
  if (!from.chat_template.empty())
    metadata.emplace_back("tokenizer.chat_template", from.chat_template);
  return metadata;
} catch (const nlohmann::json::exception&) {
  throw Error(ErrorKind::data, "{}: it is no tokenizer of the `tokenizers` package.", from.file);
}

}  // namespace weft::io
