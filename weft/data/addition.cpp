#include "weft/data/addition.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/data/random.h"

namespace weft::data {
namespace {

constexpr std::string_view alphabet = "\n+0123456789=";  // ascending, as a vocabulary numbers them

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

class AdditionSource : public Source {
 public:
  explicit AdditionSource(const AdditionOptions& options) : options_(options) {}
  Type input_type() const override { return {DType::i64, label_shape()}; }
  Shape label_shape() const override { return {addition_length(options_) - 1}; }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
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
      labels[i] = counts ? id(i + 1) : ignored_label;
    }
  }

 protected:
  virtual Sum sum(const SampleKey& key) const = 0;
  AdditionOptions options_;
};

class TrainSums : public AdditionSource {
 public:
  using AdditionSource::AdditionSource;
  int64_t size() const override { return options_.size; }

 protected:
  Sum sum(const SampleKey& key) const override {
    int64_t bound = numbers(options_);
    for (uint32_t draw = 0;; ++draw) {
      auto words = random_words(Choice::sum, key.seed, key.epoch, key.index, draw);
      // Few numbers are short; in half of the sums every length is as likely, so that all are
      // learnt.
      bool by_length = words[2] % 2 != 0;
      int64_t a = below(by_length ? some_bound(words[2]) : bound, words[0]);
      int64_t b = below(by_length ? some_bound(words[3]) : bound, words[1]);
      if (!addition_held_out(a, b, options_)) return {a, b};
    }
  }

 private:
  // 10, 100, ... up to numbers(options_).
  int64_t some_bound(uint32_t word) const {
    AdditionOptions shorter = options_;
    shorter.digits = static_cast<int>(1 + below(options_.digits, word));
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
    // Mixed, so that the first `size` are as good a sample as any.
    std::vector<int64_t> order(sums_.size());
    shuffle(order, /*seed=*/0, /*epoch=*/0);
    std::vector<Sum> kept;
    for (size_t i = 0; i < order.size() && i < static_cast<size_t>(options.size); ++i)
      kept.push_back(sums_[static_cast<size_t>(order[i])]);
    sums_ = std::move(kept);
  }
  int64_t size() const override { return static_cast<int64_t>(sums_.size()); }
  size_t bytes() const override { return sums_.size() * sizeof(Sum); }

 protected:
  Sum sum(const SampleKey& key) const override { return sums_[static_cast<size_t>(key.index)]; }

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

std::shared_ptr<const Source> addition_train(const AdditionOptions& options) {
  check(options);
  return std::make_shared<TrainSums>(options);
}
std::shared_ptr<const Source> addition_test(const AdditionOptions& options) {
  check(options);
  return std::make_shared<TestSums>(options);
}

}  // namespace weft::data
