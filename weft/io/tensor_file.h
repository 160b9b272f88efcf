// Declares a file of named tensors in their memory layout, mapped into memory: the common part of
// the readers of all formats, and the only interface that loading needs.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/block_format.h"
#include "weft/tensor/tensor.h"

namespace weft::io {

// Returns the tensor whose elements begin at byte `offset` of a file: a view if the address is
// aligned for the dtype, else a copy. All elements must be within the file.
Tensor view_or_copy(const std::shared_ptr<Buffer>& file, size_t offset, const Type& type);

// Returns the shape of a tensor in numbers, the contiguous axis last: type.shape, or for u8 [..,
// blocks, bytes] of a format the shape of the decoded numbers.
Shape shape_in_numbers(const Type& type, const BlockFormat* format);

// Returns the index of the first byte that is not 0 or 1, and so no valid bool; nullopt if all are.
std::optional<size_t> first_no_bool(std::span<const std::byte> bytes);

// TensorFile is an open file. Copies share its memory map.
class TensorFile {
 public:
  struct Entry {
    std::string name;
    Type type;
    size_t offset = 0;                    // where its bytes begin in the file
    const BlockFormat* format = nullptr;  // format of blocks, where the file itself says it
  };
  // Returns the name that a tensor called `name` has in the file, for messages.
  using NameInFile = std::function<std::string(std::string_view name)>;

  // `name` is the path, or another name for messages. Entries are within the file, under their own
  // names unless `name_in_file` maps them back.
  TensorFile(std::string name, std::shared_ptr<Buffer> file, std::vector<Entry> entries,
             NameInFile name_in_file = {});

  const std::vector<Entry>& entries() const { return entries_; }  // ascending by name
  const Entry* find(std::string_view name) const;                 // null if absent
  std::span<const std::byte> bytes(const Entry& entry) const;
  std::span<const std::byte> bytes() const;  // the whole file
  // Returns the file's memory, and the part of it that holds one tensor and keeps all of it alive.
  const std::shared_ptr<Buffer>& buffer() const { return file_; }
  std::shared_ptr<Buffer> buffer(const Entry& entry) const;
  const std::string& name() const { return name_; }
  std::string name_in_file(const std::string& name) const;
  // Returns view_or_copy() of an entry. Throws Error(checkpoint) if absent.
  Tensor tensor(std::string_view name) const;

 private:
  std::string name_;
  std::shared_ptr<Buffer> file_;
  std::vector<Entry> entries_;
  NameInFile name_in_file_;
};

}  // namespace weft::io
