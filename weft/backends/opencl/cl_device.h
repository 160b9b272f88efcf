// A device that runs programs in OpenCL C (OpenCL 1.2, Khronos 2012), its memory, and its queue,
// which does everything in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace weft::opencl {

using Memory = std::shared_ptr<void>;    // bytes of the device; null: none
using Program = std::shared_ptr<void>;   // compiled
using Function = std::shared_ptr<void>;  // a kernel of a program; keeps it alive

struct Place {
  Memory memory;
  size_t offset = 0;  // bytes
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;

  virtual Memory allocate(size_t bytes) = 0;
  virtual void write(const Place& to, const void* from, size_t bytes) = 0;
  virtual void read(const Place& from, void* to, size_t bytes) = 0;  // after all that was launched
  virtual void copy(const Place& to, const Place& from, size_t bytes) = 0;
  virtual void fill_zero(const Place& at, size_t bytes) = 0;

  // Throws InternalError with what the compiler says and the lines it speaks of.
  virtual Program compile(const std::string& source) = 0;
  virtual Function function(const Program& program, const std::string& name) = 0;
  // Parameters as GpuKernel says. Returns before it has run.
  virtual void launch(const Function& function, std::span<const Place> places, int64_t groups,
                      int threads) = 0;
};

// The first GPU, or else the first device of any other kind. Throws Error(device) where there is
// none, or where this build has no OpenCL.
std::unique_ptr<Device> open_device();

}  // namespace weft::opencl
