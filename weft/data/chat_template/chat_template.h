// Chat templates write a conversation as the text that a model was trained on.
//
//   auto config = data::TokenizerConfig::load("llama");      // tokenizer_config.h
//   data::ChatTemplate chat = *config.chat_template();
//   std::string prompt = chat.render({{"user", "Hello"}}, {.add_generation_prompt = true});
//
// Templates are written in Jinja2. weft runs the subset that docs/decisions/0034 states, with the
// results of transformers' apply_chat_template(tokenize=False). Errors are ErrorKind::data, one
// line that names the template, the line in it, and what is wrong: "[chat_template] FILE:3: ...".
//
// Limits: a template has at most 1 MiB, and is nested at most 200 deep; values are nested at most
// 100, calls at most 400 deep. One render does as much work as ChatOptions::most_work says.
#pragma once

#include <cstddef>
#include <ctime>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "weft/base/error.h"

namespace weft::data {

// A TemplateRefusal is the error of a template that cannot write a conversation.
struct TemplateRefusal : Error {
  explicit TemplateRefusal(const Error& error) : Error(error) {}
};

// ChatMessage is a message of text alone.
struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

struct ChatOptions {
  // Ends the text where the answer of the assistant begins.
  bool add_generation_prompt = false;
  // The template sees `tools` and `documents` as variables of these names; null: undefined. `extra`
  // is an object of further variables, such as "enable_thinking". Keys keep their order, as
  // templates print tools in it.
  const nlohmann::ordered_json* tools = nullptr;
  const nlohmann::ordered_json* documents = nullptr;
  const nlohmann::ordered_json* extra = nullptr;
  // strftime_now() formats this local time; absent: the system's current time.
  std::optional<std::tm> now = std::nullopt;
  // Bounds the time and the memory of a render: about a byte each. 64 times the bytes of the
  // conversation are added.
  size_t most_work = size_t{256} << 20;
};

// TextRange is a part of a text, from byte `begin` up to byte `end`.
struct TextRange {
  size_t begin = 0, end = 0;
};

// Rendering is the text of a conversation, the parts that a model generates, and the keys that the
// template did not read.
struct Rendering {
  std::string text;
  std::vector<TextRange> generated;  // parts within {% generation %}, in order
  // `unread_keys` has for each message the keys whose values are not empty and were not read by the
  // template ("tool_calls.function.arguments"); `unread_variables` the same of `extra`, and "tools"
  // and "documents" if given and unread.
  std::vector<std::vector<std::string>> unread_keys;
  std::vector<std::string> unread_variables;
};

// SpecialTokens are special tokens by the names that templates know: {"bos_token", "<s>"}.
using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

// ChatTemplate is a handle to an immutable template; copies share it. Threads may use it at once.
class ChatTemplate {
 public:
  // Parses a template; `name` stands for it in errors.
  ChatTemplate(std::string_view text, SpecialTokens special_tokens, std::string name);

  // Return the text of a conversation, or throw TemplateRefusal. `messages` are ChatMessages, or a
  // list of objects with "role", "content" (text, or a list of parts) and any other keys that the
  // template reads ("tool_calls"). Strings that are not UTF-8 have U+FFFD instead, as
  // Tokenizer::encode reads them. A conversation that the template refuses by raise_exception()
  // throws its message.
  std::string render(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;
  std::string render(std::initializer_list<ChatMessage> messages,
                     const ChatOptions& options = {}) const;
  std::string render(const nlohmann::ordered_json& messages, const ChatOptions& options) const;
  // Returns the text with the marks and the unread keys.
  Rendering rendering(const nlohmann::ordered_json& messages, const ChatOptions& options) const;

  // Returns whether the template marks the generated parts by {% generation %}.
  bool marks_answers() const;
  // Returns whether the template has this word as a literal of text: 'tool' or "tool".
  bool mentions(std::string_view word) const;
  // Returns whether the template's source contains this name as a whole word: otherwise the
  // template cannot read a variable or key of this name.
  bool may_read(std::string_view name) const;
  // Returns whether a variable of this name would hide a function or a special token.
  bool defines(std::string_view name) const;

  struct Parts;

 private:
  std::shared_ptr<const Parts> parts_;
};

}  // namespace weft::data
