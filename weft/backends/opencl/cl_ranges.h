// Gives addresses to the memory of an OpenCL device: OpenCL 1.2 has none, so each buffer reserves a
// range of the process's address space, which is never backed by memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "weft/base/memory/buffer.h"

namespace weft::opencl {

using Memory = std::shared_ptr<void>;  // a device buffer; null: none

struct Place {
  Memory memory;
  size_t offset = 0;  // bytes
};

class Ranges {
 public:
  // Reserves a range for `bytes` of `memory`, which is released with the returned buffer.
  std::shared_ptr<Buffer> add(Memory memory, size_t bytes);
  // Returns the device buffer and offset of an address; null for null.
  Place place_of(const void* address) const;
  bool contains(const void* address) const;
  // Returns a count that grows when addresses may change their meaning.
  uint64_t changes() const;

 private:
  struct Table {
    std::mutex mutex;
    uint64_t changes = 0;
    struct Range {
      Memory memory;
      size_t bytes = 0;
    };
    std::map<const std::byte*, Range, std::greater<>> ranges;  // by first address, descending
  };
  // Returns the range that contains the address, or null.
  const std::pair<const std::byte* const, Table::Range>* range_of(const void* address) const;

  std::shared_ptr<Table> table_ = std::make_shared<Table>();  // buffers may outlive the device
};

}  // namespace weft::opencl
