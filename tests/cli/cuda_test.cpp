// How time is told on an NVIDIA GPU: by the events of a driver that only pretends to have one
// (tests/fake_cuda/fake.h), on whose clock each piece of work takes a microsecond.
#include <cmath>
#include <cstdlib>
#include <regex>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/near.h"
#include "tests/support/program.h"

using namespace weft::test;
using nlohmann::json;
using weft::testing::near;

namespace {
// A place with a tiny model.
struct FakeGpu : Workplace {
  FakeGpu() {
    write("tiny.yaml",
          "name: tiny\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
          "num_attention_heads: 2}}\n"
          "data: {format: text, path: poem.txt, seq_len: 8}\n"
          "train: {steps: 2, global_batch_size: 4, device: cuda}\n");
    write("poem.txt", std::string(2000, 'o'));
  }
  Outcome run(const std::vector<std::string>& arguments, Environment more = {}) const {
    const char* build = std::getenv("BUILD");
    REQUIRE_MESSAGE(build != nullptr, "set BUILD to the build folder");
    more["WEFT_CUDA_PATH"] = std::string(build) + "/tests/fake_cuda";
    return weft(arguments, more);
  }
};

// How often it is there, one after another.
size_t count(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  return static_cast<size_t>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), expression), {}));
}
}  // namespace

TEST_CASE("a profile on a GPU has each kernel's time by events, and its part of the roofline") {
  FakeGpu place;
  const json profile = json_of(place.run({"profile", "tiny.yaml", "--steps", "3", "--json"}));
  for (const char* rows : {"kernels", "plan"}) {
    CHECK(profile[rows].size() > 10);
    for (const json& row : profile[rows]) {
      CAPTURE(row.dump());
      const double microseconds = 1e3 * row["ms"].get<double>();
      const double launches = std::round(microseconds);
      CHECK(microseconds == near(launches, 1e-4));
      CHECK(launches >= row["count"].get<double>());
      CHECK(row["gbytes_per_s"].get<double>() > 0);
      CHECK(row["roofline"].get<double>() > 0);
    }
  }
}

TEST_CASE("kernels are chosen by events between which each runs once, on caches that are flushed") {
  FakeGpu place;
  const std::string log = place.path("work");
  const Outcome outcome =
      place.run({"train", "tiny.yaml"}, {{"WEFT_TUNE", "1"},
                                         {"WEFT_CACHE_DIR", place.path("cache")},
                                         {"WEFT_DEBUG", "1"},
                                         {"FAKE_CUDA_WORK", log}});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const std::string work = place.read("work");
  const size_t measured = count(outcome.err, "measured number");
  CHECK(measured > 4);
  CHECK(count(work, "(swew+e){10}") == measured);
  CHECK(count(work, "e") == 20 * measured);
  // A product and what stands beside it are two launches, or one.
  CHECK(count(outcome.err, "measured number 0 of 2: +0\\.002 ms") > 0);
  CHECK(count(outcome.err, "measured number 1 of 2: +0\\.001 ms") > 0);
}
