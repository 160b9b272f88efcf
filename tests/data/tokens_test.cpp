#include "weft/data/tokens.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/captured.h"
#include "weft/base/host/env.h"

using namespace weft;
using namespace weft::test;
using data::TokenDataset;

namespace {

TokenDataset counting(int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return TokenDataset(tokens, count);
}

struct LabelledTokens {
  std::vector<int64_t> inputs, labels;
};
LabelledTokens labelled_tokens(const data::Source& source, const data::SampleKey& key) {
  auto length = static_cast<size_t>(source.input_type().elements());
  LabelledTokens w{std::vector<int64_t>(length, 777), std::vector<int64_t>(length, 777)};
  source.write(key, reinterpret_cast<std::byte*>(w.inputs.data()), w.labels.data());
  return w;
}

}  // namespace

TEST_CASE(
    "random windows are contiguous, labelled with the next tokens, and cover the whole text") {
  auto source = counting(20).random_windows(4);
  CHECK(source->size() == 5);
  CHECK(source->input_type() == Type{DType::i64, {4}});
  CHECK(source->label_shape() == Shape{4});
  std::set<int64_t> starts;
  for (int64_t epoch = 0; epoch < 100; ++epoch)
    for (int64_t index = 0; index < 5; ++index) {
      auto [inputs, labels] = labelled_tokens(*source, {1, epoch, index});
      for (size_t t = 0; t < 4; ++t) {
        CHECK(inputs[t] == inputs[0] + static_cast<int64_t>(t));
        CHECK(labels[t] == inputs[t] + 1);
      }
      starts.insert(inputs[0]);
    }
  CHECK(starts.size() == 16);
  CHECK(*starts.rbegin() == 15);
  CHECK(labelled_tokens(*source, {1, 2, 3}).inputs == labelled_tokens(*source, {1, 2, 3}).inputs);
}

TEST_CASE("sequential windows label every token but the first exactly once") {
  for (int32_t count : {2, 5, 8, 9, 10, 13}) {
    auto source = counting(count).windows(4);
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < source->size(); ++i) {
      LabelledTokens w = labelled_tokens(*source, {0, 0, i});
      for (size_t t = 0; t < 4; ++t) {
        if (w.labels[t] == data::ignored_label) {
          CHECK(w.inputs[t] == 0);
          continue;
        }
        CHECK(w.labels[t] == w.inputs[t] + 1);
        labels.push_back(w.labels[t]);
      }
    }
    std::vector<int64_t> expected(static_cast<size_t>(count) - 1);
    std::iota(expected.begin(), expected.end(), 1);
    CHECK(labels == expected);
  }
}

TEST_CASE("streams that are too short and tokens out of range are refused") {
  CHECK(error_of([] { counting(4).random_windows(4); }) ==
        "data: [data] 4 tokens are too few for windows of seq_len 4 and a label.");
  CHECK(error_of([] { counting(1).windows(4); }) ==
        "data: [data] 1 tokens are too few: a label follows a token.");
  CHECK(error_of([] { counting(4).windows(0); }) ==
        "usage: [data] seq_len must be positive. Got 0.");
  CHECK(error_of([] { TokenDataset({1, 5}, 5); }) ==
        "data: [data] token 5 at position 1 is outside 0 to 4.");
  CHECK(error_of([] { counting(4).slice(2, 5); }) ==
        "usage: [data] slice [2, 5) is outside the 4 tokens.");
}

TEST_CASE("a text splits into training and validation") {
  TemporaryFolder folder;
  std::string path = folder.file("t", "abababababababababaz");
  data::TextDataset text = data::text(path);
  CHECK(text.vocabulary.size() == 3);
  CHECK(text.train.size() == 18);
  CHECK(text.validation.size() == 2);
  CHECK(text.vocabulary.decode(text.validation.tokens()) == "az");
  data::TextDataset bytes = data::text(path, {.tokenizer = "bytes", .val_split = 0});
  CHECK(bytes.train.vocabulary_size() == 256);
  CHECK(bytes.validation.size() == 0);
  data::TextDataset two = data::text(path, {.val_path = folder.file("v", "xyz")});
  CHECK(two.train.size() == 20);
  CHECK(two.vocabulary.decode(two.validation.tokens()) == "xyz");
  CHECK(two.vocabulary.size() == 5);
}

TEST_CASE("a warning counts validation characters missing from the training text") {
  TemporaryFolder folder;
  const std::string path = folder.file("t", "abababababababababaz");
  auto warning = [&](const data::TextOptions& options) {
    test::Captured warnings(2);
    data::text(path, options);
    return warnings.text();
  };
  const std::string tail = " of its characters do not occur in the training text.\n";
  const std::string begin = "weft: warning: [data] ", other = folder.file("v", "xyz");
  CHECK(warning({}) == begin + "the end of " + path + ": 1" + tail);
  CHECK(warning({.val_path = other}) == begin + other + ": 2" + tail);
  CHECK(warning({.val_path = path}) == "");
  CHECK(warning({.tokenizer = "bytes", .val_path = other}) == "");
  // Invalid UTF-8 is reported with its offset in its own file.
  const std::string broken = folder.file("b", "ab\xff");
  const std::string wrong = error_of([&] { data::text(path, {.val_path = broken}); });
  CHECK(wrong.starts_with("data: " + broken + ": "));
  CHECK(wrong.find("offset 2") != std::string::npos);
}

TEST_CASE("a text is read with the vocabulary of an earlier run") {
  TemporaryFolder folder;
  std::string path = folder.file("t", "bbbbb");
  CHECK(data::text(path, {.vocabulary = io::Vocabulary::characters("abc")}).train.tokens()[0] == 1);
  CHECK(
      error_of([&] { data::text(path, {.vocabulary = io::Vocabulary::characters("ac")}); }) ==
      "data: " + path +
          ": [text] 5 characters are not among the 2 of the vocabulary. The first is U+0062 'b' at "
          "offset 0.");
  CHECK(error_of([&] { data::text(path, {.tokenizer = "words"}); }) ==
        "usage: " + path + ": [data] unknown tokenizer 'words'. Known: bytes, characters.");
  CHECK(error_of([&] { data::text(folder.file("none")); }) ==
        "data: cannot open " + folder.file("none") + ": No such file or directory.");
}

TEST_CASE("tiny Shakespeare has nanoGPT's vocabulary and split") {
  if (!has_data("text/tinyshakespeare.txt")) return;
  data::TextDataset text = data::text(data_directory() + "/text/tinyshakespeare.txt");
  CHECK(text.vocabulary.size() == 65);
  CHECK(text.train.size() == 1'003'854);
  CHECK(text.validation.size() == 111'540);
  CHECK(text.vocabulary.decode(text.train.tokens().first(14)) == "First Citizen:");
  CHECK(text.train.tokens()[0] == 18);  // 'F', as nanoGPT numbers it
}
