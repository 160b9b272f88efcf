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
  std::string cut = {};                        // that end, of the first of them
  int64_t rewritten = 0, texts = 0;            // conversations of several texts, and those
};

// Returns the texts in which the learned messages of a conversation are learned: each is what the
// template writes for the conversation up to that message, behind the prompt that it writes for a
// model to answer to. Where the template marks answers by {% generation %}, those parts are
// learned. Messages share a text as long as it goes on from that of the message before; where the
// template rewrites what was said before, another begins. Where it writes a message after what its
// prompt does not say, as gpt-oss does without the reasoning of calls, the message is learned
// behind its prompt. Throws Error(usage) where the template cannot write a message, or changes what
// was said before it so that the two have no end in common.
std::vector<AnswerText> answer_texts(const Conversation& conversation, const ChatTemplate& chat,
                                     const Tokenizer& tokenizer, AnswerReport& report);

}  // namespace weft::data
