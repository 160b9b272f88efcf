// Tests what blocks of 8 and 4 bits cost a trained model, by the verbs that a user runs.
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/io/helpers.h"
#include "tests/support/program.h"
#include "tests/support/published_model.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;

TEST_SUITE("slow blocks") {
  TEST_CASE("blocks cost a Llama trained on Shakespeare 0.5 % of perplexity in Q8_0, 4 % in Q4_0") {
    if (!has_data("text/tinyshakespeare.txt")) return;
    const std::string text = contents_of(
        (std::filesystem::path(data_directory()) / "text/tinyshakespeare.txt").string());
    const Workplace place;
    constexpr size_t held_out = 30000;  // characters
    place.write("train.txt", text.substr(0, text.size() - held_out));
    place.write("rest.txt", text.substr(text.size() - held_out));
    write_published(place.path("model"), {.width = 128, .initializer_range = 0.05});
    const Outcome trained =
        place.weft({"train", "--model.pretrained", "model", "--data.format", "text", "--data.path",
                    "train.txt", "--data.seq_len", "64", "--batch", "16", "--steps", "400", "--lr",
                    "0.003", "--name", "run", "--json"});
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    REQUIRE(place.weft({"convert", "run", "numbers", "--to", "hf"}).code == 0);
    const auto perplexity_of = [&](const std::string& model) {
      return json_of(place.weft({"eval", model, "--data.path", "rest.txt", "--json"}))["perplexity"]
          .get<double>();
    };
    const double numbers = perplexity_of("numbers");
    REQUIRE(numbers < 9);  // 66 kinds of characters, of which a trained model doubts a few
    for (const auto& [format, most] :
         {std::pair<std::string, double>{"Q8_0", 1.005}, {"Q4_0", 1.04}}) {
      CAPTURE(format);
      const Outcome made = place.weft({"quantize", "numbers", format, "--to", format});
      REQUIRE_MESSAGE(made.code == 0, made.err);
      REQUIRE_MESSAGE(made.err.empty(), made.err);  // no layer stays numbers
      for (const std::string activations : {"int8", "float32"}) {
        const json found = json_of(place.weft(
            {"eval", format, "--data.path", "rest.txt", "--json", "--activations", activations}));
        CHECK(found["perplexity"].get<double>() <= most * numbers);
        CHECK(found["perplexity"].get<double>() >= numbers / most);
      }
    }
  }
}
