// Simulates NVIDIA's libraries without a GPU: device memory is host memory, streams run as late as
// events allow, and products, convolutions and attention are computed by definition. Kernels do
// nothing, or run on the CPU, thread by thread. Environment variables select this, the reported
// properties, and failures (defaults in parentheses):
//   FAKE_CUDA_COMPILER       C++ compiler that compiles kernels for the CPU (none)
//   FAKE_CUDA_VERSION        of the driver (13000)
//   FAKE_CUDA_DEVICES        number of GPUs (1)
//   FAKE_CUDA_HIDDEN         number of GPUs that only the management library reports (0)
//   FAKE_CUDA_NAME           of the GPU (NVIDIA H200)
//   FAKE_CUDA_CAPABILITY     of the GPU (90)
//   FAKE_CUDA_MEMORY         of the GPU, in MiB (143000)
//   FAKE_CUDA_HELD           MiB held by another process (0)
//   FAKE_CUDA_LOST_AFTER     launches after which every call fails (never)
//   FAKE_CUDA_LOST_CODE      the code of such failures (214: ECC)
//   FAKE_CUDA_CAPTURE_FAILS  1: a graph captures at most four tasks; 2: no capture can end;
//                            3: no graph can be instantiated
//   FAKE_CUDA_ORDER          order of threads and groups: reversed or shuffled (ascending)
//   FAKE_CUDA_IDLE           1: nothing is computed or copied, so that steps of any size compile
//   FAKE_CUDA_GRAPHS         file that gets a letter for each launched graph
//   FAKE_CUDA_WORK           file that gets letters for tasks in execution order: e for an event
//                            that records time, w for any task (a microsecond), sw for a memset,
//                            cw for a copy outside the first stream of its context
//   FAKE_CUBLASLT_FAILS      1: no product runs; 2: none with an epilogue; 3: none by the first of
//                            the two algorithms
//   FAKE_CUBLASLT_REFUSES    1: no product has an algorithm; 2: none with an epilogue
//   FAKE_CUBLASLT_VERSION    (130000)
//   FAKE_CUDNN_VERSION       (92800); 0: there is no cuDNN
//   FAKE_CUDNN_CUDA_VERSION  CUDA version that cuDNN is built for (13000)
//   FAKE_CUDNN_REFUSES       1: no graph has an engine
//   FAKE_CUDNN_FAILS         1: no plan runs; 2: none with a single result in memory
//   FAKE_CUDNN_WORKSPACE     bytes of the engine that needs the most (1 TiB)
//   FAKE_CUDNN_PLANS         file that gets a letter for each built plan: p, or t if it was built
//                            in parallel with another
//   FAKE_CUDNN_TOGETHER      1: the first plan is built only when another build has begun, or
//                            after 120 s
//   FAKE_NVRTC_FAILS         1: no kernel compiles; 2: a part of the library is missing
//   FAKE_NVRTC_VERSION       (12990, or 12980 with FAKE_CUDA_COMPILER)
//   FAKE_NVML_FAILS          1: the management library finds no driver
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>

namespace fake {

inline const char* text(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}
inline long number(const char* name, long otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atol(value) : otherwise;
}
inline size_t memory() { return static_cast<size_t>(number("FAKE_CUDA_MEMORY", 143000)) << 20; }
inline size_t held() { return static_cast<size_t>(number("FAKE_CUDA_HELD", 0)) << 20; }
inline const char* name() { return text("FAKE_CUDA_NAME", "NVIDIA H200"); }
inline unsigned char uuid_byte(int gpu) {  // of each of the 16 bytes
  return static_cast<unsigned char>(0xab + gpu);
}
inline bool is_idle() { return number("FAKE_CUDA_IDLE", 0) != 0; }
inline const char* compiler() { return text("FAKE_CUDA_COMPILER", ""); }

// Makes every later call fail with `code`, as after an error of a kernel.
void fault(int code);

// Enqueues work into a stream of the current context; it runs later, or with each launch of the
// graph being captured. Returns the driver's status.
int enqueue(void* stream, std::function<void()> what);

}  // namespace fake
