#include "weft/base/recipe/registry.h"

#include <doctest/doctest.h>

#include "tests/io/helpers.h"

using namespace weft;
using namespace weft::test;

namespace {
struct Entry {
  std::string name, doc;
};
Registry<Entry> fruits() { return {"basket", "fruit", {{"apple", "red"}, {"pear", "green"}}}; }
}  // namespace

TEST_CASE("entries are found by name, keep registration order and keep their address") {
  Registry<Entry> registry = fruits();
  const Entry* apple = registry.find("apple");
  for (int i = 0; i < 100; ++i) registry.add({"fruit-" + std::to_string(i), ""});
  CHECK(registry.size() == 102);
  CHECK(registry.names()[1] == "pear");
  CHECK(registry.names()[101] == "fruit-99");
  CHECK(&registry.get("apple") == apple);
  CHECK(apple->doc == "red");
  CHECK(registry.find("plum") == nullptr);
}

TEST_CASE("an unknown name is refused with the known names or the nearest match") {
  Registry<Entry> registry = fruits();
  CHECK(error_of([&] { registry.get("appel"); }) ==
        "usage: [basket] unknown fruit \"appel\". Known: apple, pear.");
  for (char c = 'a'; c <= 'i'; ++c) registry.add({std::string(4, c), ""});
  CHECK(error_of([&] { registry.get("appel"); }) ==
        "usage: [basket] unknown fruit \"appel\". Did you mean apple?");
  CHECK(error_of([&] { registry.get("xyzxyz"); }) ==
        "usage: [basket] unknown fruit \"xyzxyz\". Known: apple, pear, aaaa, bbbb, cccc, dddd, "
        "eeee, ffff, gggg, hhhh, iiii.");
}

TEST_CASE("a duplicate or empty name is refused and nothing is added") {
  Registry<Entry> registry = fruits();
  CHECK(error_of([&] { registry.add({"pear", "yellow"}); }) ==
        "usage: [basket] the name \"pear\" is taken or empty.");
  CHECK(error_of([&] { registry.add({"", "none"}); }) ==
        "usage: [basket] the name \"\" is taken or empty.");
  CHECK(registry.size() == 2);
  CHECK(registry.get("pear").doc == "green");
}
