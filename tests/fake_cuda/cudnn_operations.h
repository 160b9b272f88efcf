// Computes the operations of cuDNN's graphs on the host, as its documentation defines them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/fake_cuda/cudnn_numbers.h"

namespace fake::cudnn {

struct Refused {
  Status status;
  std::string why;
};
void require(bool holds, Status otherwise, const std::string& rule);

using Extents = std::vector<int64_t>;

struct Tensor {
  int64_t id = 0;
  int type = CUDNN_DATA_FLOAT;
  int64_t alignment = 1;  // bytes
  Extents extents, strides;
  bool is_virtual = false, is_by_value = false;
  bool operator==(const Tensor&) const = default;
};
size_t size_of(int type);  // bytes; 0: unsupported type

struct Convolution {
  size_t result = 2;  // index of the result in x, w, y
  Extents stride, before, after, dilation;
  double alpha = 1, beta = 0;  // result = alpha * sums + beta * old result
};

struct Operation {
  Kind kind{};
  std::vector<Tensor> inputs;
  Tensor result;
  int mode = 0;      // PointwiseMode or ReductionOperator
  int64_t axis = 0;  // for CUDNN_POINTWISE_GEN_INDEX
  Convolution convolution = {};
};
// Throws Refused where the tensors do not fit the operation.
void check(const Operation& operation);

// Rounding is the precision of float32 and narrower operands of products: unchanged, with 10
// fraction bits, or so coarse that every test notices.
enum class Rounding : uint8_t { none, tf32, coarse };

using Array = std::vector<double>;  // row-major, independent of the tensor's strides
Array load(const Tensor& tensor, const void* from);
void store(const Tensor& tensor, const Array& values, void* to);
// Adds the result, rounded to its type, to `values`, which maps ids of inputs to arrays.
void compute(const Operation& operation, std::map<int64_t, Array>& values, Rounding rounding);

}  // namespace fake::cudnn
