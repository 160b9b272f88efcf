// Tests cuDNN: versions that weft does without, engines that fail or are forbidden, and how often
// its plans are built.
#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/error/cuda_refusals.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/skip.h"

using namespace weft::test;

namespace {
// Counts the plans of cuDNN that are built, one letter each, and reads the engines of plan.json.
struct CudnnPlans {
  explicit CudnnPlans(const FakeGpu& place) : place(place) {}

  Settings settings(Settings more = {}) const {
    more.insert(
        {{"FAKE_CUDNN_PLANS", place.path("plans")}, {"WEFT_CACHE_DIR", place.path("cache")}});
    return more;
  }
  std::string built() const { return place.read("plans"); }
  std::vector<std::string> engines() const {
    std::vector<std::string> chosen;
    const nlohmann::json plan = nlohmann::json::parse(place.read("runs/tiny/plan.json"));
    for (const auto& [signature, engine] : plan["kernels"].items())
      if (signature.starts_with("cudnn ")) chosen.push_back(engine.get<std::string>());
    return chosen;
  }

  const FakeGpu& place;
};
const std::vector<std::string> with_attention{"--precision", "bf16-mixed", "--overwrite"};
}  // namespace

TEST_CASE("operations that cuDNN refuses to plan or run fall back to weft's own kernels") {
  FakeGpu place;
  for (const char* how : {"FAKE_CUDNN_REFUSES", "FAKE_CUDNN_FAILS"}) {
    CAPTURE(how);
    const bool runs = std::string(how) == "FAKE_CUDNN_FAILS";
    auto bench = [&](const std::string& model) {
      return place.run({"bench", model, "--batch", "1", "--steps", "1", "--precision", "bf16-mixed",
                        "--device", "cuda"},
                       {{how, "1"}, {"WEFT_CACHE_DIR", place.path("cache")}});  // without plans
    };
    for (const auto& [model, op] :
         {std::pair("mnist-conv", "conv"), std::pair("gpt-char", "attention")}) {
      const Outcome outcome = bench(model);
      REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
      CHECK(has(outcome.err, runs ? "cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED"
                                  : fmt::format("cuDNN 9.28 cannot do {}", op)));
      CHECK(has(outcome.err, fmt::format(" Refused: cudnn:{}", op)));
      CHECK(has(outcome.err, "The step is planned again without"));
    }
  }
}

TEST_CASE("a missing or old cuDNN is reported once") {
  FakeGpu place;
  const Outcome old = place.train({{"FAKE_CUDNN_VERSION", "91500"}});
  REQUIRE(old.code == 0);
  CHECK(lines_with(old.err, "is too old: it is cuDNN 9.15, weft needs 9.16 or later.") == 1);
  CHECK(has(old.err, "use weft's own kernels, which are slower."));
  if (is_among_the_systems("libcudnn.so.9")) return;
  const Outcome none = place.train(without(place, "libcudnn.so.9"), {"--overwrite"});
  REQUIRE_MESSAGE(none.code == 0, none.err);
  CHECK(lines_with(none.err, "no libcudnn.so.9 in ") == 1);
  for (const std::string part : {"graph", "heuristic", "engines_precompiled"}) {
    const std::string file = "libcudnn_" + part + ".so.9";
    const Outcome lacks = place.train(without(place, file), {"--overwrite"});
    REQUIRE_MESSAGE(lacks.code == 0, lacks.err);
    CHECK(lines_with(lacks.err, "no " + file + " in ") == 1);
  }
  const Outcome next =
      place.train(without(place, "libcudnn.so.9", "libcudnn.so.10"), {"--overwrite"});
  REQUIRE_MESSAGE(next.code == 0, next.err);
  CHECK(has(next.err, "/libcudnn.so.10. Hint: "));
}

TEST_CASE("a cuDNN among Python's packages is used where the system's is too old") {
  FakeGpu place;
  const fs::path cuda = place.path("cuda"),
                 packages = place.path("venv/lib/python3.12/site-packages"),
                 wheel = packages / "nvidia/cudnn/lib";
  for (const fs::path& folder : {cuda, wheel, fs::path(place.path("venv/bin"))})
    fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(FakeGpu::libraries())) {
    const std::string name = entry.path().filename().string();
    fs::create_symlink(fs::canonical(entry.path()),
                       (name.starts_with("libcudnn") ? wheel : cuda) / name);
  }
  const std::string old = fs::path(FakeGpu::libraries()).parent_path() / "old_cudnn";
  const std::string system =
      "[cuda] libcudnn.so.9 is too old: it is cuDNN 9.14, weft needs 9.16 or later.";
  Settings settings{{"WEFT_CUDA_PATH", cuda}, {"LD_LIBRARY_PATH", old}, {"PATH", "/usr/bin"}};
  const Outcome alone = place.train(settings, with_attention);
  REQUIRE_MESSAGE(alone.code == 0, alone.err);
  CHECK_MESSAGE(lines_with(alone.err, system) == 1, alone.err);
  settings["PATH"] = place.path("venv/bin") + ":/usr/bin";
  const Outcome both = place.train(settings, with_attention);
  REQUIRE_MESSAGE(both.code == 0, both.err);
  CHECK(!has(both.err, "cuDNN"));
  CHECK(CudnnPlans(place).engines().size() == 2);
}

TEST_CASE("a cuDNN built for another CUDA version than cuBLAS is not used") {
  FakeGpu place;
  for (const char* version : {"12090", "14000"}) {
    CAPTURE(version);
    const Outcome outcome = place.train({{"FAKE_CUDNN_CUDA_VERSION", version}},
                                        {"--precision", "bf16-mixed", "--overwrite"});
    CHECK(goes_on_with(outcome, fmt::format("/libcudnn.so.9 is built for CUDA {:.2}, ", version)) ==
          "");
    CHECK(has(outcome.err,
              "/libcublasLt.so.13 for CUDA 13. Convolutions and attention use weft's own kernels, "
              "which are slower."));
    CHECK(lines_with(outcome.err, "weft: warning: ") == 1);
  }
}

TEST_CASE("a cuDNN plan is built once for all layers and read from disk by the next run") {
  for (const char* layers : {"1", "12"}) {
    CAPTURE(layers);
    FakeGpu place;
    const CudnnPlans plans(place);
    std::vector<std::string> deep = with_attention;
    deep.insert(deep.end(), {"--model.config.num_hidden_layers", layers});
    REQUIRE(place.train(plans.settings(), deep).code == 0);
    // The plans are attention that stores its statistics, and its backward pass.
    CHECK(plans.built() == "pp");
    const std::vector<std::string> engines = plans.engines();
    CHECK(engines == std::vector<std::string>(2, "0: engine 5, uses tensor cores, 1048576 bytes"));
    REQUIRE(place.train(plans.settings(), deep).code == 0);
    CHECK(plans.built() == "pp");
    CHECK(plans.engines() == engines);
  }
}

TEST_CASE("cuDNN plans are built concurrently by the threads that compile kernels") {
  if (std::thread::hardware_concurrency() < 2)
    return weft::testing::skipped("one core compiles one kernel after another");
  FakeGpu place;
  const CudnnPlans plans(place);
  const Settings settings = plans.settings({{"FAKE_CUDNN_TOGETHER", "1"}, {"WEFT_THREADS", "2"}});
  const Outcome outcome = place.train(settings, with_attention);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(plans.built() == "tt");
  fs::remove(place.path("plans"));
  // Measured plans are built in parallel, too: at least two of the three graphs at the same time.
  const Settings tuned =
      plans.settings({{"FAKE_CUDNN_TOGETHER", "1"}, {"WEFT_THREADS", "2"}, {"WEFT_TUNE", "1"}});
  REQUIRE(place.train(tuned, with_attention).code == 0);
  CHECK(std::ranges::count(plans.built(), 't') == 2);
}

TEST_CASE("measured plans are built once and the next run reads the chosen one from disk") {
  FakeGpu place;
  const CudnnPlans plans(place);
  const Settings tuned = plans.settings({{"WEFT_TUNE", "1"}});
  REQUIRE(place.train(tuned, with_attention).code == 0);
  const std::string built = plans.built();
  // Each graph has eight candidates, one of which is chosen: attention that stores its statistics
  // is measured against attention without, whose statistics are a separate kernel.
  CHECK(built == std::string(3 * 8, 'p'));
  const std::vector<std::string> engines = plans.engines();
  REQUIRE(place.train(tuned, with_attention).code == 0);
  CHECK(plans.built() == built);
  CHECK(plans.engines() == engines);
}

TEST_CASE("a cache that cannot be written is named once and each run builds its own plans") {
  FakeGpu place;
  const CudnnPlans plans(place);
  place.write("file", "no folder");
  const std::string cache = place.path("file/cache");
  for (const char* tune : {"0", "1"}) {
    CAPTURE(tune);
    std::string built;
    for (int run = 0; run < 2; ++run) {
      fs::remove(place.path("plans"));
      const Outcome outcome = place.train(
          plans.settings({{"WEFT_CACHE_DIR", cache}, {"WEFT_TUNE", tune}}), with_attention);
      CHECK(goes_on_with(outcome, "cannot be a cache") == "");
      CHECK(outcome.err == fmt::format("weft: warning: {} cannot be a cache: Not a directory. Each "
                                       "run compiles its kernels again. Hint: WEFT_CACHE_DIR.\n",
                                       cache));
      CHECK(plans.engines().size() >= 2);
      if (run == 1) CHECK(plans.built() == built);
      built = plans.built();
    }
    CHECK(built.size() >= 2);
  }
}

TEST_CASE("an evaluation whose kernel fails is also replanned before the first update") {
  FakeGpu place;
  const std::vector<std::string> evaluated{"--precision", "bf16-mixed", "--data.val_split", "0.2"};
  const CudnnPlans plans(place);
  auto planned = [&](const std::string& off) {
    std::vector<std::string> plan{"plan", "tiny.yaml", "--json"};
    plan.insert(plan.end(), evaluated.begin(), evaluated.end());
    return json_of(place.run(plan, {{"WEFT_CUDA_OFF", off}}))["plans"];
  };
  // Attention without statistics has a single result. No kernel computes here, so the loss of the
  // evaluation after the last update is not finite.
  const Outcome outcome = place.train(plans.settings({{"FAKE_CUDNN_FAILS", "2"}}), evaluated);
  CHECK(outcome.code == not_finite);
  CHECK(lines_with(outcome.err, "weft: warning: ") == 1);
  CHECK(has(outcome.err,
            "cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED (needs a device that runs it). "
            "Refused: cudnn:attention of h.0.attn. The step is planned again without"));
  CHECK(plans.built() == "ppp");  // with statistics, backward, and without statistics
  const nlohmann::json all = planned(""), without = planned("cudnn-attention");
  REQUIRE(without[1]["name"] == "evaluate");
  REQUIRE(without[1] != all[1]);
  CHECK(plans_of(place)[0] == all[0]);
  CHECK(plans_of(place)[1] == without[1]);
  CHECK(has(outcome.out,
            fmt::format("evaluate: {} kernels, {} KiB of arena", without[1]["kernels"].get<int>(),
                        (without[1]["arena_bytes"].get<size_t>() + 512) / 1024)));
}

TEST_CASE("nondeterministic engines are used only where that is allowed") {
  FakeGpu place;
  const CudnnPlans plans(place);
  auto trained = [&](const char* allowed) {
    const Outcome outcome = place.train(
        plans.settings({{"WEFT_DEBUG", "4"}, {"WEFT_CUDA_ALLOW", allowed}}), with_attention);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.err;
  };
  const std::string strict = trained("");
  CHECK(has(strict, "is rejected: it is nondeterministic"));
  CHECK(has(strict, "is rejected: it narrows its inputs"));
  CHECK(has(strict, "bytes of workspace"));
  CHECK(has(strict, ": 1 are rejected only because they are nondeterministic"));
  CHECK(plans.engines() ==
        std::vector<std::string>(2, "0: engine 5, uses tensor cores, 1048576 bytes"));
  CHECK(!has(trained("nondeterministic"), "is rejected: it is nondeterministic"));
  CHECK(plans.engines() == std::vector<std::string>(
                               2, "0: engine 0, uses tensor cores, is nondeterministic, 0 bytes"));
}
