// Tests values offloaded to files: failures, and other readers.
#include <filesystem>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/full_disk.h"
#include "tests/support/offloaded.h"
#include "tests/support/values.h"
#include "weft/base/memory/file_range.h"
#include "weft/base/memory/memory.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;
using weft::test::FullDisk;
using weft::test::TemporaryFolder;

namespace {
constexpr int64_t width = 256;

// Computes w := w + x and returns the sum of the old w.
struct Sums {
  Variable w{"w", {DType::f32, {width, width}}};
  auto compiled(const Offload& offload) {
    return compile(
        [this](Tensor x) {
          Tensor old = w.value();
          w.assign(old + x);
          return sum(old);
        },
        {.device = "cpu", .offload = offload});
  }
};
const Tensor& one() {
  static const Tensor x = full({width, width}, 1.0).eval();
  return x;
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::failed);
    return error.what();
  }
  return "";
}
}  // namespace

TEST_CASE("an offloaded variable is read, assigned and stepped like any other") {
  Sums sums;
  auto step = sums.compiled(in_files({Category::parameter}));
  CHECK(step(one()).item() == 0);
  CHECK(sums.w.value().to_vector<float>()[7] == 1);
  CHECK(step(one()).item() == width * width);
  const Tensor kept = sums.w.value();
  sums.w.assign(full({width, width}, 5.0));
  CHECK(kept.to_vector<float>()[7] == 2);
  CHECK(step(one()).item() == 5 * width * width);
  sums.w.floats()[0] = 7;
  CHECK(step(one()).item() == 6 * width * width + 1);
}

TEST_CASE("a step compiled before a variable was offloaded finds its new residency") {
  Sums sums;
  auto in_memory = sums.compiled({});
  CHECK(in_memory(one()).item() == 0);
  auto in_file = sums.compiled(in_files({Category::parameter}));
  CHECK(in_file(one()).item() == width * width);
  CHECK(in_memory(one()).item() == 2 * width * width);
  CHECK(in_file(one()).item() == 3 * width * width);
}

TEST_CASE("every step compiled after a variable was offloaded fetches it") {
  Sums sums;
  auto in_file = sums.compiled(in_files({Category::parameter}));
  in_file(one());
  auto later = sums.compiled({});
  CHECK(later(one()).item() == width * width);
  const std::vector<Type> types{one().type()};
  for (const Slot& slot : later.prepare(types).plan().slots) CHECK(slot.space != Space::state);
}

TEST_CASE("an offloading step finds its files after another variable is offloaded") {
  Sums here, elsewhere;
  auto step = here.compiled(in_files({Category::parameter}));
  CHECK(step(one()).item() == 0);
  elsewhere.compiled(in_files({Category::parameter}))(one());
  for (int runs = 1; runs <= 3; ++runs) CHECK(step(one()).item() == runs * width * width);
}

TEST_CASE("an offload file leaves nothing in its folder") {
  TemporaryFolder folder;
  Sums sums;
  Offload offload = in_files({Category::parameter});
  offload.folder = folder.path();
  auto step = sums.compiled(offload);
  step(one());
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("an offloaded variable takes no memory of the process") {
  constexpr size_t bytes = size_t{64} << 20;
  FileRange range(std::filesystem::temp_directory_path().string(), bytes);
  auto mapped = range.map();
  const size_t before = resident_memory();
  for (size_t at = 0; at < bytes; at += 4096) mapped->data[at] = std::byte{1};
  CHECK(resident_memory() > before + bytes / 2);
  mapped->release(0, bytes);
  if (thread_sanitizer)
    skipped("what is resident: sanitizers of threads keep memory for all that was written");
  else
    CHECK(resident_memory() < before + bytes / 4);
  CHECK(mapped->data[4096] == std::byte{1});
}

TEST_CASE("a missing or unwritable offload folder is named") {
  Sums sums;
  for (const std::string folder : {"/nowhere/at/all", "/proc"}) {
    Offload offload = in_files({Category::parameter});
    offload.folder = folder;
    auto step = sums.compiled(offload);
    const std::string text = error_of([&] { step(one()); });
    CHECK(text.starts_with("[offload] " + folder + " cannot be written for 0.2 MiB: "));
  }
}

TEST_CASE("a disk without room is detected before the first step") {
  const std::string folder = std::filesystem::temp_directory_path().string();
  const auto space = std::filesystem::space(folder);
  const FullDisk limit(size_t{64} << 10);
  // The check runs before any allocation, which the limit would refuse.
  const std::string text = error_of([&] { FileRange(folder, 2 * space.free); });
  CHECK(text.starts_with("[offload] " + folder + " has no room for "));
  CHECK(text.find("No space left on device") != std::string::npos);
  Sums sums;
  auto step = sums.compiled(in_files({Category::parameter}));
  CHECK(error_of([&] { step(one()); }).find(" has no room for 0.2 MiB: File too large.") !=
        std::string::npos);
}

TEST_CASE("a failed write during a step ends the step with one line") {
  Sums sums;
  auto step = sums.compiled(in_files({Category::parameter}));
  step(one());
  {
    FullDisk limit(size_t{64} << 10);
    CHECK(error_of([&] { step(one()); }).find(" cannot be written for 0.2 MiB: File too large.") !=
          std::string::npos);
  }
  sums.w.assign(full({width, width}, 2.0));
  CHECK(step(one()).item() == 2 * width * width);
}
