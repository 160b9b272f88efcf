#include "weft/data/instructions.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/base/numbers/hash.h"
#include "weft/data/answers.h"
#include "weft/data/framed.h"
#include "weft/data/instruction_rows.h"
#include "weft/data/json_lines.h"
#include "weft/data/learned_tokens.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::data {
namespace {

// Reader turns the object of a line into samples.
class Reader {
 public:
  Reader(const Tokenizer& tokenizer, const InstructionOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        frame_(frame_of(tokenizer, 0)),
        kinds_(options.chat ? content_kinds(*options.chat) : ContentKinds()) {}

  // Adds the samples of a line. Throws io::JsonError for an object that is no instruction row.
  void add(const nlohmann::ordered_json& object) {
    InstructionRow row =
        read_instruction_row(object, options_.chat ? &*options_.chat : nullptr, kinds_);
    for (const std::string& key : row.unread) ++report_.unread[key];
    if (const auto* text = std::get_if<TextRow>(&row.sample))
      add(*text, row.learned);
    else
      add(std::get<Conversation>(row.sample), row.learned);
  }

  // Warns of the keys and the prompts of the file `name` that no sample contains.
  void report(const std::string& name) const {
    for (const auto& [key, count] : report_.unread)
      logging::warn("[data] {}: {} is left out, {} times: {} does not read it.", name,
                    io::printable(key), count,
                    options_.chat ? "the chat template" : "a sample of text");
    constexpr size_t most_shown = 60;  // bytes
    if (report_.cut_prompts > 0)
      logging::warn(
          "[data] {}: {} answers are learned without the end of the prompt that the chat template "
          "asks for them by, as its conversations lack it: {}.",
          name, report_.cut_prompts,
          io::printable(io::json_text(nlohmann::json(report_.cut.substr(0, most_shown)))));
    if (report_.rewritten > 0)
      logging::note(
          "[data] {}: {} conversations are {} samples, as the chat template rewrites what was said "
          "before.",
          name, report_.rewritten, report_.texts);
  }

  std::vector<Instruction> samples() { return std::move(samples_); }

 private:
  static void append(Instruction& sample, std::span<const int32_t> tokens, bool learned) {
    sample.tokens.insert(sample.tokens.end(), tokens.begin(), tokens.end());
    sample.learned.resize(sample.tokens.size(), learned);
  }
  // A text is encoded whole, as a tokenizer may begin each text with a space.
  void append(Instruction& sample, const std::string& text,
              std::span<const LearnedPart> parts) const {
    const std::vector<int32_t> tokens = tokenizer_.encode(text, {.special_tokens = false});
    const std::vector<bool> learned = learned_tokens(tokenizer_, text, tokens, parts);
    sample.tokens.insert(sample.tokens.end(), tokens.begin(), tokens.end());
    sample.learned.insert(sample.learned.end(), learned.begin(), learned.end());
  }

  void add(const TextRow& row, bool learned) {
    Instruction sample;
    const std::string whole = row.prompt + row.completion;
    append(sample, frame_.before, false);
    if (learned)
      append(sample, whole, {{{row.prompt.size(), whole.size()}}});
    else
      append(sample, whole, {});
    append(sample, frame_.after, learned);
    if (options_.end && (frame_.after.empty() || frame_.after.back() != *options_.end))
      append(sample, std::span(&*options_.end, 1), learned);
    samples_.push_back(std::move(sample));
  }

  void add(Conversation conversation, bool learned) {
    if (!options_.chat)
      throw io::JsonError("messages need a chat template, which the tokenizer's folder lacks");
    if (std::ranges::none_of(conversation.messages, [](const nlohmann::ordered_json& message) {
          return message.at("role") == "assistant";
        }))
      throw io::JsonError("messages have no answer: none is by the assistant");
    std::vector<bool>& counts = conversation.learned;
    if (!learned) counts.assign(counts.size(), false);
    if (const auto last = std::find(counts.rbegin(), counts.rend(), true);
        options_.last_answer && last != counts.rend())
      std::fill(std::next(last), counts.rend(), false);
    const bool with_tools = conversation.tools && options_.chat_with_tools;
    const ChatTemplate& chat = with_tools ? *options_.chat_with_tools : *options_.chat;
    const auto texts = answer_texts(conversation, chat, tokenizer_, report_);
    for (const AnswerText& text : texts) {
      Instruction& sample = samples_.emplace_back();
      append(sample, text.text, text.parts);
      sample.goes_on = &text != &texts.front();
    }
    if (texts.empty()) samples_.emplace_back();  // instruction_source() counts it
  }

  const Tokenizer& tokenizer_;
  const InstructionOptions& options_;
  Frame frame_;
  ContentKinds kinds_;
  std::vector<Instruction> samples_;
  AnswerReport report_;
};

// Returns the number of input tokens of a sample: its last token is a label only.
int64_t inputs_of(const Instruction& sample) { return std::ssize(sample.tokens) - 1; }

// Each row of a source is a list of samples.
using Rows = std::vector<std::vector<uint32_t>>;

Rows one_by_one(size_t samples) {
  Rows rows(samples);
  for (size_t i = 0; i < samples; ++i) rows[i] = {static_cast<uint32_t>(i)};
  return rows;
}

// Packs by best fit, the longest sample first: a sample joins the row in which it leaves the least
// room, the earliest of such rows.
Rows packed_rows(const std::vector<Instruction>& samples, int64_t seq_len) {
  std::vector<uint32_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [&](uint32_t i) { return inputs_of(samples[i]); });
  Rows rows;
  std::set<std::pair<int64_t, size_t>> room;  // room of a row in tokens, and the row
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
  Reader reader(tokenizer, options);
  read_json_lines(file, name,
                  [&](std::string_view line) { reader.add(io::parse_ordered_json_line(line)); });
  reader.report(name);
  return reader.samples();
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
