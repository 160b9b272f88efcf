#include "weft/data/instruction_rows.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::data {
namespace {
using Json = nlohmann::ordered_json;
using Names = std::initializer_list<std::string_view>;

constexpr std::string_view known_roles[] = {"system",    "developer", "user",
                                            "assistant", "tool",      "function"};

template <class List>
bool is_in(const List& names, std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

[[noreturn]] void must(std::string_view name, std::string_view rule, const Json& got) {
  const std::string text = got.is_binary()  // the digits of an integer beyond 64 bits
                               ? std::string(got.get_binary().begin(), got.get_binary().end())
                               : io::json_text(got);
  throw io::JsonError(fmt::format("{} must be {}. Got {}", name, rule, io::printable(text)));
}

// Returns the value under a key; null where it is missing or null, as tables of rows with different
// keys have it.
const Json* find(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}
bool is_empty_text(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}
bool has(const Json& object, std::string_view key) { return find(object, key) != nullptr; }

std::string text_at(const Json& object, std::string_view key, std::string_view path = {}) {
  const std::string name = fmt::format("{}{}{}", path, path.empty() ? "" : ".", key);
  const Json* value = find(object, key);
  if (value == nullptr) throw io::JsonError(fmt::format("{} is missing", name));
  if (!value->is_string()) must(name, "text", *value);
  return value->get<std::string>();
}
std::string text_or_empty(const Json& object, std::string_view key) {
  return has(object, key) ? text_at(object, key) : std::string();
}

// Returns whether a value has an integer that is no int64, which templates cannot read.
bool has_long_integer(const Json& value) {
  if (value.is_structured()) return std::ranges::any_of(value, has_long_integer);
  return value.is_binary() ||
         (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX});
}

// Returns a list of objects, given as a list or as the JSON text of a list.
Json list_of_objects(const Json& value, const std::string& name) {
  if (value.is_string()) {
    try {
      return list_of_objects(io::parse_ordered_json_line(value.get_ref<const std::string&>()),
                             name);
    } catch (const io::JsonError& error) {
      throw io::JsonError(fmt::format("{}: {}", name, error.what()));
    }
  }
  if (!value.is_array()) must(name, "a list", value);
  for (const Json& item : value)
    if (!item.is_object()) must(name, "a list of objects", value);
  return value;
}

// Returns whether a row or a message says that it is learned ("weight": 0 or 1, "train": true or
// false); nullopt where it says nothing.
std::optional<bool> weight_of(const Json& object, std::string_view path) {
  const auto name = [&](std::string_view key) { return fmt::format("{}{}", path, key); };
  const Json *weight = find(object, "weight"), *train = find(object, "train");
  if (weight != nullptr && train != nullptr)
    throw io::JsonError(fmt::format("{} and train say the same. Give one", name("weight")));
  if (train != nullptr) {
    if (!train->is_boolean()) must(name("train"), "true or false", *train);
    return train->get<bool>();
  }
  if (weight == nullptr) return std::nullopt;
  if (!weight->is_number() || (weight->get<double>() != 0 && weight->get<double>() != 1))
    must(name("weight"), "0 or 1, as a token counts whole or not at all", *weight);
  return weight->get<double>() == 1;
}

// ---- messages
// ------------------------------------------------------------------------------------

// Returns the role that ShareGPT's "from" stands for.
std::string role_of_sender(const std::string& sender) {
  static const std::map<std::string, std::string, std::less<>> roles = {
      {"human", "user"},       {"gpt", "assistant"},           {"chatgpt", "assistant"},
      {"bard", "assistant"},   {"bing", "assistant"},          {"model", "assistant"},
      {"observation", "tool"}, {"function_call", "assistant"}, {"function_response", "tool"}};
  const auto found = roles.find(sender);
  return found == roles.end() ? sender : found->second;
}

// Throws for a function call without a name, as {"function": {"name"}} or {"name"}. Calls of
// another "type" are not checked: they have other keys.
void check_call(const Json& call, std::string path) {
  if (has(call, "type") && text_at(call, "type", path) != "function") return;
  const Json* function = find(call, "function");
  if (function != nullptr) path += ".function";
  if (function != nullptr && !function->is_object()) must(path, "an object", *function);
  if (text_at(function != nullptr ? *function : call, "name", path).empty())
    throw io::JsonError(path + ".name is empty");
}

// Returns the tool calls of a ShareGPT message from "function_call". Its "value" is the JSON text
// of one call, or of a list of calls.
Json calls_of(const Json& message, const std::string& path) {
  const std::string text = text_at(message, "value", path);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const bool one = begin != std::string::npos && text[begin] == '{';
  Json calls = Json::array();
  for (const Json& call : list_of_objects(one ? "[" + text + "]" : text, path + ".value")) {
    check_call(call, path + ".value");
    calls.push_back(has(call, "function") ? call : Json{{"type", "function"}, {"function", call}});
  }
  return calls;
}

// Returns a message of ShareGPT's form ("from", "value") with a role and a content.
Json renamed(const Json& message, const std::string& path) {
  const std::string sender = text_at(message, "from", path);
  Json made = Json::object();
  for (const auto& [key, value] : message.items()) {
    if (key == "from")
      made["role"] = role_of_sender(sender);
    else if (key != "value")
      made[key] = value;
    else if (sender == "function_call")
      made["tool_calls"] = calls_of(message, path);
    else
      made["content"] = value;
  }
  return made;
}

// A MessageReader converts the messages of a row to the keys and contents that a chat template
// reads.
class MessageReader {
 public:
  MessageReader(const ChatTemplate* chat, ContentKinds kinds, Conversation& conversation)
      : chat_(chat), kinds_(kinds), conversation_(conversation) {}

  // Adds the messages of a list. `answers`: the assistant's messages are learned, unless their own
  // "weight" or "train" says otherwise.
  void add(const Json& list, const std::string& name, bool answers = true) {
    if (!list.is_array()) throw io::JsonError(name + " must be a list");
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string path = fmt::format("{}[{}]", name, i);
      const Json& message = list[i];
      if (!message.is_object()) must(path, "an object", message);
      const bool sends = has(message, "from") || has(message, "value");
      if (sends && (has(message, "role") || has(message, "content")))
        throw io::JsonError(
            fmt::format("{} has two forms: role and content, and from and value", path));
      if (i > 0 && sends != sends_)
        throw io::JsonError(
            fmt::format("{} mixes two forms: role and content, and from and value", name));
      sends_ = sends;
      add_message(sends ? renamed(message, path) : message, path, answers);
    }
  }
  void add_text(std::string_view role, const std::string& content, bool learned = false) {
    conversation_.messages.push_back({{"role", role}, {"content", in_kind(content)}});
    conversation_.learned.push_back(learned);
  }

 private:
  void add_message(const Json& message, const std::string& path, bool answers) {
    const std::string role = text_at(message, "role", path);
    if (!is_in(known_roles, role) && (chat_ == nullptr || !chat_->mentions(role)))
      throw io::JsonError(fmt::format(
          "{}.{}: there is no role {}. Known: {}, and those that the chat template names", path,
          sends_ ? "from" : "role", io::printable(io::json_text(message["role"])),
          fmt::join(known_roles, ", ")));
    const bool is_answer = role == "assistant";
    Json made = Json::object();
    for (const auto& [key, value] : message.items())
      if (has_long_integer(value) && !(chat_ != nullptr && chat_->may_read(key)))
        conversation_.unread.push_back(fmt::format("{} of {} messages", key, role));
      else if (!value.is_null() && key != "weight" && key != "train")
        made[key] = value;
    if (const Json* content = find(made, "content"))
      made["content"] = read_content(*content, path + ".content", role);
    else if (!is_answer || made.size() == 1)
      throw io::JsonError(path + ".content is missing");
    if (const Json* calls = find(made, "tool_calls")) {
      made["tool_calls"] = list_of_objects(*calls, path + ".tool_calls");
      for (size_t i = 0; i < made["tool_calls"].size(); ++i)
        check_call(made["tool_calls"][i], fmt::format("{}.tool_calls[{}]", path, i));
    }
    name_reasoning(made);
    conversation_.messages.push_back(std::move(made));
    conversation_.learned.push_back(weight_of(message, path + ".").value_or(is_answer && answers));
  }

  // Content is text, a list of parts, or an object that a tool returned. Parts that are text alone
  // become one text where the template reads no parts.
  Json read_content(const Json& content, const std::string& path, std::string_view role) const {
    if (content.is_string()) return in_kind(content.get<std::string>());
    if (content.is_object()) return content;
    if (!content.is_array()) must(path, "text or a list of parts", content);
    std::string joined;
    bool all_text = !content.empty();
    for (const Json& part : content) {
      if (role == "tool" || role == "function") return content;
      if (!part.is_object()) must(path, "text or a list of parts, which are objects", content);
      const std::string type = has(part, "type") ? text_at(part, "type", path) : "";
      for (const std::string_view medium : {"image", "video", "audio"})
        if (type.find(medium) != std::string::npos)
          throw io::JsonError(fmt::format("{} has a part of type {}. weft learns text alone", path,
                                          io::printable(type)));
      const bool is_text = type == "text" || type.empty();
      if (!is_text && chat_ != nullptr && !(kinds_.parts && chat_->mentions(type)))
        throw io::JsonError(
            fmt::format("{} has a part of type {}, which the chat template does not read", path,
                        io::printable(type)));
      all_text = all_text && is_text;
      if (all_text) joined += (joined.empty() ? "" : "\n") + text_at(part, "text", path);
    }
    return all_text && !kinds_.parts ? Json(joined) : content;
  }
  // Returns a text in the form that the template reads: a string, or a list of one part.
  Json in_kind(const std::string& text) const {
    if (kinds_.text) return text;
    return Json::array({{{"type", "text"}, {"text", text}}});
  }

  static void name_reasoning(Json& message) {
    for (const std::string_view name : reasoning_names) {
      if (const Json* found = find(message, name)) {
        const Json reasoning = *found;
        if (!has(message, "thinking")) message["thinking"] = reasoning;
        message["reasoning_content"] = reasoning;
        return;
      }
    }
  }

  const ChatTemplate* chat_;
  ContentKinds kinds_;
  Conversation& conversation_;
  bool sends_ = false;
};

// ---- rows
// ----------------------------------------------------------------------------------------

// A Form is recognized by the keys `marks`; its rows may also have the keys `others`.
struct Form {
  std::string_view name;
  std::vector<std::string_view> marks, others = {};
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"text", {"text"}},
      {"prompt and completion", {"prompt", "completion"}},
      {"messages", {"messages"}},
      {"conversations", {"conversations"}, {"system"}},
      {"instruction and output", {"instruction", "output"}, {"input", "history", "system"}}};
  return all;
}

// Returns whether a row of the form `other` also has "text", made from its other columns, as rows
// of Stanford Alpaca have.
bool repeats(const Json& row, const Form& text, const Form& other) {
  const Json *whole = find(row, "text"), *output = find(row, "output");
  return text.name == "text" && other.name == "instruction and output" && whole->is_string() &&
         output != nullptr && output->is_string() &&
         whole->get_ref<const std::string&>().ends_with(output->get_ref<const std::string&>());
}

// Returns the form of a row: the only form of which the row has all marks, or else any (rows with
// messages may also have "prompt"). Marks with nonempty text come first, because a table has every
// column in every row.
const Form& form_of(const Json& row) {
  const auto has_text = [&](std::string_view mark) {
    const Json* value = find(row, mark);
    return value != nullptr && !is_empty_text(*value);
  };
  const auto has_some = [&](std::string_view mark) { return has(row, mark); };
  const auto only = [&](const auto& is_form) {
    const Form* found = nullptr;
    for (const Form& form : forms()) {
      if (!is_form(form.marks)) continue;
      if (found != nullptr && !repeats(row, *found, form))
        throw io::JsonError(
            fmt::format("a sample has one form. Got {}, and {}", found->name, form.name));
      found = &form;
    }
    return found;
  };
  const Form* found = only([&](const auto& marks) { return std::ranges::all_of(marks, has_text); });
  if (found == nullptr)
    found = only([&](const auto& marks) { return std::ranges::any_of(marks, has_text); });
  if (found == nullptr)
    found = only([&](const auto& marks) { return std::ranges::any_of(marks, has_some); });
  if (found != nullptr) return *found;
  throw io::JsonError(
      "a sample has text, prompt and completion, or messages (or conversations, or instruction "
      "and output)");
}

// Returns a row of Alpaca's as a text, in the words that Stanford Alpaca gave it.
TextRow alpaca_text(const Json& row) {
  const Json* history = find(row, "history");
  if (!text_or_empty(row, "system").empty() || (history != nullptr && !history->empty()))
    throw io::JsonError(
        "system and history need a chat template, which the tokenizer's folder lacks");
  const std::string instruction = text_at(row, "instruction"), input = text_or_empty(row, "input");
  const std::string with_input =
      input.empty() ? "" : ", paired with an input that provides further context";
  return {
      .prompt = fmt::format(
          "Below is an instruction that describes a task{}. Write a response that "
          "appropriately completes the request.\n\n### Instruction:\n{}\n\n{}### Response:\n",
          with_input, instruction, input.empty() ? "" : fmt::format("### Input:\n{}\n\n", input)),
      .completion = text_at(row, "output")};
}

class RowReader {
 public:
  RowReader(const Json& row, const ChatTemplate* chat, ContentKinds kinds)
      : row_(row), chat_(chat), kinds_(kinds) {}

  InstructionRow read() {
    if (!row_.is_object()) throw io::JsonError("a sample must be an object");
    const Form& form = form_of(row_);
    InstructionRow made{.sample = sample(form)};
    if (auto* conversation = std::get_if<Conversation>(&made.sample))
      made.unread = std::move(conversation->unread);
    made.learned = weight_of(row_, "").value_or(true);
    read_variables(form, made);
    return made;
  }

 private:
  std::variant<TextRow, Conversation> sample(const Form& form) {
    if (form.name == "text") return TextRow{.prompt = "", .completion = text_at(row_, "text")};
    if (form.name == "instruction and output" && chat_ == nullptr) return alpaca_text(row_);
    Conversation conversation;
    MessageReader messages(chat_, kinds_, conversation);
    if (form.name == "prompt and completion") {
      const Json *prompt = find(row_, "prompt"), *completion = find(row_, "completion");
      const bool lists = prompt != nullptr && completion != nullptr && prompt->is_array();
      if (prompt != nullptr && completion != nullptr && lists != completion->is_array())
        throw io::JsonError("prompt and completion must both be text, or both lists of messages");
      if (!lists)
        return TextRow{.prompt = text_at(row_, "prompt"),
                       .completion = text_at(row_, "completion")};
      messages.add(*prompt, "prompt", /*answers=*/false);
      messages.add(*completion, "completion");
    } else if (form.name == "instruction and output") {
      add_alpaca(messages);
    } else {
      if (form.name == "conversations") add_system(messages);
      messages.add(row_.at(std::string(form.name)), std::string(form.name));
    }
    return conversation;
  }

  // An empty "system" is left out: in a table, only some rows may have a system message.
  void add_system(MessageReader& messages) const {
    if (const std::string text = text_or_empty(row_, "system"); !text.empty())
      messages.add_text("system", text);
  }

  void add_alpaca(MessageReader& messages) const {
    add_system(messages);
    if (const Json* history = find(row_, "history")) {
      if (!history->is_array()) must("history", "a list of pairs", *history);
      for (const Json& turn : *history) {
        if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string())
          must("history", "a list of pairs of texts", turn);
        messages.add_text("user", turn[0]);
        messages.add_text("assistant", turn[1], /*learned=*/true);
      }
    }
    const std::string input = text_or_empty(row_, "input");
    messages.add_text("user", text_at(row_, "instruction") + (input.empty() ? "" : "\n") + input);
    messages.add_text("assistant", text_at(row_, "output"), /*learned=*/true);
  }

  // Passes the row's other keys to the chat template as variables; without a template, or where it
  // cannot read a key, the key counts as unread.
  void read_variables(const Form& form, InstructionRow& made) const {
    auto* conversation = std::get_if<Conversation>(&made.sample);
    for (const auto& [key, value] : row_.items()) {
      if (value.is_null() || key == "weight" || key == "train" || is_in(form.marks, key) ||
          is_in(form.others, key))
        continue;
      const bool of_another_form =
          std::ranges::any_of(forms(), [&](const Form& each) { return is_in(each.marks, key); });
      if (of_another_form || !may_read(key, value, conversation)) {
        if (!of_another_form || !is_empty_text(value)) made.unread.push_back(key);
      } else if (key == "tools" || key == "documents") {
        read_list(key, value, key == "tools" ? conversation->tools : conversation->documents);
      } else if (key == "chat_template_kwargs") {
        read_arguments(value, *conversation, made.unread);
      } else {
        conversation->extra[key] = value;
      }
    }
  }
  // Returns whether a template may read a column as a variable.
  bool may_read(const std::string& key, const Json& value, const Conversation* conversation) const {
    if (conversation == nullptr || key == "add_generation_prompt") return false;
    if (key == "chat_template_kwargs") return true;
    if (chat_ == nullptr) return !has_long_integer(value);
    return !chat_->defines(key) && (!has_long_integer(value) || chat_->may_read(key));
  }
  // An empty list counts as absent, because templates write an introduction of tools for any list.
  static void read_list(const std::string& key, const Json& value, std::optional<Json>& into) {
    Json list = list_of_objects(value, key);
    if (!list.empty()) into = std::move(list);
  }
  void read_arguments(const Json& value, Conversation& conversation,
                      std::vector<std::string>& unread) const {
    if (!value.is_object()) must("chat_template_kwargs", "an object", value);
    for (const auto& [key, each] : value.items()) {
      if (is_in(Names{"messages", "tools", "documents", "add_generation_prompt"}, key))
        throw io::JsonError(
            fmt::format("chat_template_kwargs has {}, which is no variable of its own", key));
      if (has_long_integer(each) && !(chat_ != nullptr && chat_->may_read(key)))
        unread.push_back(key);
      else
        conversation.extra[key] = each;
    }
  }

  const Json& row_;
  const ChatTemplate* chat_;
  ContentKinds kinds_;
};

}  // namespace

ContentKinds content_kinds(const ChatTemplate& chat) {
  const std::string probe = "weft probes";
  const auto reads = [&](const Json& content) {
    try {
      const std::string text =
          chat.render(Json::array({{{"role", "user"}, {"content", content}}}), {});
      // A template that prints the list of parts as it is also prints the key "type".
      return text.find(probe) != std::string::npos && text.find("'type'") == std::string::npos &&
             text.find("\"type\"") == std::string::npos;
    } catch (const TemplateRefusal&) {
      return false;
    }
  };
  const ContentKinds kinds{.text = reads(probe),
                           .parts = reads(Json::array({{{"type", "text"}, {"text", probe}}}))};
  return kinds.text || kinds.parts ? kinds : ContentKinds();
}

InstructionRow read_instruction_row(const Json& row, const ChatTemplate* chat, ContentKinds kinds) {
  return RowReader(row, chat, kinds).read();
}

}  // namespace weft::data
