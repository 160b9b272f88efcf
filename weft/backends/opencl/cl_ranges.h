// Addresses for the memory of an OpenCL device: OpenCL 1.2 has none, so each buffer takes a range
// of the process's addresses that nothing lies at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "weft/base/buffer.h"

namespace weft::opencl {

using Memory = std::shared_ptr<void>;  // bytes of the device; null: none

struct Place {
  Memory memory;
  size_t offset = 0;  // bytes
};

class Ranges {
 public:
  // A range for `bytes` of `memory`, which is let go with the buffer.
  std::shared_ptr<Buffer> add(Memory memory, size_t bytes);
  // Where the bytes at an address lie; null at null.
  Place place_of(const void* address) const;
  bool contains(const void* address) const;
  // Grows when an address may come to mean something else.
  uint64_t changes() const;

 private:
  struct Table {
    std::mutex mutex;
    uint64_t changes = 0;
    struct Range {
      Memory memory;
      size_t bytes = 0;
    };
    std::map<const std::byte*, Range, std::greater<>> ranges;  // by their first address
  };
  // The last range that begins at or before an address, and has it; or null.
  const std::pair<const std::byte* const, Table::Range>* range_of(const void* address) const;

  std::shared_ptr<Table> table_ = std::make_shared<Table>();  // buffers may outlive the device
};

}  // namespace weft::opencl
