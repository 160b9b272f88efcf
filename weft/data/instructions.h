// Reads instruction data: a text file with a JSON object on each line (JSONL), in one of the forms
// of instruction_rows.h. All tokens of a text are learned, those of a completion behind its prompt,
// and those of the assistant's messages in a conversation, as a chat template writes them
// (answers.h): then a line is a sample for each text in which an answer is learned.
//
// A sample is a row of its own, padded behind its end; or several are packed into a row, with the
// position of each token in its sample, by which models keep them apart.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/chat_template/chat_template.h"
#include "weft/data/loader.h"
#include "weft/data/tokenizer/tokenizer.h"

namespace weft::data {

struct InstructionOptions {
  std::optional<ChatTemplate> chat = {};  // writes conversations; absent: they are refused
  std::optional<ChatTemplate> chat_with_tools = {};  // for conversations with tools; absent: `chat`
  std::optional<int32_t> end = {};  // the id that ends a text or a completion, and is learned
  bool last_answer = false;         // only the last learned message of a conversation stays learned
};

// Instruction is one sample: its tokens, which of them are learned, and whether it goes on with the
// conversation of the sample before.
struct Instruction {
  std::vector<int32_t> tokens;
  std::vector<bool> learned;
  bool goes_on = false;
};

// Returns the samples of a text; empty lines are skipped. Throws Error(data), "NAME:LINE: ...", for
// a line that is no instruction row, and for a conversation without an answer; Error(usage) if the
// template cannot render a conversation. Warns of keys that no sample reads.
std::vector<Instruction> parse_instructions(std::string_view text, const std::string& name,
                                            const Tokenizer& tokenizer,
                                            const InstructionOptions& options = {});
// Reads a file of at most 4 GiB.
std::vector<Instruction> read_instructions(const std::string& path, const Tokenizer& tokenizer,
                                           const InstructionOptions& options = {});

// Returns samples as inputs i64 [seq_len] and labels i64 [seq_len]; a label that is not learned is
// ignored_label. `packed`: a row holds several samples, and inputs are i64 [2, seq_len]: tokens,
// and the position of each token in its sample. Samples longer than seq_len are cut, and left out
// if no learned token remains, with a warning that counts them and names the file. Throws
// Error(data) if no sample remains.
std::shared_ptr<const Source> instruction_source(std::vector<Instruction> samples, int64_t seq_len,
                                                 const std::string& name, bool packed = false);

}  // namespace weft::data
