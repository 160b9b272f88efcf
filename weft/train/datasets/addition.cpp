#include "weft/train/datasets/addition.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/numbers/philox.h"
#include "weft/data/random.h"
#include "weft/infer/generate.h"
#include "weft/train/datasets/datasets.h"
#include "weft/train/experiment.h"

namespace weft::train {
namespace {

constexpr std::string_view alphabet = "\n+0123456789=";  // ascending, as a vocabulary orders them

using Sum = std::pair<int64_t, int64_t>;

int64_t numbers(const AdditionOptions& options) {
  int64_t count = 1;
  for (int i = 0; i < options.digits; ++i) count *= 10;
  return count;
}

void check(const AdditionOptions& options) {
  WEFT_CHECK(options.digits >= 1 && options.digits <= 4, "[addition] digits are 1 to 4. Got {}.",
             options.digits);
  WEFT_CHECK(options.held_out >= 0 && options.held_out < 1,
             "[addition] held_out is at least 0 and below 1. Got {}.", options.held_out);
  WEFT_CHECK(options.size > 0, "[addition] size must be positive. Got {}.", options.size);
}

class AdditionSource : public data::Source {
 public:
  explicit AdditionSource(const AdditionOptions& options) : options_(options) {}
  Type input_type() const override { return {DType::i64, label_shape()}; }
  Shape label_shape() const override { return {addition_length(options_) - 1}; }
  void write(const data::SampleKey& key, std::byte* input, int64_t* labels) const override {
    auto [a, b] = sum(key);
    auto* inputs = reinterpret_cast<int64_t*>(input);
    std::string question = addition_question(a, b, options_);
    std::string all = question + addition_answer(a, b, options_);
    auto last = static_cast<size_t>(addition_length(options_)) - 1;
    for (size_t i = 0; i < last; ++i) {
      auto id = [&](size_t at) {
        return static_cast<int64_t>(alphabet.find(at < all.size() ? all[at] : '\n'));
      };
      bool counts = i + 1 >= question.size() && i + 1 < all.size();
      inputs[i] = id(i);
      labels[i] = counts ? id(i + 1) : data::ignored_label;
    }
  }

 protected:
  virtual Sum sum(const data::SampleKey& key) const = 0;
  AdditionOptions options_;
};

class TrainSums : public AdditionSource {
 public:
  using AdditionSource::AdditionSource;
  int64_t size() const override { return options_.size; }

 protected:
  Sum sum(const data::SampleKey& key) const override {
    int64_t bound = numbers(options_);
    for (uint32_t draw = 0;; ++draw) {
      auto words = data::random_words(data::Choice::sum, key.seed, key.epoch, key.index, draw);
      // Short numbers are rare under uniform sampling; half of the sums draw each length equally
      // often, so that all are learned.
      bool by_length = words[2] % 2 != 0;
      int64_t a = data::below(by_length ? some_bound(words[2]) : bound, words[0]);
      int64_t b = data::below(by_length ? some_bound(words[3]) : bound, words[1]);
      if (!addition_held_out(a, b, options_)) return {a, b};
    }
  }

 private:
  // Returns 10, 100, ... up to numbers(options_).
  int64_t some_bound(uint32_t word) const {
    AdditionOptions shorter = options_;
    shorter.digits = static_cast<int>(1 + data::below(options_.digits, word));
    return numbers(shorter);
  }
};

class TestSums : public AdditionSource {
 public:
  explicit TestSums(const AdditionOptions& options) : AdditionSource(options) {
    int64_t bound = numbers(options);
    for (int64_t a = 0; a < bound; ++a)
      for (int64_t b = 0; b < bound; ++b)
        if (addition_held_out(a, b, options)) sums_.push_back({a, b});
    // Shuffles, so that the first `size` sums are a random sample.
    std::vector<int64_t> order(sums_.size());
    data::shuffle(order, /*seed=*/0, /*epoch=*/0);
    std::vector<Sum> kept;
    for (size_t i = 0; i < order.size() && i < static_cast<size_t>(options.size); ++i)
      kept.push_back(sums_[static_cast<size_t>(order[i])]);
    sums_ = std::move(kept);
  }
  int64_t size() const override { return static_cast<int64_t>(sums_.size()); }
  size_t bytes() const override { return sums_.size() * sizeof(Sum); }

 protected:
  Sum sum(const data::SampleKey& key) const override {
    return sums_[static_cast<size_t>(key.index)];
  }

 private:
  std::vector<Sum> sums_;
};

}  // namespace

io::Vocabulary addition_vocabulary() { return io::Vocabulary::characters(alphabet); }

int64_t addition_length(const AdditionOptions& options) { return 3 * options.digits + 4; }

std::string addition_question(int64_t a, int64_t b, const AdditionOptions& options) {
  return fmt::format("{:0{}}+{:0{}}=", a, options.digits, b, options.digits);
}

std::string addition_answer(int64_t a, int64_t b, const AdditionOptions& options) {
  std::string answer = std::to_string(a + b);
  if (options.reversed) std::reverse(answer.begin(), answer.end());
  return answer + "\n";
}

bool addition_held_out(int64_t a, int64_t b, const AdditionOptions& options) {
  auto [low, high] = std::minmax(a, b);
  auto words = philox({static_cast<uint32_t>(low), static_cast<uint32_t>(high), 0, 0}, {0, 0});
  return words[0] * 0x1p-32 < options.held_out;
}

std::shared_ptr<const data::Source> addition_train(const AdditionOptions& options) {
  check(options);
  return std::make_shared<TrainSums>(options);
}
std::shared_ptr<const data::Source> addition_test(const AdditionOptions& options) {
  check(options);
  return std::make_shared<TestSums>(options);
}

namespace {
constexpr std::string_view digits_key = "data.digits", reversed_key = "data.reversed";

AdditionOptions addition_options(const Recipe& recipe) {
  return {.digits = static_cast<int>(recipe.integer(digits_key)),
          .reversed = recipe.flag(reversed_key)};
}

TaskData read_addition(const Recipe& recipe, const DataOptions&) {
  constexpr int64_t tests = 1000;  // held-out sums of an evaluation
  AdditionOptions options = addition_options(recipe), test = options;
  test.size = tests;
  const io::Vocabulary vocabulary = addition_vocabulary();
  return {.task = Task::causal_lm,
          .shape = {InputKind::tokens, {addition_length(options) - 1}, vocabulary.size()},
          .vocabulary = vocabulary,
          .train = addition_train(options),
          .validation = addition_test(test)};
}

// Returns the model's own answers to held-out sums, one a line: "123+045=168", with the right
// answer where it is wrong.
std::string examples(const Experiment& experiment) {
  constexpr int64_t shown = 10;
  const bool reversed = addition_options(experiment.recipe).reversed;
  const data::TextCodec& vocabulary = *experiment.vocabulary;
  const std::unique_ptr<infer::TokenModel> model =
      infer::make_token_model(*experiment.model, vocabulary.size(), experiment.shape.input[0],
                              {.device = experiment.recipe->train.device});
  auto length = static_cast<size_t>(experiment.shape.input[0]);
  std::vector<int64_t> inputs(length), labels(length);
  std::string text;
  for (int64_t i = 0; i < std::min(shown, experiment.validation->size()); ++i) {
    experiment.validation->write({.index = i}, reinterpret_cast<std::byte*>(inputs.data()),
                                 labels.data());
    std::string sample = vocabulary.decode(std::vector<int32_t>(inputs.begin(), inputs.end()));
    std::string question = sample.substr(0, sample.find('=') + 1);
    std::string right = sample.substr(question.size(), sample.find('\n') - question.size());
    const std::vector<int32_t> prompt = vocabulary.encode(question);
    std::string answer =
        infer::generate(*model, vocabulary, std::span(&prompt, 1),
                        {.max_new_tokens = static_cast<int64_t>(length - question.size()),
                         .sampling = {.temperature = 0},
                         .stop = {"\n"}})
            .front()
            .text;
    if (reversed) {
      std::reverse(right.begin(), right.end());
      std::reverse(answer.begin(), answer.end());
    }
    text += fmt::format("{}{}{}\n", question, answer,
                        answer == right ? "" : fmt::format("  (wrong: it is {})", right));
  }
  return text;
}

std::string note(const Experiment& experiment) {
  const AdditionOptions options = addition_options(experiment.recipe);
  std::string sum = addition_question(9, 8, options) + addition_answer(9, 8, options);
  sum.pop_back();  // the end of the line
  return fmt::format("this model reads and writes sums in this form: {}{}.", sum,
                     options.reversed ? " (the last digit comes first)" : "");
}
}  // namespace

DataEntry addition() {
  using enum KeyType;
  return {.name = "addition",
          .doc = "sums as text, generated during training",
          .read = read_addition,
          .keys = {{.path = digits_key,
                    .type = integer,
                    .initial = "3",
                    .low = 1,
                    .high = 4,
                    .help = "addition: digits of the largest numbers",
                    .after = keys::data::std,
                    .same_on_resume = true},
                   {.path = reversed_key,
                    .type = boolean,
                    .initial = "false",
                    .help = "addition: write answers from the last digit to the first",
                    .after = keys::data::image_size,
                    .same_on_resume = true}},
          .metric = "exact_match",
          .unit = "sums",
          .examples = examples,
          .note = note};
}

}  // namespace weft::train
