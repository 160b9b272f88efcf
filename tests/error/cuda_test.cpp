// Errors around NVIDIA GPUs, on a simulated driver (tests/fake_cuda/fake.h).
#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/fake_gpu.h"
#include "tests/support/skip.h"

using namespace weft::test;
namespace fs = std::filesystem;

namespace {
constexpr int failed = 1, usage = 2, does_not_fit = 3, not_finite = 6, device = 7;
using Settings = Workplace::Environment;

// Returns settings with a folder of all the driver's libraries but one, as a wheel may have; with
// `instead`, that one under this name.
Settings without(const FakeGpu& place, const std::string& library,
                 const std::string& instead = "") {
  const fs::path to = place.path("cuda-without-" + library + instead);
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(FakeGpu::libraries())) {
    const std::string name = entry.path().filename().string();
    if (name != library)
      fs::copy(entry.path(), to / name, fs::copy_options::copy_symlinks);
    else if (!instead.empty())
      fs::copy(entry.path(), to / instead, fs::copy_options::copy_symlinks);
  }
  return {{"WEFT_CUDA_PATH", to.string()}, {"PATH", "/usr/bin"}};
}

bool is_among_the_systems(const std::string& library) {
  if (dlopen(library.c_str(), RTLD_LAZY) == nullptr) return false;
  weft::testing::skipped("there is a " + library + " among the system's libraries");
  return true;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
}  // namespace

TEST_CASE("a run trains on a GPU, logs what it takes and closes with its energy") {
  FakeGpu place;
  const Outcome outcome = place.train();
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(has(outcome.out, "fits NVIDIA H200: "));
  const std::string log = place.read("runs/tiny/log.jsonl");
  CHECK(has(log, R"("watts":123.4)"));
  CHECK(has(log, R"("celsius":41.0)"));
  CHECK(has(log, R"("slowed_by":"power limit")"));
  // The meter adds a quarter of a joule per reading: at the start, at each of six lines, at the
  // end.
  CHECK(has(log, R"("joules":1.75)"));
}

TEST_CASE("a step stays one graph where losses are read and checkpoints are written") {
  FakeGpu place;
  for (const char* precision : {"fp32", "fp16-mixed"}) {
    const std::string graphs = place.path(precision);
    const Outcome outcome = place.train({{"FAKE_CUDA_GRAPHS", graphs}},
                                        {"--precision", precision, "--steps", "20", "--overwrite"});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(place.read(precision).size() == 19);  // all but the first, which loads modules
  }
}

namespace {
// Reads a run's plan.json, which lists the number of kernels of each step and those of each module.
nlohmann::json plans_of(const FakeGpu& place) {
  return nlohmann::json::parse(place.read("runs/tiny/plan.json"))["plans"];
}
size_t lines_with(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}
}  // namespace

TEST_CASE("a step that no graph takes is launched kernel by kernel, which is said once") {
  const std::pair<const char*, const char*> failures[] = {
      {"1", "(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED). At or before kernel "},
      {"2",
       "cuStreamEndCapture: operation failed due to a previous error during capture "
       "(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED). No graph "},
      {"3", "the GPU's memory is exhausted (cuGraphInstantiate)."}};
  for (const auto& [how, said] : failures) {
    CAPTURE(how);
    FakeGpu place;
    const Outcome outcome =
        place.train({{"FAKE_CUDA_CAPTURE_FAILS", how}, {"FAKE_CUDA_GRAPHS", place.path("graphs")}},
                    {"--data.val_split", "0.2"});
    CHECK(outcome.code == not_finite);  // the evaluation's loss: no kernel computes
    CHECK(lines_with(outcome.err, "weft: warning: ") == 1);
    CHECK(has(outcome.err, said));
    CHECK(has(outcome.err,
              "The step's kernels cannot be captured as a CUDA graph: they are launched one by "
              "one, which may be slower."));
    CHECK(lines_with(place.read("runs/tiny/log.jsonl"), "\"loss\"") == 6);
    CHECK(!fs::exists(place.path("graphs")));
  }
}

TEST_CASE(
    "a kernel that its library refuses to compile or to run is planned without, which is said") {
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

TEST_CASE("what fails with an epilogue is planned as if there were none, before the first update") {
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

TEST_CASE("losses are those of a step that was planned without what failed in its first run") {
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

TEST_CASE("a measurement passes over algorithms that fail, and keeps the step as it is planned") {
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

TEST_CASE("what cuDNN refuses to plan or to run is done by loops, or by a kernel of weft's own") {
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

TEST_CASE("a cuDNN that is not there, or too old, is said once") {
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

TEST_CASE("a library that no step runs without is named in a line: by a run, by auto, by devices") {
  FakeGpu place;
  for (const std::string stem : {"libnvrtc", "libcublasLt"}) {
    const std::string library = stem + ".so.13", next = stem + ".so.14";
    CAPTURE(library);
    if (is_among_the_systems(library) || is_among_the_systems(stem + ".so.12")) continue;
    const Settings missing = without(place, library);
    CHECK(fails_with(place.train(missing), device, "[cuda] no " + library + " in ") == "");
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
    CHECK(fails_with(place.train(other), device,
                     ", only " + other.at("WEFT_CUDA_PATH") + "/" + next + ". Hint: ") == "");
  }
}

TEST_CASE("a compiler that is newer than the driver is refused in a line") {
  FakeGpu place;
  const Settings newer{{"FAKE_CUDA_VERSION", "12080"}, {"FAKE_NVRTC_VERSION", "13020"}};
  const std::string said = "it supports CUDA 12, NVRTC compiles for CUDA 13. Hint: WEFT_CUDA_PATH";
  CHECK(fails_with(place.train(newer), device, said) == "");
  CHECK(has(json_of(place.run({"devices", "--json"}, newer))["gpus"][0]["unusable"].dump(), said));
}

TEST_CASE("a library of products that is newer than the driver is refused in a line") {
  FakeGpu place;
  Settings newer{{"FAKE_CUDA_VERSION", "12080"}, {"FAKE_CUBLASLT_VERSION", "130100"}};
  const std::string said = "the driver is too old for " + FakeGpu::libraries() +
                           "/libcublasLt.so.13: it supports CUDA 12, the library needs CUDA 13. "
                           "Hint: WEFT_CUDA_PATH selects another.";
  CHECK(fails_with(place.train(newer), device, said) == "");
  CHECK(has(json_of(place.run({"devices", "--json"}, newer))["gpus"][0]["unusable"].dump(),
            "the library needs CUDA 13"));
  newer["FAKE_CUDA_VERSION"] = "13000";
  CHECK(place.train(newer).code == 0);
  newer = {{"FAKE_CUDA_VERSION", "12080"}, {"FAKE_CUBLASLT_VERSION", "120805"}};
  CHECK(place.train(newer, {"--overwrite"}).code == 0);
}

TEST_CASE("a cuDNN that is made for another CUDA than the library of products is done without") {
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

TEST_CASE("a plan of cuDNN is built once for all layers, and read from disk by the next run") {
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

TEST_CASE("plans of cuDNN are built together, by the threads that compile kernels") {
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

TEST_CASE("plans that are measured are built once, and the next run reads the chosen from disk") {
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

TEST_CASE("a cache that cannot be written is named once, and costs each run its own work") {
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

TEST_CASE("an evaluation whose kernel fails is planned again, too, before the first update") {
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

TEST_CASE("what a run does without is chosen by hand") {
  FakeGpu place;
  auto kernels = [&](const std::string& off) {
    const Outcome plan = place.run({"plan", "tiny.yaml", "--precision", "bf16-mixed"},
                                   {{"WEFT_CUDA_OFF", off}, {"WEFT_DEBUG", "2"}});
    REQUIRE_MESSAGE(plan.code == 0, plan.err);
    return plan.err;
  };
  const std::string all = kernels("");
  CHECK(has(all, "cublaslt:matmul.bias"));
  CHECK(has(all, "cast x"));
  CHECK(!has(kernels("joins"), "cast x"));
  CHECK(has(all, "cudnn:attention"));
  CHECK(!has(kernels("epilogues"), "cublaslt:matmul.bias"));
  CHECK(has(kernels("epilogues,padding"), "cudnn:attention"));
  CHECK(!has(kernels("padding,cudnn-attention"), "cudnn:attention"));
  CHECK(has(kernels("cudnn-conv,cudnn-attention"), "weft:attention"));
  // The files have a letter c for each copy beside the kernels, and one per launched graph.
  for (const std::string off : {"graphs", "joins", "side-copies", "read-only"}) {
    CAPTURE(off);
    const Outcome outcome = place.train({{"WEFT_CUDA_OFF", off},
                                         {"FAKE_CUDA_GRAPHS", place.path("graphs of " + off)},
                                         {"FAKE_CUDA_WORK", place.path("work of " + off)}},
                                        {"--overwrite"});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(fs::exists(place.path("graphs of " + off)) == (off != "graphs"));
    CHECK(has(place.read("work of " + off), "c") == (off != "side-copies"));
  }
  CHECK(fails_with(place.run({"list"}, {{"WEFT_CUDA_OFF", "graphs,speed"}}), usage,
                   "WEFT_CUDA_OFF is a list of some of "
                   "graphs,cudnn-attention,cudnn-conv,epilogues,joins,padding,read-only,side-"
                   "copies. Got 'speed'.") == "");
  CHECK(fails_with(place.run({"list"}, {{"WEFT_CUDA_ALLOW", "all"}}), usage,
                   "WEFT_CUDA_ALLOW is a list of some of nondeterministic. Got 'all'.") == "");
  CHECK(fails_with(place.run({"list"}, {{"WEFT_CUDA_SYNC", "2"}}), usage,
                   "WEFT_CUDA_SYNC is 0 to 1. Got 2.") == "");
}

TEST_CASE("convolutions are weft's own where cuDNN's are left out by hand") {
  FakeGpu place;
  auto kernels = [&](const std::string& off) {
    const Outcome bench = place.run({"bench", "mnist-conv", "--batch", "1", "--steps", "1",
                                     "--device", "cuda", "--precision", "bf16-mixed"},
                                    {{"WEFT_CUDA_OFF", off}, {"WEFT_DEBUG", "2"}});
    REQUIRE_MESSAGE(bench.code == 0, bench.err);
    return bench.err;
  };
  CHECK(has(kernels("cudnn-attention"), ": cudnn:conv"));
  const std::string without = kernels("cudnn-conv");
  CHECK(!has(without, ": cudnn:conv"));
  CHECK(has(without, ": loops:conv"));
}

TEST_CASE("loads of what no kernel writes are like all others where that is chosen by hand") {
  for (const std::string off : {"graphs", "read-only"}) {
    CAPTURE(off);
    FakeGpu place;
    const Outcome refused = place.train({{"WEFT_CUDA_OFF", off},
                                         {"FAKE_NVRTC_FAILS", "1"},
                                         {"WEFT_CACHE_DIR", place.path("cache")}});
    CHECK(refused.code == failed);
    size_t loads = 0;
    for (const auto& file : fs::directory_iterator(place.path("cache/refused"))) {
      const std::string source = place.read("cache/refused/" + file.path().filename().string());
      // The last definition is the effective one.
      const size_t last = source.rfind("#define READ_ONLY(at) ");
      REQUIRE(last != std::string::npos);
      const std::string holds = source.substr(last, source.find('\n', last) - last);
      CHECK(holds == (off == "read-only" ? "#define READ_ONLY(at) (*(at))"
                                         : "#define READ_ONLY(at) read_only(at)"));
      loads += lines_with(source.substr(last + holds.size()), "READ_ONLY(");
    }
    CHECK(loads > 0);
  }
}

TEST_CASE("the kernel after which a GPU is lost is named where each is waited for") {
  FakeGpu place;
  const Outcome outcome = place.train(
      {{"FAKE_CUDA_LOST_AFTER", "60"}, {"FAKE_CUDA_LOST_CODE", "716"}, {"WEFT_CUDA_SYNC", "1"}});
  CHECK(outcome.code == device);
  CHECK(has(outcome.err, "misaligned address (CUDA_ERROR_MISALIGNED_ADDRESS). Kernel "));
  CHECK(std::regex_search(
      outcome.err,
      std::regex(R"( Kernel \S+, \d+ of \d+, of \S+\. Hint: WEFT_CUDA_OFF turns off )")));
}

TEST_CASE("a kernel of a library that loses the GPU where it is tried is named, too") {
  FakeGpu place;
  Settings settings{{"FAKE_CUDA_LOST_AFTER", "0"}, {"FAKE_CUDA_LOST_CODE", "700"}};
  auto trained = [&] {
    return place.train(settings, {"--precision", "bf16-mixed", "--overwrite"});
  };
  CHECK(fails_with(trained(), device, "Hint: WEFT_CUDA_SYNC=1 names the kernel.") == "");
  settings["WEFT_CUDA_SYNC"] = "1";
  const Outcome named = trained();
  CHECK(named.code == device);
  CHECK(std::regex_search(
      named.err, std::regex(R"(\(CUDA_ERROR_ILLEGAL_ADDRESS\)\. Kernel (cublaslt|cudnn):\S+, )"
                            R"(\d+ of \d+, of \S+\. Hint: WEFT_CUDA_OFF turns off )")));
  settings["WEFT_TUNE"] = "1";  // fails while candidates are measured and others are compiled
  settings["WEFT_THREADS"] = "4";
  for (int i = 0; i < 8; ++i) {
    settings["FAKE_CUDA_LOST_AFTER"] = i % 2 == 0 ? "5" : "15";
    settings["WEFT_CACHE_DIR"] = place.path(fmt::format("cache{}", i));
    const Outcome measured = trained();
    CAPTURE(measured.err);
    CHECK(std::regex_search(measured.err, std::regex(R"( Kernel (cublaslt|cudnn):\S+, \d+ of )")));
  }
  CHECK(!fs::exists(place.path("runs/tiny/checkpoints/latest")));
}

TEST_CASE(
    "engines that are only nondeterministic are told apart, and taken where that is allowed") {
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

TEST_CASE("a GPU that is too old for CUDA's libraries is refused in a line") {
  FakeGpu place;
  CHECK(fails_with(place.train({{"FAKE_CUDA_CAPABILITY", "61"}, {"FAKE_CUDA_NAME", "Tesla P40"}}),
                   device,
                   "Tesla P40 has compute capability 6.1, weft needs 7.5 or later. Hint: train "
                   "with --device cpu.") == "");
}

TEST_CASE("without a driver of NVIDIA's a run ends at once, and says what to do") {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) {
    weft::testing::skipped("there is one among the system's libraries");
    return;
  }
  FakeGpu place;
  fs::create_directories(place.path("nothing"));
  CHECK(fails_with(place.train({{"WEFT_CUDA_PATH", place.path("nothing")}}), device,
                   "Hint: install NVIDIA's driver, or train with --device cpu.") == "");
  CHECK(!fs::exists(place.path("runs/tiny")));
}

TEST_CASE("no library is loaded from a folder that PATH names relative to the current one") {
  FakeGpu place;
  const std::string packages = "lib/python3.11/site-packages/nvidia";
  fs::create_directories(place.path(packages));
  for (const auto& entry : fs::directory_iterator(FakeGpu::libraries()))
    if (entry.path().filename().string().find(".so") != std::string::npos)
      fs::create_symlink(entry.path(),
                         place.path(packages) + "/" + entry.path().filename().string());
  auto devices = [&](const std::string& path) {
    return place.run({"devices"}, {{"PATH", path}, {"WEFT_CUDA_PATH", ""}}).out;
  };
  CHECK(has(devices(place.path("bin") + ":/usr/bin"), "H200"));
  for (const char* path : {"bin:/usr/bin", "./bin/", ".:/usr/bin", "/usr/bin:"})
    CHECK(!has(devices(path), "H200"));
}

TEST_CASE("a driver that is too old, or shows no GPU, ends a run at once") {
  FakeGpu place;
  CHECK(fails_with(place.train({{"FAKE_CUDA_VERSION", "11040"}}), device,
                   "the driver is too old: it supports CUDA 11.4, weft needs 12.0 or later. Hint: "
                   "update NVIDIA's driver, or train with --device cpu.") == "");
  CHECK(fails_with(place.train({{"FAKE_CUDA_DEVICES", "0"}}), device,
                   "no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE). Hint: train with "
                   "--device cpu.") == "");
  CHECK(!fs::exists(place.path("runs/tiny")));
}

TEST_CASE("a GPU that is lost in mid-run leaves a whole checkpoint, which is named") {
  for (const char* code : {"214", "700"}) {
    CAPTURE(code);
    FakeGpu place;
    std::string last;  // retried until it is lost between the second and the third checkpoint
    Outcome outcome;
    for (int launches = 200; last != "step-00000004" && launches < 2000; launches += 30) {
      outcome = place.train(
          {{"FAKE_CUDA_LOST_AFTER", std::to_string(launches)}, {"FAKE_CUDA_LOST_CODE", code}},
          {"--overwrite"});
      REQUIRE(outcome.code == device);
      const fs::path latest = place.path("runs/tiny/checkpoints/latest");
      last = fs::exists(latest) ? fs::canonical(latest).filename().string() : "";
    }
    CHECK(fails_with(outcome, device,
                     "runs/tiny/checkpoints/step-00000004 is intact. Hint: the same command with "
                     "--resume continues from there.") == "");
    CHECK(has(outcome.err, std::string(code) == "214" ? "CUDA_ERROR_ECC_UNCORRECTABLE"
                                                      : "CUDA_ERROR_ILLEGAL_ADDRESS"));
    CHECK(place.weft({"ckpt", "verify", "tiny"}).code == 0);
    CHECK(place.weft({"runs", "show", "tiny"}).code == 0);
    const Outcome resumed = place.train({}, {"--resume", "--json"});
    CHECK(json_of(resumed)["step"] == 6);
  }
}

TEST_CASE("a GPU that is lost before the first checkpoint says that there is none") {
  FakeGpu place;
  CHECK(fails_with(
            place.train({{"FAKE_CUDA_LOST_AFTER", "30"}}), device,
            "before its first checkpoint. Hint: the same command with --resume restarts it.") ==
        "");
  CHECK(place.train({}, {"--resume", "--json"}).code == 0);
}

TEST_CASE("a run goes on where its plan names algorithms that the library does not know") {
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

TEST_CASE("a plan that is larger than the GPU is refused before anything runs") {
  FakeGpu place;
  const Settings small{{"FAKE_CUDA_MEMORY", "8"}};
  const std::vector<std::string> large{"--model.config.hidden_size", "256"};
  const Outcome outcome = place.train(small, large);
  CHECK(fails_with(outcome, does_not_fit, "of the device's memory, which has 8 MiB") == "");
  CHECK(!fs::exists(place.path("runs/tiny/checkpoints")));
  std::vector<std::string> plan{"plan", "tiny.yaml"};
  plan.insert(plan.end(), large.begin(), large.end());
  CHECK(fails_with(place.run(plan, small), does_not_fit, "the plan does not fit: it takes ") == "");
}

TEST_CASE("memory that another process holds is named, and weft devices says who holds it") {
  FakeGpu place;
  const Settings held{{"FAKE_CUDA_MEMORY", "100"}, {"FAKE_CUDA_HELD", "95"}};
  const Outcome outcome = place.train(held, {"--model.config.hidden_size", "256"});
  CHECK(fails_with(outcome, does_not_fit, "which has 100 MiB, 5 of them free") == "");
  CHECK(has(place.run({"devices"}, held).out, "process 4242424 "));
  const Settings full{{"FAKE_CUDA_MEMORY", "1"}};  // no advice could fit
  CHECK(fails_with(place.train(full, {"--model.config.hidden_size", "256"}), does_not_fit,
                   "which has 1 MiB") == "");
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

TEST_CASE("a compiler that lacks a part of its package is named, and what brings it") {
  FakeGpu place;
  CHECK(
      fails_with(
          place.train({{"FAKE_NVRTC_FAILS", "2"}, {"WEFT_CACHE_DIR", place.path("cache")}}), device,
          "libnvrtc.so.13 is incomplete: nvrtc: error: failed to open libnvrtc-builtins.so.13.0. "
          "Hint: tools/setup.sh --cuda installs it; WEFT_CUDA_PATH selects another folder.") == "");
}

TEST_CASE("a plan for a named GPU needs none; running it needs that one") {
  FakeGpu place;
  const Settings a100{{"FAKE_CUDA_NAME", "NVIDIA A100-SXM4-80GB"}};
  CHECK(place.run({"plan", "tiny.yaml", "--on", "h200"}, a100).code == 0);
  CHECK(place.run({"plan", "tiny.yaml", "--on", "cuda:H200"}, a100).code == 0);
  CHECK(fails_with(place.train(a100, {"--device", "cuda:h200"}), device,
                   "the plan is for NVIDIA H200 (cuda:h200). The GPU here is NVIDIA "
                   "A100-SXM4-80GB. Hint: train with --device cuda.") == "");
  CHECK(place.train(a100, {"--device", "cuda:a100", "--json"}).code == 0);
  CHECK(fails_with(place.run({"plan", "tiny.yaml", "--device", "CUDA:H200"}), usage,
                   "train.device must be one of auto, cpu, cuda, ") == "");
  CHECK(fails_with(
            place.run({"plan", "tiny.yaml", "--device", "cuda:h20"}), usage,
            "Got 'cuda:h20'. Hint: weft list gpus names them all; cuda is the GPU here, cuda:1 the "
            "second one.") == "");
}

TEST_CASE("a GPU of several goes by its number") {
  FakeGpu place;
  const Settings two{{"FAKE_CUDA_DEVICES", "2"}};
  CHECK(place.train(two, {"--device", "cuda:1", "--json"}).code == 0);
  CHECK(fails_with(place.train(two, {"--device", "cuda:2", "--overwrite"}), device,
                   "no GPU has the number 2: the driver shows 2, numbered from 0.") == "");
  CHECK(place.run({"plan", "tiny.yaml", "--device", "cuda:2"}, two).code == 0);
}

// The simulated NVML counts GPUs in reverse.
TEST_CASE("weft devices names each GPU as --device takes it, whatever order NVML has") {
  FakeGpu place;
  const auto listed = [&](const Settings& settings) {
    return json_of(place.run({"devices", "--json"}, settings))["gpus"];
  };
  const nlohmann::json both = listed({{"FAKE_CUDA_DEVICES", "2"}});
  REQUIRE(both.size() == 2);
  CHECK(both[0]["device"] == "cuda:0");
  CHECK(both[0]["uuid"] == "GPU-abababab-abab-abab-abab-abababababab");
  CHECK(both[1]["device"] == "cuda:1");
  CHECK(both[1]["uuid"] == "GPU-acacacac-acac-acac-acac-acacacacacac");
  const Settings one_hidden{{"FAKE_CUDA_HIDDEN", "1"}};
  CHECK(listed(one_hidden)[0]["device"] == "cuda:0");
  CHECK(listed(one_hidden)[1]["device"].is_null());
  const std::string shown = place.run({"devices"}, one_hidden).out;
  CHECK(has(shown, "from CUDA, probably by CUDA_VISIBLE_DEVICES"));
  CHECK(has(shown, "cuda:0 "));
  CHECK(!has(shown, "cuda:1 "));
}

TEST_CASE("weft devices shows the GPU, or why there is none") {
  FakeGpu place;
  const nlohmann::json gpu = json_of(place.run({"devices", "--json"}))["gpus"][0];
  CHECK(gpu["name"] == "NVIDIA H200");
  CHECK(gpu["uuid"] == "GPU-abababab-abab-abab-abab-abababababab");
  CHECK(gpu["capability"] == "9.0");
  CHECK(gpu["memory"] == size_t{143000} << 20);
  CHECK(gpu["celsius"] == 41);
  CHECK(gpu["watt_limit"] == 700);
  CHECK(gpu["unusable"].is_null());
  CHECK(gpu["uncorrected_errors"] == 0);
  const std::string shown = place.run({"devices"}).out;
  CHECK(has(shown, "NVIDIA H200, compute capability 9.0, driver 580.95.05"));
  CHECK(has(shown, "1755 of 1980 MHz"));
  CHECK(has(shown, "123 W of 700 W, 41 °C, 37 % busy, slowed by: power limit"));
  CHECK(has(place.run({"devices"}, {{"FAKE_NVML_FAILS", "1"}}).out,
            "cuda: nvmlInit: Driver Not Loaded."));
  CHECK(has(place.run({"devices"}, {{"FAKE_CUDA_DEVICES", "0"}}).out,
            "cuda: the driver shows no GPU."));
}
