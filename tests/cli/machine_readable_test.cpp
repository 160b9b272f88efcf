// Tests machine-readable output: JSON of every verb that prints a result, and Graphviz graphs.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny_gpt.h"
#include "tests/support/program.h"

using namespace weft::test;
using nlohmann::json;

namespace {
const std::string one_step = tiny_gpt(1, 4);

}  // namespace

TEST_CASE("config print writes the whole recipe as JSON") {
  Workplace place;
  place.write("tiny.yaml", one_step);
  json recipe = json_of(place.weft({"config", "print", "tiny.yaml", "--json"}));
  CHECK(recipe["model"]["config"]["hidden_size"] == 16);
  CHECK(recipe["train"]["epochs"] == nullptr);
  CHECK(recipe["optimizer"]["betas"] == json{0.9, 0.999});
  place.write("layers.yaml", "model: {layers: [relu, {linear: {out_features: 3}}]}\n");
  CHECK(json_of(place.weft({"config", "print", "layers.yaml", "--json"}))["model"]["layers"] ==
        json{"relu", {{"linear", {{"out_features", 3}}}}});
  for (const char* page : {"schema", "reference"})
    CHECK(json_of(place.weft({"config", page, "--json"}))["properties"].contains("optimizer"));
}

TEST_CASE("init and ckpt verify report in JSON") {
  Workplace place;
  CHECK(json_of(place.weft({"init", "image", "--json"}))["recipe"] == "image.yaml");
  place.write("tiny.yaml", one_step);
  REQUIRE(place.weft({"train", "tiny.yaml", "--json"}).code == 0);
  json verified = json_of(place.weft({"ckpt", "verify", "tiny", "--json"}));
  CHECK(verified["checkpoint"] == "runs/tiny/checkpoints/step-00000001");
  CHECK(verified["whole"] == true);
}

TEST_CASE("a run folder with a name that is not UTF-8 does not hide the others") {
  Workplace place;
  for (const char* name : {"plain", "\xe9"})
    place.write(std::string("runs/") + name + "/log.jsonl", R"({"step":1,"loss":2.5})"
                                                            "\n");
  const json runs = json_of(place.weft({"runs", "ls", "--json"}));
  CHECK(runs.size() == 2);
}

TEST_CASE("plan draws its graphs as DOT files") {
  Workplace place;
  place.write("tiny.yaml", one_step);
  REQUIRE(place.weft({"plan", "tiny.yaml", "--dot", "tiny.dot"}).code == 0);
  std::string dot = place.read("tiny.dot");
  CHECK(dot.starts_with("digraph weft {"));
  CHECK(dot.find("digraph weft {", 1) != std::string::npos);  // training and evaluation
  CHECK(dot.find("matmul") != std::string::npos);
  CHECK(dot.find(" -> ") != std::string::npos);
}

TEST_CASE("each level of WEFT_DEBUG adds the output that the registry documents") {
  Workplace place;
  place.write("tiny.yaml", one_step);
  const std::string added[] = {"pass schedule",    "debug: plan:", "debug: after simplify:",
                               "debug: kernel 0 ", "extent",       "debug: launch 0 "};
  for (size_t level = 0; level <= 6; ++level) {
    CAPTURE(level);
    Outcome outcome = place.weft({"train", "tiny.yaml", "--json", "--overwrite"},
                                 {{"WEFT_DEBUG", std::to_string(level)}});
    REQUIRE(outcome.code == 0);
    for (size_t i = 0; i < 6; ++i)
      if (i != 4) CHECK((outcome.err.find(added[i]) != std::string::npos) == (i < level));
  }
}
