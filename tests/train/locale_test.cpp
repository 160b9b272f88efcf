// A program that links weft may set a locale with another number format, such as 1.234,5.
#include <clocale>
#include <cstdlib>
#include <locale>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/train/runs.h"

using namespace weft;
using namespace weft::test;

namespace {
class Commas : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};
// Sets the C and the C++ locale of the process until destruction.
class WithCommas {
 public:
  WithCommas() {
    const std::string german = folder_.file("de_DE.UTF-8");
    REQUIRE(std::system(("localedef -i de_DE -f UTF-8 " + german).c_str()) == 0);
    setenv("LOCPATH", folder_.path().c_str(), 1);
    REQUIRE(std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr);
    REQUIRE(std::strtod("1,5", nullptr) == 1.5);
  }
  ~WithCommas() {
    std::setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    std::locale::global(before_);
  }
  WithCommas(const WithCommas&) = delete;
  WithCommas& operator=(const WithCommas&) = delete;

 private:
  TemporaryFolder folder_;
  std::locale before_ = std::locale::global(std::locale(std::locale(), new Commas));
};

// Returns the recipe, the losses, and the report of a resumed run on its last step.
std::vector<std::string> said() {
  const TemporaryFolder folder;
  train::Recipe recipe = sums_recipe("train: {steps: 2, global_batch_size: 8}\n");
  for (auto [key, value] :
       {std::pair("optimizer.lr", "0.0125"), {"log.every", "1"}, {"eval.every", "2048"}})
    recipe.set(key, value, "test");
  std::vector<std::string> all = {recipe.to_yaml(), recipe.to_json()};
  train_in(folder, recipe);
  recipe.set("train.steps", "3", "test");
  const std::string run = train_in(folder, recipe, /*resume=*/true).run_folder;
  all.push_back(contents_of(run + "/recipe.yaml"));
  for (const std::string& line : lines_of(run + "/log.jsonl"))
    if (const auto fields = nlohmann::json::parse(line); fields.contains("loss"))
      all.push_back(fields["loss"].dump());
  return all;
}
}  // namespace

TEST_CASE("files and messages of a run do not depend on the program's locale") {
  const std::vector<std::string> plain = said();
  CHECK(plain.size() >= 6);
  const WithCommas commas;
  CHECK(said() == plain);
}
