// Tests which files a tokenizer is read from, and what is refused of them.
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/io/helpers.h"
#include "weft/data/tokenizer/tokenizer.h"

using namespace weft;
using namespace weft::test;
using data::Tokenizer;
using Ids = std::vector<int32_t>;

TEST_CASE("vocab.txt is BERT's tokenizer, lower case unless tokenizer_config.json says otherwise") {
  TemporaryFolder files;
  const std::string& root = files.path();
  const std::string lines = "[PAD]\n[UNK]\n[CLS]\r\n[SEP]\n[MASK]\nab\n##b\nAb\n\"\\\nc";
  const std::string vocabulary = files.file("vocab.txt", lines);
  const Tokenizer lower = Tokenizer::load(root);
  CHECK(lower.size() == 10);
  CHECK(lower.encode("Ab abb") == Ids{2, 5, 5, 6, 3});
  CHECK(lower.encode("\xc3\xa1\x62 [MASK]\xe4\xb8\x80") == Ids{2, 5, 4, 1, 3});  // an accent
  CHECK(lower.token_of(8) == "\"\\");
  CHECK(lower.decode(lower.encode("abb c")) == "abb c");
  const std::string config = files.file(
      "tokenizer_config.json",
      R"({"do_lower_case": false, "model_max_length": 1000000000000000019884624838656})");
  CHECK(Tokenizer::load(vocabulary).encode("Ab abb") == Ids{2, 7, 5, 6, 3});
  files.file("tokenizer_config.json", R"({"strip_accents": false})");
  CHECK(Tokenizer::load(root).encode("\xc3\xa1\x62") == Ids{2, 1, 3});

  const auto refusal = [&] { return error_of([&] { Tokenizer::load(root); }); };
  files.file("tokenizer_config.json", R"({"do_lower_case": 1})");
  CHECK(refusal() ==
        "data: [tokenizer] " + config + ": do_lower_case must be true or false. Got 1.");
  files.file("tokenizer_config.json", "[]");
  CHECK(refusal() == "data: [tokenizer] " + config + ": the file must be an object.");
  files.file("tokenizer_config.json", "{}");
  files.file("vocab.txt", "[PAD]\n[UNK]\n[SEP]\n");
  CHECK(refusal() ==
        "data: [tokenizer] " + vocabulary + ": no line is [CLS], which BERT's vocabulary has.");
  files.file("vocab.txt", "[UNK]\na\xff\n");
  CHECK(refusal() == "data: [tokenizer] " + vocabulary + ":2: a line must be UTF-8. Got 'a\\xff'.");
}

TEST_CASE("a folder's tokenizer is the first that weft reads") {
  TemporaryFolder files;
  const std::string& root = files.path();
  const auto refusal = [&] { return error_of([&] { Tokenizer::load(root); }); };
  CHECK(refusal() == "data: [tokenizer] " + root +
                         " has no tokenizer: neither tokenizer.json, nor vocab.json with "
                         "merges.txt, nor vocab.txt.");
  const std::string model = files.file("tokenizer.model", "\n\x0e\n\x05<unk>");
  const std::string sentence_piece =
      "data: [tokenizer] " + model +
      " is a model of SentencePiece; weft needs tokenizer.json beside it. Hint: save_pretrained() "
      "of a fast tokenizer of the transformers package writes it.";
  CHECK(refusal() == sentence_piece);
  CHECK(error_of([&] { Tokenizer::load(model); }) == sentence_piece);
  files.file("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n");
  CHECK(Tokenizer::load(root).size() == 3);
  files.file("vocab.json", R"({"a": 0})");
  CHECK(refusal().find(root + "/merges.txt") != std::string::npos);
  files.file("merges.txt", "a \xff\n");
  CHECK(refusal() ==
        "data: [tokenizer] " + root + "/merges.txt:1: a line must be UTF-8. Got 'a \\xff'.");
  files.file("merges.txt", "");
  CHECK(Tokenizer::load(root).size() == 1);
  files.file("tokenizer.json", R"({"model": {"vocab": {"a": 0, "b": 1}}})");
  CHECK(Tokenizer::load(root).size() == 2);
}

TEST_CASE("merges beyond the first batch keep their ranks") {
  // Each merge adds a character: after the last one a text of 'a's is one token.
  std::string vocabulary = R"("a": 0)", merges, token = "a";
  for (int i = 1; i < 600; ++i) {
    merges += (i > 1 ? ",\"" : "\"") + token + " a\"";
    token += 'a';
    vocabulary += ", \"" + token + "\": " + std::to_string(i);
  }
  const auto tokenizer = [&](const std::string& list) {
    return Tokenizer::from_json(
        R"({"model": {"vocab": {)" + vocabulary + R"(}, "merges": [)" + list + "]}}", "t.json");
  };
  // "a a" is of the lowest rank, so that pairs come first; only an odd one out meets "aa a".
  CHECK(tokenizer(merges).encode("aaaaa") == Ids{1, 2});
  CHECK(error_of([&] { tokenizer(merges + R"(, "a x")"); }) ==
        "data: [tokenizer] t.json: model.merges[599] has 'x', which is not in the vocabulary.");
}

TEST_CASE("JSON beyond what weft reads is refused in one line") {
  const auto refusal = [](const std::string& json) {
    return error_of([&] { Tokenizer::from_json(json, "t.json"); });
  };
  CHECK(refusal("{\"a\":\n  tru}") ==
        "data: [tokenizer] t.json: not JSON: there is a mistake at line 2, column 6.");
  CHECK(refusal("{\"a\": \"\xff\"}") ==
        "data: [tokenizer] t.json: not JSON: there is a mistake at line 1, column 8.");
  const auto nested = [](size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  CHECK(refusal(nested(500)) ==
        "data: [tokenizer] t.json: the file must be an object. Got a list of 1.");
  CHECK(refusal(nested(502)) ==  // simdjson does not count the innermost, empty list
        "data: [tokenizer] t.json: lists and objects nest deeper than 500 at byte 500.");
  CHECK(refusal("{\"a\": 99999999999999999999}")
            .starts_with("data: [tokenizer] t.json: not JSON that weft reads: "));
  CHECK(refusal("").starts_with("data: [tokenizer] t.json: not JSON: it ends too early,"));
}
