// Reads what tokenizer_config.json and the files beside it say: special tokens and chat templates,
// as transformers reads them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "weft/data/chat_template/chat_template.h"
#include "weft/io/model_folder.h"

namespace weft::data {
class Tokenizer;

struct TokenizerConfig {
  // Reads the files of a model's folder, each of which may be missing, or a GGUF file:
  //   tokenizer_config.json    all that follows
  //   special_tokens_map.json  special tokens that the former does not have
  //   chat_template.jinja      the default template, in place of that of the former
  // Errors are ErrorKind::data, one line that names the file and the place in it.
  static TokenizerConfig load(const io::ModelFiles& model);

  // Returns the template for a conversation with tools ("tool_use", where there is one) or without
  // ("default"); nullopt if the folder has none. Throws if the template cannot be parsed.
  std::optional<ChatTemplate> chat_template(bool with_tools = false) const;

  // Returns the text of a special token: "bos_token", "eos_token", "pad_token", "unk_token",
  // "sep_token", "cls_token", "mask_token".
  std::optional<std::string> special_token(std::string_view name) const;

  struct Template {
    std::string text;
    std::string source;  // name in errors: "folder/chat_template.jinja"
  };

  SpecialTokens special_tokens;
  std::optional<bool> add_bos_token, add_eos_token;
  std::optional<int64_t> model_max_length;  // in tokens; absent if the file has no real limit
  std::map<std::string, Template> chat_templates;
};

// Returns the id of a special token: the token that the files of the folder `from` name under `key`
// ("pad_token"; skipped if `from` is a file), or else the first text of `usual` that the tokenizer
// has. Throws Error(data) if it has neither; the message says who needs the token: "task masked_lm
// needs".
int64_t special_token_id(const Tokenizer& tokenizer, const std::string& from, std::string_view key,
                         std::initializer_list<std::string_view> usual, std::string_view needs);

}  // namespace weft::data
