// Tests kernel selection: a measurement on this machine, or the choice of an earlier run, decides.
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "tests/backends/kernel_case.h"
#include "weft/backends/cpu/cpu.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {
namespace fs = std::filesystem;

// Redirects the cache to a temporary folder; the destructor restores the environment.
class Cache {
 public:
  explicit Cache(bool tune) : folder_(fs::temp_directory_path() / "weft-selection-XXXXXX") {
    std::string name = folder_;
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    setenv("WEFT_CACHE_DIR", name.c_str(), 1);
    if (tune) setenv("WEFT_TUNE", "1", 1);
  }
  ~Cache() {
    unsetenv("WEFT_TUNE");
    before_.empty() ? unsetenv("WEFT_CACHE_DIR") : setenv("WEFT_CACHE_DIR", before_.c_str(), 1);
    fs::remove_all(folder_);
  }
  // Returns the only file of the selection cache.
  fs::path file() const { return *fs::directory_iterator(folder_ / "selection"); }

 private:
  std::string before_ = getenv("WEFT_CACHE_DIR") == nullptr ? "" : getenv("WEFT_CACHE_DIR");
  fs::path folder_;
};

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Placement> dense_operands(const Value& node) {
  std::vector<Placement> operands;
  for (const Value& input : node->inputs)
    operands.push_back({.slot = -1, .offset = 0, .strides = row_major_strides(input.shape())});
  return operands;
}
// Returns a convolution with several kernels on any instruction set: Winograd and im2col.
Value convolution() {
  return conv(input({DType::f32, {2, 16, 9, 9}}, 0), input({DType::f32, {16, 16, 3, 3}}, 1), {},
              {.padding = {1, 1}});
}

TEST_CASE("a tuned kernel choice is cached for the machine and reused without measuring") {
  Cache cache(/*tune=*/true);
  const Value node = convolution();
  const std::string measured =
      cpu_library()->kernels().choose(*node.node(), dense_operands(node)).value().kernel;
  const std::string line = text_of(cache.file());
  CHECK(line.starts_with(measured + "\tconv "));
  CHECK(line.ends_with("\n"));
  unsetenv("WEFT_TUNE");
  REQUIRE(kernels_of(node).size() > 1);
  for (const std::string& other : kernels_of(node)) {
    std::ofstream(cache.file()) << other << line.substr(line.find('\t'));
    CHECK(cpu_library()->kernels().choose(*node.node(), dense_operands(node)).value().kernel ==
          other);
  }
}

TEST_CASE("unknown, truncated or foreign cache entries are ignored") {
  const Value node = convolution();
  const std::string rule = KernelCase(node).choice().kernel;
  Cache cache(/*tune=*/true);
  cpu_library()->kernels().choose(*node.node(), dense_operands(node));
  const std::string line = text_of(cache.file());
  unsetenv("WEFT_TUNE");
  for (const std::string& text :
       {std::string(), std::string("\t\t\n\n"), line.substr(0, line.size() / 2),
        "no:such" + line.substr(line.find('\t')), std::string(4096, '\xff')}) {
    std::ofstream(cache.file()) << text;
    CHECK(cpu_library()->kernels().choose(*node.node(), dense_operands(node)).value().kernel ==
          rule);
  }
}

TEST_CASE("a library replays the kernel choices of another library") {
  const Value node = convolution();
  for (const std::string& other : kernels_of(node)) {
    std::unique_ptr<KernelLibrary> first = cpu_library(), next = cpu_library();
    first->kernels().choose(*node.node(), dense_operands(node));
    std::map<std::string, std::string> kernels = first->kernels().selection();
    REQUIRE(kernels.size() == 1);
    kernels.begin()->second = other;
    next->kernels().prefer(kernels);
    CHECK(next->kernels().choose(*node.node(), dense_operands(node)).value().kernel == other);
    CHECK(next->kernels().selection() == kernels);
  }
}
}  // namespace
}  // namespace weft::testing
