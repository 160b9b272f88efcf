// Implements WordPiece (Schuster and Nakajima 2012), which takes the longest token at each place,
// and WordLevel, which has whole words only.
#include <algorithm>
#include <utility>

#include "weft/data/tokenizer/model.h"
#include "weft/data/tokenizer/unicode.h"

namespace weft::data::tokenizer {
namespace {

class WordPiece : public Model {
 public:
  explicit WordPiece(const Part& part) : Model(part.file()) {
    prefix_ = part.text_or("continuing_subword_prefix", "##");
    most_characters_ =
        static_cast<size_t>(part.integer_or("max_input_chars_per_word", 100, 0, INT64_MAX));
    read_vocabulary(part.at("vocab"));
    unknown_ = tokens_.find(part.text_or("unk_token", "[UNK]"));
    for (int64_t id = 0; id < tokens_.size(); ++id)
      if (const auto token = tokens_.text_of(id)) longest_ = std::max(longest_, token->size());
  }

 private:
  void compute(std::string_view word, WordCache&, std::vector<int32_t>& ids) const override {
    const size_t from = ids.size();
    if (!append_pieces(word, ids)) {
      ids.resize(from);
      if (unknown_ < 0) no_unknown_token(word);
      ids.push_back(unknown_);
    }
  }

  // Returns false if the word is too long, or if at some place no token fits.
  bool append_pieces(std::string_view word, std::vector<int32_t>& ids) const {
    const auto begins_character = [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    };
    if (static_cast<size_t>(std::ranges::count_if(word, begins_character)) > most_characters_)
      return false;
    std::string piece;
    for (size_t begin = 0; begin < word.size();) {
      const std::string_view prefix = begin > 0 ? std::string_view(prefix_) : std::string_view();
      size_t end = std::min(word.size(), begin + longest_);
      while (end > begin && end < word.size() && !begins_character(word[end])) --end;
      int32_t id = -1;
      while (end > begin) {
        piece.assign(prefix).append(word.substr(begin, end - begin));
        id = tokens_.find(piece);
        if (id >= 0) break;
        do --end;
        while (end > begin && !begins_character(word[end]));
      }
      if (id < 0) return false;
      ids.push_back(id);
      begin = end;
    }
    return true;
  }

  std::string prefix_;
  size_t most_characters_ = 100, longest_ = 0;  // bytes of the longest token
  int32_t unknown_ = -1;
};

class WordLevel : public Model {
 public:
  explicit WordLevel(const Part& part) : Model(part.file()) {
    read_vocabulary(part.at("vocab"));
    unknown_ = tokens_.find(part.text_or("unk_token", "<unk>"));
  }

 private:
  void compute(std::string_view word, WordCache&, std::vector<int32_t>& ids) const override {
    int32_t id = tokens_.find(word);
    if (id < 0) id = unknown_;
    if (id < 0) no_unknown_token(word);
    ids.push_back(id);
  }

  int32_t unknown_ = -1;
};

}  // namespace

std::unique_ptr<Model> make_word_piece(const Part& part) {
  return std::make_unique<WordPiece>(part);
}
std::unique_ptr<Model> make_word_level(const Part& part) {
  return std::make_unique<WordLevel>(part);
}

}  // namespace weft::data::tokenizer
