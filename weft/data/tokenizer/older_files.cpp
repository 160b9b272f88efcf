#include "weft/data/tokenizer/older_files.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <simdjson.h>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::data::tokenizer {
namespace {

constexpr auto gpt2_special =
    std::to_array<std::string_view>({"<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"});
constexpr auto bert_special =
    std::to_array<std::string_view>({"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"});
constexpr size_t cls_index = 1, sep_index = 2;  // vocab.txt must have [UNK], [CLS] and [SEP]

// Appends a JSON string. Its bytes beyond ASCII stay, so that `text` must be UTF-8.
void append_quoted(std::string& json, std::string_view text) {
  json += '"';
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(json), "\\u{:04x}", static_cast<int>(c));
      continue;
    }
    if (c == '"' || c == '\\') json += '\\';
    json += c;
  }
  json += '"';
}

// Appends an entry of "added_tokens": a special token.
void append_special(std::string& json, std::string_view token, int64_t id) {
  if (json.ends_with('}')) json += ',';
  fmt::format_to(std::back_inserter(json),
                 R"({{"content":"{}","id":{},"normalized":false,"special":true}})", token, id);
}

// Calls use(line, number) for each line, counted from 1. A last line may be without its end.
void for_each_line(const NamedText& file,
                   const std::function<void(std::string_view, int64_t)>& use) {
  const bool valid = simdjson::validate_utf8(file.text);
  std::string_view rest = file.text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!valid && !simdjson::validate_utf8(line))
      throw Error(ErrorKind::data, "[tokenizer] {}:{}: a line must be UTF-8. Got '{}'.", file.name,
                  number, io::printable(line));
    use(line, number);
  }
}

void append_merges(std::string& json, const NamedText& merges) {
  for_each_line(merges, [&](std::string_view line, int64_t number) {
    if (line.empty() || line.starts_with("#version")) return;
    const size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos)
      throw Error(ErrorKind::data, "[tokenizer] {}:{}: a line must be two tokens. Got '{}'.",
                  merges.name, number, io::printable(line));
    if (json.ends_with('"')) json += ',';
    append_quoted(json, line);
  });
}

struct BertConfig {
  bool lowercase = true;
  bool chinese_characters = true;      // are words of their own
  std::string strip_accents = "null";  // null: as lowercase
};

BertConfig read_config(const NamedText& file) {
  BertConfig config;
  if (file.text.empty()) return config;
  try {
    const nlohmann::json values = io::parse_json(file.text);
    const auto has = [&](const char* key) {
      return values.contains(key) && !io::value_at(values, key).is_null();
    };
    if (!values.is_object()) throw io::JsonError("the file must be an object");
    if (has("do_lower_case")) config.lowercase = io::truth_at(values, "do_lower_case");
    if (has("tokenize_chinese_chars"))
      config.chinese_characters = io::truth_at(values, "tokenize_chinese_chars");
    if (has("strip_accents"))
      config.strip_accents = io::truth_at(values, "strip_accents") ? "true" : "false";
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::data, "[tokenizer] {}: {}.", file.name, error.what());
  }
  return config;
}

}  // namespace

std::string json_of_gpt2(const Part& vocabulary, std::string_view json, const NamedText& merges) {
  std::string added;
  if (vocabulary.is_object())
    for (const auto [token, id] : simdjson::dom::object(vocabulary.value()))
      if (std::ranges::find(gpt2_special, token) != gpt2_special.end())
        append_special(added, token, vocabulary.at(token).id());
  std::string file = fmt::format(
      R"({{"added_tokens":[{}],"pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false}},)"
      R"("decoder":{{"type":"ByteLevel"}},"model":{{"type":"BPE","vocab":{},"merges":[)",
      added, json);
  file.reserve(file.size() + merges.text.size() + merges.text.size() / 2);
  append_merges(file, merges);
  return file += "]}}";
}

std::string json_of_bert(const NamedText& vocabulary, const NamedText& config) {
  const BertConfig options = read_config(config);
  std::array<int64_t, bert_special.size()> ids;
  ids.fill(-1);
  std::string tokens;
  for_each_line(vocabulary, [&](std::string_view line, int64_t number) {
    const int64_t id = number - 1;
    const auto special = std::ranges::find(bert_special, line);
    if (special != bert_special.end())
      ids[static_cast<size_t>(special - bert_special.begin())] = id;
    if (id > 0) tokens += ',';
    append_quoted(tokens, line);
    fmt::format_to(std::back_inserter(tokens), ":{}", id);
  });
  std::string added;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0)
      append_special(added, bert_special[i], ids[i]);
    else if (i <= sep_index)
      throw Error(ErrorKind::data, "[tokenizer] {}: no line is {}, which BERT's vocabulary has.",
                  vocabulary.name, bert_special[i]);
  }
  return fmt::format(
      R"({{"added_tokens":[{}],"normalizer":{{"type":"BertNormalizer","clean_text":true,)"
      R"("handle_chinese_chars":{},"strip_accents":{},"lowercase":{}}},)"
      R"("pre_tokenizer":{{"type":"BertPreTokenizer"}},)"
      R"("post_processor":{{"type":"BertProcessing","cls":["[CLS]",{}],"sep":["[SEP]",{}]}},)"
      R"("decoder":{{"type":"WordPiece","prefix":"##","cleanup":true}},)"
      R"("model":{{"type":"WordPiece","unk_token":"[UNK]","vocab":{{{}}}}}}})",
      added, options.chinese_characters, options.strip_accents, options.lowercase, ids[cls_index],
      ids[sep_index], tokens);
}

}  // namespace weft::data::tokenizer
