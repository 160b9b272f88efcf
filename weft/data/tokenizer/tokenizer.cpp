#include "weft/data/tokenizer/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "weft/base/error.h"
#include "weft/data/tokenizer/added_tokens.h"
#include "weft/data/tokenizer/decoders.h"
#include "weft/data/tokenizer/limits.h"
#include "weft/data/tokenizer/model.h"
#include "weft/data/tokenizer/normalizers.h"
#include "weft/data/tokenizer/part.h"
#include "weft/data/tokenizer/post_processors.h"
#include "weft/data/tokenizer/pre_tokenizers.h"
#include "weft/data/tokenizer/unicode.h"

namespace weft::data {

using namespace tokenizer;

namespace {

// CachePool lends each call a cache of words, so that calls of several threads share none.
class CachePool {
 public:
  std::unique_ptr<WordCache> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<WordCache>();
    auto cache = std::move(free_.back());
    free_.pop_back();
    return cache;
  }
  void give_back(std::unique_ptr<WordCache> cache) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < most_free) free_.push_back(std::move(cache));
  }

 private:
  static constexpr size_t most_free = 64;
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> free_;
};

}  // namespace

struct Tokenizer::Parts {
  std::string file;  // its name, for errors
  std::unique_ptr<Model> model;
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<Decoder> decoder;
  AddedTokens added;
  Surroundings surroundings;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
  mutable CachePool caches;

  explicit Parts(const Part& root) : file(root.file()), model(make_model(root.at("model"))) {
    if (const auto part = root.find("normalizer")) normalizer = make_normalizer(*part);
    if (const auto part = root.find("pre_tokenizer")) pre_tokenizer = make_pre_tokenizer(*part);
    if (const auto part = root.find("post_processor")) surroundings = read_post_processor(*part);
    if (const auto part = root.find("decoder")) decoder = make_decoder(*part);
    if (const auto part = root.find("truncation")) truncation = read_truncation(*part);
    if (const auto part = root.find("padding")) padding = read_padding(*part);
    if (const auto part = root.find("added_tokens")) added.read(*part, model->tokens());
    added.finish(normalizer.get());
    if (pre_tokenizer != nullptr && pre_tokenizer->ends_in_bytes() && model->take_bytes())
      pre_tokenizer->leave_bytes();
  }

  // Appends the ids of text without added tokens.
  void encode_words(std::string text, bool first, WordCache& cache,
                    std::vector<int32_t>& ids) const {
    if (pre_tokenizer == nullptr) return model->encode(text, cache, ids);
    const Piece whole{0, text.size(), first};
    Pieces pieces{std::move(text), {whole}};
    pre_tokenizer->apply(pieces);
    for (const Piece& piece : pieces.list) model->encode(pieces.of(piece), cache, ids);
  }

  void encode_text(std::string_view text, WordCache& cache, std::vector<int32_t>& ids) const {
    std::vector<Segment> raw, normal;
    added.split_raw(text, raw);
    for (const Segment& segment : raw) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
        continue;
      }
      NormalText rewritten{
          .text = std::string(text.substr(segment.begin, segment.end - segment.begin)),
          .first = segment.begin == 0};
      if (normalizer != nullptr) normalizer->apply(rewritten);
      normal.clear();
      added.split_normalized(rewritten.text, normal);
      for (const Segment& part : normal) {
        if (part.id >= 0)
          ids.push_back(part.id);
        else
          encode_words(normal.size() == 1
                           ? std::move(rewritten.text)
                           : rewritten.text.substr(part.begin, part.end - part.begin),
                       rewritten.first && part.begin == 0, cache, ids);
      }
    }
  }
};

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  const Document file(json, name);
  return Tokenizer(std::make_shared<const Parts>(file.root()));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const Surroundings none;
  const Surroundings& around = options.special_tokens ? parts_->surroundings : none;
  std::vector<int32_t> ids = around.before;
  ids.reserve(ids.size() + around.after.size() + text.size() / 3);
  auto cache = parts_->caches.take();
  parts_->encode_text(valid_utf8(text), *cache, ids);
  parts_->caches.give_back(std::move(cache));
  if (options.truncate && parts_->truncation)
    truncate(*parts_->truncation, around.before.size(), around.after.size(), ids);
  ids.insert(ids.end(), around.after.begin(), around.after.end());
  if (options.pad && parts_->padding) pad(*parts_->padding, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (int32_t id : ids) {
    if (options.skip_special && is_special(id)) continue;
    if (const AddedToken* added = parts_->added.find(id))
      tokens.push_back(added->text);
    else if (const auto token = parts_->model->tokens().text_of(id))
      tokens.emplace_back(*token);
  }
  if (parts_->decoder != nullptr) parts_->decoder->apply(tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && parts_->decoder == nullptr) text += ' ';
    text += tokens[i];
  }
  return text;
}

int64_t Tokenizer::size() const {
  return std::max(parts_->model->tokens().size(), parts_->added.size());
}

void Tokenizer::check_fits(int64_t vocab_size) const {
  if (size() <= vocab_size) return;
  throw Error(ErrorKind::data,
              "[tokenizer] {}: ids reach {}, but the model's vocab_size is {}: its ids end at {}.",
              parts_->file, size() - 1, vocab_size, vocab_size - 1);
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  int32_t id = parts_->added.id_of(token);
  if (id < 0) id = parts_->model->tokens().find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<std::string> Tokenizer::token_of(int64_t id) const {
  if (const AddedToken* added = parts_->added.find(id)) return added->content;
  const auto token = parts_->model->tokens().text_of(id);
  return token ? std::optional<std::string>(*token) : std::nullopt;
}

// A vocabulary may have a special token's text under two ids: both are special.
bool Tokenizer::is_special(int64_t id) const {
  const AddedToken* added = parts_->added.find(id);
  if (added == nullptr)
    if (const auto token = parts_->model->tokens().text_of(id))
      added = parts_->added.find(parts_->added.id_of(*token));
  return added != nullptr && added->special;
}

}  // namespace weft::data
