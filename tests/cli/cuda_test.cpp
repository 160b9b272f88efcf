// Tests the program on the fake driver (tests/fake_cuda/fake.h), on whose clock each piece of work
// takes a microsecond: timing by CUDA events, and compiled models.
#include <cmath>
#include <cstdlib>
#include <regex>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/error/pets_run.h"
#include "tests/support/exit_codes.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/near.h"
#include "tests/support/skip.h"

using namespace weft::test;
using nlohmann::json;
using weft::testing::near;

namespace {
// Counts the non-overlapping matches of a pattern.
size_t count(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  return static_cast<size_t>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), expression), {}));
}
}  // namespace

TEST_CASE("a profile on a GPU shows each kernel's time by events and its roofline fraction") {
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

TEST_CASE("kernels are tuned by event timings of single launches on flushed caches") {
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
  // The first candidate takes two launches, the second one.
  CHECK(count(outcome.err, "measured number 0 of 2: +0\\.002 ms") > 0);
  CHECK(count(outcome.err, "measured number 1 of 2: +0\\.001 ms") > 0);
}

TEST_CASE_FIXTURE(Pets, "a compiled net computes on a GPU what its run computes there") {
  const char* clang = std::getenv("CLANG");
  if (clang == nullptr) return weft::testing::skipped("set CLANG to a compiler of C++");
  const Environment gpu{{"WEFT_CUDA_PATH", FakeGpu::libraries()}, {"FAKE_CUDA_COMPILER", clang}};
  REQUIRE(
      weft({"compile", "pets", "--batch", "40", "--device", "cuda", "-o", "pets.weft"}, gpu).code ==
      0);
  REQUIRE(weft({"run", "pets", "--device", "cuda", "--input", "rows.npy", "-o", "want.npy"}, gpu)
              .code == 0);
  const Outcome outcome = weft({"run", "pets.weft", "--input", "rows.npy", "-o", "found.npy"}, gpu);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(read("found.npy") == read("want.npy"));
  // No machine with another GPU runs it.
  Environment another = gpu;
  another["FAKE_CUDA_NAME"] = "another GPU";
  CHECK(fails_with(weft({"run", "pets.weft", "--input", "rows.npy"}, another), device_code,
                   "pets.weft: it was compiled for ") == "");
}
