// Reads texts with labels, from which encoders learn: a text file with a JSON object on each line
// (JSONL), all of one form:
//
//   {"text": "...", "label": "positive"}                     a label of the sample
//   {"tokens": ["John", "lives"], "labels": ["B-PER", "O"]}  a label of each word
//
// A label is a name, or a whole number from 0. As in the examples of Hugging Face's transformers
// (run_glue, run_ner), the first token of a word has its label, and the word's other tokens none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/framed.h"
#include "weft/data/loader.h"
#include "weft/data/tokenizer/tokenizer.h"

namespace weft::data {

// Labels are the classes that texts have.
struct Labels {
  bool of_words = false;                // else of whole samples
  std::vector<std::string> names = {};  // by class
};

struct LabelledText {
  std::vector<int32_t> tokens;  // without special tokens
  std::vector<int32_t> labels;  // classes: of the sample, or of each token, some ignored_label
};
struct LabelledTexts {
  Labels labels;
  std::vector<LabelledText> samples;
};

struct LabelOptions {
  // `known` are the labels of the model's head. A number is a class of the head, or a name where
  // all names are numbers.
  std::optional<Labels> known = {};
  // `only_known` says whether labels that are not known are errors. Without it, such labels make
  // the file's own labels the classes: names in the order of their bytes, numbers by size.
  bool only_known = false;
};

// Returns the samples of a text; empty lines are skipped. Throws Error(data), "NAME:LINE: ...", for
// a line that is no such object, for an unknown label with `only_known`, and for a sample without a
// token; and for more than 65,536 labels, or only one.
LabelledTexts parse_labelled(std::string_view text, const std::string& name,
                             const Tokenizer& tokenizer, const LabelOptions& options = {});
// Reads a file of at most 4 GiB.
LabelledTexts read_labelled(const std::string& path, const Tokenizer& tokenizer,
                            const LabelOptions& options = {});

// Returns samples as inputs i64 [seq_len], each text in the frame, and labels i64 [] or [seq_len].
// Longer texts are cut at their end, with a warning that counts them by the name of the file.
// Throws Error(data) if there is no sample.
std::shared_ptr<const Source> labelled_source(std::vector<LabelledText> samples, bool of_words,
                                              const Frame& frame, int64_t seq_len,
                                              const std::string& name);

}  // namespace weft::data
