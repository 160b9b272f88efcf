// Tests files of tensors of which several processes each write a part.
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/memory/device_memory.h"
#include "weft/base/memory/storage.h"
#include "weft/io/safetensors.h"
#include "weft/ir/mesh.h"
#include "weft/ir/variable.h"
#include "weft/tensor/tensor.h"

using namespace weft;
using io::NamedBytes;

namespace {
// Processes is what each process writes of the same tensors.
using Processes = std::vector<std::vector<NamedBytes>>;

const Type stack_type{DType::f64, {6, 12, 18}};

// Returns the slices of a tensor of which this process has a part or all, by name.
std::vector<NamedBytes> named_slices(const NamedBytes& stack) {
  std::vector<NamedBytes> slices = io::slices_of(stack);
  for (size_t i = 0; i < slices.size(); ++i) slices[i].name += std::to_string(i);
  return slices;
}

// Returns the bytes of the parts that a rank has where the ranks share out an axis.
NamedBytes part_of(const NamedBytes& whole, int axis, int64_t rank, int64_t ranks,
                   std::vector<std::byte>& memory) {
  const Mesh mesh{.axes = {mesh_axis("dp", ranks, rank)}};
  NamedBytes part = whole;
  part.ranges = ranges_of(stack_type, {.splits = {{"dp", axis}}, .partial = {}}, mesh);
  for (const PartRange& range : part.ranges) {
    const auto from = whole.bytes.subspan(range.from, range.bytes);
    memory.insert(memory.end(), from.begin(), from.end());
  }
  part.bytes = memory;
  return part;
}

// FakeDevice is the memory of a device, which the host does not share.
class FakeDevice : public DeviceMemory {
 public:
  MemoryUse use() const override { return {}; }
  std::shared_ptr<Buffer> allocate(size_t bytes) override { return Buffer::allocate(bytes); }
  void write(std::byte* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void read(void* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { write(to, from, bytes); }
  std::unique_ptr<CopyStream> make_copy_stream(CopyDirection) override { return nullptr; }
  std::shared_ptr<Buffer> allocate_host(size_t bytes) override { return Buffer::allocate(bytes); }
  void finish() override {}
};

std::string written_by(const test::TemporaryFolder& folder, Processes processes) {
  for (size_t i = 0; i < processes.size(); ++i)
    io::leave_share(processes[i], {.rank = static_cast<int64_t>(i),
                                   .ranks = static_cast<int64_t>(processes.size())});
  io::write_shared_safetensors(folder.file("shared"), processes.front(), {},
                               [&](const std::string& unfinished) {
                                 for (const auto& tensors : processes)
                                   io::write_share(unfinished, tensors, {});
                               });
  return test::contents_of(folder.file("shared"));
}
}  // namespace

TEST_CASE("processes with parts of a stack write the file that one writes with its slices") {
  const test::TemporaryFolder folder;
  const auto count = static_cast<size_t>(stack_type.elements());
  std::vector<double> elements(count);
  for (size_t i = 0; i < count; ++i) elements[i] = static_cast<double>(i);
  for (const DType stored : {DType::f64, DType::f32}) {  // f32: elements are rounded
    NamedBytes whole{.name = "w",
                     .type = {stored, stack_type.shape},
                     .bytes = std::as_bytes(std::span(elements))};
    if (stored != stack_type.dtype) whole.from = stack_type.dtype;
    std::vector<NamedBytes> slices(6, whole);
    for (size_t i = 0; i < slices.size(); ++i) {
      slices[i].name += std::to_string(i);
      slices[i].type.shape = {12, 18};
      slices[i].bytes = std::as_bytes(std::span(elements).subspan(i * count / 6, count / 6));
    }
    io::write_safetensors(folder.file("alone"), slices);
    const std::string want = test::contents_of(folder.file("alone"));
    for (const int64_t ranks : {1, 2, 3, 6}) {
      CAPTURE(ranks);
      CHECK(written_by(folder, Processes(static_cast<size_t>(ranks), named_slices(whole))) == want);
      for (const int axis : {0, 1, 2}) {
        CAPTURE(axis);
        std::vector<std::vector<std::byte>> memory(static_cast<size_t>(ranks));
        Processes processes;
        for (int64_t rank = 0; rank < ranks; ++rank)
          processes.push_back(
              named_slices(part_of(whole, axis, rank, ranks, memory[static_cast<size_t>(rank)])));
        CHECK(written_by(folder, processes) == want);
      }
    }
  }
}

TEST_CASE("a process that has a part of a tensor does not write it as the whole") {
  const test::TemporaryFolder folder;
  const Variable weight("w", stack_type);
  const Mesh mesh{.axes = {mesh_axis("dp", 2, 0)}};
  lay_out(*weight.state(), {.splits = {{"dp", 0}}, .partial = {}}, mesh);
  CHECK(test::error_of([&] { io::save_safetensors(folder.file("w"), std::vector{weight}); }) ==
        "usage: [safetensors] this rank has a part of 'w'. Hint: return it from a step, which all "
        "ranks run.");
  CHECK(folder.entries() == 0);
}

TEST_CASE("a stack on a device is written by slices") {
  FakeDevice device;
  const Variable stack("w", {DType::i32, {3, 2}});
  for (size_t i = 0; i < 24; ++i) stack.bytes()[i] = static_cast<std::byte>(i);
  const test::TemporaryFolder folder;
  const auto written = [&] {
    const std::vector<NamedBytes> tensors = io::bytes_of(io::by_name(std::vector{stack}));
    io::write_safetensors(folder.file("w"), named_slices(tensors.front()));
    return test::contents_of(folder.file("w"));
  };
  const std::string want = written();
  stack.state()->storage->on(device);
  REQUIRE(stack.state()->storage->is_on_device());
  CHECK(written() == want);
}
