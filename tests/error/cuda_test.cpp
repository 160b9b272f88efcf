// Tests errors of NVIDIA GPUs and their driver, on a simulated one (tests/fake_cuda/fake.h).
#include <dlfcn.h>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/error/cuda_refusals.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/skip.h"

using namespace weft::test;

TEST_CASE("a run trains on a GPU, logs its power and temperature and reports its energy") {
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

TEST_CASE("a step stays one CUDA graph while losses are read and checkpoints written") {
  FakeGpu place;
  for (const char* precision : {"fp32", "fp16-mixed"}) {
    const std::string graphs = place.path(precision);
    const Outcome outcome = place.train({{"FAKE_CUDA_GRAPHS", graphs}},
                                        {"--precision", precision, "--steps", "20", "--overwrite"});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(place.read(precision).size() == 19);  // all but the first, which loads modules
  }
}

TEST_CASE("a step that CUDA cannot capture is launched kernel by kernel with one warning") {
  const std::pair<const char*, const char*> failures[] = {
      {"1", "At or before kernel cublaslt:matmul, 5 of "},
      {"2",
       "cuStreamEndCapture: operation failed due to a previous error during capture "
       "(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED). The "},
      {"3", "the GPU's memory is exhausted (cuGraphInstantiate)."}};
  for (const auto& [how, said] : failures) {
    CAPTURE(how);
    FakeGpu place;
    const Outcome outcome =
        place.train({{"FAKE_CUDA_CAPTURE_FAILS", how}, {"FAKE_CUDA_GRAPHS", place.path("graphs")}},
                    {"--data.val_split", "0.2"});
    CHECK(outcome.code == not_finite);  // the evaluation's loss: no kernel computes
    CHECK(lines_with(outcome.err, "weft: warning: ") == 1);
    CHECK_MESSAGE(has(outcome.err, said), outcome.err);
    CHECK(has(outcome.err,
              "The step's kernels cannot be captured as a CUDA graph: they are launched one by "
              "one, which may be slower."));
    CHECK(lines_with(place.read("runs/tiny/log.jsonl"), "\"loss\"") == 6);
    CHECK(!fs::exists(place.path("graphs")));
  }
}

TEST_CASE("WEFT_CUDA_OFF disables features one by one") {
  FakeGpu place;
  auto kernels = [&](const std::string& off) {
    const Outcome plan = place.run({"plan", "tiny.yaml", "--precision", "bf16-mixed"},
                                   {{"WEFT_CUDA_OFF", off}, {"WEFT_DEBUG", "2"}});
    REQUIRE_MESSAGE(plan.code == 0, plan.err);
    return plan.err;
  };
  const std::string all = kernels("");
  CHECK(has(all, "cublaslt:matmul.bias"));
  CHECK(has(all, "mul.mul.mul.mul+12 x5("));  // AdamW of the matrices of one shape
  CHECK(!has(kernels("joins"), "mul.mul.mul.mul+12 x"));
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

TEST_CASE("WEFT_CUDA_OFF replaces cuDNN's convolutions by weft's kernels") {
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

TEST_CASE("WEFT_CUDA_OFF=read-only disables read-only loads") {
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

TEST_CASE("WEFT_CUDA_SYNC names the kernel after which a GPU was lost") {
  FakeGpu place;
  const Outcome outcome = place.train(
      {{"FAKE_CUDA_LOST_AFTER", "60"}, {"FAKE_CUDA_LOST_CODE", "716"}, {"WEFT_CUDA_SYNC", "1"}});
  CHECK(outcome.code == device_code);
  CHECK(has(outcome.err, "misaligned address (CUDA_ERROR_MISALIGNED_ADDRESS). Kernel "));
  CHECK(std::regex_search(
      outcome.err,
      std::regex(R"( Kernel \S+, \d+ of \d+, of \S+\. Hint: WEFT_CUDA_OFF turns off )")));
}

TEST_CASE("WEFT_CUDA_SYNC names a library's kernel that loses the GPU while it is tried") {
  FakeGpu place;
  Settings settings{{"FAKE_CUDA_LOST_AFTER", "0"}, {"FAKE_CUDA_LOST_CODE", "700"}};
  auto trained = [&] {
    return place.train(settings, {"--precision", "bf16-mixed", "--overwrite"});
  };
  CHECK(fails_with(trained(), device_code, "Hint: WEFT_CUDA_SYNC=1 names the kernel.") == "");
  settings["WEFT_CUDA_SYNC"] = "1";
  const Outcome named = trained();
  CHECK(named.code == device_code);
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

TEST_CASE("a GPU too old for CUDA's libraries is refused in one line") {
  FakeGpu place;
  CHECK(fails_with(place.train({{"FAKE_CUDA_CAPABILITY", "61"}, {"FAKE_CUDA_NAME", "Tesla P40"}}),
                   device_code,
                   "Tesla P40 has compute capability 6.1, weft needs 7.5 or later. Hint: train "
                   "with --device cpu.") == "");
}

TEST_CASE("a run without NVIDIA's driver ends at once with a hint") {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) {
    weft::testing::skipped("there is one among the system's libraries");
    return;
  }
  FakeGpu place;
  fs::create_directories(place.path("nothing"));
  CHECK(fails_with(place.train({{"WEFT_CUDA_PATH", place.path("nothing")}}), device_code,
                   "Hint: install NVIDIA's driver, or train with --device cpu.") == "");
  CHECK(!fs::exists(place.path("runs/tiny")));
}

TEST_CASE("no library is loaded from a relative folder of PATH") {
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

TEST_CASE("an old driver and a driver without GPUs end a run at once") {
  FakeGpu place;
  CHECK(fails_with(place.train({{"FAKE_CUDA_VERSION", "11040"}}), device_code,
                   "the driver is too old: it supports CUDA 11.4, weft needs 12.0 or later. Hint: "
                   "update NVIDIA's driver, or train with --device cpu.") == "");
  CHECK(fails_with(place.train({{"FAKE_CUDA_DEVICES", "0"}}), device_code,
                   "no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE). Hint: train with "
                   "--device cpu.") == "");
  CHECK(!fs::exists(place.path("runs/tiny")));
}

TEST_CASE("a GPU lost in mid-run leaves a complete checkpoint, which is named") {
  for (const char* code : {"214", "700"}) {
    CAPTURE(code);
    FakeGpu place;
    std::string last;  // retried until it is lost between the second and the third checkpoint
    Outcome outcome;
    for (int launches = 200; last != "step-00000004" && launches < 2000; launches += 30) {
      outcome = place.train(
          {{"FAKE_CUDA_LOST_AFTER", std::to_string(launches)}, {"FAKE_CUDA_LOST_CODE", code}},
          {"--overwrite"});
      REQUIRE(outcome.code == device_code);
      const fs::path latest = place.path("runs/tiny/checkpoints/latest");
      last = fs::exists(latest) ? fs::canonical(latest).filename().string() : "";
    }
    CHECK(fails_with(outcome, device_code,
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

TEST_CASE("a GPU lost before the first checkpoint says that there is none") {
  FakeGpu place;
  CHECK(fails_with(
            place.train({{"FAKE_CUDA_LOST_AFTER", "30"}}), device_code,
            "before its first checkpoint. Hint: the same command with --resume restarts it.") ==
        "");
  CHECK(place.train({}, {"--resume", "--json"}).code == 0);
}

TEST_CASE("a plan larger than the GPU is refused before the run starts") {
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

TEST_CASE("memory held by another process is named and weft devices names the process") {
  FakeGpu place;
  const Settings held{{"FAKE_CUDA_MEMORY", "100"}, {"FAKE_CUDA_HELD", "95"}};
  const Outcome outcome = place.train(held, {"--model.config.hidden_size", "256"});
  CHECK(fails_with(outcome, does_not_fit, "which has 100 MiB, 5 of them free") == "");
  CHECK(has(place.run({"devices"}, held).out, "process 4242424 "));
  const Settings full{{"FAKE_CUDA_MEMORY", "1"}};  // no advice could fit
  CHECK(fails_with(place.train(full, {"--model.config.hidden_size", "256"}), does_not_fit,
                   "which has 1 MiB") == "");
}

TEST_CASE("a plan for a named GPU needs none and running it needs that GPU") {
  FakeGpu place;
  const Settings a100{{"FAKE_CUDA_NAME", "NVIDIA A100-SXM4-80GB"}};
  CHECK(place.run({"plan", "tiny.yaml", "--on", "h200"}, a100).code == 0);
  CHECK(place.run({"plan", "tiny.yaml", "--on", "cuda:H200"}, a100).code == 0);
  CHECK(fails_with(place.train(a100, {"--device", "cuda:h200"}), device_code,
                   "the plan is for NVIDIA H200 (cuda:h200). The GPU here is NVIDIA "
                   "A100-SXM4-80GB. Hint: train with --device cuda.") == "");
  CHECK(place.train(a100, {"--device", "cuda:a100", "--json"}).code == 0);
  CHECK(place.run({"plan", "tiny.yaml", "--device", "CUDA:H200"}, a100).code == 0);
  CHECK(fails_with(place.run({"plan", "tiny.yaml", "--device", "gpu"}), usage,
                   "train.device must be one of auto, cpu, cuda, ") == "");
  CHECK(fails_with(
            place.run({"plan", "tiny.yaml", "--device", "cuda:h20"}), usage,
            "Got 'cuda:h20'. Hint: weft list gpus names them all; cuda is the GPU here, cuda:1 the "
            "second one.") == "");
}

TEST_CASE("one of several GPUs is selected by its number") {
  FakeGpu place;
  const Settings two{{"FAKE_CUDA_DEVICES", "2"}};
  CHECK(place.train(two, {"--device", "cuda:1", "--json"}).code == 0);
  CHECK(fails_with(place.train(two, {"--device", "cuda:2", "--overwrite"}), device_code,
                   "no GPU has the number 2: the driver shows 2, numbered from 0.") == "");
  CHECK(place.run({"plan", "tiny.yaml", "--device", "cuda:2"}, two).code == 0);
}

// The simulated NVML counts GPUs in reverse.
TEST_CASE("weft devices names each GPU as --device takes it whatever the order of NVML") {
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

TEST_CASE("weft devices shows the GPU or the reason why there is none") {
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
