// Fuzzes the JSON lines of texts with labels.
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_tokenizer.h"
#include "weft/data/labelled.h"

using namespace weft;

namespace {
const std::string valid[] = {
    "{\"text\": \"et te\", \"label\": \"a\"}\n\n{\"text\": \"t\", \"label\": \"b\"}\r\n",
    "{\"text\": \"et te\", \"label\": 0}\n{\"text\": \"t\", \"label\": 12}\n",
    "{\"tokens\": [\"te\", \"e\", \"\"], \"labels\": [\"a\", \"b\", \"a\"]}\n"};

// Every label is a class, or where words have them, of no class.
void check(const data::LabelledTexts& texts) {
  const int64_t classes = std::ssize(texts.labels.names);
  for (const data::LabelledText& sample : texts.samples) {
    const size_t labels = texts.labels.of_words ? sample.tokens.size() : 1;
    if (sample.tokens.empty() || sample.labels.size() != labels) std::abort();
    for (const int32_t label : sample.labels)
      if ((label < 0 || label >= classes) &&
          !(texts.labels.of_words && label == data::ignored_label))
        std::abort();
  }
}
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool of_words : {false, true})
    for (const bool only_known : {false, true})
      fuzz::expect_value_or_error(ErrorKind::data, [&] {
        check(
            data::parse_labelled(text, "input", fuzz::small_tokenizer(),
                                 {.known = data::Labels{.of_words = of_words, .names = {"a", "b"}},
                                  .only_known = only_known}));
      });
  return 0;
}
