// Declares a file of named tensors in their memory layout, mapped into memory: what the readers of
// formats have in common, and all that loading needs to know of a file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/buffer.h"
#include "weft/tensor/tensor.h"

namespace weft::io {

// Returns the tensor whose elements begin at byte `offset` of a file, within which they are: a view
// if that byte is aligned for the dtype, else a copy.
Tensor view_or_copy(const std::shared_ptr<Buffer>& file, size_t offset, const Type& type);

// TensorFile is an open file. Copies share its memory map.
class TensorFile {
 public:
  struct Entry {
    std::string name;
    Type type;
    size_t offset = 0;  // where its bytes begin in the file
  };

  // `name` is the path, or what stands for it in messages. Entries are within the file.
  TensorFile(std::string name, std::shared_ptr<Buffer> file, std::vector<Entry> entries);

  const std::vector<Entry>& entries() const { return entries_; }  // ascending by name
  const Entry* find(std::string_view name) const;                 // null if absent
  std::span<const std::byte> bytes(const Entry& entry) const;
  std::span<const std::byte> bytes() const;  // the whole file
  // Returns the file's memory, and the part of it that holds one tensor and keeps all of it alive.
  const std::shared_ptr<Buffer>& buffer() const { return file_; }
  std::shared_ptr<Buffer> buffer(const Entry& entry) const;
  const std::string& name() const { return name_; }
  // Returns view_or_copy() of an entry. Throws Error(checkpoint) if absent.
  Tensor tensor(std::string_view name) const;

 private:
  std::string name_;
  std::shared_ptr<Buffer> file_;
  std::vector<Entry> entries_;
};

}  // namespace weft::io
