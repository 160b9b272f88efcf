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

// A message has its reasoning under the first two of these names, whichever the row has, as
// transformers gives it to templates.
inline constexpr std::string_view reasoning_names[] = {"reasoning_content", "thinking",
                                                       "reasoning"};

// TextRow is a completion, which is learned, behind a prompt, which is not.
struct TextRow {
  std::string prompt, completion;
};

// Conversation is what a chat template reads. Messages have their keys in the order of the row,
// without those that are null, "weight" and "train".
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

// ContentKinds says as what a template reads the content of a message.
struct ContentKinds {
  bool text = true, parts = true;  // a text; a list of {"type": "text", "text": "..."}
};
// Asks a template by letting it write a message of each kind.
ContentKinds content_kinds(const ChatTemplate& chat);

// `chat` is the template that will write conversations, null where there is none: it may know
// further roles. Contents become of a kind that it reads. Alpaca's rows are conversations where
// there is one, else texts in the words of Stanford Alpaca. Throws io::JsonError for what is in no
// form, or in several.
InstructionRow read_instruction_row(const nlohmann::ordered_json& row, const ChatTemplate* chat,
                                    ContentKinds kinds = {});

}  // namespace weft::data
