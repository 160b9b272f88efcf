#include "weft/optim/schedule.h"

#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/near.h"

using namespace weft;
using weft::testing::near;
using namespace weft::optim;

namespace {
const Schedule schedules[] = {
    constant(0.1, {.warmup = 5}),
    linear(0.2, {.warmup = 3, .total = 20, .min_lr = 0.01}),
    cosine(1e-3, {.warmup = 10, .total = 40, .min_lr = 1e-5}),
    step_decay(0.1, {.warmup = 2, .every = 7, .gamma = 0.5}),
    wsd(3e-4, {.warmup = 4, .total = 30, .min_lr = 1e-6, .decay = 10}),
};
}

TEST_CASE("warm-up rises linearly from above zero to the learning rate") {
  Schedule schedule = constant(1.0, {.warmup = 4});
  CHECK(schedule.at(0) == near(0.2));
  CHECK(schedule.at(3) == near(0.8));
  CHECK(schedule.at(4) == 1.0);
  CHECK(schedule.at(1000000) == 1.0);
}

TEST_CASE("linear and cosine schedules are halfway in the middle and end at min_lr") {
  for (auto make : {linear, cosine}) {
    Schedule schedule = make(1.0, {.warmup = 100, .total = 300, .min_lr = 0.2});
    CHECK(schedule.at(100) == near(1.0));
    CHECK(schedule.at(200) == near(0.6));
    CHECK(schedule.at(300) == near(0.2));
    CHECK(schedule.at(5000) == near(0.2));
  }
  Schedule curve = cosine(1.0, {.total = 3});
  CHECK(curve.at(1) == near(0.75));  // (1 + cos 60 degrees) / 2
  CHECK(linear(1.0, {.total = 4}).at(1) == near(0.75));
}

TEST_CASE("step decay multiplies by gamma after every interval") {
  Schedule schedule = step_decay(1.0, {.every = 10, .gamma = 0.1});
  CHECK(schedule.at(9) == near(1.0));
  CHECK(schedule.at(10) == near(0.1));
  CHECK(schedule.at(29) == near(0.01));
}

TEST_CASE("wsd is constant until its last steps and then falls linearly") {
  Schedule schedule = wsd(1.0, {.warmup = 10, .total = 100, .decay = 20});
  CHECK(schedule.at(10) == 1.0);
  CHECK(schedule.at(80) == 1.0);
  CHECK(schedule.at(90) == near(0.5));
  CHECK(std::abs(schedule.at(100)) < 1e-15);
}

TEST_CASE("a schedule has the same values in the graph and on the host") {
  for (const Schedule& schedule : schedules) {
    for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-12}, {DType::f32, 1e-6}}) {
      std::vector<Tensor> rates;
      rates.reserve(45);
      for (int64_t step = 0; step < 45; ++step)
        rates.push_back(schedule.at(scalar(static_cast<double>(step), DType::i64), dtype));
      eval(rates);
      for (size_t step = 0; step < rates.size(); ++step) {
        CAPTURE(step);
        CHECK(rates[step].dtype() == dtype);
        CHECK(rates[step].item() == near(schedule.at(static_cast<int64_t>(step)), tolerance));
      }
    }
  }
}

TEST_CASE("impossible schedules are refused with their limit") {
  CHECK_THROWS_WITH_AS(cosine(1.0, {.warmup = 10, .total = 10}),
                       "[cosine] total must be more than the 10 steps of warmup. Got 10.", Error);
  CHECK_THROWS_WITH_AS(wsd(1.0, {.warmup = 10, .total = 30, .decay = 21}),
                       "[wsd] decay must be between 1 and 20, the steps after warmup. Got 21.",
                       Error);
  CHECK_THROWS_WITH_AS(step_decay(1.0, {}), "[step] every must be at least 1. Got 0.", Error);
  CHECK_THROWS_WITH_AS(Schedule(-1.0), "[constant] the learning rate must be at least 0. Got -1.",
                       Error);
  CHECK_THROWS_WITH_AS(
      make_schedule("sine", 1.0, {}),
      "[scheduler] unknown schedule \"sine\". Known: constant, linear, cosine, step, wsd.", Error);
}
