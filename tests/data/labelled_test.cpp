// Tests texts with labels: which labels a file has, and what it must not have. Batches are compared
// with transformers in tests/train/labelled_test.cpp.
#include "weft/data/labelled.h"

#include <doctest/doctest.h>

#include "tests/support/captured.h"
#include "tests/support/published_model.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/error.h"

using namespace weft;
using namespace weft::data;
using doctest::Contains;

namespace {
using Names = std::vector<std::string>;

// LabelledFiles have a tokenizer of characters, which puts [CLS] 2 and [SEP] 3 around a text.
struct LabelledFiles : test::TemporaryFolder {
  Tokenizer tokenizer =
      Tokenizer::load((test::write_published_encoder(file("model")), file("model")));
  LabelledTexts read(std::string_view text, const LabelOptions& options = {}) const {
    return read_labelled(file("data.jsonl", text), tokenizer, options);
  }
  LabelledTexts with_labels(const Names& labels, const LabelOptions& options = {}) const {
    std::string lines;
    for (const std::string& label : labels)
      lines += "{\"text\": \"a\", \"label\": " + label + "}\n";
    return read(lines, options);
  }
};
std::vector<int32_t> labels_of(const LabelledTexts& texts) {
  std::vector<int32_t> labels;
  for (const LabelledText& sample : texts.samples)
    labels.insert(labels.end(), sample.labels.begin(), sample.labels.end());
  return labels;
}
}  // namespace

TEST_CASE("a file's own labels are sorted: names by their bytes, numbers by size") {
  const LabelledFiles place;
  const LabelledTexts names = place.with_labels({"\"b\"", "\"a\"", "\"B\"", "\"b\""});
  CHECK(names.labels.names == Names{"B", "a", "b"});
  CHECK(labels_of(names) == std::vector<int32_t>{2, 1, 0, 2});
  const LabelledTexts numbers = place.with_labels({"10", "2", "1", "10"});
  CHECK(numbers.labels.names == Names{"1", "2", "10"});
  CHECK(labels_of(numbers) == std::vector<int32_t>{2, 1, 0, 2});
}

TEST_CASE("labels that a head knows keep its numbers, whether they are names or numbers") {
  const LabelledFiles place;
  const LabelOptions known{.known = Labels{.names = {"LABEL_0", "LABEL_1", "LABEL_2"}}};
  const LabelledTexts numbers = place.with_labels({"1", "0", "1"}, known);
  CHECK(numbers.labels.names == known.known->names);
  CHECK(labels_of(numbers) == std::vector<int32_t>{1, 0, 1});
  CHECK(labels_of(place.with_labels({"\"LABEL_2\"", "\"LABEL_1\""}, known)) ==
        std::vector<int32_t>{2, 1});
  // A label that `known` lacks makes the labels the file's own.
  CHECK(place.with_labels({"1", "0", "3"}, known).labels.names == Names{"0", "1", "3"});
  // So does another form of samples.
  const LabelledTexts words =
      place.read("{\"tokens\": [\"ab\", \"c\"], \"labels\": [1, 0]}", known);
  CHECK(words.labels.names == Names{"0", "1"});
  CHECK(words.labels.of_words);

  const LabelOptions only{.known = Labels{.names = {"no", "yes"}}, .only_known = true};
  CHECK(labels_of(place.with_labels({"\"yes\"", "0", "1", "\"yes\""}, only)) ==
        std::vector<int32_t>{1, 0, 1, 1});
  // Where all names are numbers, a number is a name.
  const LabelOptions stars{.known = Labels{.names = {"1", "2", "10"}}, .only_known = true};
  CHECK(labels_of(place.with_labels({"10", "1", "\"2\""}, stars)) == std::vector<int32_t>{2, 0, 1});
  CHECK_THROWS_WITH_AS(place.with_labels({"0"}, stars),
                       Contains("there is no label 0. The model has 3: 1, 2, 10."), Error);
}

TEST_CASE("the first token of a word has its label, and a word without tokens none") {
  const LabelledFiles place;
  const LabelledTexts texts =
      place.read("{\"tokens\": [\"ab\", \"\", \"c\"], \"labels\": [\"x\", \"z\", \"y\"]}\n");
  const LabelledText& sample = texts.samples.at(0);
  CHECK(sample.tokens == place.tokenizer.encode(" ab c", {.special_tokens = false}));
  const auto none = static_cast<int32_t>(ignored_label);
  CHECK(sample.labels == std::vector<int32_t>{0, none, none, 1, none});
}

TEST_CASE("a text is cut at its end to what its frame leaves, and one warning counts such texts") {
  const LabelledFiles place;
  const Frame frame = frame_of(place.tokenizer, 0);
  LabelledTexts texts =
      place.read("{\"text\": \"abcd\", \"label\": 0}\n{\"text\": \"a\", \"label\": 1}\n");
  const std::vector<int32_t> whole = texts.samples[0].tokens;
  const test::Captured errors(2);
  const auto source = labelled_source(std::move(texts.samples), false, frame, 5, "data.jsonl");
  CHECK(errors.text() ==
        "weft: warning: [data] data.jsonl: of 2 texts 1 are longer than data.seq_len, 5 with 2 "
        "special tokens, and cut.\n");
  CHECK(source->label_shape().size() == 0);
  CHECK(source->bytes() > 0);
  std::vector<int64_t> inputs(5);
  int64_t label = -1;
  source->write({.index = 0}, reinterpret_cast<std::byte*>(inputs.data()), &label);
  CHECK(inputs == std::vector<int64_t>{2, whole[0], whole[1], whole[2], 3});
  CHECK(label == 0);
  source->write({.index = 1}, reinterpret_cast<std::byte*>(inputs.data()), &label);
  CHECK(inputs == std::vector<int64_t>{2, whole[0], 3, 0, 0});
  CHECK(label == 1);
}

TEST_CASE("another label or token gives other data") {
  const LabelledFiles place;
  const Frame frame = frame_of(place.tokenizer, 0);
  const auto fingerprint = [&](const std::string& text, const std::string& label) {
    LabelledTexts texts =
        place.read("{\"text\": \"" + text + "\", \"label\": " + label +
                   "}\n{\"text\": \"b\", \"label\": 0}\n{\"text\": \"c\", \"label\": 1}\n");
    return labelled_source(std::move(texts.samples), false, frame, 8, "x")->fingerprint();
  };
  CHECK(fingerprint("a", "0") == fingerprint("a", "0"));
  CHECK(fingerprint("a", "0") != fingerprint("a", "1"));
  CHECK(fingerprint("a", "0") != fingerprint("b", "0"));
}

TEST_CASE("lines that are no text with labels are refused by their number") {
  const LabelledFiles place;
  const auto refused = [&](const std::string& line, const std::string& message,
                           const LabelOptions& options = {}) {
    CAPTURE(line);
    const std::string before = "{\"text\": \"x\", \"label\": \"a\"}\n\n";
    CHECK_THROWS_WITH_AS(place.read(before + line, options),
                         Contains(("data.jsonl:3: " + message).c_str()), Error);
  };
  refused("{\"text\": \"x\", ", "not JSON");
  refused("[1]", "a sample must be an object.");
  refused("{\"text\": \"x\"}", "a sample has text and label, or tokens and labels.");
  refused("{\"tokens\": [\"x\"], \"label\": 1}", "a sample has text and label, or tokens and");
  refused("{\"tokens\": [\"x\"], \"labels\": [\"a\"]}",
          "samples must have text and label, as those before it.");
  refused("{\"text\": \"x\", \"text_pair\": \"y\", \"label\": \"a\"}",
          "text_pair is not read: samples are single texts.");
  refused("{\"text\": 1, \"label\": \"a\"}", "text must be text. Got 1.");
  refused("{\"text\": \"\", \"label\": \"a\"}", "text is empty: it has no token.");
  for (const char* label : {"null", "true", "1.5", "-1", "\"\"", "[1]", "1000000000000000000"})
    refused(std::string("{\"text\": \"x\", \"label\": ") + label + "}",
            std::string("a label must be a name, or a whole number from 0. Got ") + label + ".");
  refused("{\"text\": \"x\", \"label\": 1}", "a label must be a name, as those before it. Got 1.");
  const LabelOptions only{.known = Labels{.names = {"a", "b"}}, .only_known = true};
  refused("{\"text\": \"x\", \"label\": \"c\"}", "there is no label c. The model has 2: a, b.",
          only);
  refused("{\"text\": \"x\", \"label\": 2}", "there is no label 2. The model has 2: a, b.", only);

  const auto of_words = [&](const std::string& line, const std::string& message) {
    CAPTURE(line);
    CHECK_THROWS_WITH_AS(place.read(line), Contains(("data.jsonl:1: " + message).c_str()), Error);
  };
  of_words("{\"tokens\": [\"x\", \"y\"], \"labels\": [\"a\"]}",
           "tokens and labels must be as many. Got 2 and 1.");
  of_words("{\"tokens\": \"x\", \"labels\": [\"a\"]}", "tokens must be a list of words.");
  of_words("{\"tokens\": [1], \"labels\": [\"a\"]}", "tokens must be a list of words.");
  of_words("{\"tokens\": [\"x\"], \"labels\": \"a\"}", "labels must be a list.");
  of_words("{\"tokens\": [], \"labels\": []}", "tokens is empty: it has no token.");
  const LabelOptions words{.known = Labels{.of_words = true, .names = {"a", "b"}},
                           .only_known = true};
  CHECK_THROWS_WITH_AS(place.with_labels({"\"a\""}, words),
                       Contains("data.jsonl:1: samples must have tokens and labels, as the model's "
                                "head labels these."),
                       Error);
}

TEST_CASE("a file must have several labels, but not more than a head has rows") {
  const LabelledFiles place;
  CHECK_THROWS_WITH_AS(place.with_labels({"\"a\"", "\"a\""}),
                       Contains("data.jsonl: the only label is a. A head of labels has at least "
                                "two."),
                       Error);
  std::string lines;
  for (int i = 0; i <= 65536; ++i)
    lines += "{\"text\": \"a\", \"label\": " + std::to_string(i) + "}\n";
  CHECK_THROWS_WITH_AS(place.read(lines),
                       Contains("data.jsonl:65537: there are more than 65536 labels."), Error);
  const Frame frame = frame_of(place.tokenizer, 0);
  CHECK_THROWS_WITH_AS(labelled_source(place.read("\n").samples, false, frame, 8, "data.jsonl"),
                       "data.jsonl has no text with a label.", Error);
}
