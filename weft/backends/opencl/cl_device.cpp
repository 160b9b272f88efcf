#include "weft/backends/opencl/cl_device.h"

#include <vector>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/codegen/gpu_emit.h"

namespace weft::opencl {
namespace {

// Every call of OpenCL goes through here.
void check(cl_int status, const char* call) {
  if (status != CL_SUCCESS)
    throw Error(ErrorKind::device, "[opencl] {} failed with code {}.", call, status);
}

template <class T>
std::shared_ptr<void> owned(T object, cl_int (*release)(T)) {
  return {object, [release](void* p) { release(static_cast<T>(p)); }};
}

std::string device_text(cl_device_id device, cl_device_info what) {
  size_t bytes = 0;
  check(clGetDeviceInfo(device, what, 0, nullptr, &bytes), "clGetDeviceInfo");
  std::string text(bytes, '\0');
  check(clGetDeviceInfo(device, what, bytes, text.data(), nullptr), "clGetDeviceInfo");
  return text.substr(0, text.find('\0'));
}

template <class T>
T device_number(cl_device_id device, cl_device_info what) {
  T value{};
  check(clGetDeviceInfo(device, what, sizeof value, &value, nullptr), "clGetDeviceInfo");
  return value;
}

// Null where no platform has a device of this kind.
cl_device_id first_device(cl_device_type kind) {
  cl_uint count = 0;
  if (clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS) return nullptr;
  std::vector<cl_platform_id> platforms(count);
  if (count > 0) check(clGetPlatformIDs(count, platforms.data(), nullptr), "clGetPlatformIDs");
  for (cl_platform_id platform : platforms) {
    cl_device_id device = nullptr;
    if (clGetDeviceIDs(platform, kind, 1, &device, nullptr) == CL_SUCCESS) return device;
  }
  return nullptr;
}

class ClDevice : public Device {
 public:
  explicit ClDevice(cl_device_id device) : device_(device) {
    cl_int status = CL_SUCCESS;
    context_ =
        owned(clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &status), clReleaseContext);
    check(status, "clCreateContext");
    queue_ = owned(clCreateCommandQueue(context(), device_, 0, &status), clReleaseCommandQueue);
    check(status, "clCreateCommandQueue");
    const auto rounding = device_number<cl_device_fp_config>(device_, CL_DEVICE_SINGLE_FP_CONFIG);
    if ((rounding & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0)
      options_ += " -cl-fp32-correctly-rounded-divide-sqrt";
  }
  ~ClDevice() override { clFinish(queue()); }

  std::string name() const override { return device_text(device_, CL_DEVICE_NAME); }

  Memory allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    cl_int status = CL_SUCCESS;
    cl_mem memory = clCreateBuffer(context(), CL_MEM_READ_WRITE, bytes, nullptr, &status);
    check(status, "clCreateBuffer");
    return owned(memory, clReleaseMemObject);
  }

  void write(const Place& to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    check(clEnqueueWriteBuffer(queue(), memory_of(to), CL_TRUE, to.offset, bytes, from, 0, nullptr,
                               nullptr),
          "clEnqueueWriteBuffer");
  }
  void read(const Place& from, void* to, size_t bytes) override {
    if (bytes == 0) return;
    check(clEnqueueReadBuffer(queue(), memory_of(from), CL_TRUE, from.offset, bytes, to, 0, nullptr,
                              nullptr),
          "clEnqueueReadBuffer");
  }

  void copy(const Place& to, const Place& from, size_t bytes) override {
    if (bytes == 0) return;
    check(clEnqueueCopyBuffer(queue(), memory_of(from), memory_of(to), from.offset, to.offset,
                              bytes, 0, nullptr, nullptr),
          "clEnqueueCopyBuffer");
  }
  void fill_zero(const Place& at, size_t bytes) override {
    const cl_uchar zero = 0;
    check(clEnqueueFillBuffer(queue(), memory_of(at), &zero, sizeof zero, at.offset, bytes, 0,
                              nullptr, nullptr),
          "clEnqueueFillBuffer");
  }

  Program compile(const std::string& source) override {
    const char* text = source.c_str();
    cl_int status = CL_SUCCESS;
    Program program =
        owned(clCreateProgramWithSource(context(), 1, &text, nullptr, &status), clReleaseProgram);
    check(status, "clCreateProgramWithSource");
    auto handle = static_cast<cl_program>(program.get());
    status = clBuildProgram(handle, 1, &device_, options_.c_str(), nullptr, nullptr);
    WEFT_ASSERT(status == CL_SUCCESS, "OpenCL C of a generated kernel: {}",
                loop::with_source_lines(build_log(handle), source));
    return program;
  }

  Function function(const Program& program, const std::string& name) override {
    cl_int status = CL_SUCCESS;
    cl_kernel kernel =
        clCreateKernel(static_cast<cl_program>(program.get()), name.c_str(), &status);
    check(status, "clCreateKernel");
    return owned(kernel, clReleaseKernel);
  }

  void launch(const Function& function, std::span<const Place> places, int64_t groups,
              int threads) override {
    if (groups == 0) return;
    auto kernel = static_cast<cl_kernel>(function.get());
    cl_uint index = 0;
    for (const Place& place : places) {
      const void* memory = place.memory.get();
      const auto offset = static_cast<cl_long>(place.offset);
      check(clSetKernelArg(kernel, index++, sizeof(cl_mem), static_cast<const void*>(&memory)),
            "clSetKernelArg");
      check(clSetKernelArg(kernel, index++, sizeof offset, &offset), "clSetKernelArg");
    }
    const auto local = static_cast<size_t>(threads), global = static_cast<size_t>(groups) * local;
    check(clEnqueueNDRangeKernel(queue(), kernel, 1, nullptr, &global, &local, 0, nullptr, nullptr),
          "clEnqueueNDRangeKernel");
  }

 private:
  cl_context context() const { return static_cast<cl_context>(context_.get()); }
  cl_command_queue queue() const { return static_cast<cl_command_queue>(queue_.get()); }
  static cl_mem memory_of(const Place& place) { return static_cast<cl_mem>(place.memory.get()); }

  std::string build_log(cl_program program) const {
    size_t bytes = 0;
    clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes);
    std::string log(bytes, '\0');
    clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, bytes, log.data(), nullptr);
    return log.substr(0, log.find('\0'));
  }

  cl_device_id device_;
  std::shared_ptr<void> context_, queue_;
  std::string options_ = "-w";  // of the compiler: no warnings
};
}  // namespace

std::unique_ptr<Device> open_device() {
  cl_device_id device = first_device(CL_DEVICE_TYPE_GPU);
  if (device == nullptr) device = first_device(CL_DEVICE_TYPE_ALL);
  if (device == nullptr)
    throw Error(ErrorKind::device,
                "[opencl] no device. Hint: install the OpenCL driver of your GPU, or "
                "pocl-opencl-icd, which runs on the processor.");
  return std::make_unique<ClDevice>(device);
}

}  // namespace weft::opencl
