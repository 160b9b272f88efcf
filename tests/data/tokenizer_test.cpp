// Tests tokenizers against the `tokenizers` package: its ids and texts for small tokenizers are in
// tests/reference/tokenizers/. tokenizer_live_test.cpp compares large ones with the package itself.
#include "weft/data/tokenizer/tokenizer.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/io/helpers.h"
#include "weft/base/text/utf8.h"
#include "weft/data/tokenizer/unicode.h"
#include "weft/io/files.h"
#include "weft/io/gguf.h"
#include "weft/io/gguf_tokenizer.h"

using namespace weft;
using namespace weft::test;
using data::Tokenizer;
using Ids = std::vector<int32_t>;

namespace {

const std::string folder = "tests/reference/tokenizers/";

std::string from_base64(std::string_view text) {
  static constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0;
  int count = 0;
  for (char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<unsigned>(digits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

// Returns a tokenizer of whole words with the given part of the file: "\"normalizer\": ...".
Tokenizer words_with(const std::string& part) {
  return Tokenizer::from_json(
      "{" + part + R"(, "model": {"type": "WordLevel", "unk_token": "?", "vocab":
          {"?": 0, "a": 1, "b": 2, "ab": 3, "c": 4, " ": 5, "a b": 6, "B": 7}}})",
      "t.json");
}
Ids ids_with(const std::string& part, std::string_view text) {
  return words_with(part).encode(text);
}
std::string refusal_of(const std::string& part) {
  return error_of([&] { words_with(part); });
}
std::string model_refusal(const std::string& model) {
  return error_of([&] { Tokenizer::from_json(R"({"model": )" + model + "}", "t.json"); });
}

}  // namespace

TEST_CASE("small tokenizers of each kind have the package's ids, and decode to its text") {
  const auto expected = nlohmann::json::parse(std::ifstream(folder + "expected.json"));
  for (const std::string name : {"gpt2", "llama3", "llama2", "t5", "bert"}) {
    CAPTURE(name);
    const Tokenizer tokenizer = Tokenizer::load(folder + name + ".json");
    for (size_t i = 0; i < expected["lines"].size(); ++i) {
      CAPTURE(i);
      const std::string line = from_base64(expected["lines"][i].get<std::string>());
      const Ids ids = expected[name]["ids"][i].get<Ids>();
      CHECK(tokenizer.encode(line) == ids);
      const std::string text = tokenizer.decode(ids);
      CHECK(data::tokenizer::valid_utf8(text) == expected[name]["text"][i].get<std::string>());
      data::StreamDecoder stream(tokenizer);
      std::string joined;
      for (int32_t id : ids) {
        joined += stream.add(id);
        CHECK(data::tokenizer::incomplete_utf8(joined) == 0);
      }
      CHECK(joined + stream.finish() == text);
    }
  }
}

TEST_CASE("tokenizers written to GGUF files and read again have the package's ids") {
  const auto expected = nlohmann::json::parse(std::ifstream(folder + "expected.json"));
  for (const std::string name : {"gpt2", "llama3", "llama2"}) {
    CAPTURE(name);
    io::GgufTokenizer from{.file = name + ".json",
                           .tokenizer = io::read_file(folder + name + ".json", 1 << 20),
                           .vocabulary = 1000};
    if (name == "llama3") from.bos = "<|begin_of_text|>";
    if (name == "llama2") from.bos = "<s>", from.unknown = "<unk>";
    if (name == "llama3") from.chat_template = "{{ messages }}";
    const io::GgufMetadata metadata = io::tokenizer_metadata(from);
    CHECK(std::ranges::any_of(metadata, [](const auto& pair) {
            return pair.first == "tokenizer.chat_template";
          }) == (name == "llama3"));
    const TemporaryFolder scratch;
    const std::string path = scratch.file("tokenizer.gguf");
    io::write_gguf(path, {}, metadata);
    const Tokenizer tokenizer = Tokenizer::load(path);
    for (size_t i = 0; i < expected["lines"].size(); ++i) {
      CAPTURE(i);
      const Ids ids = expected[name]["ids"][i].get<Ids>();
      CHECK(tokenizer.encode(from_base64(expected["lines"][i].get<std::string>())) == ids);
      CHECK(data::tokenizer::valid_utf8(tokenizer.decode(ids)) ==
            expected[name]["text"][i].get<std::string>());
    }
  }
}

TEST_CASE("byte-level tokenizers give back every text that is UTF-8") {
  const Tokenizer tokenizer = Tokenizer::load(folder + "gpt2.json");
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  text = data::tokenizer::valid_utf8(text) + "\xf0\x9f\x98\x80 \xe2\x82\xac\n\n  end ";
  CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
}

TEST_CASE("a stream holds back the bytes of a character that has not ended") {
  const Tokenizer tokenizer = Tokenizer::load(folder + "llama2.json");
  const auto byte = [&](const char* name) { return tokenizer.id_of(name).value(); };
  data::StreamDecoder stream(tokenizer);
  CHECK(stream.add(byte("<0xF0>")) == "");
  CHECK(stream.add(byte("<0x9F>")) == "");
  CHECK(stream.add(byte("<0x98>")) == "");
  CHECK(stream.add(byte("<0x80>")) == "\xf0\x9f\x98\x80");
  CHECK(stream.add(byte("<0xE2>")) == "");
  CHECK(stream.add(byte("<0x41>")) == "\xe2\x41");  // no character begins so
  CHECK(stream.add(byte("<0xE2>")) == "");
  CHECK(stream.finish() == "\xe2");
  CHECK(stream.finish() == "");
}

TEST_CASE("special tokens are added, skipped and named") {
  const Tokenizer tokenizer = Tokenizer::load(folder + "bert.json");
  const Ids ids = tokenizer.encode("it's [MASK]");
  CHECK(tokenizer.token_of(ids.front()) == "[CLS]");
  CHECK(tokenizer.token_of(ids.back()) == "[SEP]");
  CHECK(tokenizer.encode("it's [MASK]", {.special_tokens = false}) ==
        Ids(ids.begin() + 1, ids.end() - 1));
  CHECK(tokenizer.decode(ids) == "it ' s");
  CHECK(tokenizer.decode(ids, {.skip_special = false}) == "[CLS] it ' s [MASK] [SEP]");
  CHECK(tokenizer.is_special(*tokenizer.id_of("[MASK]")));
  CHECK(!tokenizer.id_of("no such token"));
  CHECK(!tokenizer.token_of(tokenizer.size()));
  CHECK(!tokenizer.token_of(-1));
  CHECK(tokenizer.token_of(tokenizer.size() - 1));
  CHECK(tokenizer.decode(Ids{-1, 1 << 30}) == "");
}

TEST_CASE("vocab.json with merges.txt beside it is a byte-level tokenizer") {
  TemporaryFolder files;
  files.file("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġab": 4, "<|endoftext|>": 5})");
  const std::string merges = files.file("merges.txt", "#version: 0.2\na b\r\nĠ ab\n");
  const std::string& root = files.path();
  const Tokenizer tokenizer = Tokenizer::load(root);
  CHECK(tokenizer.encode("ab ab<|endoftext|>b") == Ids{2, 4, 5, 1});
  CHECK(tokenizer.decode(Ids{2, 4, 5, 1}) == "ab abb");
  CHECK(tokenizer.size() == 6);
  CHECK(Tokenizer::load(root + "/vocab.json").encode(" ab") == Ids{4});
  files.file("merges.txt", "#version: 0.2\na b\na b c\n");
  CHECK(error_of([&] { Tokenizer::load(root); }) ==
        "data: [tokenizer] " + merges + ":3: a line must be two tokens. Got 'a b c'.");
  files.file("merges.txt", "a x\n");
  CHECK(error_of([&] { Tokenizer::load(root); }) ==
        "data: [tokenizer] " + root +
            "/vocab.json: model.merges[0] has 'x', which is not in the vocabulary.");
}

TEST_CASE("BERT's vocab.txt has the package's ids of lines without tokens that were added to it") {
  const Tokenizer whole = Tokenizer::load(folder + "bert.json");
  constexpr int32_t first_added = 485;
  std::string lines;
  for (int32_t id = 0; id < first_added; ++id) lines += whole.token_of(id).value() + "\n";
  TemporaryFolder files;
  const Tokenizer of_lines = Tokenizer::load(files.file("vocab.txt", lines));
  CHECK(of_lines.size() == first_added);
  const auto expected = nlohmann::json::parse(std::ifstream(folder + "expected.json"));
  int compared = 0;
  for (size_t i = 0; i < expected["lines"].size(); ++i) {
    CAPTURE(i);
    const Ids ids = expected["bert"]["ids"][i].get<Ids>();
    if (*std::ranges::max_element(ids) >= first_added) continue;
    ++compared;
    CHECK(of_lines.encode(from_base64(expected["lines"][i].get<std::string>())) == ids);
    CHECK(of_lines.decode(ids) == expected["bert"]["text"][i].get<std::string>());
  }
  CHECK(compared >= 20);
}

TEST_CASE("a tokenizer must not have ids that a model lacks") {
  const Tokenizer tokenizer = words_with(R"("added_tokens": [{"id": 11, "content": "<x>"}])");
  CHECK(error_of([&] { tokenizer.check_fits(11); }) ==
        "data: [tokenizer] t.json: ids reach 11, but the model's vocab_size is 11: its ids end at "
        "10.");
  CHECK_NOTHROW(tokenizer.check_fits(12));
  CHECK_NOTHROW(tokenizer.check_fits(64));  // a padded vocabulary
}

TEST_CASE("an added token that is a space is gone where the token before it includes it") {
  // The `tokenizers` package 0.23 gives these ids.
  const std::string both = R"("added_tokens": [{"id": 5, "content": " ", "normalized": false,
      "lstrip": true, "rstrip": true}])";
  CHECK(ids_with(both, "  ") == Ids{5});
  CHECK(ids_with(both, "a  b") == Ids{1, 5, 2});
  CHECK(ids_with(both, "   a") == Ids{5, 1});
  CHECK(ids_with(both, " a b ") == Ids{5, 1, 5, 2, 5});
  // Here the package ends at an assertion of its own.
  const std::string apart = R"("added_tokens": [
      {"id": 5, "content": " ", "normalized": false, "lstrip": true},
      {"id": 8, "content": "\n", "normalized": false, "rstrip": true}])";
  CHECK(ids_with(apart, "a\n  b") == Ids{1, 8, 2});
}

TEST_CASE("normalization forms compose and take apart") {
  const std::string composed = "\u00e9", apart = "e\u0301";
  for (const auto& [form, text] :
       {std::pair("NFD", composed), {"NFKD", composed}, {"NFC", apart}, {"NFKC", apart}}) {
    const bool composes = text == apart;
    CHECK(ids_with(fmt::format(R"("normalizer": {{"type": "{}"}}, "added_tokens": [)"
                               R"({{"id": 8, "content": "{}", "normalized": true}}])",
                               form, composes ? composed : apart),
                   text) == Ids{8});
  }
}

TEST_CASE("the package reads GPT-2's vocabulary as weft does") {
  if (!has_data("tokenizers/gpt2/vocab.json")) return;
  const Tokenizer tokenizer = Tokenizer::load(data_directory() + "/tokenizers/gpt2");
  CHECK(tokenizer.size() == 50257);
  // OpenAI's encoder gives these ids.
  CHECK(tokenizer.encode("Hello world") == Ids{15496, 995});
  CHECK(tokenizer.encode("<|endoftext|>") == Ids{50256});
  CHECK(tokenizer.encode("  two\n\nlines") == Ids{220, 734, 198, 198, 6615});
}

TEST_CASE("threads share a tokenizer") {
  const Tokenizer tokenizer = Tokenizer::load(folder + "llama3.json");
  const std::string text = "The quick weaver mends her loom; 12345 \xe7\xbb\x87\xe5\xb7\xa5.";
  const Ids ids = tokenizer.encode(text);
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  threads.reserve(wrong.size());
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        count += tokenizer.encode(text + std::to_string(i)).size() < ids.size() ||
                 tokenizer.encode(text) != ids;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("truncation and padding are applied where they are asked for") {
  const std::string around = R"("post_processor": {"type": "BertProcessing", "sep": ["?", 0],
                                 "cls": ["c", 4]}, "pre_tokenizer": {"type": "WhitespaceSplit"},)";
  const Tokenizer left = words_with(around + R"(
      "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Left"},
      "padding": {"strategy": {"Fixed": 7}, "direction": "Left", "pad_id": 7,
                  "pad_to_multiple_of": 4})");
  CHECK(left.encode("a b ab") == Ids{4, 1, 2, 3, 0});
  CHECK(left.encode("a b ab", {.truncate = true}) == Ids{4, 2, 3, 0});
  CHECK(left.encode("a", {.pad = true}) == Ids{7, 7, 7, 7, 7, 4, 1, 0});
  const Tokenizer right = words_with(around + R"(
      "truncation": {"max_length": 4}, "padding": {"strategy": "BatchLongest", "pad_id": 7})");
  CHECK(right.encode("a b ab", {.truncate = true, .pad = true}) == Ids{4, 1, 2, 0});
  CHECK(words_with(R"("truncation": {"max_length": 0})").encode("a", {.truncate = true}) == Ids{});
  CHECK(refusal_of(R"("padding": {"strategy": "Longest", "pad_id": 0})") ==
        "data: [tokenizer] t.json: padding.strategy 'Longest' is not known. Known: BatchLongest, "
        "Fixed.");
}

TEST_CASE("models without a type are told apart by their keys") {
  const auto first = [](const std::string& model, std::string_view text) {
    return Tokenizer::from_json(R"({"model": )" + model + "}", "t.json").encode(text);
  };
  CHECK(first(R"({"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})", "ab") == Ids{2});
  CHECK(first(R"({"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]})", "aba") ==
        Ids{2, 0});
  CHECK(first(R"({"vocab": [["?", 0], ["a", -1], ["ab", -1.5]], "unk_id": 0})", "abxya") ==
        Ids{2, 0, 1});
  CHECK(first(R"({"vocab": {"[UNK]": 0, "a": 1, "##a": 2}, "max_input_chars_per_word": 3})",
              "aa") == Ids{1, 2});
  CHECK(first(R"({"vocab": {"<unk>": 0, "aa": 1}})", "aa") == Ids{1});
}

TEST_CASE("invalid tokenizer files are refused in one line") {
  const std::string file = "data: [tokenizer] t.json: ";
  CHECK(model_refusal(R"({"type": "Foo"})") ==
        file + "model.type 'Foo' is not known. Known: BPE, Unigram, WordLevel, WordPiece.");
  CHECK(refusal_of(R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFZ"}]})") ==
        file +
            "normalizer.normalizers[0].type 'NFZ' is not known. Known: BertNormalizer, "
            "ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, Replace, "
            "Sequence, Strip, StripAccents.");
  CHECK(refusal_of(R"("pre_tokenizer": {"type": "Sudachi"})") ==
        file +
            "pre_tokenizer.type 'Sudachi' is not known. Known: BertPreTokenizer, ByteLevel, "
            "CharDelimiterSplit, Digits, FixedLength, Metaspace, Punctuation, Sequence, Split, "
            "UnicodeScripts, Whitespace, WhitespaceSplit.");
  CHECK(refusal_of(R"("post_processor": {"type": "P"})") ==
        file +
            "post_processor.type 'P' is not known. Known: BertProcessing, ByteLevel, "
            "RobertaProcessing, Sequence, TemplateProcessing.");
  CHECK(refusal_of(R"("decoder": {"type": "D"})") ==
        file +
            "decoder.type 'D' is not known. Known: BPEDecoder, ByteFallback, ByteLevel, CTC, "
            "Fuse, Metaspace, Replace, Sequence, Strip, WordPiece.");
  CHECK(refusal_of(R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "a"},
                       "behavior": "Away"})") ==
        file +
            "pre_tokenizer.behavior 'Away' is not known. Known: Contiguous, Isolated, "
            "MergedWithNext, MergedWithPrevious, Removed.");
  CHECK(model_refusal(R"({"vocab": {"a": -1}})") ==
        file + "model.vocab['a'] must be an id from 0 to 1048575. Got -1.");
  CHECK(model_refusal(R"({"vocab": {"a": 4000000000}})") ==
        file + "model.vocab['a'] must be an id from 0 to 1048575. Got 4000000000.");
  CHECK(model_refusal(R"({"vocab": {"a": 0}, "merges": ["a"]})") ==
        file + "model.merges[0] must be two tokens. Got \"a\".");
  CHECK(model_refusal(R"({"vocab": {"a": 0}, "merges": [], "dropout": 0.1})") ==
        file + "model.dropout must be null or 0: weft encodes a text in one way. Got 0.1.");
  CHECK(model_refusal(R"({"vocab": [["a", 0], ["b"]]})") ==
        file + "model.vocab[1] must be a token and its score. Got a list of 1.");
  CHECK(model_refusal("{}") == file + "model has no 'vocab'.");
  CHECK(error_of([] { Tokenizer::from_json("{", "t.json"); }) ==
        file + "not JSON: it ends too early, at line 1, column 2.");
  CHECK(error_of([] { Tokenizer::from_json("[]", "t.json"); }) ==
        file + "the file must be an object. Got a list of 0.");
  const auto split_at = [&](const std::string& pattern) {
    return refusal_of(R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern":
                         {"Regex": ")" +
                      pattern + "\"}}");
  };
  const std::string regex = file + "pre_tokenizer.pattern.Regex '";
  CHECK(split_at("(a") == regex + "(a' is not a regular expression.");
  CHECK(split_at("(*FAIL)") == regex + "(*FAIL)' has (*, which weft does not read.");
  CHECK(split_at("[a") == regex + "[a' has a [ without its ], which weft does not read.");
  CHECK(refusal_of(R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"})") ==
        file +
            "normalizer.precompiled_charsmap is not a compiled map of characters: its size does "
            "not fit its array.");
}

TEST_CASE("a character without a token is refused where the model has no unknown token") {
  const Tokenizer tokenizer =
      Tokenizer::from_json(R"({"model": {"vocab": [["a", -1]], "unk_id": null}})", "t.json");
  CHECK(tokenizer.encode("aa") == Ids{0, 0});
  CHECK(
      error_of([&] { tokenizer.encode("ab"); }) ==
      "data: [tokenizer] t.json: the vocabulary has neither 'b' nor a token for what is unknown.");
}

TEST_CASE("replacements that double a text again and again are refused") {
  std::string steps;
  for (int i = 0; i < 60; ++i)
    steps += std::string(i > 0 ? "," : "") +
             R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  const Tokenizer tokenizer =
      words_with(R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]}");
  CHECK(error_of([&] { tokenizer.encode("a"); }) ==
        "data: [tokenizer] the file's replacements make 2097152 bytes of 1.");
  std::string nested = R"({"type": "NFC"})";
  for (int i = 0; i < 100; ++i)
    nested.insert(0, R"({"type": "Sequence", "normalizers": [)").append("]}");
  CHECK(refusal_of("\"normalizer\": " + nested).ends_with("is nested deeper than 32 levels."));
}

TEST_CASE("regular expressions follow Ruby's syntax") {
  const auto pieces = [](const std::string& pattern, std::string_view text) {
    return ids_with(R"("pre_tokenizer": {"type": "Split", "behavior": "Removed", "pattern":
                       {"Regex": ")" +
                        pattern + "\"}}",
                    text);
  };
  CHECK(pieces(R"(\\s)", "a b") == Ids{1, 2});
  CHECK(pieces(R"(\\s)", "a\xe1\xa0\x8e") == Ids{0});  // U+180E is no white space
  CHECK(pieces(R"(\\h+)", "ab c") == Ids{5});          // hexadecimal digits
  CHECK(pieces(R"([\\w&&[^b]])", "ab") == Ids{2});
  CHECK(pieces(R"([^\\W a])", "ab") == Ids{1});
  CHECK(pieces(R"(x{,2}b)", "axxb") == Ids{1});
  CHECK(pieces(R"((?m:c.))", "ac\nb") == Ids{1, 2});
  CHECK(pieces(R"(\\p{^Latin})", "a b") == Ids{1, 2});
}
