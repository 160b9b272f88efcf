// DeviceMemory is the memory that a device's kernels access. Addresses of a device that does not
// share the host's memory support pointer arithmetic on the host; only code that reads or writes
// the bytes needs to know where they are.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/base/memory/buffer.h"

namespace weft {

struct MemoryUse {
  size_t available = 0, total = 0;  // bytes
  size_t largest = 0;               // bytes of the largest possible allocation; 0: `available`
};

enum class CopyDirection { to_device, to_host };

// A CopyStream is a copy stream between host and device, which runs beside the device's kernels.
// Copies of one direction run in the order of issue; the two directions run concurrently.
class CopyStream {
 public:
  virtual ~CopyStream() = default;
  virtual void
  wait_for_kernels() = 0;  // copies that begin later wait for all kernels issued so far
  // Makes copies that begin later wait for the last copy issued to `other`.
  virtual void wait_for(const CopyStream& other) = 0;
  // Issues a copy; one of the two addresses is the host's.
  virtual void begin(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void kernels_wait() = 0;  // kernels issued later wait for the copies; the host does not
  virtual void finish() = 0;        // blocks until the last copy has ended
};

// A Timeline records when the device reached marks between its kernels.
class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual void mark() = 0;
  // Returns each mark's time since the first. Blocks until the device has reached the last.
  virtual std::vector<double> seconds() = 0;
};
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Returns whether device addresses are host addresses.
  virtual bool is_host() const { return false; }
  virtual MemoryUse use() const = 0;  // by all processes
  // Returns zeroed memory, aligned to buffer_alignment.
  virtual std::shared_ptr<Buffer> allocate(size_t bytes) = 0;
  // The three transfers run in order with the kernels issued before them. `write` returns once the
  // source may be changed, `read` once all bytes have arrived.
  virtual void write(std::byte* to, const void* from, size_t bytes) = 0;
  virtual void read(void* to, const std::byte* from, size_t bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // Copies from another device, after waiting for all work issued to that device.
  virtual void copy_from(DeviceMemory& other, std::byte* to, const std::byte* from, size_t bytes);
  virtual std::unique_ptr<CopyStream> make_copy_stream(CopyDirection direction) = 0;
  // Returns host memory for asynchronous copies (`pinned`), zeroed and aligned.
  virtual std::shared_ptr<Buffer> allocate_host(size_t bytes) = 0;
  virtual void finish() = 0;  // blocks until all issued work has ended
  // Returns the lock under which a thread issues work to the device, which another thread's work
  // must not come between; the host needs none.
  [[nodiscard]] virtual std::unique_lock<std::recursive_mutex> enter() { return {}; }
  // Uses the device's clock or else the host's, for which the host waits at each mark.
  virtual std::unique_ptr<Timeline> make_timeline();
  // Makes later kernels start with cold caches, for benchmarks, where the device can.
  virtual void flush_caches() {}
  // Returns whether the host waits for each kernel before the next, so that errors name the kernel.
  virtual bool is_synchronous() const { return false; }
};

// Returns the host's memory: copies and kernels have ended when their calls return.
DeviceMemory& host_memory();

}  // namespace weft
