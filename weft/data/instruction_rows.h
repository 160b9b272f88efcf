// Reads the rows of instruction data, in the forms that are usual for them, as texts and as
// conversations:
//
//   {"text": "..."}
//   {"prompt": "...", "completion": "..."}
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
//   {"prompt": [messages], "completion": [messages]}                                TRL's
//   {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", ...}]}    ShareGPT's
//   {"instruction": "...", "input": "...", "output": "..."}                         Alpaca's
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/data/chat_template/chat_template.h"

namespace weft::data {

// A row may have the reasoning of a message under any of these names. The template gets it under
// the first two, as transformers passes it.
inline constexpr std::string_view reasoning_names[] = {"reasoning_content", "thinking",
                                                       "reasoning"};

// TextRow is a completion, which is learned, behind a prompt, which is not.
struct TextRow {
  std::string prompt, completion;
};

// Conversation is the input of a chat template. Messages have their keys in the order of the row,
// without "weight", "train" and keys whose value is null.
struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  std::vector<bool> learned = {};  // of each message
  std::optional<nlohmann::ordered_json> tools = {}, documents = {};
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();  // further variables
  std::vector<std::string> unread = {};  // keys of messages that no template could read
};

struct InstructionRow {
  std::variant<TextRow, Conversation> sample;
  bool learned = true;                   // false: a row of weight 0
  std::vector<std::string> unread = {};  // keys that no text reads
};

// ContentKinds says in which forms a template reads the content of a message.
struct ContentKinds {
  bool text = true, parts = true;  // a text; a list of {"type": "text", "text": "..."}
};
// Finds the forms by rendering a message in each form.
ContentKinds content_kinds(const ChatTemplate& chat);

// `chat` is the template that will render conversations, or null. It may know further roles.
// Contents are converted to a form that it reads. Rows with an instruction and an output become
// conversations if there is a template, else texts in the words of Stanford Alpaca. Throws
// io::JsonError for a row that has no form, or several.
InstructionRow read_instruction_row(const nlohmann::ordered_json& row, const ChatTemplate* chat,
                                    ContentKinds kinds = {});

}  // namespace weft::data
