// Runs cases of the onnx package's backend suite that tools/onnx_cases.py wrote to the folder
// ONNX_CASES: each a folder with model.onnx, input_N.pb and output_N.pb.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/onnx/compare.h"
#include "tests/support/part.h"
#include "tests/support/skip.h"
#include "weft/onnx/net/runner.h"

using namespace weft;
namespace fs = std::filesystem;

namespace {
std::vector<Tensor> tensors(const fs::path& folder, const char* kind) {
  std::vector<Tensor> all;
  for (int i = 0;; ++i) {
    const fs::path file = folder / fmt::format("{}_{}.pb", kind, i);
    if (!fs::exists(file)) return all;
    all.push_back(onnx::read_tensor(file.string()));
  }
}

Tolerance tolerance_of(const fs::path& folder) {
  Tolerance tolerance;
  std::ifstream(folder / "tolerance") >> tolerance.relative >> tolerance.absolute;
  return tolerance;
}

std::string run_case(const fs::path& folder, const std::string& device) {
  const onnx::Net net(onnx::read((folder / "model.onnx").string()));
  const std::vector<Tensor> inputs = tensors(folder, "input"), expected = tensors(folder, "output");
  if (inputs.size() != net.inputs().size())
    return fmt::format("{} inputs for {}", inputs.size(), net.inputs().size());
  onnx::Runner runner(net, {.mode = Mode::eval, .device = device});
  const std::span<const Tensor> results = runner.run(inputs);
  if (results.size() != expected.size())
    return fmt::format("{} outputs for {}", results.size(), expected.size());
  const Tolerance tolerance = tolerance_of(folder);
  for (size_t i = 0; i < results.size(); ++i)
    if (std::string what = difference(results[i].eval(), expected[i], tolerance); !what.empty())
      return fmt::format("output {}: {}", i, what);
  return "";
}
}  // namespace

TEST_SUITE("slow onnx") {
  TEST_CASE("cases of the onnx package's suite give its outputs") {
    const char* folder = std::getenv("ONNX_CASES");
    if (folder == nullptr) {
      testing::skipped("ONNX_CASES names no folder (make test-onnx)");
      return;
    }
    const char* backend = std::getenv("BACKEND");
    std::vector<fs::path> cases;
    for (const auto& entry : fs::directory_iterator(folder))
      if (fs::exists(entry.path() / "model.onnx")) cases.push_back(entry.path());
    std::ranges::sort(cases);
    // Neighbours are forms of one operator, so that each part has some of every operator.
    size_t next = 0;
    std::erase_if(cases, [&](const fs::path&) { return !testing::in_part(next++); });
    size_t passed = 0;
    for (const fs::path& each : cases) {
      std::string what;
      try {
        what = run_case(each, backend == nullptr ? "cpu" : backend);
      } catch (const std::exception& error) {
        what = error.what();
      }
      passed += what.empty();
      const std::string message = fmt::format("{}: {}", each.filename().string(), what);
      CHECK_MESSAGE(what.empty(), message);
    }
    MESSAGE(fmt::format("{} of {} cases passed", passed, cases.size()));
    CHECK(cases.size() > 0);
  }
}
