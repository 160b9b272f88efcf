// Reads tokenizers of published language models: Hugging Face's tokenizer.json, GPT-2's vocab.json
// and merges.txt, or BERT's vocab.txt.
//
//   auto tokenizer = data::Tokenizer::load("gpt2/tokenizer.json");
//   std::vector<int32_t> ids = tokenizer.encode("a text");
//   std::string text = tokenizer.decode(ids);
//
// Ids are those of the `tokenizers` package. Errors are ErrorKind::data, one line that names the
// file, the place in it, and the rule: "[tokenizer] FILE: model.merges[3] must be two tokens. ...".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::data {

struct EncodeOptions {
  bool special_tokens = true;  // adds the post-processor's tokens around the text
  bool truncate = false;       // as "truncation" of the file says, if it has that
  bool pad = false;            // as "padding" of the file says, if it has that
};
struct DecodeOptions {
  bool skip_special = true;
};

// Tokenizer is a handle to an immutable tokenizer; copies share it. Threads may use it at once.
class Tokenizer {
 public:
  // Reads `path`: a GGUF file, tokenizer.json, vocab.json with merges.txt beside it, or BERT's
  // vocab.txt with tokenizer_config.json if that is beside it (do_lower_case, strip_accents,
  // tokenize_chinese_chars). In a folder, load() looks for tokenizer.json, vocab.json and
  // vocab.txt, and reads the first that exists. Refuses a folder that has only SentencePiece's
  // tokenizer.model.
  static Tokenizer load(const std::string& path);
  // Returns the tokenizer at `path` as the text of a tokenizer.json, whichever files it is from.
  static std::string json_of(const std::string& path);
  // Reads the contents of a tokenizer.json; `name` stands for the file in errors.
  static Tokenizer from_json(std::string_view json, const std::string& name);

  // Returns the ids of a text. Each maximal part that is not UTF-8 is read as U+FFFD.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Returns the bytes of the ids: UTF-8 if the ids make up whole characters. An id without a token,
  // which a model with a padded vocabulary may give, adds nothing.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  // Returns the greatest id + 1, the least vocab_size of a model.
  int64_t size() const;
  // Throws Error(data) with both numbers if a token's id is not below a model's `vocab_size`. The
  // model may have more ids: vocabularies are padded.
  void check_fits(int64_t vocab_size) const;
  // Return nullopt if there is no such token.
  std::optional<int32_t> id_of(std::string_view token) const;
  std::optional<std::string> token_of(int64_t id) const;
  bool is_special(int64_t id) const;

  struct Parts;

 private:
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

// StreamDecoder decodes tokens one by one. Each returned text ends between characters; their
// concatenation is decode() of all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, const DecodeOptions& options = {})
      : tokenizer_(std::move(tokenizer)), options_(options) {}

  // Returns the text that is complete with this token; empty within a character.
  std::string add(int32_t id);
  // Returns the bytes of an unfinished character, and begins anew.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::vector<int32_t> window_;  // the last ids: decoders look at their neighbours
  std::string decoded_;          // their text
  std::string pending_;          // bytes of a character that has not ended
};

}  // namespace weft::data
