#include "weft/runtime/non_finite.h"

#include <cmath>

#include <doctest/doctest.h>

using namespace weft;

namespace {
ValueRange range_of(std::initializer_list<double> elements) {
  ValueRange range;
  for (double element : elements) range.include(element);
  return range;
}
}  // namespace

TEST_CASE("a range spans the finite elements and counts the others") {
  const ValueRange range = range_of({3, -INFINITY, NAN, -2, INFINITY});
  CHECK(range.low == -2);
  CHECK(range.high == 3);
  CHECK(range.nans == 1);
  CHECK(range.infinities == 2);
  CHECK(!range.finite());
  CHECK(range_of({0}).finite());
  CHECK(range_of({}).low > range_of({}).high);
}

TEST_CASE("merging two value ranges joins their bounds and adds their counts") {
  ValueRange range = range_of({1, 5, NAN});
  range.include(range_of({-4, 2, INFINITY, NAN}));
  CHECK(range.low == -4);
  CHECK(range.high == 5);
  CHECK(range.nans == 2);
  CHECK(range.infinities == 1);
  range.include(range_of({7}));
  CHECK(range.low == -4);
  CHECK(range.high == 7);
  range.include(range_of({}));
  CHECK(range.low == -4);
  CHECK(range.high == 7);
}
