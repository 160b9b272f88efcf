#include "weft/data/masked.h"

#include <algorithm>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "weft/data/framed.h"
#include "weft/data/synthetic.h"
#include "weft/data/tokens.h"

using namespace weft;
using weft::testing::near;

namespace {
struct Sample {
  std::vector<int64_t> inputs, labels;
};
Sample sample(const data::Source& source, const data::SampleKey& key) {
  auto length = static_cast<size_t>(source.input_type().elements());
  Sample s{std::vector<int64_t>(length), std::vector<int64_t>(length)};
  source.write(key, reinterpret_cast<std::byte*>(s.inputs.data()), s.labels.data());
  return s;
}
}  // namespace

TEST_CASE("of 15 % of the tokens, 80 % are masked, 10 % are random and 10 % stay") {
  constexpr int64_t length = 200, samples = 500, vocabulary = 1000, mask = 1000;
  auto plain = data::random_tokens("train", length, {.classes = vocabulary, .size = samples});
  auto source = data::masked(plain, {.vocabulary = vocabulary, .mask = mask});
  CHECK(source->size() == samples);
  CHECK(source->label_shape() == Shape{length});
  double masked = 0, changed = 0, kept = 0;
  std::set<int64_t> replacements;
  std::vector<int> chosen_at(length);
  for (int64_t i = 0; i < samples; ++i) {
    Sample before = sample(*plain, {.index = i}), after = sample(*source, {.index = i});
    int chosen = 0;
    for (size_t j = 0; j < length; ++j) {
      if (after.labels[j] == data::ignored_label) {
        CHECK(after.inputs[j] == before.inputs[j]);
        continue;
      }
      ++chosen, ++chosen_at[j];
      CHECK(after.labels[j] == before.inputs[j]);  // the original token is the label
      if (after.inputs[j] == mask) {
        ++masked;
      } else if (after.inputs[j] != before.inputs[j]) {
        ++changed, replacements.insert(after.inputs[j]);
      } else {
        ++kept;
      }
    }
    CHECK(chosen == 30);
  }
  double all = 30.0 * samples;
  CHECK(masked / all == near(0.8, 0.02));
  CHECK(changed / all == near(0.1, 0.1));
  CHECK(kept / all == near(0.1, 0.1));
  CHECK(replacements.size() > 700);
  CHECK(*replacements.begin() < 10);  // replacements span the vocabulary
  CHECK(*replacements.rbegin() < vocabulary);
  CHECK(*replacements.rbegin() >= vocabulary - 10);
  auto [least, most] = std::minmax_element(chosen_at.begin(), chosen_at.end());
  CHECK((*least > 40 && *most < 115));  // 75 expected for each position
}

TEST_CASE("which tokens are masked is a function of seed, epoch and index") {
  auto source = data::masked(data::random_tokens("train", 50, {.classes = 20}),
                             {.vocabulary = 20, .mask = 20});
  Sample first = sample(*source, {.seed = 1, .epoch = 2, .index = 3});
  CHECK(sample(*source, {.seed = 1, .epoch = 2, .index = 3}).inputs == first.inputs);
  CHECK(sample(*source, {.seed = 1, .epoch = 3, .index = 3}).labels != first.labels);
  CHECK(sample(*source, {.seed = 2, .epoch = 2, .index = 3}).labels != first.labels);
}

TEST_CASE("a short window masks at least one token and no padding") {
  data::TokenDataset tokens({1, 2, 3, 4, 5, 6}, 7);
  auto source = data::masked(tokens.windows(4), {.vocabulary = 7, .mask = 7});
  REQUIRE(source->size() == 2);
  for (int64_t epoch = 0; epoch < 20; ++epoch)
    for (int64_t i = 0; i < 2; ++i) {
      Sample s = sample(*source, {.epoch = epoch, .index = i});
      CHECK(std::count(s.labels.begin(), s.labels.end(), data::ignored_label) == 3);
      if (i == 1) CHECK(s.labels[0] == 5);
    }
}

TEST_CASE("no token is replaced by padding") {
  constexpr int64_t vocabulary = 4, pad = 1;
  const auto plain = data::random_tokens("train", 50, {.classes = vocabulary, .size = 100});
  const auto source =
      data::masked(plain, {.vocabulary = vocabulary, .mask = 9, .probability = 1, .pad = pad});
  std::set<int64_t> replacements;
  for (int64_t i = 0; i < source->size(); ++i) {
    const Sample all = sample(*source, {.index = i});
    for (size_t j = 0; j < all.inputs.size(); ++j)
      if (all.inputs[j] != all.labels[j]) replacements.insert(all.inputs[j]);
  }
  CHECK(replacements == std::set<int64_t>{0, 2, 3, 9});
}

TEST_CASE("a framed sample has the frame around its tokens, and padding behind it") {
  const data::TokenDataset tokens({10, 11, 12, 13, 14}, 20);
  const auto source = data::framed(tokens.windows(3), {.before = {1, 2}, .after = {3}, .pad = 7});
  CHECK(source->size() == 2);
  CHECK(source->label_shape() == Shape{6});
  constexpr int64_t none = data::ignored_label;
  const Sample first = sample(*source, {.index = 0}), last = sample(*source, {.index = 1});
  CHECK(first.inputs == std::vector<int64_t>{1, 2, 10, 11, 12, 3});
  CHECK(first.labels == std::vector<int64_t>{none, none, 11, 12, 13, none});
  CHECK(last.inputs == std::vector<int64_t>{1, 2, 13, 3, 7, 7});
  CHECK(last.labels == std::vector<int64_t>{none, none, 14, none, none, none});
}
