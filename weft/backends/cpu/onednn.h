// oneDNN behind one small door: every call is checked, every byte it needs is counted beforehand,
// and what differs between its major versions (2 is supported) stays in onednn.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "weft/base/dtype.h"
#include "weft/base/shape.h"

namespace weft::onednn {

// A tensor by strides, in elements. `free`: the primitive may choose another layout for its own
// use; then elements are converted through the workspace.
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
  Dims stride, padding, padding_after, dilation;  // of convolutions, per spatial axis
  bool accumulate = false;                        // of matmul: adds to what the result holds
};

// One primitive for each thread of the team (onednn_cut.h), with the conversions around it. Running
// allocates nothing of note: oneDNN itself takes less than 1 KiB for each list of arguments and
// gives it back.
class Primitive {
 public:
  // nullopt where oneDNN has no implementation, or only ones that hide memory (its `ref` and
  // `gemm`).
  static std::optional<Primitive> make(const Problem& problem);
  Primitive(Primitive&&) noexcept;
  Primitive& operator=(Primitive&&) noexcept;
  ~Primitive();

  const std::string& implementation() const;  // "brg:avx512_core"
  size_t workspace() const;                   // bytes, aligned to buffer_alignment by the caller
  void run(const void* a, const void* b, void* result, void* workspace) const;

 private:
  struct Parts;
  explicit Primitive(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Whether oneDNN computes with elements of this type on this machine.
bool supports(DType dtype);
std::string version();  // "2.6.3"

}  // namespace weft::onednn
