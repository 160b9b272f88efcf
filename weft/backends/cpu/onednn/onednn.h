// Wraps oneDNN in a small interface: every call is checked, every byte it needs is counted
// beforehand, and differences between its major versions (2 is supported) stay behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/shape.h"

namespace weft::onednn {

// Tensor has strides in elements. If it is `free`, the primitive may choose another layout;
// elements are then converted through the workspace.
struct Tensor {
  DType dtype = DType::f32;
  Dims shape, strides;
  bool free = false;
};

enum class Operation {
  matmul,                // a[.., M, K], b[.., K, N] -> [.., M, N]
  conv,                  // x, weight -> y
  conv_input_gradient,   // dy, weight -> dx
  conv_weight_gradient,  // x, dy -> dweight
};

struct Problem {
  Operation operation = Operation::matmul;
  Tensor a, b, result;
  Dims stride, padding, padding_after, dilation;  // attributes of convolutions, per spatial axis
  bool accumulate = false;                        // matmul: adds to the result
  bool packs_b = false;  // b stays packed, in the layout that it is converted to, from run to run
};

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
// Returns the rows of x that these rows of a convolution's result are computed from.
Range rows_read(const Problem& conv, const Range& made);

// Primitive holds one oneDNN primitive per thread of the team (cut.h), with the conversions
// around it. Running allocates almost nothing: oneDNN takes less than 1 KiB for each list of
// arguments and frees it.
class Primitive {
 public:
  // Returns nullopt where oneDNN has no implementation, or only `ref` and `gemm` ones, which are
  // slow or allocate hidden memory.
  static std::optional<Primitive> make(const Problem& problem);
  Primitive(Primitive&&) noexcept;
  Primitive& operator=(Primitive&&) noexcept;
  ~Primitive();

  const std::string& implementation() const;  // "brg:avx512_core"
  size_t workspace() const;                   // bytes, aligned to buffer_alignment by the caller
  // Returns the bytes that run() needs for b in the packed layout; 0: b is not converted.
  size_t packed_bytes() const;
  int objects() const;  // primitives of oneDNN, one or more for each thread that has a part
  // `packed` is memory of packed_bytes() for the converted b, which lasts between runs; with
  // `packs`, this run converts b to `packed` first.
  void run(const void* a, const void* b, void* result, void* workspace, void* packed = nullptr,
           bool packs = false) const;

 private:
  struct Parts;
  explicit Primitive(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Strips computes a convolution a strip of one image's rows at a time, on the calling thread, whose
// cache has the rows that the strip reads if the thread has just computed them. Activations are
// channels-last.
class Strips {
 public:
  // `strips` are rows of the result. Returns nullopt if oneDNN has no implementation for a strip,
  // or if a strip reads only padding.
  static std::optional<Strips> make(const Problem& problem, std::span<const Range> strips);
  Strips(Strips&&) noexcept;
  Strips& operator=(Strips&&) noexcept;
  ~Strips();

  size_t workspace() const;  // as of a Primitive
  size_t packed_bytes() const;
  int objects() const;
  // Converts b on the whole team, before any strip runs.
  void prepare(const void* b, void* workspace, void* packed, bool packs) const;
  // Computes a strip: `a` is the first row that it reads, `result` the first row that it makes.
  // `thread` is below thread_count(), and different for threads that run at the same time. Returns
  // whether oneDNN succeeded.
  [[nodiscard]] bool run(size_t strip, int64_t thread, const void* a, const void* b, void* result,
                         void* workspace, void* packed) const;

 private:
  struct Parts;
  explicit Strips(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Returns whether oneDNN computes with elements of this type on this machine.
bool supports(DType dtype);
// Returns whether oneDNN sums products of u8 or i8 by i8 exactly in i32 on this machine, by VNNI or
// AMX: the instruction of AVX2 saturates sums of two products.
bool multiplies_bytes();
std::string version();  // "2.6.3"

}  // namespace weft::onednn
