// Writes the answers of a conversation as the texts that a model learns them in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/data/chat_template/chat_template.h"
#include "weft/data/instruction_rows.h"
#include "weft/data/learned_tokens.h"

namespace weft::data {

// AnswerText is a conversation up to an answer, with the parts of it that are learned.
struct AnswerText {
  std::string text;
  std::vector<LearnedPart> parts;
};

// AnswerReport counts what the texts of a file leave out.
struct AnswerReport {
  std::map<std::string, int64_t> unread = {};  // values of a key, "name of user messages"
  int64_t cut_prompts = 0;                     // answers whose texts lack the end of their prompt
  std::string cut = {};                        // the missing end of the first such prompt
  int64_t rewritten = 0, texts = 0;            // conversations of several texts; their texts
};

// Returns the training texts of a conversation. A message is learned in the rendering of the
// conversation up to it: all that follows its prompt (the rendering of the messages before it, with
// a generation prompt before an answer), or the parts that the template marks by {% generation %}.
// Messages share a text as long as each rendering continues the one before; if the template
// rewrites earlier messages, a new text begins. If the rendering then does not contain the prompt
// (gpt-oss drops the reasoning of tool calls), the message is put behind its prompt. Throws
// Error(usage) if the template cannot render a message, or rewrites the earlier messages so that
// the start of the message cannot be found.
std::vector<AnswerText> answer_texts(const Conversation& conversation, const ChatTemplate& chat,
                                     const Tokenizer& tokenizer, AnswerReport& report);

}  // namespace weft::data
