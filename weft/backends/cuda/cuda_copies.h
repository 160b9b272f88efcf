// Issues copies between host and GPU during which the host continues: writes are staged through
// pinned memory, and copies run in the stream of their direction, beside the kernels' stream.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/driver.h"

namespace weft::cuda {

inline Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

// Staging alternates between two pinned buffers, so that the host continues during copies.
class Staging {
 public:
  explicit Staging(Handle stream) : stream_(stream) {
    for (Part& part : parts_) {
      api_.check(api_.cuMemHostAlloc(&part.memory, part_bytes, flag::portable_memory),
                 "cuMemHostAlloc");
      api_.check(api_.cuEventCreate(&part.done, flag::event_without_time), "cuEventCreate");
    }
  }
  ~Staging() {
    for (const Part& part : parts_) {
      if (part.done != nullptr) api_.cuEventDestroy(part.done);
      if (part.memory != nullptr) api_.cuMemFreeHost(part.memory);
    }
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void write(Address to, const std::byte* from, size_t bytes) {
    while (bytes > 0) {
      const Part& part = parts_[next_++ % parts_.size()];
      const size_t count = std::min(bytes, part_bytes);
      api_.check(api_.cuEventSynchronize(part.done), "cuEventSynchronize");
      std::memcpy(part.memory, from, count);
      api_.check(api_.cuMemcpyHtoDAsync(to, part.memory, count, stream_), "cuMemcpyHtoDAsync");
      api_.check(api_.cuEventRecord(part.done, stream_), "cuEventRecord");
      to += count;
      from += count;
      bytes -= count;
    }
  }

 private:
  static constexpr size_t part_bytes = 4 << 20;
  struct Part {
    void* memory = nullptr;
    Handle done = nullptr;  // event: the last copy from this buffer has ended
  };
  const Driver& api_ = driver();
  Handle stream_;
  std::array<Part, 2> parts_;
  size_t next_ = 0;
};

// CudaCopyStream issues copies in the stream of its direction.
class CudaCopyStream : public CopyStream {
 public:
  CudaCopyStream(Stream kernels, Handle copies) : kernels_(kernels), copies_(copies) {
    for (Handle* event : {&before_, &done_})
      api_.check(api_.cuEventCreate(event, flag::event_without_time), "cuEventCreate");
  }
  ~CudaCopyStream() override {
    for (Handle event : {before_, done_})
      if (event != nullptr) api_.cuEventDestroy(event);
  }
  CudaCopyStream(const CudaCopyStream&) = delete;
  CudaCopyStream& operator=(const CudaCopyStream&) = delete;

  void wait_for_kernels() override {
    kernels_.make_current();
    api_.check(api_.cuEventRecord(before_, kernels_.stream), "cuEventRecord");
  }
  void wait_for(const CopyStream& other) override {
    kernels_.make_current();
    api_.check(api_.cuStreamWaitEvent(copies_, static_cast<const CudaCopyStream&>(other).done_, 0),
               "cuStreamWaitEvent");
  }
  // The driver infers from an address whether it is the host's.
  void begin(std::byte* to, const std::byte* from, size_t bytes) override {
    kernels_.make_current();
    api_.check(api_.cuStreamWaitEvent(copies_, before_, 0), "cuStreamWaitEvent");
    api_.check(api_.cuMemcpyAsync(address_of(to), address_of(from), bytes, copies_),
               "cuMemcpyAsync");
    api_.check(api_.cuEventRecord(done_, copies_), "cuEventRecord");
  }
  void kernels_wait() override {
    kernels_.make_current();
    api_.check(api_.cuStreamWaitEvent(kernels_.stream, done_, 0), "cuStreamWaitEvent");
  }
  void finish() override {
    kernels_.make_current();
    api_.check(api_.cuEventSynchronize(done_), "cuEventSynchronize");
  }

 private:
  const Driver& api_ = driver();
  Stream kernels_;
  Handle copies_, before_ = nullptr, done_ = nullptr;
};

}  // namespace weft::cuda
