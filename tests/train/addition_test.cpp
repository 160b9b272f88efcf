#include "weft/train/datasets/addition.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"

using namespace weft;
using namespace weft::test;

namespace {

struct SumSample {
  std::string inputs, labels;  // '_' where a label is ignored
};
SumSample sum_sample(const data::Source& source, const data::SampleKey& key) {
  static const io::Vocabulary vocabulary = train::addition_vocabulary();
  auto length = static_cast<size_t>(source.input_type().elements());
  std::vector<int64_t> inputs(length), labels(length);
  source.write(key, reinterpret_cast<std::byte*>(inputs.data()), labels.data());
  auto text = [&](const std::vector<int64_t>& ids) {
    std::string characters;
    for (int64_t id : ids) {
      auto one = static_cast<int32_t>(id);
      characters += id == data::ignored_label ? "_" : vocabulary.decode({&one, 1});
    }
    return characters;
  };
  return {text(inputs), text(labels)};
}

}  // namespace

TEST_CASE("samples are correct sums of which only the answers count in the loss") {
  for (bool reversed : {false, true}) {
    train::AdditionOptions options{.reversed = reversed, .size = 500};
    for (const auto& source : {train::addition_train(options), train::addition_test(options)}) {
      CHECK(source->size() == 500);
      CHECK(source->input_type() == Type{DType::i64, {12}});
      for (int64_t i = 0; i < 500; ++i) {
        auto [inputs, labels] = sum_sample(*source, {4, 1, i});
        int a = 0, b = 0;
        REQUIRE(std::sscanf(inputs.c_str(), "%d+%d=", &a, &b) == 2);
        std::string answer = std::to_string(a + b);
        if (reversed) std::reverse(answer.begin(), answer.end());
        std::string question = train::addition_question(a, b, options);
        std::string expected = question + answer + std::string(13, '\n');
        CHECK(inputs == expected.substr(0, 12));
        std::string counted = std::string(question.size() - 1, '_') + answer + "\n";
        CHECK(labels == counted + std::string(12 - counted.size(), '_'));
        CHECK(train::addition_answer(a, b, options) == answer + "\n");
      }
    }
  }
}

TEST_CASE("no sum of the test set is trained in either order") {
  train::AdditionOptions options{.digits = 2, .held_out = 0.2, .size = 40'000};
  auto parts = [](const data::Source& source) {
    std::set<std::pair<int, int>> sums;
    for (int64_t i = 0; i < source.size(); ++i) {
      int a = 0, b = 0;
      REQUIRE(std::sscanf(sum_sample(source, {0, 0, i}).inputs.c_str(), "%d+%d", &a, &b) == 2);
      sums.insert(std::minmax(a, b));
    }
    return sums;
  };
  auto train = parts(*train::addition_train(options)), test = parts(*train::addition_test(options));
  for (const auto& sum : test) CHECK(train.count(sum) == 0);
  // A fifth of the 5050 unordered pairs is held out; training draws nearly all others.
  CHECK(test.size() > 900);
  CHECK(test.size() < 1120);
  CHECK(train.size() + test.size() > 4900);
}

TEST_CASE("short numbers are oversampled in training but not in the test set") {
  auto short_ones = [](const data::Source& source) {
    int count = 0;
    for (int64_t i = 0; i < 1000; ++i) {
      int a = 0, b = 0;
      REQUIRE(std::sscanf(sum_sample(source, {0, 0, i}).inputs.c_str(), "%d+%d", &a, &b) == 2);
      count += a < 100;
    }
    return count;
  };
  int trained = short_ones(*train::addition_train()), tested = short_ones(*train::addition_test());
  CHECK(trained > 350);  // 0.5 * 0.1 + 0.5 * (1 + 1 + 0.1) / 3 = 0.4
  CHECK(trained < 450);
  CHECK(tested > 60);
  CHECK(tested < 140);
}

TEST_CASE("test samples are the same in every epoch and training samples are not") {
  auto train = train::addition_train(), test = train::addition_test({.size = 100});
  CHECK(sum_sample(*test, {0, 0, 7}).inputs == sum_sample(*test, {5, 9, 7}).inputs);
  CHECK(sum_sample(*train, {0, 0, 7}).inputs != sum_sample(*train, {0, 1, 7}).inputs);
  CHECK(sum_sample(*train, {0, 1, 7}).inputs == sum_sample(*train, {0, 1, 7}).inputs);
}

TEST_CASE("impossible options are refused") {
  CHECK(error_of([] { train::addition_train({.digits = 5}); }) ==
        "usage: [addition] digits are 1 to 4. Got 5.");
  CHECK(error_of([] { train::addition_test({.held_out = 1}); }) ==
        "usage: [addition] held_out is at least 0 and below 1. Got 1.");
  CHECK(error_of([] { train::addition_train({.size = 0}); }) ==
        "usage: [addition] size must be positive. Got 0.");
}
