// Tests a table from its starter recipe to its records: every verb names what a regression reports.
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

using namespace weft::test;

TEST_CASE("a regression is planned, trained, resumed, evaluated and listed by r2") {
  Workplace place;
  std::string rows = "area,rooms,price\n";
  for (int i = 0; i < 200; ++i)
    rows += fmt::format("{},{},{}\n", 50 + i % 37, i % 6, 1000 * (50 + i % 37) + 9000 * (i % 6));
  place.write("table.csv", rows);
  CHECK(place.weft({"init", "table"}).code == 0);
  CHECK(place.weft({"plan", "table.yaml"}).out.find("row/s") != std::string::npos);
  const auto first = json_of(place.weft({"train", "table.yaml", "--epochs", "5", "--json"}));
  CHECK(first.contains("eval_r2"));
  CHECK(!first.contains("eval_accuracy"));
  const auto trained =
      json_of(place.weft({"train", "table.yaml", "--epochs", "60", "--resume", "--json"}));
  CHECK(trained["eval_r2"].get<double>() > 0.9);
  const auto evaluated = json_of(place.weft({"eval", "table", "--json"}));
  for (const char* name : {"loss", "r2", "mae", "rmse", "count"})
    CHECK(evaluated[name] == trained[std::string("eval_") + name]);
  CHECK(evaluated["count"] == 40);
  CHECK(place.weft({"eval", "table"}).out.ends_with(" 40 rows\n"));
  const auto shown = json_of(place.weft({"runs", "show", "table", "--json"}));
  CHECK(shown["evaluations"].back()["r2"] == trained["eval_r2"]);
  for (const char* verb : {"ls", "show"}) {
    const Outcome listed = verb == std::string("ls") ? place.weft({"runs", "ls"})
                                                     : place.weft({"runs", "show", "table"});
    CHECK(listed.out.find("r2") != std::string::npos);
    CHECK(listed.out.find("accuracy") == std::string::npos);
  }

  place.write("later.csv", "price,rooms,area\n100000,3,73\n59000,1,50\n");
  CHECK(json_of(place.weft({"eval", "table", "--json", "--data.val_path", "later.csv"}))["count"] ==
        2);
  CHECK(fails_with(place.weft({"eval", "table", "--data.target", "area"}), 2,
                   "data.target differs from that of runs/table/checkpoints/") == "");
}
