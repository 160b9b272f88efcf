#include "weft/data/instructions.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/logging.h"
#include "weft/data/framed.h"
#include "weft/data/json_lines.h"
#include "weft/io/json.h"

namespace weft::data {
namespace {
using nlohmann::json;

bool is_space(char c) { return std::string_view(" \t\r\n").find(c) != std::string_view::npos; }

// Part is a piece of a sample's text, up to byte `end`.
struct Part {
  size_t end = 0;
  bool learned = false;
};

// Returns for each token a byte of the text that it spells: the last, or within a character the
// first. Returns nullopt where the tokens spell another text, as normalizers rewrote it.
std::optional<std::vector<size_t>> bytes_of(const Tokenizer& tokenizer, std::string_view text,
                                            std::span<const int32_t> tokens) {
  StreamDecoder decoder(tokenizer, {.skip_special = false});
  std::vector<size_t> bytes;
  bytes.reserve(tokens.size());
  size_t at = 0;
  for (const int32_t token : tokens) {
    const size_t begin = at;
    for (const char c : decoder.add(token)) {
      // Added tokens may hide white space beside them; SentencePiece puts a space before words.
      size_t next = at;
      while (c != ' ' && next < text.size() && text[next] != c && is_space(text[next])) ++next;
      if (next < text.size() && text[next] == c)
        at = next + 1;
      else if (c != ' ')
        return std::nullopt;
    }
    bytes.push_back(at > begin ? at - 1 : at);
  }
  return bytes;
}

// Returns which tokens of a text belong to parts that are learned.
std::vector<bool> learned_of(const Tokenizer& tokenizer, const std::string& text,
                             std::span<const int32_t> tokens, const std::vector<Part>& parts) {
  std::vector<bool> learned;
  learned.reserve(tokens.size());
  if (const auto bytes = bytes_of(tokenizer, text, tokens)) {
    for (const size_t byte : *bytes) {
      const auto part = std::ranges::upper_bound(parts, byte, {}, &Part::end);
      learned.push_back(part != parts.end() ? part->learned : parts.back().learned);
    }
    return learned;
  }
  // Else a part ends where its text alone has other tokens than the whole.
  for (const Part& part : parts) {
    const std::vector<int32_t> up_to =
        tokenizer.encode(text.substr(0, part.end), {.special_tokens = false});
    const auto common = std::ranges::mismatch(up_to, tokens).in1 - up_to.begin();
    learned.resize(std::max(learned.size(), static_cast<size_t>(common)), part.learned);
  }
  learned.resize(tokens.size(), parts.back().learned);
  return learned;
}

// Reader turns the object of a line into a sample.
class Reader {
 public:
  Reader(const Tokenizer& tokenizer, const InstructionOptions& options)
      : tokenizer_(tokenizer), options_(options), frame_(frame_of(tokenizer, 0)) {}

  // Throws io::JsonError for what is no sample.
  Instruction sample(const json& object) const {
    if (!object.is_object()) throw io::JsonError("a sample must be an object");
    if (object.contains("messages")) return conversation(object);
    Instruction sample;
    append(sample, frame_.before, false);
    if (object.contains("prompt") || object.contains("completion")) {
      const std::string prompt = io::text_at(object, "prompt");
      const std::string whole = prompt + io::text_at(object, "completion");
      append(sample, whole, {{prompt.size(), false}, {whole.size(), true}});
    } else if (object.contains("text")) {
      const std::string text = io::text_at(object, "text");
      append(sample, text, {{text.size(), true}});
    } else {
      throw io::JsonError("a sample has text, prompt and completion, or messages");
    }
    append(sample, frame_.after, true);
    if (options_.end && (frame_.after.empty() || frame_.after.back() != *options_.end))
      append(sample, std::span(&*options_.end, 1), true);
    return sample;
  }

 private:
  static void append(Instruction& sample, std::span<const int32_t> tokens, bool learned) {
    sample.tokens.insert(sample.tokens.end(), tokens.begin(), tokens.end());
    sample.learned.resize(sample.tokens.size(), learned);
  }
  // A text is encoded whole, as a tokenizer may begin each text with a space.
  void append(Instruction& sample, const std::string& text, const std::vector<Part>& parts) const {
    const std::vector<int32_t> tokens = tokenizer_.encode(text, {.special_tokens = false});
    const std::vector<bool> learned = learned_of(tokenizer_, text, tokens, parts);
    sample.tokens.insert(sample.tokens.end(), tokens.begin(), tokens.end());
    sample.learned.insert(sample.learned.end(), learned.begin(), learned.end());
  }

  // The text of each message is what the conversation up to it adds to the one before, so that an
  // answer is what a model would have to generate there.
  Instruction conversation(const json& object) const {
    if (!options_.chat)
      throw io::JsonError("messages need a chat template, which the tokenizer's folder lacks");
    const json& messages = object.at("messages");
    if (!messages.is_array()) throw io::JsonError("messages must be a list");
    std::vector<ChatMessage> said;
    std::string text;
    std::vector<Part> parts;
    const auto reach = [&](std::string whole, bool learned) {
      if (!whole.starts_with(text))
        throw io::JsonError("the chat template changes what was said before an answer");
      text = std::move(whole);
      parts.push_back({text.size(), learned});
    };
    bool any = false;
    for (const json& message : messages) {
      const std::string role = io::text_at(message, "role");
      const bool is_answer = role == "assistant";
      if (is_answer) reach(options_.chat->render(said, {.add_generation_prompt = true}), false);
      said.push_back({role, io::text_at(message, "content")});
      if (is_answer) reach(options_.chat->render(said), true);
      any = any || is_answer;
    }
    if (!any) throw io::JsonError("messages have no answer: none is by the assistant");
    Instruction sample;
    append(sample, text, parts);
    return sample;
  }

  const Tokenizer& tokenizer_;
  const InstructionOptions& options_;
  Frame frame_;
};

// Returns the tokens of a sample that a model reads: the last one is a label alone.
int64_t inputs_of(const Instruction& sample) { return std::ssize(sample.tokens) - 1; }

// Each row of a source is a list of samples.
using Rows = std::vector<std::vector<uint32_t>>;

Rows one_by_one(size_t samples) {
  Rows rows(samples);
  for (size_t i = 0; i < samples; ++i) rows[i] = {static_cast<uint32_t>(i)};
  return rows;
}

// Packs by best fit, the longest sample first: a sample joins the row in which it leaves the fewest
// tokens, the earliest of those.
Rows packed_rows(const std::vector<Instruction>& samples, int64_t seq_len) {
  std::vector<uint32_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [&](uint32_t i) { return inputs_of(samples[i]); });
  Rows rows;
  std::set<std::pair<int64_t, size_t>> room;  // tokens that are left, and the row
  for (const uint32_t i : order) {
    const int64_t count = inputs_of(samples[i]);
    auto best = room.lower_bound({count, 0});
    if (best == room.end()) {
      best = room.emplace(seq_len, rows.size()).first;
      rows.emplace_back();
    }
    const auto [left, row] = *best;
    room.erase(best);
    rows[row].push_back(i);
    room.emplace(left - count, row);
  }
  return rows;
}

class InstructionSource : public Source {
 public:
  InstructionSource(std::vector<Instruction> samples, int64_t seq_len, bool packed)
      : samples_(std::move(samples)),
        rows_(packed ? packed_rows(samples_, seq_len) : one_by_one(samples_.size())),
        seq_len_(seq_len),
        packed_(packed) {}

  int64_t size() const override { return std::ssize(rows_); }
  Type input_type() const override {
    return {DType::i64, packed_ ? Shape{2, seq_len_} : Shape{seq_len_}};
  }
  Shape label_shape() const override { return {seq_len_}; }
  size_t bytes() const override {
    size_t bytes = rows_.size() * sizeof(Rows::value_type) + samples_.size() * sizeof(uint32_t);
    for (const Instruction& sample : samples_)
      bytes += sample.tokens.size() * sizeof(int32_t) + sample.learned.size() / 8;
    return bytes;
  }
  uint64_t fingerprint() const override {
    uint64_t hash = hash_combine(static_cast<uint64_t>(samples_.size()), packed_ ? 1 : 0);
    for (const Instruction& sample : samples_) {
      hash = hash_combine(hash,
                          hash_bytes(sample.tokens.data(), sample.tokens.size() * sizeof(int32_t)));
      for (size_t i = 0; i < sample.learned.size(); ++i)
        if (sample.learned[i]) hash = hash_combine(hash, i);
    }
    return hash;
  }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    auto* inputs = reinterpret_cast<int64_t*>(input);
    // Tokens of padding are at position 0, samples of their own.
    std::fill(inputs, inputs + (packed_ ? 2 : 1) * seq_len_, 0);
    std::fill(labels, labels + seq_len_, ignored_label);
    for (const uint32_t index : rows_[static_cast<size_t>(key.index)]) {
      const Instruction& sample = samples_[index];
      const int64_t count = inputs_of(sample);
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i);
        inputs[i] = sample.tokens[at];
        if (packed_) inputs[seq_len_ + i] = i;
        if (sample.learned[at + 1]) labels[i] = sample.tokens[at + 1];
      }
      inputs += count;
      labels += count;
    }
  }

 private:
  std::vector<Instruction> samples_;
  Rows rows_;
  int64_t seq_len_;
  bool packed_;
};
}  // namespace

std::vector<Instruction> parse_instructions(std::string_view file, const std::string& name,
                                            const Tokenizer& tokenizer,
                                            const InstructionOptions& options) {
  const Reader reader(tokenizer, options);
  std::vector<Instruction> samples;
  read_json_lines(file, name,
                  [&](const json& object) { samples.push_back(reader.sample(object)); });
  return samples;
}

std::vector<Instruction> read_instructions(const std::string& path, const Tokenizer& tokenizer,
                                           const InstructionOptions& options) {
  return parse_instructions(read_json_lines_file(path), path, tokenizer, options);
}

std::shared_ptr<const Source> instruction_source(std::vector<Instruction> samples, int64_t seq_len,
                                                 const std::string& name, bool packed) {
  const auto longest = static_cast<size_t>(seq_len) + 1;
  const size_t all = samples.size();
  size_t cut = 0;
  for (Instruction& sample : samples) {
    if (sample.tokens.size() <= longest) continue;
    sample.tokens.resize(longest);
    sample.learned.resize(longest);
    ++cut;
  }
  std::erase_if(samples, [](const Instruction& sample) {
    return std::find(sample.learned.begin() + (sample.learned.empty() ? 0 : 1),
                     sample.learned.end(), true) == sample.learned.end();
  });
  const size_t left_out = all - samples.size();
  if (cut + left_out > 0)
    logging::warn(
        "[data] {}: of {} samples {} are longer than data.seq_len, {}, and cut; {} have nothing to "
        "learn, and are left out.",
        name, all, cut, seq_len, left_out);
  if (samples.empty()) throw Error(ErrorKind::data, "{} has no sample to learn from.", name);
  return std::make_shared<InstructionSource>(std::move(samples), seq_len, packed);
}

}  // namespace weft::data
