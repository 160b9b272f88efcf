// This is one file because listing devices and running one ask drivers with the same helpers, and
// because builds without OpenCL replace it by cl_none.cpp as a whole.
#include "weft/backends/opencl/cl_device.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <fmt/format.h>

#include "weft/backends/opencl/cl_error.h"
#include "weft/backends/opencl/cl_ranges.h"
#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/host/private_folder.h"
#include "weft/base/text/lower.h"
#include "weft/codegen/gpu_emit.h"
#include "weft/codegen/object_cache.h"

namespace weft::opencl {
namespace {

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

// PoCL caches machine code as well, by default below a home directory whose path may be relative,
// or in a folder of /tmp that other users may create. PoclFolder sets POCL_CACHE_DIR to a private
// folder of weft's cache or a temporary folder. Drivers read the environment when the first call
// loads them.
class PoclFolder {
 public:
  PoclFolder() {
    if (std::getenv("POCL_CACHE_DIR") != nullptr) return;
    std::optional<std::string> folder = private_cache("pocl");
    if (!folder) {
      std::error_code none;
      const std::filesystem::path there = std::filesystem::temp_directory_path(none);
      own_ = ((none ? "/tmp" : there) / "weft-pocl-XXXXXX").string();
      if (mkdtemp(own_.data()) == nullptr)
        throw Error(ErrorKind::failed, "cannot create folder {}: {}.", own_,
                    std::generic_category().message(errno));
      folder = own_;
    }
    setenv("POCL_CACHE_DIR", folder->c_str(), 0);
  }
  ~PoclFolder() {
    std::error_code none;
    if (!own_.empty()) std::filesystem::remove_all(own_, none);
  }
  PoclFolder(const PoclFolder&) = delete;
  PoclFolder& operator=(const PoclFolder&) = delete;

 private:
  std::string own_;
};

std::vector<cl_device_id> all_devices() {
  static const PoclFolder pocl;
  cl_uint count = 0;
  if (clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS || count == 0) return {};
  std::vector<cl_platform_id> platforms(count);
  check(clGetPlatformIDs(count, platforms.data(), nullptr), "clGetPlatformIDs");
  std::vector<cl_device_id> all;
  for (cl_platform_id platform : platforms) {
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) continue;
    std::vector<cl_device_id> here(count);
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, here.data(), nullptr),
          "clGetDeviceIDs");
    all.insert(all.end(), here.begin(), here.end());
  }
  return all;
}

std::vector<cl_device_id> some_devices() {
  std::vector<cl_device_id> all = all_devices();
  if (all.empty())
    throw Error(ErrorKind::device,
                "[opencl] no device. Hint: install the OpenCL driver of your GPU, or "
                "pocl-opencl-icd, which runs on the CPU.");
  return all;
}

bool is_a(cl_device_id device, cl_device_type kind) {
  return (device_number<cl_device_type>(device, CL_DEVICE_TYPE) & kind) != 0;
}

std::string platform_text(cl_device_id device) {
  cl_platform_id platform = nullptr;
  check(clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof(cl_platform_id),
                        static_cast<void*>(&platform), nullptr),
        "clGetDeviceInfo");
  std::string text(256, '\0');
  check(clGetPlatformInfo(platform, CL_PLATFORM_NAME, text.size() - 1, text.data(), nullptr),
        "clGetPlatformInfo");
  return text.substr(0, text.find('\0'));
}

bool has_f64(cl_device_id device) {
  return !env_flag("WEFT_NO_FLOAT64") &&
         device_number<cl_device_fp_config>(device, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
}

bool has_extension(cl_device_id device, const std::string& name) {
  const std::string extensions = " " + device_text(device, CL_DEVICE_EXTENSIONS) + " ";
  return extensions.find(" " + name + " ") != std::string::npos;
}
bool has_i64(cl_device_id device) {
  return device_text(device, CL_DEVICE_PROFILE) != "EMBEDDED_PROFILE" ||
         has_extension(device, "cles_khr_int64");
}

// Returns whether `which` is the device's index or a part of its name.
bool goes_by(const std::string& which, size_t index, cl_device_id device) {
  if (which.find_first_not_of("0123456789") == std::string::npos)
    return which == std::to_string(index);
  return lower(device_text(device, CL_DEVICE_NAME)).find(lower(which)) != std::string::npos;
}

// Returns the first GPU's index, else 0.
size_t best_of(const std::vector<cl_device_id>& all) {
  for (size_t i = 0; i < all.size(); ++i)
    if (is_a(all[i], CL_DEVICE_TYPE_GPU)) return i;
  return 0;
}

std::optional<size_t> number_among(const std::vector<cl_device_id>& all, const std::string& which) {
  if (which.empty() && !all.empty()) return best_of(all);
  for (size_t i = 0; i < all.size(); ++i)
    if (goes_by(which, i, all[i])) return i;
  return std::nullopt;
}

class ClDevice : public gpu::Device {
  // InOrder copies in the device's only queue, so it needs no further ordering.
  class InOrder : public CopyStream {
   public:
    explicit InOrder(ClDevice& device) : device_(device) {}
    void begin(std::byte* to, const std::byte* from, size_t bytes) override {
      if (device_.ranges_.contains(to))
        device_.enqueue_write(to, from, bytes, CL_FALSE);
      else
        device_.enqueue_read(to, from, bytes, CL_FALSE);
    }
    void wait_for_kernels() override {}
    void wait_for(const CopyStream&) override {}
    void kernels_wait() override {}
    void finish() override { device_.finish(); }

   private:
    ClDevice& device_;
  };

 public:
  explicit ClDevice(cl_device_id device) : device_(device) {
    if (!has_i64(device_))
      throw Error(ErrorKind::device,
                  "[opencl] {} has no 64-bit integers, in which every kernel computes offsets: its "
                  "profile is embedded, without cles_khr_int64. Hint: weft devices lists others; "
                  "--device cpu trains everywhere.",
                  name());
    constexpr size_t most_threads = 256;  // largest group of weft's kernels
    const auto threads = device_number<size_t>(device_, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    if (threads < most_threads)
      throw Error(ErrorKind::device,
                  "[opencl] {} allows work-groups of {} threads, weft's kernels need {}. Hint: "
                  "weft devices lists others; --device cpu trains everywhere.",
                  name(), threads, most_threads);
    cl_int status = CL_SUCCESS;
    context_ =
        owned(clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &status), clReleaseContext);
    check(status, "clCreateContext");
    queue_ = owned(clCreateCommandQueue(context(), device_, 0, &status), clReleaseCommandQueue);
    check(status, "clCreateCommandQueue");
    const auto rounding = device_number<cl_device_fp_config>(device_, CL_DEVICE_SINGLE_FP_CONFIG);
    if ((rounding & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0)
      options_ += " -cl-fp32-correctly-rounded-divide-sqrt";
    if (has_float64()) options_ += " -DHAS_F64";
  }
  ~ClDevice() override { clFinish(queue()); }

  std::string name() const override { return device_text(device_, CL_DEVICE_NAME); }
  std::string machine() const override {
    return fmt::format("{}, {}", name(), device_text(device_, CL_DRIVER_VERSION));
  }
  loop::GpuLanguage language() const override { return loop::GpuLanguage::opencl; }
  bool has_float64() const override { return has_float64_; }

  std::shared_ptr<Buffer> allocate(size_t bytes) override {
    const size_t size = std::max<size_t>(bytes, 1);
    cl_int status = CL_SUCCESS;
    Memory memory =
        owned(clCreateBuffer(context(), CL_MEM_READ_WRITE | (shares_ ? CL_MEM_ALLOC_HOST_PTR : 0),
                             size, nullptr, &status),
              clReleaseMemObject);
    if (status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_RESOURCES ||
        status == CL_OUT_OF_HOST_MEMORY || status == CL_INVALID_BUFFER_SIZE)
      refuse(size, status);
    check(status, "clCreateBuffer");
    const cl_uchar zero = 0;
    check(clEnqueueFillBuffer(queue(), static_cast<cl_mem>(memory.get()), &zero, sizeof zero, 0,
                              size, 0, nullptr, nullptr),
          "clEnqueueFillBuffer");
    return ranges_.add(std::move(memory), size);
  }
  // OpenCL does not report what other processes use.
  MemoryUse use() const override {
    const size_t total = device_number<cl_ulong>(device_, CL_DEVICE_GLOBAL_MEM_SIZE);
    return {total, total, device_number<cl_ulong>(device_, CL_DEVICE_MAX_MEM_ALLOC_SIZE)};
  }
  void write(std::byte* to, const void* from, size_t bytes) override {
    if (shares_)
      while_mapped(to, bytes, CL_MAP_WRITE_INVALIDATE_REGION,
                   [&](void* there) { std::memcpy(there, from, bytes); });
    else
      enqueue_write(to, from, bytes, CL_TRUE);
  }
  void read(void* to, const std::byte* from, size_t bytes) override {
    if (shares_)
      while_mapped(from, bytes, CL_MAP_READ, [&](void* there) { std::memcpy(to, there, bytes); });
    else
      enqueue_read(to, from, bytes, CL_TRUE);
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    if (bytes == 0) return;
    const Place target = ranges_.place_of(to), source = ranges_.place_of(from);
    check(clEnqueueCopyBuffer(queue(), memory_of(source), memory_of(target), source.offset,
                              target.offset, bytes, 0, nullptr, nullptr),
          "clEnqueueCopyBuffer");
  }
  std::unique_ptr<CopyStream> make_copy_stream(CopyDirection) override {
    return std::make_unique<InOrder>(*this);
  }
  std::shared_ptr<Buffer> allocate_host(size_t bytes) override {
    std::shared_ptr<Buffer> buffer = Buffer::allocate(bytes);
    buffer->pinned = true;
    return buffer;
  }
  void finish() override { check(clFinish(queue()), "clFinish"); }

  gpu::Function function(const gpu::Program& program, const std::string& name) override {
    cl_int status = CL_SUCCESS;
    cl_kernel kernel =
        clCreateKernel(static_cast<cl_program>(program.get()), name.c_str(), &status);
    check(status, "clCreateKernel");
    return std::make_shared<Arguments>(owned(kernel, clReleaseKernel));
  }

  void launch(const gpu::Function& function, std::span<void* const> addresses, int64_t groups,
              int threads) override {
    auto& arguments = *static_cast<Arguments*>(function.get());
    auto kernel = static_cast<cl_kernel>(arguments.kernel.get());
    set_arguments(arguments, addresses);
    const auto local = static_cast<size_t>(threads), global = static_cast<size_t>(groups) * local;
    check(clEnqueueNDRangeKernel(queue(), kernel, 1, nullptr, &global, &local, 0, nullptr, nullptr),
          "clEnqueueNDRangeKernel");
  }
  std::unique_ptr<Kernel> record(const std::function<void()>&) override { return nullptr; }
  Queue handles() const {
    return {queue(), &ranges_, device_number<cl_uint>(device_, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8};
  }

 private:
  cl_context context() const { return static_cast<cl_context>(context_.get()); }
  cl_command_queue queue() const { return static_cast<cl_command_queue>(queue_.get()); }
  static cl_mem memory_of(const Place& place) { return static_cast<cl_mem>(place.memory.get()); }

  [[noreturn]] void refuse(size_t bytes, cl_int status) const {
    const MemoryUse has = use();
    throw Error(ErrorKind::does_not_fit,
                "[opencl] {} has no {} MiB of memory left ({}). It has {} MiB in total, and allows "
                "at most {} MiB per allocation. Hint: weft plan shows how much a run takes.",
                name(), bytes >> 20, error_name(status), has.total >> 20, has.largest >> 20);
  }

  // Maps memory that the device shares with the host, so that access makes no copy.
  template <class Access>
  void while_mapped(const std::byte* at, size_t bytes, cl_map_flags how, Access access) {
    if (bytes == 0) return;
    const Place place = ranges_.place_of(at);
    cl_int status = CL_SUCCESS;
    void* there = clEnqueueMapBuffer(queue(), memory_of(place), CL_TRUE, how, place.offset, bytes,
                                     0, nullptr, nullptr, &status);
    check(status, "clEnqueueMapBuffer");
    access(there);
    check(clEnqueueUnmapMemObject(queue(), memory_of(place), there, 0, nullptr, nullptr),
          "clEnqueueUnmapMemObject");
  }
  void enqueue_write(std::byte* to, const void* from, size_t bytes, cl_bool wait) {
    if (bytes == 0) return;
    const Place place = ranges_.place_of(to);
    check(clEnqueueWriteBuffer(queue(), memory_of(place), wait, place.offset, bytes, from, 0,
                               nullptr, nullptr),
          "clEnqueueWriteBuffer");
  }
  void enqueue_read(void* to, const std::byte* from, size_t bytes, cl_bool wait) {
    if (bytes == 0) return;
    const Place place = ranges_.place_of(from);
    check(clEnqueueReadBuffer(queue(), memory_of(place), wait, place.offset, bytes, to, 0, nullptr,
                              nullptr),
          "clEnqueueReadBuffer");
  }

  // OpenCL keeps a kernel's arguments, so they are set again only when addresses change.
  struct Arguments {
    explicit Arguments(std::shared_ptr<void> kernel) : kernel(std::move(kernel)) {}
    std::shared_ptr<void> kernel;
    std::vector<void*> addresses;
    uint64_t changes = 0;  // ranges_.changes() when the arguments were set
  };
  void set_arguments(Arguments& arguments, std::span<void* const> addresses) {
    const uint64_t changes = ranges_.changes();
    if (arguments.changes == changes && std::ranges::equal(arguments.addresses, addresses)) return;
    auto kernel = static_cast<cl_kernel>(arguments.kernel.get());
    cl_uint index = 0;
    for (const void* address : addresses) {
      const Place place = ranges_.place_of(address);
      const void* memory = place.memory.get();
      const auto offset = static_cast<cl_long>(place.offset);
      check(clSetKernelArg(kernel, index++, sizeof(cl_mem), static_cast<const void*>(&memory)),
            "clSetKernelArg");
      check(clSetKernelArg(kernel, index++, sizeof offset, &offset), "clSetKernelArg");
    }
    arguments.addresses.assign(addresses.begin(), addresses.end());
    arguments.changes = changes;
  }

  gpu::Program build(const std::string& source) override {
    const char* text = source.c_str();
    cl_int status = CL_SUCCESS;
    gpu::Program program =
        owned(clCreateProgramWithSource(context(), 1, &text, nullptr, &status), clReleaseProgram);
    check(status, "clCreateProgramWithSource");
    auto handle = static_cast<cl_program>(program.get());
    status = clBuildProgram(handle, 1, &device_, options_.c_str(), nullptr, nullptr);
    WEFT_ASSERT(status == CL_SUCCESS, "a kernel does not compile (report its source, too: {}): {}",
                loop::save_refused(source, "cl"),
                loop::with_source_lines(build_log(handle), source));
    return program;
  }

  std::string build_log(cl_program program) const {
    size_t bytes = 0;
    clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes);
    std::string log(bytes, '\0');
    clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, bytes, log.data(), nullptr);
    return log.substr(0, log.find('\0'));
  }

  cl_device_id device_;
  bool has_float64_ = has_f64(device_);
  std::shared_ptr<void> context_, queue_;
  Ranges ranges_;
  const bool shares_ = device_number<cl_bool>(device_, CL_DEVICE_HOST_UNIFIED_MEMORY) == CL_TRUE;
  std::string options_ = "-w";  // compiler options; -w: no warnings
};
}  // namespace

std::unique_ptr<gpu::Device> open_device(const std::string& which) {
  const std::vector<cl_device_id> all = some_devices();
  if (auto number = number_among(all, which)) return std::make_unique<ClDevice>(all[*number]);
  std::string there;
  for (size_t i = 0; i < all.size(); ++i)
    there += fmt::format("{}opencl:{} is {}", i == 0 ? "" : ", ", i,
                         device_text(all[i], CL_DEVICE_NAME));
  throw Error(ErrorKind::device, "[opencl] there is no device '{}'. Here {}.", which, there);
}

std::optional<size_t> number_of(const std::string& which) {
  return number_among(all_devices(), which);
}

std::vector<DeviceInfo> devices() {
  const std::vector<cl_device_id> all = all_devices();
  std::vector<DeviceInfo> infos;
  infos.reserve(all.size());
  for (cl_device_id device : all)
    infos.push_back(
        {.platform = platform_text(device),
         .name = device_text(device, CL_DEVICE_NAME),
         .version = device_text(device, CL_DEVICE_VERSION),
         .memory = device_number<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE),
         .driver = device_text(device, CL_DRIVER_VERSION),
         .compute_units =
             static_cast<int>(device_number<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS)),
         .clock_mhz =
             static_cast<int>(device_number<cl_uint>(device, CL_DEVICE_MAX_CLOCK_FREQUENCY)),
         .float64 = has_f64(device),
         .half = has_extension(device, "cl_khr_fp16"),
         .shares_memory = device_number<cl_bool>(device, CL_DEVICE_HOST_UNIFIED_MEMORY) != 0,
         .is_processor = is_a(device, CL_DEVICE_TYPE_CPU),
         .runs_plans = device == all[best_of(all)]});
  return infos;
}

std::string why_no_device() { return "no driver shows a device."; }

Queue queue_of(gpu::Device& device) { return static_cast<ClDevice&>(device).handles(); }

}  // namespace weft::opencl
