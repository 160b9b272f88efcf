#include "weft/infer/sampler.h"

#include <cmath>
#include <map>
#include <vector>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/near.h"

using namespace weft;
using namespace weft::test;
using weft::testing::near;

namespace {
const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.15F),
                                   std::log(0.05F)};

std::map<int32_t, double> frequencies(const infer::SamplingOptions& options,
                                      const std::vector<int32_t>& history = {}, size_t prompt = 0) {
  std::map<int32_t, double> counts;
  for (int64_t i = 0; i < 20000; ++i)
    counts[infer::sample(logits, options, history, prompt, 0, i).token] += 1 / 20000.0;
  return counts;
}
}  // namespace

TEST_CASE("tokens are sampled from the distribution of the logits") {
  auto all = frequencies({});
  CHECK(all[0] == near(0.5, 0.05));
  CHECK(all[1] == near(0.3, 0.05));
  CHECK(all[3] == near(0.05, 0.2));
  auto two = frequencies({.top_k = 2});
  CHECK(two.size() == 2);
  CHECK(two[0] == near(0.5 / 0.8, 0.05));
  // The nucleus is the smallest set of likeliest tokens whose total probability reaches top_p.
  CHECK(frequencies({.top_p = 0.5}).size() == 1);
  auto nucleus = frequencies({.top_p = 0.6});
  CHECK(nucleus.size() == 2);
  CHECK(nucleus[0] == near(0.5 / 0.8, 0.05));
  CHECK(frequencies({.top_p = 0.94}).size() == 3);
  CHECK(frequencies({.top_k = 2, .top_p = 0.94}).size() == 2);
  CHECK(frequencies({.top_p = 0.96}).size() == 4);
  auto cold = frequencies({.temperature = 0.5});  // squares the odds
  CHECK(cold[0] / cold[1] == near(25.0 / 9, 0.1));
  CHECK(frequencies({.seed = 1}) == frequencies({.seed = 1}));
  CHECK(frequencies({.seed = 1}) != frequencies({.seed = 2}));
}

TEST_CASE("min_p keeps what is likely enough beside the likeliest token") {
  CHECK(frequencies({.min_p = 0.05}).size() == 4);
  CHECK(frequencies({.min_p = 0.2}).size() == 3);
  auto two = frequencies({.min_p = 0.5});
  CHECK(two.size() == 2);
  CHECK(two[1] == near(0.3 / 0.8, 0.05));
  CHECK(frequencies({.min_p = 1}).size() == 1);
}

TEST_CASE("temperature 0 takes the likeliest token, the first of several") {
  CHECK(frequencies({.temperature = 0}) == std::map<int32_t, double>{{0, near(1, 1e-9).value}});
  const std::vector<float> equal = {1, 3, 3, 2};
  CHECK(infer::sample(equal, {.temperature = 0}, {}, 0, 0, 0).token == 1);
}

TEST_CASE("a nucleus of many tokens is found whatever their order") {
  std::vector<float> many(1000);
  for (size_t i = 0; i < many.size(); ++i) many[(i * 7) % 1000] = -static_cast<float>(i) / 500;
  std::map<int32_t, int> seen;
  for (int64_t i = 0; i < 5000; ++i) ++seen[infer::sample(many, {.top_p = 0.5}, {}, 0, 0, i).token];
  // The share of the first n tokens is (1 - e^(-n / 500)) / (1 - e^-2): half at n = 284.
  CHECK(seen.size() <= 284);
  CHECK(seen.size() > 270);
  for (const auto& [token, count] : seen) CHECK(many[static_cast<size_t>(token)] > -284.0F / 500);
}

TEST_CASE("penalties lower the logits of tokens that were seen") {
  const std::vector<float> scores = {2, 1.5F, -1, 1.9F};
  auto best = [&](const infer::SamplingOptions& options, const std::vector<int32_t>& history,
                  size_t prompt) {
    infer::SamplingOptions greedy = options;
    greedy.temperature = 0;
    return infer::sample(scores, greedy, history, prompt, 0, 0);
  };
  CHECK(best({}, {0, 3}, 0).token == 0);
  CHECK(best({.repetition_penalty = 2}, {0, 3}, 0).token == 1);
  CHECK(best({.repetition_penalty = 2}, {0, 3}, 2).token == 1);  // the prompt counts
  CHECK(best({.presence_penalty = 1}, {0, 3}, 2).token == 0);    // here it does not
  CHECK(best({.presence_penalty = 1}, {0, 3}, 0).token == 1);
  CHECK(best({.frequency_penalty = 0.3}, {0, 0, 3}, 0).token == 3);
  CHECK(best({.frequency_penalty = 0.3}, {0, 3, 3}, 0).token == 0);
  // Log probabilities are the model's own.
  double sum = 0;
  for (float score : scores) sum += std::exp(static_cast<double>(score));
  CHECK(best({.repetition_penalty = 2}, {0, 3}, 0).log_probability ==
        near(1.5 - std::log(sum), 1e-6));
}

TEST_CASE("sampling options out of range are refused by name") {
  auto refused = [](const infer::SamplingOptions& options) {
    return error_of([&] { infer::check(options); });
  };
  CHECK(refused({}) == "");
  CHECK(refused({.temperature = -1}) == "usage: temperature must be at least 0. Got -1.");
  CHECK(refused({.temperature = std::nan("")}) ==
        "usage: temperature must be at least 0. Got nan.");
  CHECK(refused({.top_k = -1}) == "usage: top_k must be at least 0. Got -1.");
  CHECK(refused({.top_p = 0}) == "usage: top_p must be above 0 and at most 1. Got 0.");
  CHECK(refused({.min_p = 1.5}) == "usage: min_p must be at least 0 and at most 1. Got 1.5.");
  CHECK(refused({.repetition_penalty = 0}) == "usage: repetition_penalty must be above 0. Got 0.");
}
