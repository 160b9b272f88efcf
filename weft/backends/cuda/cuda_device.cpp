#include "weft/backends/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/backends/cuda/cuda_copies.h"
#include "weft/backends/cuda/cuda_query.h"
#include "weft/backends/cuda/driver.h"
#include "weft/backends/cuda/nvml.h"
#include "weft/backends/cuda/nvrtc.h"
#include "weft/backends/cuda/nvtx.h"
#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/logging.h"
#include "weft/codegen/object_cache.h"

namespace weft::cuda {
namespace {
template <class T, class Release>
std::shared_ptr<void> owned(T object, Release release) {
  return {object, std::move(release)};
}

// CudaTimeline records events in the stream of the kernels.
class CudaTimeline : public Timeline {
 public:
  explicit CudaTimeline(Stream kernels) : kernels_(kernels) {}
  ~CudaTimeline() override {
    for (Handle event : events_) api_.cuEventDestroy(event);
  }
  CudaTimeline(const CudaTimeline&) = delete;
  CudaTimeline& operator=(const CudaTimeline&) = delete;

  void mark() override {
    kernels_.make_current();
    Handle event = nullptr;
    api_.check(api_.cuEventCreate(&event, flag::event_with_time), "cuEventCreate");
    events_.push_back(event);
    api_.check(api_.cuEventRecord(event, kernels_.stream), "cuEventRecord");
  }
  std::vector<double> seconds() override {
    std::vector<double> all;
    if (!events_.empty()) api_.check(api_.cuEventSynchronize(events_.back()), "cuEventSynchronize");
    for (Handle event : events_) {
      float milliseconds = 0;
      api_.check(api_.cuEventElapsedTime(&milliseconds, events_.front(), event),
                 "cuEventElapsedTime");
      all.push_back(1e-3 * static_cast<double>(milliseconds));
    }
    return all;
  }

 private:
  const Driver& api_ = driver();
  Stream kernels_;
  std::vector<Handle> events_;
};

class Graph : public Kernel {
 public:
  Graph(Handle executable, Stream stream) : executable_(executable), stream_(stream) {}
  ~Graph() override { driver().cuGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void run(void* const*, void* const*, void*) const override {
    stream_.make_current();
    driver().check(driver().cuGraphLaunch(executable_, stream_.stream), "cuGraphLaunch");
  }

 private:
  Handle executable_;
  Stream stream_;
};

// Returns null without NVML, which computing does not need.
std::unique_ptr<const Nvml> open_nvml() {
  try {
    return std::make_unique<const Nvml>();
  } catch (const Error&) {
    return nullptr;
  }
}

class CudaDevice : public gpu::Device {
 public:
  explicit CudaDevice(int number)
      : device_(device_at(number)), capability_(checked_capability(device_)) {
    check_libraries(compiler_);
    Handle context = nullptr;
    api_.check(api_.cuDevicePrimaryCtxRetain(&context, device_), "cuDevicePrimaryCtxRetain");
    context_ = owned(context, [device = device_](void*) {  // buffers may outlive the device
      driver().cuDevicePrimaryCtxRelease(device);
    });
    make_current();
    for (std::shared_ptr<void>* made : {&stream_, &to_device_, &to_host_}) {
      Handle stream = nullptr;
      api_.check(api_.cuStreamCreate(&stream, flag::non_blocking_stream), "cuStreamCreate");
      *made = owned(stream, [this](void* object) { api_.cuStreamDestroy(object); });
    }
    staging_ = std::make_unique<Staging>(stream());
  }
  ~CudaDevice() override {
    api_.cuCtxSetCurrent(context_.get());
    api_.cuStreamSynchronize(stream());
    api_.cuStreamSynchronize(to_device_.get());
    api_.cuStreamSynchronize(to_host_.get());
  }

  std::string name() const override { return name_of(device_); }
  std::string machine() const override {
    return fmt::format("{}, CUDA {}.{}", name(), api_.version / 1000, api_.version % 1000 / 10);
  }
  loop::GpuLanguage language() const override { return loop::GpuLanguage::cuda; }
  DeviceMeters meters() const override {
    return management_ != nullptr ? management_->meters(uuid_of(device_)) : DeviceMeters{};
  }
  Stream handles() const { return {context_.get(), stream()}; }

  std::shared_ptr<Buffer> allocate(size_t bytes) override {
    make_current();
    const size_t size = std::max<size_t>(bytes, 1);
    Address address = 0;
    api_.check(api_.cuMemAlloc(&address, size), "cuMemAlloc");
    auto buffer = std::make_shared<Buffer>();
    buffer->data = reinterpret_cast<std::byte*>(address);
    buffer->bytes = bytes;
    buffer->owner = owned(buffer->data, [context = context_](void* memory) {
      driver().cuCtxSetCurrent(context.get());
      driver().cuMemFree(address_of(memory));
    });
    api_.check(api_.cuMemsetD8Async(address, 0, size, stream()), "cuMemsetD8Async");
    return buffer;
  }
  MemoryUse use() const override {
    make_current();
    MemoryUse use;
    api_.check(api_.cuMemGetInfo(&use.available, &use.total), "cuMemGetInfo");
    return use;
  }
  void write(std::byte* to, const void* from, size_t bytes) override {
    make_current();
    staging_->write(address_of(to), static_cast<const std::byte*>(from), bytes);
  }
  void read(void* to, const std::byte* from, size_t bytes) override {
    if (bytes == 0) return;
    make_current();
    api_.check(api_.cuMemcpyDtoHAsync(to, address_of(from), bytes, stream()), "cuMemcpyDtoHAsync");
    finish();
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    if (bytes == 0) return;
    make_current();
    api_.check(api_.cuMemcpyDtoDAsync(address_of(to), address_of(from), bytes, stream()),
               "cuMemcpyDtoDAsync");
  }
  void copy_from(DeviceMemory& other, std::byte* to, const std::byte* from, size_t bytes) override {
    auto* peer = dynamic_cast<CudaDevice*>(&other);
    if (peer == nullptr) return gpu::Device::copy_from(other, to, from, bytes);
    if (bytes == 0) return;
    peer->finish();
    make_current();
    // The driver copies through the host where peer access is impossible.
    api_.cuCtxEnablePeerAccess(peer->context_.get(), 0);
    api_.check(api_.cuMemcpyPeerAsync(address_of(to), context_.get(), address_of(from),
                                      peer->context_.get(), bytes, stream()),
               "cuMemcpyPeerAsync");
    finish();  // the caller may free the source
  }
  std::unique_ptr<CopyStream> make_copy_stream(CopyDirection direction) override {
    make_current();
    const bool beside = !env_lists("WEFT_CUDA_OFF", "side-copies");
    const auto& side = direction == CopyDirection::to_device ? to_device_ : to_host_;
    return std::make_unique<CudaCopyStream>(handles(), beside ? side.get() : stream());
  }
  std::shared_ptr<Buffer> allocate_host(size_t bytes) override {
    make_current();
    void* memory = nullptr;
    api_.check(api_.cuMemHostAlloc(&memory, std::max<size_t>(bytes, 1), flag::portable_memory),
               "cuMemHostAlloc");
    auto buffer = std::make_shared<Buffer>();
    buffer->data = static_cast<std::byte*>(memory);
    buffer->bytes = bytes;
    buffer->pinned = true;
    buffer->owner = owned(memory, [context = context_](void* pinned) {
      driver().cuCtxSetCurrent(context.get());
      driver().cuMemFreeHost(pinned);
    });
    std::memset(memory, 0, bytes);
    return buffer;
  }
  void finish() override {
    make_current();
    api_.check(api_.cuStreamSynchronize(stream()), "cuStreamSynchronize");
  }
  std::unique_ptr<Timeline> make_timeline() override {
    return std::make_unique<CudaTimeline>(handles());
  }
  // Overwrites twice the L2 cache's size. That takes longer than the host needs to issue the next
  // kernel, so that launch overhead does not distort timings.
  void flush_caches() override {
    const size_t bytes = 2 * static_cast<size_t>(value_of(device_, attribute::l2_bytes));
    if (flushed_ == nullptr) flushed_ = allocate(bytes);
    make_current();
    api_.check(api_.cuMemsetD8Async(address_of(flushed_->data), 0, flushed_->bytes, stream()),
               "cuMemsetD8Async");
  }
  bool is_synchronous() const override { return env_flag("WEFT_CUDA_SYNC"); }

  gpu::Function function(const gpu::Program& program, const std::string& name) override {
    make_current();
    Handle function = nullptr;
    api_.check(api_.cuModuleGetFunction(&function, program.get(), name.c_str()),
               "cuModuleGetFunction");
    return {program, function};
  }

  void launch(const gpu::Function& function, std::span<void* const> addresses, int64_t groups,
              int threads) override {
    make_current();
    // cuLaunchKernel takes pointers to parameter values: an address and an offset for each buffer.
    int64_t offset = 0;
    parameters_.clear();
    for (void* const& address : addresses) {
      parameters_.push_back(static_cast<void*>(const_cast<void**>(&address)));
      parameters_.push_back(&offset);
    }
    api_.check(api_.cuLaunchKernel(function.get(), static_cast<unsigned>(groups), 1, 1,
                                   static_cast<unsigned>(threads), 1, 1, 0, stream(),
                                   parameters_.data(), nullptr),
               "cuLaunchKernel");
  }

  std::unique_ptr<Kernel> named(std::unique_ptr<Kernel> kernel,
                                const std::string& name) const override {
    return in_range(std::move(kernel), name);
  }
  std::unique_ptr<Kernel> record(const std::function<void()>& enqueue) override {
    // A graph is one launch: neither profilers nor errors can name its modules or kernels.
    if (has_ranges() || is_synchronous() || env_lists("WEFT_CUDA_OFF", "graphs")) return nullptr;
    if (refuses_graphs_) return nullptr;
    try {
      return captured(enqueue);
    } catch (const Error& error) {
      finish();  // throws if the device is lost
      refuses_graphs_ = true;
      logging::warn(
          "{} The step's kernels cannot be captured as a CUDA graph: they are launched one by one, "
          "which may be slower.",
          error.what());
      return nullptr;
    }
  }

 private:
  void make_current() const { handles().make_current(); }
  Handle stream() const { return stream_.get(); }

  std::unique_ptr<Kernel> captured(const std::function<void()>& enqueue) {
    make_current();
    api_.check(api_.cuStreamBeginCapture(stream(), flag::thread_local_capture),
               "cuStreamBeginCapture");
    Handle graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      api_.cuStreamEndCapture(stream(), &graph);
      if (graph != nullptr) api_.cuGraphDestroy(graph);
      throw;
    }
    api_.check(api_.cuStreamEndCapture(stream(), &graph), "cuStreamEndCapture");
    Handle executable = nullptr;
    const int status = api_.cuGraphInstantiate(&executable, graph, 0);
    api_.cuGraphDestroy(graph);
    api_.check(status, "cuGraphInstantiate");
    return std::make_unique<Graph>(executable, handles());
  }

  gpu::Program build(const std::string& source) override {
    const std::string text = fmt::format("nvrtc {} {}\n{}", compiler_.version(),
                                         fmt::join(cuda::Nvrtc::options(capability_), " "), source);
    std::optional<std::string> code = loop::read_object(text);
    if (!code) {
      code = compiler_.compile(source, capability_);
      loop::write_object(text, *code);
    }
    make_current();
    Handle module = nullptr;
    api_.check(api_.cuModuleLoadData(&module, code->data()), "cuModuleLoadData");
    return owned(module, [context = context_](void* loaded) {
      driver().cuCtxSetCurrent(context.get());
      driver().cuModuleUnload(loaded);
    });
  }

  const Driver& api_ = driver();
  const int device_, capability_;
  const Nvrtc compiler_;
  const std::unique_ptr<const Nvml> management_ = open_nvml();
  std::shared_ptr<void> context_, stream_, to_device_, to_host_;
  std::unique_ptr<Staging> staging_;
  std::shared_ptr<Buffer> flushed_;  // allocated by the first flush_caches()
  std::vector<void*> parameters_;    // reused, as launches do not allocate
  bool refuses_graphs_ = false;      // a capture has failed; later captures would, too
};
}  // namespace

std::unique_ptr<gpu::Device> open_device(int number) {
  return std::make_unique<CudaDevice>(number);
}

void Stream::make_current() const {
  driver().check(driver().cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

Stream stream_of(gpu::Device& device) {
  const Stream stream = static_cast<CudaDevice&>(device).handles();
  stream.make_current();
  return stream;
}

}  // namespace weft::cuda
