#include "weft/io/tensor_file.h"

#include <algorithm>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/text/utf8.h"
#include "weft/io/files.h"

namespace weft::io {

Tensor view_or_copy(const std::shared_ptr<Buffer>& file, size_t offset, const Type& type) {
  std::byte* from = file->data + offset;
  if (reinterpret_cast<uintptr_t>(from) % size_of(type.dtype) == 0)
    return tensor_over(file, from, type);
  auto copy = Buffer::allocate(type.bytes());
  copy_bytes({copy->data, copy->bytes}, {from, type.bytes()});
  return tensor_over(copy, copy->data, type);
}

Shape shape_in_numbers(const Type& type, const BlockFormat* format) {
  if (format == nullptr) return type.shape;
  Shape numbers;
  for (int axis = 0; axis < type.shape.size() - 1; ++axis) numbers.push_back(type.shape[axis]);
  numbers[numbers.size() - 1] *= format->numbers;
  return numbers;
}

std::optional<size_t> first_no_bool(std::span<const std::byte> bytes) {
  const auto found = std::ranges::find_if(bytes, [](std::byte b) { return b > std::byte{1}; });
  if (found == bytes.end()) return std::nullopt;
  return static_cast<size_t>(found - bytes.begin());
}

TensorFile::TensorFile(std::string name, std::shared_ptr<Buffer> file, std::vector<Entry> entries,
                       NameInFile name_in_file)
    : name_(std::move(name)),
      file_(std::move(file)),
      entries_(std::move(entries)),
      name_in_file_(std::move(name_in_file)) {
  std::ranges::sort(entries_, {}, &Entry::name);
}

const TensorFile::Entry* TensorFile::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      entries_, name, {}, [](const Entry& entry) -> std::string_view { return entry.name; });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

std::span<const std::byte> TensorFile::bytes(const Entry& entry) const {
  return {file_->data + entry.offset, entry.type.bytes()};
}

std::span<const std::byte> TensorFile::bytes() const { return {file_->data, file_->bytes}; }

std::string TensorFile::name_in_file(const std::string& name) const {
  return name_in_file_ ? name_in_file_(name) : name;
}

std::shared_ptr<Buffer> TensorFile::buffer(const Entry& entry) const {
  return Buffer::part(file_, entry.offset, entry.type.bytes());
}

Tensor TensorFile::tensor(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr)
    throw Error(ErrorKind::checkpoint, "{}: no tensor '{}' among its {}.", name_, printable(name),
                entries_.size());
  return view_or_copy(file_, entry->offset, entry->type);
}

}  // namespace weft::io
