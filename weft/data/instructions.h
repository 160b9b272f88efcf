// Reads instruction data: a text file with a JSON object on each line (JSONL), which is one sample:
//
//   {"text": "..."}                                       all of its tokens are learned
//   {"prompt": "...", "completion": "..."}                those of the completion are
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
//                                                         those of the assistant's messages are
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
  std::optional<int32_t> end = {};        // the id that ends a text or a completion, and is learned
};

// Instruction is one sample: its tokens, and which of them are learned.
struct Instruction {
  std::vector<int32_t> tokens;
  std::vector<bool> learned;
};

// Returns the samples of a text; empty lines are skipped. Throws Error(data), "NAME:LINE: ...", for
// a line that is no such object, and for a conversation without an answer.
std::vector<Instruction> parse_instructions(std::string_view text, const std::string& name,
                                            const Tokenizer& tokenizer,
                                            const InstructionOptions& options = {});
// Reads a file of at most 4 GiB.
std::vector<Instruction> read_instructions(const std::string& path, const Tokenizer& tokenizer,
                                           const InstructionOptions& options = {});

// Returns samples as inputs i64 [seq_len] and labels i64 [seq_len], of which those that are not
// learned are ignored_label. `packed`: inputs are i64 [2, seq_len], the tokens of as many samples
// as fit, and the position of each token in its sample. Longer ones are cut, and left out where
// nothing that is learned remains, with a warning that counts them by the name of the file. Throws
// Error(data) if no sample remains.
std::shared_ptr<const Source> instruction_source(std::vector<Instruction> samples, int64_t seq_len,
                                                 const std::string& name, bool packed = false);

}  // namespace weft::data
