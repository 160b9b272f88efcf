// Tests tables of CSV text: their numbers, normalization and classes, and what is refused.
#include "weft/data/table.h"

#include <cmath>
#include <numeric>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/near.h"

using namespace weft;
using namespace weft::test;
using weft::testing::near;

namespace {
data::Table parsed(std::string_view text, const data::TableOptions& options) {
  return data::parse_table(text, "t.csv", options);
}
std::vector<int64_t> all_rows(const data::Table& table) {
  std::vector<int64_t> rows(static_cast<size_t>(table.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}
std::shared_ptr<const data::Source> source_of(const data::Table& table,
                                              const data::TableColumns& columns) {
  return data::table_source(std::make_shared<data::Table>(table), all_rows(table), columns);
}
const std::string houses = "area,price,rooms\n80,200,3\n\" 100\",+3e2, 4\n60,.4e3,3\n";
}  // namespace

TEST_CASE("all columns but the target are inputs, in the order of the file") {
  const data::Table table = parsed(houses, {.targets = {"price"}});
  CHECK(table.features == std::vector<std::string>{"area", "rooms"});
  CHECK(table.inputs == std::vector<double>{80, 3, 100, 4, 60, 3});
  CHECK(table.numbers == std::vector<double>{200, 300, 400});
  CHECK(table.lines == std::vector<int64_t>{2, 3, 4});
  const data::Table chosen = parsed(houses, {.targets = {"rooms", "area"}, .features = {"price"}});
  CHECK(chosen.inputs == std::vector<double>{200, 300, 400});
  CHECK(chosen.numbers == std::vector<double>{3, 80, 4, 100, 3, 60});
}

TEST_CASE("numbers are normalized by the mean and the standard deviation of the training rows") {
  const data::Table table = parsed("x,c,y\n1,7,10\n2,7,20\n6,7,60\n100,8,0\n", {.targets = {"y"}});
  const data::TableColumns columns = data::columns_of(table, std::vector<int64_t>{0, 1, 2});
  CHECK(columns.features[0].mean == near(3));
  CHECK(columns.features[0].std == near(std::sqrt((4 + 1 + 9) / 3.0)));
  CHECK(columns.features[1] == data::Column{"c", 7, 1});  // constant
  CHECK(columns.targets[0].mean == near(30));
  CHECK(columns.targets[0].std == near(std::sqrt((400 + 100 + 900) / 3.0)));

  const auto source = source_of(table, columns);
  CHECK(source->input_type() == Type{DType::f32, {2}});
  CHECK(source->label_shape() == Shape{1});
  CHECK(source->label_dtype() == DType::f32);
  float input[2], target[1];
  source->write_targets({.index = 3}, reinterpret_cast<std::byte*>(input), target);
  CHECK(input[0] == near((100 - 3) / columns.features[0].std));
  CHECK(input[1] == 1);
  CHECK(target[0] == near(-30 / columns.targets[0].std));
  const double squares =
      (400 + 100 + 900) + 900.0 * 3 / 4;  // the fourth is 30 below the others' mean
  CHECK(source->target_variations().at(0) == near(squares / std::pow(columns.targets[0].std, 2)));
}

TEST_CASE("targets vary by nothing where they are alike, and by their last digits far from 0") {
  const auto variation_of = [](const std::string& text) {
    return source_of(parsed(text, {.targets = {"y"}}), {{{"x"}}, {{"y", 7, 2}}})
        ->target_variations()
        .at(0);
  };
  CHECK(variation_of("x,y\n1,0.1\n1,0.1\n1,0.1\n1,0.1\n1,0.1\n1,0.1\n") == 0);
  CHECK(variation_of("x,y\n1,1000000.001\n1,1000000.002\n1,1000000.003\n") == near(2e-6 / 4, 1e-5));
}

TEST_CASE("classes are labelled in the order of numbers, or of text") {
  const auto labels_of = [](const std::string& text) {
    const data::Table table = parsed(text, {.targets = {"k"}, .classes = true});
    const data::TableColumns columns = data::columns_of(table, all_rows(table));
    const auto source = source_of(table, columns);
    std::vector<int64_t> labels(static_cast<size_t>(source->size()));
    float input = 0;
    for (int64_t i = 0; i < source->size(); ++i)
      source->write({.index = i}, reinterpret_cast<std::byte*>(&input),
                    &labels[static_cast<size_t>(i)]);
    return std::pair(columns.classes, labels);
  };
  CHECK(labels_of("x,k\n1,10\n1,9\n1,-1\n1,9\n") ==
        std::pair(std::vector<std::string>{"-1", "9", "10"}, std::vector<int64_t>{2, 1, 0, 1}));
  CHECK(labels_of("x,k\n1,dog\n1,10\n1,cat\n1,9\n") ==
        std::pair(std::vector<std::string>{"10", "9", "cat", "dog"},
                  std::vector<int64_t>{3, 0, 2, 1}));
}

TEST_CASE("columns survive as JSON, to the last bit") {
  data::TableColumns columns{.features = {{"a \"b\"", 0.1, 1.0 / 3}, {"\xC3\xA9", -1e300, 1e-300}},
                             .targets = {{"y", 0, 1}},
                             .classes = {"no", "yes"}};
  CHECK(data::TableColumns::from_json(columns.to_json(), "c.json") == columns);
  const auto message = [](const std::string& json) {
    return error_of([&] { data::TableColumns::from_json(json, "c.json"); });
  };
  CHECK(message("{}").starts_with("data: c.json: "));
  CHECK(message(R"({"features": [], "targets": [], "classes": []})") ==
        "data: c.json: features must not be empty.");
  CHECK(message(R"({"features": [{"name": "a", "mean": 0, "std": 0}]})") ==
        "data: c.json: std must be a finite number above 0.");
}

TEST_CASE("what differs in a row, a column or a class changes the fingerprint") {
  const auto hash_of = [](const std::string& text, bool classes = false) {
    const data::Table table = parsed(text, {.targets = {"y"}, .classes = classes});
    return source_of(table, data::columns_of(table, all_rows(table)))->fingerprint();
  };
  CHECK(hash_of("x,y\n1,2\n3,4\n") == hash_of("x,y\r\n1.0,2\r\n3,4e0"));
  CHECK(hash_of("x,y\n1,2\n3,4\n") != hash_of("x,y\n1,2\n3,5\n"));
  CHECK(hash_of("x,y\n1,2\n3,4\n") != hash_of("x,y\n3,4\n1,2\n"));
  CHECK(hash_of("x,y\n1,a\n3,b\n", true) != hash_of("x,y\n1,b\n3,a\n", true));
}

TEST_CASE("a bad table is refused with the line and the column") {
  struct Mistake {
    std::string text, message;
  };
  const std::vector<Mistake> mistakes = {
      {"", "t.csv is empty. Its first line must name the columns."},
      {"x,y\n", "t.csv has no rows below its header."},
      {"area,rooms\n1,2\n", "t.csv has no column 'y'."},
      {"y\n2\n", "t.csv has no column besides the target."},
      {"x,x,y\n1,1,2\n", "t.csv: columns 1 and 2 are both named 'x'."},
      {",x,y\n0,1,2\n",
       "t.csv: column 1 has no name. Hint: data.features lists the columns that are inputs."},
      {"x,y\n1,2\n\n1\n", "t.csv: line 4 has 1 fields. The header has 2."},
      {"x,y\n1,2,\n", "t.csv: line 2 has 3 fields. The header has 2."},
      {"x,y\n1,2\n ,2\n",
       "t.csv: line 3: column 'x' is empty. Rows with missing values must be left out."},
      {"x,y\none,2\n",
       "t.csv: line 2: column 'x' must be a number. Got 'one'. Hint: data.features lists the "
       "columns that are inputs."},
      {"x,y\n1,\"1,5\"\n",
       "t.csv: line 2: column 'y' must be a number. Got '1,5'. Hint: task: classification, if it "
       "is a class."},
      {"x,y\n1,nan\n",
       "t.csv: line 2: column 'y' must be a finite number of float32's range. Got 'nan'."},
      {"x,y\n-inf,1\n",
       "t.csv: line 2: column 'x' must be a finite number of float32's range. Got '-inf'."},
      {"x,y\n1e39,1\n",
       "t.csv: line 2: column 'x' must be a finite number of float32's range. Got '1e39'."},
      {"gr\xF6\xDF"
       "e,y\n1,2\n",
       "t.csv: line 1: 'gr\\xf6\\xdfe' is not UTF-8."},
      {"x,y\n\"1,1\n", "t.csv: line 2 opens a quote that is never closed."},
  };
  for (const Mistake& mistake : mistakes)
    CHECK(error_of([&] { parsed(mistake.text, {.targets = {"y"}}); }) ==
          "data: " + mistake.message);
  CHECK(error_of([] { parsed(houses, {.targets = {"pric"}}); }) ==
        "data: t.csv has no column 'pric'. Did you mean 'price'?");
}

TEST_CASE("rows that the training rows do not cover are refused with their line") {
  const data::TableColumns columns{.features = {{"x", 0, 1e-30}}, .targets = {{"y", 0, 1}}};
  CHECK(error_of([&] { source_of(parsed("x,y\n0,1\n1e9,1\n", {.targets = {"y"}}), columns); }) ==
        "data: t.csv: line 3: column 'x' exceeds float32 once it is normalized by the mean 0 and "
        "the standard deviation 1e-30 of the training rows.");
  const data::TableColumns animals{
      .features = {{"x", 0, 1}}, .targets = {{"y", 0, 1}}, .classes = {"cat"}};
  CHECK(error_of([&] {
          source_of(parsed("x,y\n1,cat\n1,dog\n", {.targets = {"y"}, .classes = true}), animals);
        }) == "data: t.csv: line 3: column 'y' has the class 'dog', which no training row has.");
}
