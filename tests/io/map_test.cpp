// Tests variables that are views of a mapped file: they take no memory, and writing them changes no
// file.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/io/helpers.h"
#include "tests/io/safetensors_file.h"
#include "tests/support/skip.h"
#include "weft/base/memory/memory.h"
#include "weft/base/memory/storage.h"
#include "weft/io/load.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::test;

namespace {
using Doubles = std::vector<double>;

// Returns the bytes before the elements of a file of one tensor "w"; their number has this
// remainder by 64.
std::string header_of(const Type& type, size_t remainder) {
  const Shape& shape = type.shape;
  std::string header =
      fmt::format(R"({{"w":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})",
                  info(type.dtype).safetensors,
                  fmt::join(std::vector<int64_t>(shape.begin(), shape.end()), ","), type.bytes());
  while ((8 + header.size()) % 64 != remainder) header += ' ';
  return safetensors_file(header, "");
}
// Writes a file of one tensor "w" with the elements 0, 1, 2, ..., whose data begins at a byte with
// this remainder by 64.
std::string file_of(const TemporaryFolder& folder, const Shape& shape, size_t remainder,
                    DType dtype = DType::f32) {
  const Type type{dtype, shape};
  std::string bytes = header_of(type, remainder);
  std::vector<std::byte> elements(type.bytes());
  for (int64_t i = 0; i < type.elements(); ++i)
    store(elements.data(), dtype, i, static_cast<double>(i % 100));
  bytes.append(reinterpret_cast<const char*>(elements.data()), type.bytes());
  return folder.file("m.safetensors", bytes);
}

uintptr_t address_of(const Variable& variable) {
  return reinterpret_cast<uintptr_t>(variable.state()->storage->on_host().data);
}

// Returns the process's bytes of memory that no file backs (Linux, proc_pid_smaps(5)).
int64_t anonymous_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);)
    if (line.starts_with("Anonymous:")) return std::stoll(line.substr(10)) * 1024;
  FAIL("no smaps_rollup");
  return 0;
}
}  // namespace

TEST_CASE("a mapped variable has the file's elements and a written one leaves the file alone") {
  const TemporaryFolder folder;
  const std::string path = file_of(folder, {2, 3}, 0), before = contents_of(path);
  const std::vector model{Variable("w", {DType::f32, {2, 3}})};
  const io::Loaded found = io::load_into(path, model, {.map = true});
  CHECK(found.mapped_bytes == 24);
  CHECK(found.copied_bytes == 0);
  CHECK(model[0].to_doubles() == Doubles{0, 1, 2, 3, 4, 5});
  CHECK(model[0].state()->storage->is_mapped());
  model[0].floats()[1] = 7;  // whoever asks for the elements may write them all
  CHECK(!model[0].state()->storage->is_mapped());
  CHECK(model[0].to_doubles() == Doubles{0, 7, 2, 3, 4, 5});
  CHECK(contents_of(path) == before);
  const std::vector again{Variable("w", {DType::f32, {2, 3}})};
  io::load_into(path, again, {.map = true});
  CHECK(again[0].to_doubles() == Doubles{0, 1, 2, 3, 4, 5});
}

TEST_CASE("a value that was read before keeps its elements when its variable is mapped") {
  const TemporaryFolder folder;
  const std::vector model{Variable("w", {DType::f32, {3}})};
  model[0].assign(full({3}, 5));
  const Tensor before = model[0].value();
  io::load_into(file_of(folder, {3}, 0), model, {.map = true});
  CHECK(before.to_doubles() == Doubles{5, 5, 5});
  CHECK(model[0].to_doubles() == Doubles{0, 1, 2});
}

TEST_CASE("mapped elements outlive the file's name and what wrote it") {
  const TemporaryFolder folder;
  const std::string path = file_of(folder, {3}, 8);
  const std::vector model{Variable("w", {DType::f32, {3}})};
  io::load_into(path, model, {.map = true});
  io::save_safetensors(path, std::vector{Variable("w", {DType::f32, {3}})});  // replaces it
  std::filesystem::remove(path);
  CHECK(model[0].to_doubles() == Doubles{0, 1, 2});
}

TEST_CASE("tensors that the file does not align to their elements, or of other types, are copied") {
  const TemporaryFolder folder;
  for (size_t remainder : {1, 2, 7, 62}) {
    const std::vector model{Variable("w", {DType::f32, {3}})};
    const io::Loaded found = io::load_into(file_of(folder, {3}, remainder), model, {.map = true});
    CHECK(found.copied_bytes == 12);
    CHECK(found.mapped_bytes == 0);
    CHECK(model[0].to_doubles() == Doubles{0, 1, 2});
  }
  const std::vector narrow{Variable("w", {DType::bf16, {3}})};
  const std::string path = file_of(folder, {3}, 8);
  CHECK(io::load_into(path, narrow, {.cast = true, .map = true}).copied_bytes == 6);
  CHECK(narrow[0].to_doubles() == Doubles{0, 1, 2});
  const std::string matrix = file_of(folder, {2, 3}, 8);
  const std::vector turned{Variable("w", {DType::f32, {3, 2}})};
  CHECK(io::load_into(matrix, turned, {.transpose = {"w"}, .map = true}).copied_bytes == 24);
  CHECK(turned[0].to_doubles() == Doubles{0, 3, 1, 4, 2, 5});
}

// Published files align tensors to 8 bytes, kernels use vectors of up to 64.
TEST_CASE("steps read mapped weights at every alignment to the bits of copied ones") {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (size_t remainder : {0, 4, 8, 24, 60}) {
      CAPTURE(remainder);
      CAPTURE(name(dtype));
      const std::string path = file_of(folder, {96, 80}, remainder, dtype);
      std::vector<double> results[2];
      for (const bool map : {false, true}) {
        const std::vector model{Variable("w", {dtype, {96, 80}})};
        const Variable& w = model[0];
        const io::Loaded found = io::load_into(path, model, {.map = map});
        CHECK(found.mapped_bytes == (map ? w.type().bytes() : 0));
        auto step = compile(
            [&](Tensor x) {
              return concat({matmul(x, w), exp(w[0].reshape({1, 80}) * 1e-3),
                             sum(w * 1e-2, 0).reshape({1, 80}), matmul(x[0].reshape({1, 96}), w)},
                            0);
            },
            {.device = "cpu"});
        results[map] = step(full({5, 96}, 0.5, dtype)).to_doubles();
        if (map) CHECK(address_of(w) % 64 == remainder);  // nothing has copied it
      }
      CHECK(results[0] == results[1]);
    }
}

TEST_CASE("a step that assigns mapped weights trains them and leaves the file alone") {
  const TemporaryFolder folder;
  for (size_t remainder : {0, 8}) {
    const std::string path = file_of(folder, {64, 64}, remainder), before = contents_of(path);
    const std::vector model{Variable("w", {DType::f32, {64, 64}})};
    const Variable& w = model[0];
    io::load_into(path, model, {.map = true});
    auto step = compile(
        [&](Tensor x) {
          const Tensor old = w;
          w.assign(old + x);
          return sum(old);
        },
        {.device = "cpu"});
    const Tensor one = full({64, 64}, 1.0).eval();
    const double sum = step(one).item();
    CHECK(step(one).item() == sum + 64 * 64);
    CHECK(w.to_doubles()[5] == 7);
    CHECK(contents_of(path) == before);
  }
}

TEST_CASE("mapping takes no memory, also when the weights are read") {
  constexpr int64_t rows = 8192, columns = 2048, bytes = rows * columns * 4;  // 64 MiB
  const TemporaryFolder folder;
  const std::string path = file_of(folder, {rows, columns}, 8);
  const std::vector model{Variable("w", {DType::f32, {rows, columns}})};
  auto step = compile([&](Tensor x) { return sum(x * model[0]); }, {.device = "cpu"});
  const Tensor half = full({columns}, 0.5).eval();
  io::load_into(path, model);
  const double expected = step(half).item();
  int64_t before = anonymous_bytes();
  io::load_into(path, model, {.map = true});  // gives the copy back
  CHECK(anonymous_bytes() < before - bytes * 9 / 10);
  CHECK(step(half).item() == expected);
  CHECK(anonymous_bytes() < before - bytes * 9 / 10);
  before = anonymous_bytes();
  io::load_into(path, model);
  CHECK(anonymous_bytes() > before + bytes * 9 / 10);
}

TEST_CASE("mapped weights may be larger than the memory, unless a step writes them") {
  rlimit data{};
  if (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur != RLIM_INFINITY)
    return testing::skipped("a limit of data counts all that is mapped and may be written");
  const TemporaryFolder folder;
  const auto rows = static_cast<int64_t>(machine_memory() / 128);
  const Type type{DType::f32, {rows, 64}};  // twice the memory, in a file without blocks
  const std::string header = header_of(type, 0), path = folder.file("m.safetensors", header);
  std::filesystem::resize_file(path, header.size() + type.bytes());
  const std::vector model{Variable("w", type)};
  const Variable& w = model[0];
  CHECK(io::load_into(path, model, {.map = true}).mapped_bytes == type.bytes());
  auto read = compile([&](Tensor at) { return sum(gather(w, at, 0)); }, {.device = "cpu"});
  CHECK(read(tensor({int64_t{0}, rows - 1}, {2})).item() == 0);
  auto train = compile([&](Tensor x) { w.assign(w + x); }, {.device = "cpu"});
  CHECK_THROWS_WITH_AS(train(full({64}, 1.0)), doctest::Contains("the plan does not fit: "), Error);
}
