// NVIDIA's libraries without a GPU: memory is the host's, streams are as late as events allow,
// products, convolutions and attention are computed as they are written down. Kernels do nothing,
// or run on the processor, thread by thread. That, what else the libraries show, and how they fail,
// is said by the environment:
//   FAKE_CUDA_COMPILER    of C++, which compiles kernels for the processor (clang++)
//   FAKE_CUDA_VERSION     that the driver knows (13000)
//   FAKE_CUDA_DEVICES     GPUs that it shows (1)
//   FAKE_CUDA_HIDDEN      more GPUs that only the management library shows (0)
//   FAKE_CUDA_NAME        of the GPU (NVIDIA H200)
//   FAKE_CUDA_CAPABILITY  of the GPU (90)
//   FAKE_CUDA_MEMORY      of the GPU, in MiB (143000); FAKE_CUDA_HELD: by another process (0)
//   FAKE_CUDA_LOST_AFTER  launches, every call fails with FAKE_CUDA_LOST_CODE (214: ECC)
//   FAKE_CUDA_CAPTURE_FAILS  1: a graph takes four pieces of work and no more; 2: none is captured
//                         to its end; 3: none can be instantiated
//   FAKE_CUDA_ORDER       in which threads and groups run: reversed or shuffled (else by number)
//   FAKE_CUBLASLT_FAILS   1: no product runs; 2: none that does more than multiply;
//                         3: none by the first of its two algorithms
//   FAKE_CUBLASLT_VERSION (130000)
//   FAKE_CUBLASLT_REFUSES 1: no product has an algorithm; 2: none that does more than multiply
//   FAKE_CUDNN_VERSION    (92800); 0: there is none
//   FAKE_CUDNN_CUDA_VERSION  that it is made for (13000)
//   FAKE_CUDNN_REFUSES    1: no graph has an engine
//   FAKE_CUDA_IDLE        1: nothing is computed or copied, so that a step of any size is compiled
//   FAKE_CUDNN_FAILS      1: no plan runs; 2: none that has a single result in memory
//   FAKE_CUDNN_WORKSPACE  bytes of the engine that needs the most (1 TiB)
//   FAKE_CUDNN_PLANS      a file that gets a letter for each plan that is built: p, or t where it
//                         was built together with another
//   FAKE_CUDNN_TOGETHER   1: the first plan is not built before another one is, too (or 120 s are
//   over) FAKE_CUDA_GRAPHS      a file that gets a letter for each graph that is launched
//   FAKE_CUDA_WORK        a file that gets a letter for what is done, when it is: e for an event
//   that
//                         tells the time, w for any piece of work (a microsecond), sw for a memset,
//                         cw for a copy beside the kernels: not in the first stream of its context
//   FAKE_NVRTC_FAILS      1: no kernel compiles; 2: a part of the library is not there
//   FAKE_NVRTC_VERSION    of the compiler (12990, 12980 with FAKE_CUDA_COMPILER)
//   FAKE_NVML_FAILS       1: the management library finds no driver
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
inline unsigned char uuid_byte(int gpu) {  // all sixteen
  return static_cast<unsigned char>(0xab + gpu);
}
inline bool is_idle() { return number("FAKE_CUDA_IDLE", 0) != 0; }
inline const char* compiler() { return text("FAKE_CUDA_COMPILER", ""); }

// The context is lost to this from now on, as to what a kernel does wrong: every call fails with
// it.
void fault(int code);

// Into a stream of the context that is current. What the driver says, 0: done later, or with each
// launch of the graph that is being captured.
int enqueue(void* stream, std::function<void()> what);

}  // namespace fake
