// Implements byte-pair encoding (Sennrich et al. 2016): the adjacent pair of the lowest rank is
// merged, the leftmost of equals first, until no pair has a rank.
#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "weft/base/error.h"
#include "weft/data/tokenizer/byte_level.h"
#include "weft/data/tokenizer/model.h"
#include "weft/data/tokenizer/unicode.h"
#include "weft/io/files.h"

namespace weft::data::tokenizer {
namespace {

constexpr uint32_t no_rank = UINT32_MAX;
constexpr size_t most_merges = 0xffffff;  // beyond it, simdjson does not count a list
constexpr std::string_view word_begin = "\xe2\x96\x81";  // U+2581, SentencePiece's space

struct Merge {
  uint32_t rank = no_rank;
  int32_t id = -1;  // id of the merged token
};

// MergeTable maps pairs of ids to merges.
class MergeTable {
 public:
  void reserve(size_t count) {
    slots_.assign(std::bit_ceil(2 * count + 2), {});
    shift_ = 64 - std::countr_zero(slots_.size());
  }
  void add(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[slot_of(key_of(left, right))];
    slot = {key_of(left, right), merge};
  }
  void prefetch(int32_t left, int32_t right) const {
    __builtin_prefetch(&slots_[first_slot(key_of(left, right))], 1);
  }
  Merge find(int32_t left, int32_t right) const {
    return slots_[slot_of(key_of(left, right))].merge;
  }

 private:
  struct Slot {
    uint64_t key = ~uint64_t{0};
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  size_t first_slot(uint64_t key) const { return (key ^ key >> 32) * 0x9e3779b97f4a7c15 >> shift_; }
  size_t slot_of(uint64_t key) const {
    size_t slot = first_slot(key);
    while (slots_[slot].key != key && slots_[slot].merge.id >= 0)
      slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  std::vector<Slot> slots_;
  int shift_ = 0;
};

// MergeBatch holds merges until their tokens are looked up together.
class MergeBatch {
 public:
  uint32_t first_rank = 0;

  uint32_t rank_of_next() const { return first_rank + static_cast<uint32_t>(merges_.size()); }
  bool full() const { return merges_.size() == most; }
  // Adds a merge of `left` and `right`, whose merged token is `left` + `rest`. `left` and `right`
  // must outlive the batch.
  void add(std::string_view left, std::string_view right, std::string_view rest) {
    merges_.push_back({left, right, merged_.size()});
    merged_.append(left).append(rest);
  }
  // Returns the left, right and merged token of each merge, valid until the next add().
  std::vector<std::string_view> tokens() const {
    std::vector<std::string_view> tokens;
    tokens.reserve(3 * merges_.size());
    for (size_t i = 0; i < merges_.size(); ++i) {
      const size_t end = i + 1 < merges_.size() ? merges_[i + 1].begin : merged_.size();
      tokens.push_back(merges_[i].left);
      tokens.push_back(merges_[i].right);
      tokens.push_back(std::string_view(merged_).substr(merges_[i].begin, end - merges_[i].begin));
    }
    return tokens;
  }
  void clear() {
    first_rank = rank_of_next();
    merges_.clear();
    merged_.clear();
  }

 private:
  static constexpr size_t most = 256;
  struct Entry {
    std::string_view left, right;
    size_t begin;  // start of the merged token in merged_
  };
  std::vector<Entry> merges_;
  std::string merged_;  // merged tokens, one after the other
};

class Bpe : public Model {
 public:
  explicit Bpe(const Part& part) : Model(part.file()) {
    if (const auto dropout = part.find("dropout"); dropout && dropout->number() != 0)
      dropout->must("must be null or 0: weft encodes a text in one way");
    prefix_ = part.text_or("continuing_subword_prefix", "");
    suffix_ = part.text_or("end_of_word_suffix", "");
    fuse_unknown_ = part.truth_or("fuse_unk", false);
    byte_fallback_ = part.truth_or("byte_fallback", false);
    ignore_merges_ = part.truth_or("ignore_merges", false);
    read_vocabulary(part.at("vocab"));
    if (const auto unknown = part.find("unk_token")) {
      has_unknown_ = true;
      unknown_ = tokens_.find(unknown->text());
    }
    bytes_complete_ = byte_fallback_;
    for (unsigned b = 0; b < 256; ++b) {
      byte_fallbacks_[b] = tokens_.find(byte_token(static_cast<unsigned char>(b)));
      bytes_complete_ = bytes_complete_ && byte_fallbacks_[b] >= 0;
    }
    read_merges(part.at("merges"));
  }

  bool take_bytes() override {
    if (!prefix_.empty() || !suffix_.empty()) return false;
    for (unsigned b = 0; b < 256; ++b) {
      std::string character;
      append_byte_character(character, static_cast<char>(b));
      byte_ids_[b] = tokens_.find(character);
      all_bytes_ = all_bytes_ && byte_ids_[b] >= 0;
    }
    if (ignore_merges_) index_words_as_bytes();
    takes_bytes_ = true;
    may_split_ = false;
    return true;
  }

 private:
  void compute(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const override {
    if (ignore_merges_) {
      const int32_t whole = takes_bytes_ ? words_as_bytes_.find(word) : tokens_.find(word);
      if (whole >= 0) return ids.push_back(whole);
    }
    if (may_split_ && split(word, cache, ids)) return;
    const size_t from = ids.size();
    append_symbols(word, ids);
    const std::span<int32_t> symbols(ids.data() + from, ids.size() - from);
    ids.resize(from +
               (symbols.size() <= most_scanned ? merge_short(symbols) : merge_long(symbols)));
  }

  // Encodes word by word: splits before each U+2581 that follows another character. Called only if
  // no merge spans such a place.
  bool split(std::string_view text, WordCache& cache, std::vector<int32_t>& ids) const {
    size_t begin = 0;
    for (size_t at = text.find(word_begin, 1); at != std::string_view::npos;
         at = text.find(word_begin, at + word_begin.size())) {
      if (text.substr(0, at).ends_with(word_begin)) continue;
      encode(text.substr(begin, at - begin), cache, ids);
      begin = at;
    }
    if (begin > 0) encode(text.substr(begin), cache, ids);
    return begin > 0;
  }

  void append_symbols(std::string_view word, std::vector<int32_t>& ids) const {
    if (takes_bytes_ && all_bytes_) {
      for (char c : word) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    } else if (takes_bytes_) {
      append_characters(byte_characters(word), ids);
    } else {
      append_characters(word, ids);
    }
  }

  // Appends the id of each character. An unknown character becomes its byte tokens (byte_fallback),
  // or else the unknown token, which is held back until the next known character so that neighbours
  // can be fused.
  void append_characters(std::string_view word, std::vector<int32_t>& ids) const {
    bool pending = false;  // an unknown token that is not yet appended
    const auto append_pending = [&] {
      if (std::exchange(pending, false)) ids.push_back(unknown_);
    };
    std::string decorated;
    for (size_t begin = 0; begin < word.size();) {
      const size_t end = std::min(begin + utf8_length(word[begin]), word.size());
      std::string_view character = word.substr(begin, end - begin);
      if ((begin > 0 && !prefix_.empty()) || (end == word.size() && !suffix_.empty())) {
        decorated = fmt::format("{}{}{}", begin > 0 ? prefix_ : "", character,
                                end == word.size() ? suffix_ : "");
        character = decorated;
      }
      begin = end;
      if (const int32_t id = tokens_.find(character); id >= 0) {
        append_pending();
        ids.push_back(id);
      } else if (byte_fallback_ && append_bytes(character, ids)) {
        continue;
      } else if (has_unknown_) {
        if (unknown_ < 0) no_unknown_token(character);
        if (!fuse_unknown_) append_pending();
        pending = true;
      }
    }
    append_pending();
  }

  bool append_bytes(std::string_view character, std::vector<int32_t>& ids) const {
    const auto id_of = [&](char c) { return byte_fallbacks_[static_cast<unsigned char>(c)]; };
    if (std::ranges::any_of(character, [&](char c) { return id_of(c) < 0; })) return false;
    for (char c : character) ids.push_back(id_of(c));
    return true;
  }

  // Merges by a scan of all pairs per merge, which is fastest for short words. Returns the number
  // of symbols left, which are the first of `symbols`.
  static constexpr size_t most_scanned = 96;
  size_t merge_short(std::span<int32_t> symbols) const {
    std::array<Merge, most_scanned> merges;  // the merge of each symbol with the next
    size_t count = symbols.size();
    for (size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.find(symbols[i], symbols[i + 1]);
    while (count > 1) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < count; ++i)
        if (merges[i].rank < merges[best].rank) best = i;
      if (merges[best].rank == no_rank) break;
      symbols[best] = merges[best].id;
      --count;
      for (size_t i = best + 1; i < count; ++i) {
        symbols[i] = symbols[i + 1];
        merges[i - 1] = merges[i];
      }
      if (best + 1 < count) merges[best] = merges_.find(symbols[best], symbols[best + 1]);
      if (best > 0) merges[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    }
    return count;
  }

  // Merges with a heap of candidates and a list of symbols: n log n for texts without words.
  size_t merge_long(std::span<int32_t> symbols) const {
    const size_t count = symbols.size();
    constexpr auto none = static_cast<uint32_t>(-1);
    std::vector<Merge> merges(count);  // merges of symbols with the next; dead symbols: no rank
    std::vector<uint32_t> previous(count), next(count);
    std::vector<uint64_t> heap;  // rank << 32 | position
    const auto look = [&](uint32_t i) {
      merges[i] = next[i] == none ? Merge{} : merges_.find(symbols[i], symbols[next[i]]);
      return merges[i].rank != no_rank;
    };
    const auto candidate = [&](uint32_t i) { return uint64_t{merges[i].rank} << 32 | i; };
    for (size_t i = 0; i < count; ++i) {
      previous[i] = static_cast<uint32_t>(i) - 1;
      next[i] = i + 1 < count ? static_cast<uint32_t>(i + 1) : none;
    }
    for (uint32_t i = 0; i < count; ++i)
      if (look(i)) heap.push_back(candidate(i));
    std::ranges::make_heap(heap, std::greater<>());
    const auto push = [&](uint32_t i) {
      if (!look(i)) return;
      heap.push_back(candidate(i));
      std::ranges::push_heap(heap, std::greater<>());
    };
    while (!heap.empty()) {
      std::ranges::pop_heap(heap, std::greater<>());
      const auto i = static_cast<uint32_t>(heap.back());
      const auto rank = static_cast<uint32_t>(heap.back() >> 32);
      heap.pop_back();
      if (merges[i].rank != rank) continue;  // stale: the pair has changed since
      symbols[i] = merges[i].id;
      const uint32_t dead = next[i];
      merges[dead] = {};
      next[i] = next[dead];
      if (next[i] != none) previous[next[i]] = i;
      push(i);
      if (previous[i] != none) push(previous[i]);
    }
    size_t left = 0;
    for (uint32_t i = 0; i != none; i = next[i]) symbols[left++] = symbols[i];
    return left;
  }

  void read_merges(const Part& list) {
    if (!list.is_list()) list.must("must be a list of pairs");
    const simdjson::dom::array entries = list.value();
    if (entries.size() >= most_merges) list.fail(fmt::format("has {} pairs or more", most_merges));
    merges_.reserve(entries.size());
    may_split_ =
        !ignore_merges_ && (bytes_complete_ || !has_unknown_) && prefix_.empty() && suffix_.empty();
    MergeBatch batch;
    for (const simdjson::dom::element entry : entries) {
      const auto [left, right] = pair_of(list, entry, batch.rank_of_next());
      // The right token of a merge has continuing_subword_prefix; in the merged token it is
      // dropped.
      batch.add(left, right, right.substr(std::min(right.size(), prefix_.size())));
      if (batch.full()) add_merges(list, batch);
    }
    add_merges(list, batch);
  }

  // Adds the merges of a batch, which is then empty.
  void add_merges(const Part& list, MergeBatch& batch) {
    const std::vector<std::string_view> tokens = batch.tokens();
    std::vector<int32_t> ids(tokens.size());
    tokens_.find_all(tokens, ids);
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] < 0)
        list.fail(fmt::format("[{}] has '{}', which is not in the vocabulary",
                              batch.first_rank + i / 3, io::printable(tokens[i])));
    for (size_t i = 0; i < ids.size(); i += 3) merges_.prefetch(ids[i], ids[i + 1]);
    for (size_t i = 0; i < ids.size(); i += 3) {
      merges_.add(ids[i], ids[i + 1],
                  {batch.first_rank + static_cast<uint32_t>(i / 3), ids[i + 2]});
      may_split_ = may_split_ && !reaches_over_word_begin(tokens[i + 2]);
    }
    batch.clear();
  }

  static std::pair<std::string_view, std::string_view> pair_of(const Part& list,
                                                               simdjson::dom::element entry,
                                                               uint32_t rank) {
    simdjson::dom::array pair;
    std::string_view text, left, right;
    if (entry.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
        pair.at(0).get(left) == simdjson::SUCCESS && pair.at(1).get(right) == simdjson::SUCCESS)
      return {left, right};
    if (entry.get(text) == simdjson::SUCCESS) {
      const size_t space = text.find(' ');
      if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos)
        return {text.substr(0, space), text.substr(space + 1)};
    }
    list.fail(fmt::format("[{}] must be two tokens. Got {}", rank, shown(entry)));
  }

  static bool reaches_over_word_begin(std::string_view token) {
    while (token.starts_with(word_begin)) token.remove_prefix(word_begin.size());
    return token.find(word_begin) != std::string_view::npos;
  }

  void index_words_as_bytes() {
    std::string bytes;
    for (int64_t id = 0; id < tokens_.size(); ++id) {
      const std::optional<std::string_view> token = tokens_.text_of(id);
      bytes.clear();
      if (token && append_bytes_of(bytes, *token) && !bytes.empty())
        words_as_bytes_.add(bytes, tokens_.find(*token));
    }
  }

  MergeTable merges_;
  std::string prefix_, suffix_;  // continuing_subword_prefix, end_of_word_suffix
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
  bool has_unknown_ = false;
  int32_t unknown_ = -1;
  std::array<int32_t, 256> byte_fallbacks_ = {};  // ids of <0x00> and so on
  bool bytes_complete_ = false;                   // all 256 bytes have a fallback token
  bool may_split_ = false;                        // no merge reaches over the begin of a word
  bool takes_bytes_ = false, all_bytes_ = true;
  std::array<int32_t, 256> byte_ids_ = {};  // ids of the characters that stand for bytes
  TokenTable words_as_bytes_;               // for ignore_merges with take_bytes()
};

}  // namespace

std::unique_ptr<Model> make_bpe(const Part& part) { return std::make_unique<Bpe>(part); }

}  // namespace weft::data::tokenizer
