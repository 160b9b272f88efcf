#include "weft/data/chat_template/chat_template.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/data/chat_template/interpreter.h"
#include "weft/data/chat_template/json_reader.h"
#include "weft/data/chat_template/lexer.h"
#include "weft/data/tokenizer/unicode.h"
#include "weft/io/files.h"

namespace weft::data {

using namespace chat_template;
using Json = nlohmann::ordered_json;

namespace {

constexpr size_t most_template_bytes = size_t{1} << 20;
constexpr size_t work_per_byte = 64;  // work allowed for each byte of a conversation
constexpr std::string_view argument_names[] = {"messages", "tools", "documents",
                                               "add_generation_prompt"};

}  // namespace

struct ChatTemplate::Parts {
  std::string name;
  SpecialTokens special_tokens;
  std::string source;
  Block block;

  Error error(int line, std::string_view what) const {
    return Error(ErrorKind::data, "[chat_template] {}:{}: {}.", io::printable(name), line, what);
  }
};

namespace {

// Starts recording, in each mapping within a value, which entries a template reads.
void watch(const Value& value) {
  if (const Sequence* sequence = value.sequence())
    for (const Value& item : sequence->items) watch(item);
  if (const Mapping* mapping = value.mapping()) {
    mapping->read.assign(mapping->entries.size(), false);
    for (const auto& [key, item] : mapping->entries) watch(item);
  }
}

bool is_empty(const Value& value) {
  const Sequence* sequence = value.sequence();
  const Mapping* mapping = value.mapping();
  return value.is_none() || (value.text() != nullptr && value.text()->empty()) ||
         (sequence != nullptr && sequence->items.empty()) ||
         (mapping != nullptr && mapping->entries.empty());
}

// Adds the keys below `path` whose values were not read and are not empty, each once. Skips "type"
// within a message: it names the kind of the values beside it, and few templates read it.
void add_unread(const Value& value, const std::string& path, std::vector<std::string>& keys) {
  if (const Sequence* sequence = value.sequence())
    for (const Value& item : sequence->items) add_unread(item, path, keys);
  const Mapping* mapping = value.mapping();
  if (mapping == nullptr) return;
  for (size_t i = 0; i < mapping->entries.size(); ++i) {
    const auto& [key, item] = mapping->entries[i];
    if (is_empty(item) || (!path.empty() && *key.text() == "type")) continue;
    const std::string name = path.empty() ? *key.text() : path + "." + *key.text();
    if (mapping->read[i])
      add_unread(item, name, keys);
    else if (std::ranges::find(keys, name) == keys.end())
      keys.push_back(name);
  }
}

std::vector<std::string> unread_of(const Value& message) {
  std::vector<std::string> keys;
  add_unread(message, "", keys);
  return keys;
}

bool has_generation(const Block& block) {
  return std::ranges::any_of(block, [](const Statement& statement) {
    return statement.kind == StatementKind::generation ||
           std::ranges::any_of(statement.blocks, has_generation);
  });
}

Rendering rendered(const ChatTemplate::Parts& parts, const Json& messages,
                   const ChatOptions& options) {
  JsonReader read;
  Value conversation;
  std::vector<std::pair<std::string_view, Value>> given;
  std::vector<std::pair<std::string_view, Value>> variables;
  const auto set = [&](std::string_view variable, Value value) {
    const auto old = std::ranges::find(variables, variable, [](const auto& v) { return v.first; });
    if (old != variables.end())
      old->second = std::move(value);
    else
      variables.emplace_back(variable, std::move(value));
  };
  const auto watched = [&](std::string_view variable, const Json& json) {
    Value value = read.value(json);
    watch(value);
    given.emplace_back(variable, value);
    return value;
  };
  try {
    if (!messages.is_array()) fail("the messages must be a list");
    for (const auto& [token, text] : parts.special_tokens) set(token, read.text(text));
    if (options.extra != nullptr) {
      if (!options.extra->is_object()) fail("extra variables must be an object");
      for (const auto& [key, item] : options.extra->items()) {
        if (std::ranges::find(argument_names, key) != std::end(argument_names))
          fail("'{}' is no extra variable", key);
        set(key, watched(key, item));
      }
    }
    const auto set_or_none = [&](std::string_view variable, const Json* json) {
      set(variable, json == nullptr ? Value(None{}) : watched(variable, *json));
    };
    conversation = read.value(messages);
    watch(conversation);
    set("messages", conversation);
    set_or_none("tools", options.tools);
    set_or_none("documents", options.documents);
    set("add_generation_prompt", options.add_generation_prompt);
  } catch (const Failure& failure) {
    throw Error(ErrorKind::data, "[chat_template] {}: the conversation cannot be read: {}.",
                io::printable(parts.name), failure.what);
  }
  Context context(options.most_work + work_per_byte * read.bytes(), options.now);
  Interpreter interpreter(context, std::move(variables));
  Rendering rendering;
  try {
    rendering.text = interpreter.run(parts.block);
  } catch (const Failure& failure) {
    throw TemplateRefusal(parts.error(interpreter.line(), failure.what));
  }
  rendering.generated = interpreter.generated();
  for (const Value& message : conversation.sequence()->items)
    rendering.unread_keys.push_back(unread_of(message));
  for (const auto& [variable, value] : given) {
    if (interpreter.has_read(variable))
      add_unread(value, std::string(variable), rendering.unread_variables);
    else
      rendering.unread_variables.emplace_back(variable);
  }
  return rendering;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view text, SpecialTokens special_tokens, std::string name) {
  auto parts = std::make_shared<Parts>(Parts{.name = std::move(name),
                                             .special_tokens = std::move(special_tokens),
                                             .source = {},
                                             .block = {}});
  if (text.size() > most_template_bytes)
    throw Error(ErrorKind::data, "[chat_template] {}: a template has {} bytes at most. Got {}.",
                io::printable(parts->name), most_template_bytes, text.size());
  try {
    parts->source = tokenizer::valid_utf8(text);
    parts->block = parse_template(parts->source);
  } catch (const SyntaxFailure& failure) {
    throw parts->error(failure.line, failure.what);
  }
  parts_ = std::move(parts);
}

Rendering ChatTemplate::rendering(const Json& messages, const ChatOptions& options) const {
  return rendered(*parts_, messages, options);
}

std::string ChatTemplate::render(const Json& messages, const ChatOptions& options) const {
  return rendered(*parts_, messages, options).text;
}

bool ChatTemplate::marks_answers() const { return has_generation(parts_->block); }

bool ChatTemplate::defines(std::string_view name) const {
  return find_function(name) != nullptr ||
         std::ranges::find(parts_->special_tokens, name, &SpecialTokens::value_type::first) !=
             parts_->special_tokens.end();
}

bool ChatTemplate::mentions(std::string_view word) const {
  return parts_->source.find(fmt::format("'{}'", word)) != std::string::npos ||
         parts_->source.find(fmt::format("\"{}\"", word)) != std::string::npos;
}

bool ChatTemplate::may_read(std::string_view name) const {
  const std::string_view source = parts_->source;
  const auto in_word = [&](size_t at) {
    return at < source.size() && is_name_character(source[at]);
  };
  for (size_t at = source.find(name); at != std::string_view::npos; at = source.find(name, at + 1))
    if ((at == 0 || !in_word(at - 1)) && !in_word(at + name.size())) return true;
  return false;
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages,
                                 const ChatOptions& options) const {
  Json list = Json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  return rendered(*parts_, list, options).text;
}

std::string ChatTemplate::render(std::initializer_list<ChatMessage> messages,
                                 const ChatOptions& options) const {
  return render(std::span(messages.begin(), messages.size()), options);
}

}  // namespace weft::data
