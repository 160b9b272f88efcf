#include "weft/base/recipe/recipe_key.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "weft/base/error.h"

using namespace weft;

TEST_CASE("values of keys are read by type and integers also as numbers") {
  const KeyValues values = {{"a.text", "word"},
                            {"a.integer", 3},
                            {"a.number", 0.5},
                            {"a.flag", true},
                            {"a.numbers", std::vector<double>{1, 2}},
                            {"a.texts", std::vector<std::string>{"x"}},
                            {"a.null", std::monostate()}};
  CHECK(values.text("a.text") == "word");
  CHECK(values.integer("a.integer") == 3);
  CHECK(values.number("a.integer") == 3);
  CHECK(values.number("a.number") == 0.5);
  CHECK(values.flag("a.flag"));
  CHECK(values.numbers("a.numbers") == std::vector<double>{1, 2});
  CHECK(values.texts("a.texts") == std::vector<std::string>{"x"});
  CHECK(values.has("a.text"));
  CHECK(!values.has("a.null"));
  CHECK(!values.has("b"));
}

TEST_CASE("a missing or mistyped key is refused by name") {
  const KeyValues values = {{"a.text", "word"}};
  CHECK_THROWS_WITH_AS((void)values.number("a.text"),
                       doctest::Contains("[recipe] the value of a.text is not a number."), Error);
  CHECK_THROWS_WITH_AS(
      (void)values.number("b"),
      doctest::Contains("[recipe] the key b has no value. Hint: .keys = {{\"b\", ...}}."), Error);
}
