// What the operations of cuDNN's graphs compute, as its documentation has them, on the host.
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
size_t size_of(int type);  // bytes; 0: the fake has none of that type

struct Convolution {
  size_t result = 2;  // of x, w and y
  Extents stride, before, after, dilation;
  double alpha = 1, beta = 0;  // result = alpha * sums + beta * what it was
};

struct Operation {
  Kind kind{};
  std::vector<Tensor> inputs;
  Tensor result;
  int mode = 0;      // of PointwiseMode or ReductionOperator
  int64_t axis = 0;  // of CUDNN_POINTWISE_GEN_INDEX
  Convolution convolution = {};
};
// Throws Refused where the tensors are none of such an operation.
void check(const Operation& operation);

// How engines take float32 and narrower operands of products: as they are, of 10 bits after the
// first, or so that everybody sees it.
enum class Rounding : uint8_t { none, tf32, coarse };

using Array = std::vector<double>;  // row by row, however the tensor lies in memory
Array load(const Tensor& tensor, const void* from);
void store(const Tensor& tensor, const Array& values, void* to);
// Adds the result to `values`, which has the inputs by their ids, rounded to its type.
void compute(const Operation& operation, std::map<int64_t, Array>& values, Rounding rounding);

}  // namespace fake::cudnn
