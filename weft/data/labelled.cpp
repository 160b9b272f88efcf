#include "weft/data/labelled.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/base/numbers/hash.h"
#include "weft/data/json_lines.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::data {
namespace {
using nlohmann::json;
constexpr size_t most_labels = size_t{1} << 16;  // rows of a head

bool is_whole_number(std::string_view text) {
  constexpr size_t most_digits = 18;  // a number of 18 digits always fits int64_t
  return !text.empty() && text.size() <= most_digits && (text == "0" || text.front() != '0') &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Returns the first names, as messages list them.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t most = 8;
  const auto shown = std::span(names).first(std::min(most, names.size()));
  return io::printable(fmt::format("{}", fmt::join(shown, ", "))) +
         (shown.size() < names.size() ? ", ..." : "");
}

// Classes gives each label of a file its class id: in the model's head, or by first appearance,
// until finish() sorts the labels.
class Classes {
 public:
  explicit Classes(const LabelOptions& options) : options_(options) {
    if (!options_.known) return;
    int32_t next = 0;
    for (const std::string& name : options_.known->names) known_.emplace(name, next++);
    names_are_numbers_ = std::ranges::all_of(options_.known->names, is_whole_number);
  }

  // Returns the class id of a label. Throws io::JsonError for a value that is no label.
  int32_t add(const json& value) {
    const bool is_number = value.is_number_integer();
    const std::string label = is_number           ? io::json_text(value)
                              : value.is_string() ? value.get<std::string>()
                                                  : "";
    if (is_number ? !is_whole_number(label) : label.empty())
      throw io::JsonError(fmt::format("a label must be a name, or a whole number from 0. Got {}",
                                      io::printable(io::json_text(value))));
    if (options_.only_known) {
      if (const auto found = find_known(label, is_number)) return *found;
      const std::vector<std::string>& names = options_.known->names;
      throw io::JsonError(fmt::format("there is no label {}. The model has {}: {}",
                                      io::printable(label), names.size(), listed(names)));
    }
    if (!own_.empty() && is_number != numbers_)
      throw io::JsonError(fmt::format("a label must be a {}, as those before it. Got {}",
                                      numbers_ ? "number" : "name",
                                      io::printable(io::json_text(value))));
    numbers_ = is_number;
    const auto next = static_cast<int32_t>(own_.size());
    const int32_t found = own_.emplace(label, next).first->second;
    if (own_.size() > most_labels)
      throw io::JsonError(fmt::format("there are more than {} labels", most_labels));
    return found;
  }

  // Sets the names of the classes, and renumbers the labels of the samples by them. `name` is the
  // file's.
  void finish(LabelledTexts& texts, const std::string& name) const {
    if (options_.only_known) {
      texts.labels.names = options_.known->names;
      return;
    }
    std::vector<int32_t> renumbered(own_.size());
    if (is_all_known(texts.labels.of_words)) {
      texts.labels.names = options_.known->names;
      for (const auto& [label, at] : own_)
        renumbered[static_cast<size_t>(at)] = *find_known(label, numbers_);
    } else {
      std::vector<std::pair<std::string, int32_t>> sorted(own_.begin(), own_.end());
      if (numbers_)  // more digits are a greater number
        std::ranges::stable_sort(sorted, {}, [](const auto& entry) { return entry.first.size(); });
      for (const auto& [label, at] : sorted) {
        renumbered[static_cast<size_t>(at)] = static_cast<int32_t>(texts.labels.names.size());
        texts.labels.names.push_back(label);
      }
      if (texts.labels.names.size() == 1)
        throw Error(ErrorKind::data, "{}: the only label is {}. A head of labels has at least two.",
                    name, listed(texts.labels.names));
    }
    for (LabelledText& sample : texts.samples)
      for (int32_t& label : sample.labels)
        if (label != ignored_label) label = renumbered[static_cast<size_t>(label)];
  }

 private:
  std::optional<int32_t> find_known(const std::string& label, bool is_number) const {
    if (is_number && !names_are_numbers_) {
      const int64_t number = std::stoll(label);
      if (number < std::ssize(options_.known->names)) return static_cast<int32_t>(number);
      return std::nullopt;
    }
    const auto found = known_.find(label);
    return found != known_.end() ? std::optional(found->second) : std::nullopt;
  }
  bool is_all_known(bool of_words) const {
    return options_.known && options_.known->of_words == of_words &&
           std::ranges::all_of(own_, [&](const auto& entry) {
             return find_known(entry.first, numbers_).has_value();
           });
  }

  const LabelOptions& options_;
  std::map<std::string, int32_t> known_, own_;
  bool names_are_numbers_ = false;  // of the known ones
  bool numbers_ = false;            // whether the file's labels are
};

// LabelReader turns the object of a line into a sample.
class LabelReader {
 public:
  LabelReader(const Tokenizer& tokenizer, const LabelOptions& options)
      : tokenizer_(tokenizer), classes_(options) {
    if (options.only_known) of_words_ = options.known->of_words;
  }

  // Adds the sample of a line. Throws io::JsonError for an object that is no sample.
  void read(const json& object) {
    if (!object.is_object()) throw io::JsonError("a sample must be an object");
    const bool of_words = object.contains("tokens");
    if (of_words ? !object.contains("labels")
                 : !object.contains("text") || !object.contains("label"))
      throw io::JsonError("a sample has text and label, or tokens and labels");
    if (object.contains("text_pair"))
      throw io::JsonError("text_pair is not read: samples are single texts");
    if (of_words != of_words_.value_or(of_words))
      throw io::JsonError(fmt::format(
          "samples must have {}, as {}", *of_words_ ? "tokens and labels" : "text and label",
          texts_.samples.empty() ? "the model's head labels these" : "those before it"));
    of_words_ = of_words;
    LabelledText sample = of_words ? words(object) : text(object);
    if (sample.tokens.empty())
      throw io::JsonError(
          fmt::format("{} is empty: it has no token", of_words ? "tokens" : "text"));
    texts_.samples.push_back(std::move(sample));
  }

  LabelledTexts finish(const std::string& name) {
    texts_.labels.of_words = of_words_.value_or(false);
    classes_.finish(texts_, name);
    return std::move(texts_);
  }

 private:
  LabelledText text(const json& object) {
    return {tokenizer_.encode(io::text_at(object, "text"), {.special_tokens = false}),
            {classes_.add(object.at("label"))}};
  }

  LabelledText words(const json& object) {
    const json &words = object.at("tokens"), &labels = object.at("labels");
    const auto is_text = [](const json& word) { return word.is_string(); };
    if (!words.is_array() || !std::ranges::all_of(words, is_text))
      throw io::JsonError("tokens must be a list of words");
    if (!labels.is_array()) throw io::JsonError("labels must be a list");
    if (words.size() != labels.size())
      throw io::JsonError(fmt::format("tokens and labels must be as many. Got {} and {}",
                                      words.size(), labels.size()));
    LabelledText sample;
    for (size_t i = 0; i < words.size(); ++i) {
      const int32_t label = classes_.add(labels[i]);
      const std::string word = words[i].get<std::string>();
      if (word.empty()) continue;
      // Byte-level tokenizers mark the begin of a word by a space; BERT's tokenizers drop it.
      const std::vector<int32_t> tokens = tokenizer_.encode(" " + word, {.special_tokens = false});
      for (size_t j = 0; j < tokens.size(); ++j) {
        sample.tokens.push_back(tokens[j]);
        sample.labels.push_back(j == 0 ? label : static_cast<int32_t>(ignored_label));
      }
    }
    return sample;
  }

  const Tokenizer& tokenizer_;
  Classes classes_;
  LabelledTexts texts_;
  std::optional<bool> of_words_ = {};  // set by the model or the first sample
};

class LabelledSource : public Source {
 public:
  LabelledSource(std::vector<LabelledText> samples, bool of_words, Frame frame, int64_t seq_len)
      : samples_(std::move(samples)),
        frame_(std::move(frame)),
        seq_len_(seq_len),
        of_words_(of_words) {}

  int64_t size() const override { return std::ssize(samples_); }
  Type input_type() const override { return {DType::i64, {seq_len_}}; }
  Shape label_shape() const override { return of_words_ ? Shape{seq_len_} : Shape{}; }
  size_t bytes() const override {
    size_t bytes = samples_.size() * sizeof(LabelledText);
    for (const LabelledText& sample : samples_)
      bytes += (sample.tokens.size() + sample.labels.size()) * sizeof(int32_t);
    return bytes;
  }
  uint64_t fingerprint() const override {
    const auto hash_of = [](const std::vector<int32_t>& ids) {
      return hash_bytes(ids.data(), ids.size() * sizeof(int32_t));
    };
    auto hash = static_cast<uint64_t>(samples_.size());
    for (const LabelledText& sample : samples_)
      hash = hash_combine(hash_combine(hash, hash_of(sample.tokens)), hash_of(sample.labels));
    return hash;
  }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    const LabelledText& sample = samples_[static_cast<size_t>(key.index)];
    frame_.write(std::vector<int64_t>(sample.tokens.begin(), sample.tokens.end()),
                 {reinterpret_cast<int64_t*>(input), static_cast<size_t>(seq_len_)});
    if (of_words_) {
      std::fill(labels, labels + seq_len_, ignored_label);
      labels += frame_.before.size();
    }
    std::ranges::copy(sample.labels, labels);
  }

 private:
  std::vector<LabelledText> samples_;
  Frame frame_;
  int64_t seq_len_;
  bool of_words_;
};
}  // namespace

LabelledTexts parse_labelled(std::string_view text, const std::string& name,
                             const Tokenizer& tokenizer, const LabelOptions& options) {
  LabelReader reader(tokenizer, options);
  read_json_lines(text, name,
                  [&](std::string_view line) { reader.read(io::parse_json_line(line)); });
  return reader.finish(name);
}

LabelledTexts read_labelled(const std::string& path, const Tokenizer& tokenizer,
                            const LabelOptions& options) {
  return parse_labelled(read_json_lines_file(path), path, tokenizer, options);
}

std::shared_ptr<const Source> labelled_source(std::vector<LabelledText> samples, bool of_words,
                                              const Frame& frame, int64_t seq_len,
                                              const std::string& name) {
  WEFT_ASSERT(seq_len > frame.size(), "a sample has no room for a text");
  const auto longest = static_cast<size_t>(seq_len - frame.size());
  size_t cut = 0;
  for (LabelledText& sample : samples) {
    if (sample.tokens.size() <= longest) continue;
    sample.tokens.resize(longest);
    if (of_words) sample.labels.resize(longest);
    ++cut;
  }
  if (cut > 0)
    logging::warn(
        "[data] {}: of {} texts {} are longer than data.seq_len, {} with {} special tokens, and "
        "cut.",
        name, samples.size(), cut, seq_len, frame.size());
  if (samples.empty()) throw Error(ErrorKind::data, "{} has no text with a label.", name);
  return std::make_shared<LabelledSource>(std::move(samples), of_words, frame, seq_len);
}

}  // namespace weft::data
