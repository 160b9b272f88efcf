#include "weft/data/chat_template/chat_template.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/data/chat_template/interpreter.h"
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

// JsonReader makes values of JSON, and counts its bytes.
class JsonReader {
 public:
  Value value(const Json& json, int depth = 0) {
    if (depth > most_nested_values) fail("values are nested deeper than {}", most_nested_values);
    bytes_ += sizeof(Value);
    switch (json.type()) {
      case Json::value_t::boolean:
        return json.get<bool>();
      case Json::value_t::number_integer:
        return json.get<int64_t>();
      case Json::value_t::number_unsigned:
        if (json.get<uint64_t>() > INT64_MAX)
          fail("{} has more than 64 bits", json.get<uint64_t>());
        return json.get<int64_t>();
      case Json::value_t::number_float:
        return json.get<double>();
      case Json::value_t::string:
        return text(json.get_ref<const std::string&>());
      case Json::value_t::array:
        return list(json, depth);
      case Json::value_t::object:
        return mapping(json, depth);
      default:
        return None{};
    }
  }
  Value text(std::string_view bytes) {
    bytes_ += bytes.size();
    return std::make_shared<const std::string>(tokenizer::valid_utf8(bytes));
  }
  size_t bytes() const { return bytes_; }

 private:
  Value list(const Json& json, int depth) {
    Sequence sequence;
    for (const Json& item : json) {
      sequence.items.push_back(value(item, depth + 1));
      sequence.depth = std::max(sequence.depth, 1 + depth_of(sequence.items.back()));
    }
    return std::make_shared<const Sequence>(std::move(sequence));
  }
  Value mapping(const Json& json, int depth) {
    Mapping mapping;
    for (const auto& [key, item] : json.items()) {
      mapping.entries.emplace_back(text(key), value(item, depth + 1));
      mapping.depth = std::max(mapping.depth, 1 + depth_of(mapping.entries.back().second));
    }
    return std::make_shared<const Mapping>(std::move(mapping));
  }

  size_t bytes_ = 0;
};

}  // namespace

struct ChatTemplate::Parts {
  std::string name;
  SpecialTokens special_tokens;
  Block block;

  [[noreturn]] void refuse(int line, std::string_view what) const {
    throw Error(ErrorKind::data, "[chat_template] {}:{}: {}.", io::printable(name), line, what);
  }
};

namespace {

std::string rendered(const ChatTemplate::Parts& parts, const Json& messages,
                     const ChatOptions& options) {
  JsonReader read;
  std::vector<std::pair<std::string_view, Value>> variables;
  const auto set = [&](std::string_view variable, Value value) {
    const auto old = std::ranges::find(variables, variable, [](const auto& v) { return v.first; });
    if (old != variables.end())
      old->second = std::move(value);
    else
      variables.emplace_back(variable, std::move(value));
  };
  try {
    if (!messages.is_array()) fail("the messages must be a list");
    for (const auto& [token, text] : parts.special_tokens) set(token, read.text(text));
    if (options.extra != nullptr) {
      if (!options.extra->is_object()) fail("extra variables must be an object");
      for (const auto& [key, item] : options.extra->items()) {
        if (std::ranges::find(argument_names, key) != std::end(argument_names))
          fail("'{}' is no extra variable", key);
        set(key, read.value(item));
      }
    }
    const auto value_or_none = [&](const Json* json) {
      return json == nullptr ? Value(None{}) : read.value(*json);
    };
    set("messages", read.value(messages));
    set("tools", value_or_none(options.tools));
    set("documents", value_or_none(options.documents));
    set("add_generation_prompt", options.add_generation_prompt);
  } catch (const Failure& failure) {
    throw Error(ErrorKind::data, "[chat_template] {}: the conversation cannot be read: {}.",
                io::printable(parts.name), failure.what);
  }
  Context context(options.most_work + work_per_byte * read.bytes(), options.now);
  Interpreter interpreter(context, std::move(variables));
  try {
    return interpreter.run(parts.block);
  } catch (const Failure& failure) {
    parts.refuse(interpreter.line(), failure.what);
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view text, SpecialTokens special_tokens, std::string name) {
  auto parts = std::make_shared<Parts>(
      Parts{.name = std::move(name), .special_tokens = std::move(special_tokens), .block = {}});
  if (text.size() > most_template_bytes)
    throw Error(ErrorKind::data, "[chat_template] {}: a template has {} bytes at most. Got {}.",
                io::printable(parts->name), most_template_bytes, text.size());
  try {
    parts->block = parse_template(tokenizer::valid_utf8(text));
  } catch (const SyntaxFailure& failure) {
    parts->refuse(failure.line, failure.what);
  }
  parts_ = std::move(parts);
}

std::string ChatTemplate::render(const Json& messages, const ChatOptions& options) const {
  return rendered(*parts_, messages, options);
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages,
                                 const ChatOptions& options) const {
  Json list = Json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  return rendered(*parts_, list, options);
}

std::string ChatTemplate::render(std::initializer_list<ChatMessage> messages,
                                 const ChatOptions& options) const {
  return render(std::span(messages.begin(), messages.size()), options);
}

}  // namespace weft::data
