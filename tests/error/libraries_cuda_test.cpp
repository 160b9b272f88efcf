// Tests NVIDIA's compiler and library of products that are missing, too new, or refuse or fail a
// kernel.
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/error/cuda_refusals.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/skip.h"

using namespace weft::test;

TEST_CASE("a kernel that its library refuses to compile or run is replanned with a warning") {
  for (const char* how : {"FAKE_CUBLASLT_REFUSES", "FAKE_CUBLASLT_FAILS"}) {
    CAPTURE(how);
    FakeGpu place;
    const Outcome outcome = place.train({{how, "1"}});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(has(outcome.err, std::string(how) == "FAKE_CUBLASLT_REFUSES"
                               ? "cuBLASLt has no algorithm for "
                               : "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED."));
    CHECK(has(outcome.err, " Refused: cublaslt:matmul"));
    CHECK(has(outcome.err, " of h.0.attn.c_attn and "));
    // After products with a bias, those without one are refused as well.
    CHECK(lines_with(outcome.err,
                     "The step is planned again without these kernels, which may be slower.") == 1);
    CHECK(
        std::regex_search(outcome.err, std::regex(R"( and \d+ more \(WEFT_DEBUG=1 lists them\))")));
  }
}

TEST_CASE("an epilogue that fails is replanned without it before the first update") {
  FakeGpu place;
  const std::vector<std::string> mixed{"--precision", "bf16-mixed", "--overwrite"};
  const Outcome refused = place.train({{"FAKE_CUBLASLT_FAILS", "2"}}, mixed);
  REQUIRE_MESSAGE(refused.code == 0, refused.err);
  CHECK(has(refused.err, " Refused: cublaslt:matmul."));
  const nlohmann::json without = plans_of(place);
  CHECK(has(refused.out, fmt::format("{} kernels", without[0]["kernels"].get<int>())));
  REQUIRE(place.train({}, mixed).code == 0);
  CHECK(plans_of(place)[0]["kernels"] < without[0]["kernels"]);
  REQUIRE(place.train({{"WEFT_CUDA_OFF", "epilogues"}}, mixed).code == 0);
  CHECK(plans_of(place)[0]["kernels"] == without[0]["kernels"]);
}

TEST_CASE("losses of a replanned step equal those of a step planned without the failed kernel") {
  if (weft::testing::sanitized)
    return weft::testing::skipped("sanitizers lose track of the fibers of the fake device");
  const char* clang = std::getenv("CLANG");
  if (clang == nullptr) return weft::testing::skipped("set CLANG to a compiler of C++");
  FakeGpu place;
  auto losses = [&](const std::string& how, const char* value) {
    const Outcome outcome =
        place.run({"bench", "mlp", "--batch", "8", "--steps", "3", "--json", "--device", "cuda"},
                  {{"FAKE_CUDA_COMPILER", clang}, {how, value}});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(has(outcome.err, " Refused: cublaslt:matmul.bias") == (how == "FAKE_CUBLASLT_FAILS"));
    return json_of(outcome)["losses"];
  };
  const nlohmann::json without = losses("WEFT_CUDA_OFF", "epilogues");
  REQUIRE(without.size() > 3);
  CHECK(without.front().get<double>() > without.back().get<double>());
  CHECK(losses("FAKE_CUBLASLT_FAILS", "2") == without);
}

TEST_CASE("tuning skips algorithms that fail and keeps the plan") {
  FakeGpu place;
  auto settings = [&](const char* how) {
    return Settings{{"FAKE_CUBLASLT_FAILS", how},
                    {"WEFT_TUNE", "1"},
                    {"WEFT_DEBUG", "1"},
                    {"WEFT_CACHE_DIR", place.path(how)}};
  };
  const Outcome one = place.train(settings("3"));
  REQUIRE_MESSAGE(one.code == 0, one.err);
  CHECK(has(one.err,
            "number 0 of 2 is skipped: [cuda] cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED."));
  CHECK(!has(one.err, "The step is planned again without"));
  const nlohmann::json kernels =
      nlohmann::json::parse(place.read("runs/tiny/plan.json"))["kernels"];
  int products = 0;
  for (const auto& [signature, algorithm] : kernels.items())
    if (signature.starts_with("cublaslt 130000 ")) {
      ++products;
      CHECK(algorithm.get<std::string>().starts_with("0000000000000001."));
    }
  CHECK(products > 0);
  const Outcome all = place.train(settings("1"), {"--overwrite"});
  REQUIRE_MESSAGE(all.code == 0, all.err);
  CHECK(has(all.err, "number 1 of 2 is skipped: "));
  CHECK(has(all.err, "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED. Refused: cublaslt:matmul"));
}

TEST_CASE("a missing required library is named in one line by train, auto and devices") {
  FakeGpu place;
  for (const std::string stem : {"libnvrtc", "libcublasLt"}) {
    const std::string library = stem + ".so.13", next = stem + ".so.14";
    CAPTURE(library);
    if (is_among_the_systems(library) || is_among_the_systems(stem + ".so.12")) continue;
    const Settings missing = without(place, library);
    CHECK(fails_with(place.train(missing), device_code, "[cuda] no " + library + " in ") == "");
    CHECK(!fs::exists(place.path("runs/tiny")));
    const Outcome automatic = place.train(missing, {"--device", "auto", "--overwrite"});
    REQUIRE_MESSAGE(automatic.code == 0, automatic.err);
    CHECK(has(automatic.err, "--device auto uses the CPU, not the GPU. [cuda] no " + library));
    CHECK(lines_with(automatic.err, "[cuda]") == 1);
    CHECK(has(place.run({"devices"}, missing).out, "unusable   no " + library + " in"));
    const nlohmann::json gpu = json_of(place.run({"devices", "--json"}, missing))["gpus"][0];
    CHECK(has(gpu["unusable"].get<std::string>(), "no " + library + " in "));
    fs::remove_all(place.path("runs/tiny"));

    const Settings other = without(place, library, next);
    CHECK(fails_with(place.train(other), device_code,
                     ", only " + other.at("WEFT_CUDA_PATH") + "/" + next + ". Hint: ") == "");
  }
}

TEST_CASE("a compiler newer than the driver is refused in one line") {
  FakeGpu place;
  const Settings newer{{"FAKE_CUDA_VERSION", "12080"}, {"FAKE_NVRTC_VERSION", "13020"}};
  const std::string said = "it supports CUDA 12, NVRTC compiles for CUDA 13. Hint: WEFT_CUDA_PATH";
  CHECK(fails_with(place.train(newer), device_code, said) == "");
  CHECK(has(json_of(place.run({"devices", "--json"}, newer))["gpus"][0]["unusable"].dump(), said));
}

TEST_CASE("a matrix product library newer than the driver is refused in one line") {
  FakeGpu place;
  Settings newer{{"FAKE_CUDA_VERSION", "12080"}, {"FAKE_CUBLASLT_VERSION", "130100"}};
  const std::string said = "the driver is too old for " + FakeGpu::libraries() +
                           "/libcublasLt.so.13: it supports CUDA 12, the library needs CUDA 13. "
                           "Hint: WEFT_CUDA_PATH selects another.";
  CHECK(fails_with(place.train(newer), device_code, said) == "");
  CHECK(has(json_of(place.run({"devices", "--json"}, newer))["gpus"][0]["unusable"].dump(),
            "the library needs CUDA 13"));
  newer["FAKE_CUDA_VERSION"] = "13000";
  CHECK(place.train(newer).code == 0);
  newer = {{"FAKE_CUDA_VERSION", "12080"}, {"FAKE_CUBLASLT_VERSION", "120805"}};
  CHECK(place.train(newer, {"--overwrite"}).code == 0);
}

TEST_CASE("a run resumes where its plan names algorithms that the library does not know") {
  FakeGpu place;
  REQUIRE(place.train({}, {"--train.steps", "2"}).code == 0);
  nlohmann::json plan = nlohmann::json::parse(place.read("runs/tiny/plan.json"));
  REQUIRE(has(plan["kernels"].dump(), "cublaslt "));
  for (const char* algorithm : {"", "x", "0.", "1.2.3.4.5.6.7.8.9", "fffffffffffffffff", "\t\n"}) {
    for (auto& [product, kernel] : plan["kernels"].items()) kernel = algorithm;
    place.write("runs/tiny/plan.json", plan.dump());
    CHECK(place.train({}, {"--resume", "--train.steps", "4"}).code == 0);
  }
}

TEST_CASE("a kernel that does not compile is an internal error that says what to report") {
  FakeGpu place;
  const Outcome outcome =
      place.train({{"FAKE_NVRTC_FAILS", "1"}, {"WEFT_CACHE_DIR", place.path("cache")}});
  CHECK(outcome.code == failed);
  CHECK(has(outcome.err, "internal error at nvrtc.cpp"));
  CHECK(has(outcome.err, "error: expected a ';'"));
  CHECK(has(outcome.err, "please report it"));
  const fs::path refused = place.path("cache/refused");
  REQUIRE(fs::exists(refused));
  for (const auto& file : fs::directory_iterator(refused)) {
    CHECK(has(place.read("cache/refused/" + file.path().filename().string()), "__global__"));
    if (has(outcome.err, file.path().string())) return;
  }
  FAIL("no file of " << refused << " is named in: " << outcome.err);
}

TEST_CASE("an incomplete compiler package is named with a hint how to install it") {
  FakeGpu place;
  CHECK(fails_with(
            place.train({{"FAKE_NVRTC_FAILS", "2"}, {"WEFT_CACHE_DIR", place.path("cache")}}),
            device_code,
            "libnvrtc.so.13 is incomplete: nvrtc: error: failed to open libnvrtc-builtins.so.13.0. "
            "Hint: tools/setup.sh --cuda installs it; WEFT_CUDA_PATH selects another folder.") ==
        "");
}
