// Memory that the kernels of a device see. Where the host does not, its addresses are reckoned with
// as the host's are; only whoever reads and writes bytes must know.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "weft/base/buffer.h"

namespace weft {

struct MemoryUse {
  size_t available = 0, total = 0;  // bytes
  size_t largest = 0;               // that one allocation can have; 0: all that is available
};

enum class CopyDirection { to_device, to_host };

// Copies between the host's memory and a device's that are done beside its kernels: those of one
// direction in the order in which they begin, those of both at once.
class SideCopy {
 public:
  virtual ~SideCopy() = default;
  virtual void allow() = 0;  // what begins next comes after all that was begun until now
  // What begins next comes after the latest of another.
  virtual void follow(const SideCopy& other) = 0;
  // One of both addresses is the host's.
  virtual void begin(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void await() = 0;   // kernels that are begun later come after it; the host goes on
  virtual void finish() = 0;  // returns when the last one is done
};

// Marks between the kernels of a device, and when it came to each.
class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual void mark() = 0;
  // Of each mark, since the first; returns when the device has come to the last.
  virtual std::vector<double> seconds() = 0;
};
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Whether the host sees what its kernels see: addresses are the host's.
  virtual bool is_host() const { return false; }
  virtual MemoryUse use() const = 0;  // by all processes
  // Zeroed and aligned.
  virtual std::shared_ptr<Buffer> allocate(size_t bytes) = 0;
  // In the order of the kernels that were begun before. `write` returns when the host may change
  // what it read, `read` when all of it is there.
  virtual void write(std::byte* to, const void* from, size_t bytes) = 0;
  virtual void read(void* to, const std::byte* from, size_t bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // From another device, where all that was begun is done first.
  virtual void copy_from(DeviceMemory& other, std::byte* to, const std::byte* from, size_t bytes);
  virtual std::unique_ptr<SideCopy> make_side_copy(CopyDirection direction) = 0;
  // Of the host, `pinned`; zeroed and aligned.
  virtual std::shared_ptr<Buffer> allocate_host(size_t bytes) = 0;
  virtual void finish() = 0;  // returns when all that was begun is done
  // By the device's own clock or, where it has none that can be read, by the host's, which waits at
  // each mark.
  virtual std::unique_ptr<Timeline> make_timeline();
  // Kernels that are begun later find nothing in the caches; where the device has no way to do so,
  // what is there.
  virtual void flush_caches() {}
  // Whether each kernel is waited for before the next one begins, so that an error names it.
  virtual bool is_synchronous() const { return false; }
};

// What the processor's kernels see: nothing is copied beside them, and each is done when it
// returns.
DeviceMemory& host_memory();

}  // namespace weft
