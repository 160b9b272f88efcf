#include "weft/data/tokens.h"

#include <algorithm>
#include <set>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/base/numbers/hash.h"
#include "weft/base/numbers/rounding.h"
#include "weft/data/random.h"
#include "weft/io/files.h"

namespace weft::data {
namespace {

constexpr size_t text_limit = size_t{4} << 30;  // bytes of one file; tokens take four times as much

class WindowSource : public Source {
 public:
  WindowSource(TokenDataset data, int64_t seq_len) : data_(std::move(data)), seq_len_(seq_len) {
    WEFT_CHECK(seq_len > 0, "[data] seq_len must be positive. Got {}.", seq_len);
  }
  Type input_type() const override { return {DType::i64, {seq_len_}}; }
  Shape label_shape() const override { return {seq_len_}; }
  size_t bytes() const override { return data_.tokens().size_bytes(); }
  uint64_t fingerprint() const override {
    return hash_bytes(data_.tokens().data(), data_.tokens().size_bytes());
  }

 protected:
  // Copies the window from `begin`, as far as the stream has labels for it.
  void write_window(int64_t begin, std::byte* input, int64_t* labels) const {
    auto* inputs = reinterpret_cast<int64_t*>(input);
    const int32_t* tokens = data_.tokens().data() + begin;
    int64_t count = std::min(seq_len_, data_.size() - 1 - begin);
    std::copy(tokens, tokens + count, inputs);
    std::copy(tokens + 1, tokens + 1 + count, labels);
    std::fill(inputs + count, inputs + seq_len_, 0);
    std::fill(labels + count, labels + seq_len_, ignored_label);
  }

  TokenDataset data_;
  int64_t seq_len_;
};

class RandomWindows : public WindowSource {
 public:
  RandomWindows(const TokenDataset& data, int64_t seq_len) : WindowSource(data, seq_len) {
    if (data.size() <= seq_len)
      throw Error(ErrorKind::data,
                  "[data] {} tokens are too few for windows of seq_len {} and a label.",
                  data.size(), seq_len);
  }
  int64_t size() const override { return data_.size() / seq_len_; }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    auto words = random_words(Choice::window, key.seed, key.epoch, key.index);
    write_window(below(data_.size() - seq_len_, words[0], words[1]), input, labels);
  }
};

class AllWindows : public WindowSource {
 public:
  AllWindows(const TokenDataset& data, int64_t seq_len) : WindowSource(data, seq_len) {
    if (data.size() < 2)
      throw Error(ErrorKind::data, "[data] {} tokens are too few: a label follows a token.",
                  data.size());
  }
  int64_t size() const override { return ceil_div(data_.size() - 1, seq_len_); }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    write_window(key.index * seq_len_, input, labels);
  }
};

TokenDataset tokens_of(const TextCodec& vocabulary, std::string_view text, bool special_tokens) {
  return TokenDataset(vocabulary.encode(text, special_tokens), vocabulary.size());
}

io::Vocabulary make_vocabulary(std::string_view tokenizer, std::string_view text) {
  if (tokenizer == "bytes") return io::Vocabulary::bytes();
  if (tokenizer == "characters") return io::Vocabulary::characters(text);
  throw Error(ErrorKind::usage, "[data] unknown tokenizer '{}'. Known: bytes, characters.",
              tokenizer);
}

}  // namespace

TokenDataset::TokenDataset(std::vector<int32_t> tokens, int64_t vocabulary_size)
    : vocabulary_size_(vocabulary_size) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary_size)
      throw Error(ErrorKind::data, "[data] token {} at position {} is outside 0 to {}.", tokens[i],
                  i, vocabulary_size - 1);
  stream_ = std::make_shared<const std::vector<int32_t>>(std::move(tokens));
  tokens_ = *stream_;
}

TokenDataset TokenDataset::slice(int64_t first, int64_t last) const {
  WEFT_CHECK(first >= 0 && first <= last && last <= size(),
             "[data] slice [{}, {}) is outside the {} tokens.", first, last, size());
  TokenDataset part = *this;
  part.tokens_ = tokens_.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
  return part;
}

std::shared_ptr<const Source> TokenDataset::random_windows(int64_t seq_len) const {
  return std::make_shared<RandomWindows>(*this, seq_len);
}
std::shared_ptr<const Source> TokenDataset::windows(int64_t seq_len) const {
  return std::make_shared<AllWindows>(*this, seq_len);
}

namespace {
// Runs `read`, and puts the file's name before the message of an Error.
template <class Read>
auto of_file(const std::string& name, Read read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.kind(), "{}: {}", name, error.what());
  }
}

// Warns of characters that occur in validation only: a model cannot learn them.
void warn_of_unseen(const TextDataset& text, const std::string& validation) {
  const io::Vocabulary* vocabulary = text.vocabulary.vocabulary();
  if (vocabulary == nullptr || vocabulary->kind() != "characters" || text.train.size() == 0) return;
  const std::set<int32_t> seen(text.train.tokens().begin(), text.train.tokens().end());
  std::set<int32_t> unseen;
  for (int32_t token : text.validation.tokens())
    if (!seen.contains(token)) unseen.insert(token);
  if (!unseen.empty())
    logging::warn("[data] {}: {} of its characters do not occur in the training text.", validation,
                  unseen.size());
}
}  // namespace

TextDataset text(const std::string& path, const TextOptions& options) {
  WEFT_CHECK(options.val_split >= 0 && options.val_split < 1,
             "[data] val_split is at least 0 and below 1. Got {}.", options.val_split);
  std::string train = io::read_file(path, text_limit);
  std::string validation =
      options.val_path.empty() ? "" : io::read_file(options.val_path, text_limit);
  auto vocabulary_of = [&](const std::string& name, const std::string& read) {
    return of_file(name, [&] { return make_vocabulary(options.tokenizer, read); });
  };
  TextCodec vocabulary =
      options.vocabulary ? *options.vocabulary : TextCodec(vocabulary_of(path, train));
  if (!options.vocabulary && !options.val_path.empty()) {
    vocabulary_of(options.val_path, validation);  // for errors that say where in that file
    vocabulary = make_vocabulary(options.tokenizer, train + validation);
  }
  const auto read = [&](const std::string& name, const std::string& from) {
    return of_file(name, [&] { return tokens_of(vocabulary, from, options.special_tokens); });
  };
  const TokenDataset all = read(path, train);
  const auto split =
      static_cast<int64_t>(static_cast<double>(all.size()) * (1 - options.val_split));
  TextDataset result{vocabulary, all, all};
  if (options.val_path.empty()) {
    result.train = all.slice(0, split);
    result.validation = all.slice(split, all.size());
  } else {
    result.validation = read(options.val_path, validation);
  }
  warn_of_unseen(result, options.val_path.empty() ? "the end of " + path : options.val_path);
  return result;
}

}  // namespace weft::data
