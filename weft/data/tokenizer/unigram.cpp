// The unigram language model (Kudo 2018) finds the segmentation of the greatest likelihood, by
// Viterbi.
#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <simdjson.h>

#include "weft/data/tokenizer/model.h"
#include "weft/data/tokenizer/trie.h"
#include "weft/data/tokenizer/unicode.h"

namespace weft::data::tokenizer {
namespace {

constexpr double unknown_penalty = 10.0;  // below the least score, as SentencePiece has it

class Unigram : public Model {
 public:
  explicit Unigram(const Part& part) : Model(part.file()) {
    byte_fallback_ = part.truth_or("byte_fallback", false);
    const Part vocabulary = part.at("vocab");
    if (!vocabulary.is_list()) vocabulary.must("must be a list of tokens and scores");
    const simdjson::dom::array entries = vocabulary.value();
    double least = std::numeric_limits<double>::infinity();
    tokens_.reserve(entries.size());
    for (const simdjson::dom::element entry : entries) {
      const auto id = static_cast<int32_t>(scores_.size());
      simdjson::dom::array pair;
      std::string_view token;
      double score = 0;
      if (entry.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
          pair.at(0).get(token) != simdjson::SUCCESS || pair.at(1).get(score) != simdjson::SUCCESS)
        vocabulary.fail(
            fmt::format("[{}] must be a token and its score. Got {}", id, shown(entry)));
      scores_.push_back(score);
      least = std::min(least, scores_.back());
      tokens_.add(token, id);
      if (!token.empty()) trie_.add(token, id);
    }
    unknown_score_ = least - unknown_penalty;
    const auto unknown = part.find("unk_id");
    if (unknown)
      unknown_ =
          static_cast<int32_t>(unknown->integer(0, std::max<int64_t>(tokens_.size(), 1) - 1));
    if (unknown && scores_.empty()) vocabulary.fail("is empty, so that unk_id names no token");
  }

 private:
  struct Node {  // the best path that ends at a byte
    double score = 0;
    int64_t begin = -1;  // start of the path's last token; -1: no path ends here
    int32_t id = 0;
  };

  void compute(std::string_view text, WordCache&, std::vector<int32_t>& ids) const override {
    std::vector<Node> nodes(text.size() + 1);
    for (size_t begin = 0; begin < text.size();) {
      const size_t length = utf8_length(text[begin]);
      const double before = nodes[begin].score;
      bool has_character = false;
      const auto offer = [&](size_t bytes, double score, int32_t id) {
        Node& node = nodes[begin + bytes];
        if (node.begin < 0 || score > node.score) node = {score, static_cast<int64_t>(begin), id};
      };
      trie_.for_each_prefix(text.substr(begin), [&](size_t bytes, int32_t id) {
        offer(bytes, scores_[static_cast<size_t>(id)] + before, id);
        has_character = has_character || bytes == length;
      });
      if (!has_character) {
        if (unknown_ < 0) no_unknown_token(text.substr(begin, length));
        offer(length, unknown_score_ + before, unknown_);
      }
      begin += length;
    }
    append_best(text, nodes, ids);
  }

  // Follows the best path back from its end. Joins neighbouring unknown tokens to one.
  void append_best(std::string_view text, const std::vector<Node>& nodes,
                   std::vector<int32_t>& ids) const {
    const size_t from = ids.size();
    for (size_t end = text.size(); end > 0;) {
      auto begin = static_cast<size_t>(nodes[end].begin);
      const int32_t id = nodes[end].id;
      if (id != unknown_) {
        ids.push_back(id);
      } else {
        while (begin > 0 && nodes[begin].id == unknown_)
          begin = static_cast<size_t>(nodes[begin].begin);
        append_unknown(text.substr(begin, end - begin), ids);
      }
      end = begin;
    }
    std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(from), ids.end());
  }

  // Appends the ids of unknown text, last first: its token if the whole text is a token, else its
  // byte tokens if all bytes have one, else the unknown token.
  void append_unknown(std::string_view text, std::vector<int32_t>& ids) const {
    if (const int32_t whole = tokens_.find(text); whole >= 0) return ids.push_back(whole);
    const size_t from = ids.size();
    for (size_t i = text.size(); byte_fallback_ && i > 0; --i) {
      const int32_t id = tokens_.find(byte_token(static_cast<unsigned char>(text[i - 1])));
      if (id < 0) {
        ids.resize(from);
        break;
      }
      ids.push_back(id);
    }
    if (ids.size() == from) ids.push_back(unknown_);
  }

  Trie trie_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  int32_t unknown_ = -1;
  bool byte_fallback_ = false;
};

}  // namespace

std::unique_ptr<Model> make_unigram(const Part& part) { return std::make_unique<Unigram>(part); }

}  // namespace weft::data::tokenizer
