// Tests parts of the program: recipe flags, tables, suggestions.
#include <array>

#include <doctest/doctest.h>

#include "tests/support/program.h"
#include "weft/base/error.h"
#include "weft/base/text/suggest.h"
#include "weft/cli/measure/peaks.h"
#include "weft/cli/recipes/recipe_flags.h"
#include "weft/cli/show/terminal.h"
#include "weft/device/catalogue.h"

using namespace weft;
using namespace weft::cli;
using Strings = std::vector<std::string>;

TEST_CASE("recipe flags are extracted from any place in the arguments") {
  Strings arguments = {"train",           "--optimizer.lr",  "0.1",   "r.yaml",
                       "--train.steps=5", "--data.reversed", "--json"};
  RecipeFlags flags = take_recipe_flags(arguments);
  CHECK(arguments == Strings{"train", "r.yaml", "--json"});
  REQUIRE(flags.size() == 3);
  CHECK(flags[0].path == "optimizer.lr");
  CHECK(flags[0].value == "0.1");
  CHECK(flags[1].value == "5");
  CHECK(flags[2].value == "true");
}

TEST_CASE("a boolean recipe flag has four spellings") {
  auto value = [](Strings arguments) { return take_recipe_flags(arguments).at(0).value; };
  CHECK(value({"--data.reversed"}) == "true");
  CHECK(value({"--no-data.reversed"}) == "false");
  CHECK(value({"--data.reversed=false"}) == "false");
  CHECK(value({"--data.reversed", "false", "r.yaml"}) == "false");
  CHECK(value({"--data.reversed", "r.yaml"}) == "true");
}

TEST_CASE("flag values may be negative and hold dots and equal signs, and flags end at --") {
  Strings arguments = {"--optimizer.lr", "-1", "--data.path=a.b=c", "--", "--seed.x"};
  RecipeFlags flags = take_recipe_flags(arguments);
  REQUIRE(flags.size() == 2);
  CHECK(flags[0].value == "-1");
  CHECK(flags[1].value == "a.b=c");
  CHECK(arguments == Strings{"--", "--seed.x"});
}

TEST_CASE("a flag for one of two exclusive keys unsets the other") {
  auto recipe =
      train::Recipe::parse("train: {epochs: 3}\nmodel: {name: mlp}\ndata: {dataset: mnist}\n", "r");
  apply_flags(recipe, {{"--steps", "train.steps", "7"}});
  CHECK(recipe.integer("train.steps") == 7);
  CHECK_FALSE(recipe.has("train.epochs"));
  CHECK_NOTHROW(recipe.check());
  apply_flags(recipe, {{"--steps", "train.steps", "7"}, {"--epochs", "train.epochs", "7"}});
  CHECK_THROWS_AS(recipe.check(), Error);
  apply_flags(recipe, {{"--epochs", "train.epochs", "3"}, {"", "scheduler.warmup_ratio", "0.5"}});
  apply_flags(recipe, {{"", "scheduler.warmup_steps", "7"}});
  CHECK(recipe.number("scheduler.warmup_ratio") == 0);
  CHECK(recipe.integer("scheduler.warmup_steps") == 7);
  CHECK_NOTHROW(recipe.check());
}

TEST_CASE("flag values are taken literally and not parsed as YAML") {
  train::Recipe recipe;
  for (std::string path :
       {"a: b", "*.txt", "#1", "12", "[x]", "say \"hi\"", "back\\slash", "- a"}) {
    apply_flags(recipe, {{"--data.path", "data.path", path}});
    CHECK(recipe.text("data.path") == path);
  }
  apply_flags(recipe, {{"--data.path", "data.path", "null"}});
  CHECK_FALSE(recipe.has("data.path"));
}

TEST_CASE("tables align their columns by code points") {
  Table table({"name", ">size"});
  table.row({"añb", "7"});
  table.row({"longer", "1234"});
  CHECK(table.text() == "name    size\nañb        7\nlonger  1234\n");
  Table plain({}, "  ");
  plain.row({"a", ""});
  CHECK(plain.text() == "  a\n");
}

TEST_CASE("a suggestion is a near match or none") {
  constexpr std::string_view known[] = {"train", "plan", "runs"};
  CHECK(nearest("trian", known) == "train");
  CHECK(nearest("pln", known) == "plan");
  CHECK(nearest("mpl", std::array<std::string_view, 2>{"gpt", "mlp"}) == "mlp");
  CHECK(nearest("quux", known).empty());
  CHECK(nearest("", known).empty());
}

TEST_CASE("a name that differs in case alone is suggested, whatever its length and script") {
  constexpr std::string_view known[] = {"temperature", "Temperatur", "Цена", "größe", "x.weight"};
  CHECK(nearest("TEMPERATURE", known) == "temperature");
  CHECK(nearest("TEMPERATUR", known) == "Temperatur");
  CHECK(nearest("ЦЕНА", known) == "Цена");
  CHECK(nearest("GRÖßE", known) == "größe");
  CHECK(nearest("Temperature", known) == "temperature");
  CHECK(did_you_mean("*.Weight", known) == " Did you mean 'x.weight'?");
  CHECK(did_you_mean("*.bias", known).empty());
}

TEST_CASE("a name in a hint is quoted so that a shell reads it as one literal word") {
  CHECK(shell_word("runs/a-1.b_c+") == "runs/a-1.b_c+");
  const std::string names[] = {"a b", "*", "$(id)", "it's", "-n\n", ";", "~", "\xc3\xbc \t", ""};
  for (const std::string& name : names) {
    CAPTURE(name);
    weft::test::Workplace place;
    const weft::test::Outcome printed =
        place.run("/bin/sh", {"-c", "printf %s " + shell_word(name)});
    CHECK(printed.out == name);
  }
}

TEST_CASE("a processor without bfloat16 instructions is named where bfloat16 is requested") {
  const cpu::Machine old{.model = "Old CPU", .isa = weft::Isa::avx512},
      recent{.model = "New CPU", .isa = weft::Isa::avx512_bf16};
  CHECK(lacks_instructions(DType::bf16, old).starts_with("Old CPU has no instructions for"));
  CHECK(lacks_instructions(DType::bf16, recent).empty());
  CHECK(lacks_instructions(DType::f32, old).empty());
  const MachineSpec t4 = spec_of(*find_gpu("t4")), h200 = spec_of(*find_gpu("h200"));
  CHECK(lacks_instructions(DType::bf16, t4).starts_with("Tesla T4 has no instructions for"));
  CHECK(lacks_instructions(DType::f16, t4).empty());
  CHECK(lacks_instructions(DType::bf16, h200).empty());
}
