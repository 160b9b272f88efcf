// Makes and changes lists of the bytes that a file of named tensors gets.
#include <algorithm>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/memory/storage.h"
#include "weft/io/files.h"
#include "weft/io/safetensors.h"

namespace weft::io {
namespace {
constexpr size_t piece_bytes = size_t{16} << 20;  // that are copied before their pages are released
}  // namespace

NamedVariables by_name(std::span<const Variable> variables) {
  NamedVariables named;
  for (const Variable& variable : variables) named.emplace_back(variable.name(), variable);
  return named;
}

std::vector<NamedBytes> bytes_of(const NamedVariables& variables) {
  std::vector<NamedBytes> tensors;
  for (const auto& [name, variable] : variables) {
    Storage& storage = *variable.state()->storage;
    if (storage.is_on_device())
      tensors.push_back({.name = name, .type = variable.type(), .storage = &storage});
    else
      tensors.push_back({name,
                         variable.type(),
                         {storage.on_host().data, storage.bytes()},
                         storage.buffer().get(),
                         nullptr,
                         {},
                         variable.state()->ranges});
  }
  return tensors;
}

std::vector<NamedBytes> slices_of(const NamedBytes& stack) {
  const Shape& shape = stack.type.shape;
  const bool is_part = !stack.ranges.empty();
  NamedBytes empty = stack;
  std::span<const std::byte> held = stack.bytes;
  if (stack.storage != nullptr) {
    // Views need the elements on the host, from where the next step takes them.
    empty.buffer = &std::exchange(empty.storage, nullptr)->on_host();
    held = {empty.buffer->data, empty.buffer->bytes};
  }
  empty.type.shape = Shape(std::span(shape.begin() + 1, shape.end()));
  empty.bytes = {};
  empty.ranges.clear();
  std::vector<NamedBytes> slices(static_cast<size_t>(shape[0]), empty);
  const size_t size = Type{stack.from.value_or(stack.type.dtype), empty.type.shape}.bytes();
  const std::vector<PartRange> all{{0, held.size()}};
  size_t read = 0;
  for (const PartRange& range : is_part ? stack.ranges : all)
    for (size_t at = range.from, end = range.from + range.bytes; at < end;) {
      NamedBytes& slice = slices[at / size];
      const size_t from = at % size, bytes = std::min(size - from, end - at);
      const size_t before = slice.bytes.size();
      slice.bytes = held.subspan(read - before, before + bytes);
      if (is_part) slice.ranges.push_back({from, bytes});
      read += bytes;
      at += bytes;
    }
  for (NamedBytes& slice : slices)
    if (is_part && slice.ranges.empty()) slice.ranges = {{0, 0}};  // else it would be whole
  return slices;
}

void leave_share(std::vector<NamedBytes>& tensors, const Share& share) {
  int64_t small = 0;  // tensors, which the processes take in turns
  for (NamedBytes& tensor : tensors) {
    if (!tensor.ranges.empty()) continue;
    const size_t size = size_of(tensor.from.value_or(tensor.type.dtype));
    auto part = [&, count = static_cast<int64_t>(tensor.bytes.size() / size)](int64_t number) {
      return static_cast<size_t>(count * number / share.ranks) * size;
    };
    size_t from = 0, bytes = tensor.bytes.size();
    if (bytes >= least_divided) {
      from = part(share.rank);
      bytes = part(share.rank + 1) - from;
    } else if (small++ % share.ranks != share.rank) {
      bytes = 0;
    }
    tensor.ranges = {{from, bytes}};
    tensor.bytes = tensor.bytes.subspan(from, bytes);
  }
}

std::span<std::byte> copy_tensors(std::vector<NamedBytes>& tensors, std::span<std::byte> memory) {
  for (NamedBytes& tensor : tensors) {
    const size_t bytes = held_bytes({&tensor, 1});
    WEFT_ASSERT(bytes <= memory.size(), "no room for the {} bytes of '{}'", bytes, tensor.name);
    const std::span<std::byte> copy = memory.first(bytes);
    if (tensor.storage != nullptr) tensor.storage->copy_to(copy.data());
    for (size_t at = 0; at < tensor.bytes.size(); at += piece_bytes) {
      const std::span<const std::byte> piece =
          tensor.bytes.subspan(at, std::min(piece_bytes, tensor.bytes.size() - at));
      copy_bytes(copy.subspan(at, piece.size()), piece);
      if (tensor.buffer != nullptr)
        tensor.buffer->release(static_cast<size_t>(piece.data() - tensor.buffer->data),
                               piece.size());
    }
    tensor.bytes = copy;
    tensor.buffer = nullptr;
    tensor.storage = nullptr;
    memory = memory.subspan(copy.size());
  }
  return memory;
}

size_t held_bytes(std::span<const NamedBytes> tensors) {
  size_t bytes = 0;
  for (const NamedBytes& tensor : tensors)
    bytes += tensor.storage != nullptr ? tensor.type.bytes() : tensor.bytes.size();
  return bytes;
}

}  // namespace weft::io
