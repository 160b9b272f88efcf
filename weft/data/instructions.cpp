#include "weft/data/instructions.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/logging.h"
#include "weft/data/framed.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::data {
namespace {
using nlohmann::json;
constexpr size_t file_limit = size_t{4} << 30;  // bytes

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
      append(sample, io::text_at(object, "prompt"), false);
      append(sample, io::text_at(object, "completion"), true);
    } else if (object.contains("text")) {
      append(sample, io::text_at(object, "text"), true);
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
  void append(Instruction& sample, std::string_view text, bool learned) const {
    append(sample, tokenizer_.encode(text, {.special_tokens = false}), learned);
  }

  // The text of each message is what the conversation up to it adds to the one before, so that an
  // answer's tokens are those that generation would be asked for.
  Instruction conversation(const json& object) const {
    if (!options_.chat)
      throw io::JsonError("messages need a chat template, which the tokenizer's folder lacks");
    const json& messages = object.at("messages");
    if (!messages.is_array()) throw io::JsonError("messages must be a list");
    std::vector<ChatMessage> said;
    Instruction sample;
    std::string text;
    const auto reach = [&](const std::string& whole, bool learned) {
      if (!whole.starts_with(text))
        throw io::JsonError("the chat template changes what was said before an answer");
      append(sample, std::string_view(whole).substr(text.size()), learned);
      text = whole;
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
    return sample;
  }

  const Tokenizer& tokenizer_;
  const InstructionOptions& options_;
  Frame frame_;
};

class InstructionSource : public Source {
 public:
  InstructionSource(std::vector<Instruction> samples, int64_t seq_len)
      : samples_(std::move(samples)), seq_len_(seq_len) {}

  int64_t size() const override { return std::ssize(samples_); }
  Type input_type() const override { return {DType::i64, {seq_len_}}; }
  Shape label_shape() const override { return {seq_len_}; }
  size_t bytes() const override {
    size_t bytes = 0;
    for (const Instruction& sample : samples_)
      bytes += sample.tokens.size() * sizeof(int32_t) + sample.learned.size() / 8;
    return bytes;
  }
  uint64_t fingerprint() const override {
    uint64_t hash = hash_combine(static_cast<uint64_t>(samples_.size()), 0);
    for (const Instruction& sample : samples_) {
      hash = hash_combine(hash,
                          hash_bytes(sample.tokens.data(), sample.tokens.size() * sizeof(int32_t)));
      for (size_t i = 0; i < sample.learned.size(); ++i)
        if (sample.learned[i]) hash = hash_combine(hash, i);
    }
    return hash;
  }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    const Instruction& sample = samples_[static_cast<size_t>(key.index)];
    auto* inputs = reinterpret_cast<int64_t*>(input);
    const int64_t count = std::min(seq_len_, std::ssize(sample.tokens) - 1);
    std::fill(inputs, inputs + seq_len_, 0);
    std::fill(labels, labels + seq_len_, ignored_label);
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      inputs[i] = sample.tokens[at];
      if (sample.learned[at + 1]) labels[i] = sample.tokens[at + 1];
    }
  }

 private:
  std::vector<Instruction> samples_;
  int64_t seq_len_;
};
}  // namespace

std::vector<Instruction> parse_instructions(std::string_view file, const std::string& name,
                                            const Tokenizer& tokenizer,
                                            const InstructionOptions& options) {
  const Reader reader(tokenizer, options);
  std::vector<Instruction> samples;
  size_t line = 0;
  for (size_t begin = 0; begin < file.size();) {
    const size_t end = std::min(file.find('\n', begin), file.size());
    const std::string_view text = file.substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      samples.push_back(reader.sample(io::parse_json(text)));
    } catch (const io::JsonError& error) {
      throw Error(ErrorKind::data, "{}:{}: {}.", name, line, error.what());
    } catch (const Error& error) {  // of the chat template
      throw Error(error.kind(), "{}:{}: {}", name, line, error.what());
    }
  }
  return samples;
}

std::vector<Instruction> read_instructions(const std::string& path, const Tokenizer& tokenizer,
                                           const InstructionOptions& options) {
  return parse_instructions(io::read_file(path, file_limit), path, tokenizer, options);
}

std::shared_ptr<const Source> instruction_source(std::vector<Instruction> samples, int64_t seq_len,
                                                 const std::string& name) {
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
  return std::make_shared<InstructionSource>(std::move(samples), seq_len);
}

}  // namespace weft::data
