#include "tests/fake_cuda/cudnn_operations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "tests/fake_cuda/numbers.h"

namespace fake::cudnn {
namespace {

int64_t product(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

// Returns the offset of each element, in row-major order.
Extents places(const Extents& extents, const Extents& strides) {
  Extents all{0};
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    Extents finer;
    finer.reserve(all.size() * static_cast<size_t>(extents[axis]));
    for (int64_t at : all)
      for (int64_t i = 0; i < extents[axis]; ++i) finer.push_back(at + i * strides[axis]);
    all = std::move(finer);
  }
  return all;
}
Extents row_major(const Extents& extents) {
  Extents strides(extents.size(), 1);
  for (size_t axis = extents.size() - 1; axis > 0; --axis)
    strides[axis - 1] = strides[axis] * extents[axis];
  return strides;
}
// Returns the offsets into an array of `extents` for each element of one of `over`; axes of one
// element are broadcast.
Extents broadcast(const Extents& extents, const Extents& over) {
  Extents strides = row_major(extents);
  for (size_t axis = 0; axis < extents.size(); ++axis)
    if (extents[axis] == 1) strides[axis] = 0;
  return places(over, strides);
}

// Converts one of cuDNN's types that tensors in memory can have.
Number number_of(int type) {
  return type == CUDNN_DATA_DOUBLE  ? Number::f64
         : type == CUDNN_DATA_FLOAT ? Number::f32
         : type == CUDNN_DATA_HALF  ? Number::f16
                                    : Number::bf16;
}

double rounded(int type, double x) {
  if (type == CUDNN_DATA_INT32) return std::trunc(x);
  if (type == CUDNN_DATA_BOOLEAN) return x != 0 ? 1 : 0;
  double memory = 0;
  fake::store(number_of(type), &memory, 0, x);
  return fake::load(number_of(type), &memory, 0);
}
double keep_bits(double x, int bits) {
  if (!std::isfinite(x)) return x;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits + 1)), exponent - bits - 1);
}
Array factor(const Operation& operation, size_t input, std::map<int64_t, Array>& values,
             Rounding rounding) {
  const Tensor& tensor = operation.inputs[input];
  Array all = values.at(tensor.id);
  if (rounding == Rounding::coarse)
    for (double& x : all) x = keep_bits(x, 3);
  if (rounding == Rounding::tf32 && tensor.type == CUDNN_DATA_FLOAT)
    for (double& x : all) x = keep_bits(x, 10);
  return all;
}

// ---- convolutions: x[N, G * C, H, W], w[G * K, C, R, S], y[N, G * K, P, Q]

struct Geometry {
  explicit Geometry(const Operation& operation) : convolution(operation.convolution) {
    std::vector<Extents> all;
    std::ranges::transform(operation.inputs, std::back_inserter(all), &Tensor::extents);
    all.insert(all.begin() + static_cast<ptrdiff_t>(convolution.result), operation.result.extents);
    x = all[0], w = all[1], y = all[2];
  }
  int64_t groups() const { return x[1] / w[1]; }
  bool fits() const {
    if (x.size() != 4 || w.size() != 4 || y.size() != 4) return false;
    bool all = x[0] == y[0] && x[1] % w[1] == 0 && w[0] % groups() == 0 && w[0] == y[1];
    for (size_t axis = 0; axis < 2; ++axis) {
      const int64_t reach = convolution.dilation[axis] * (w[2 + axis] - 1) + 1;
      const int64_t room = x[2 + axis] + convolution.before[axis] + convolution.after[axis] - reach;
      all = all && room >= 0 && y[2 + axis] == room / convolution.stride[axis] + 1;
    }
    return all;
  }

  // Calls `use` for each product with the offsets of its elements of x, w and y.
  void for_each(const auto& use) const {
    const int64_t channels = w[1], outputs = w[0] / groups();
    for (int64_t n = 0; n < x[0]; ++n)
      for (int64_t o = 0; o < w[0]; ++o)
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t r = 0; r < w[2]; ++r)
            for (int64_t s = 0; s < w[3]; ++s)
              for (int64_t p = 0; p < y[2]; ++p) {
                const int64_t h = at(0, p, r);
                if (h < 0 || h >= x[2]) continue;
                const int64_t image = (n * x[1] + o / outputs * channels + c) * x[2] + h;
                const int64_t weight = ((o * channels + c) * w[2] + r) * w[3] + s;
                const int64_t row = ((n * y[1] + o) * y[2] + p) * y[3];
                for (int64_t q = 0; q < y[3]; ++q)
                  if (const int64_t v = at(1, q, s); v >= 0 && v < x[3])
                    use(image * x[3] + v, weight, row + q);
              }
  }

  const Convolution& convolution;
  Extents x, w, y;

 private:
  int64_t at(size_t axis, int64_t out, int64_t tap) const {
    return out * convolution.stride[axis] - convolution.before[axis] +
           tap * convolution.dilation[axis];
  }
};

Array convolve(const Operation& operation, std::map<int64_t, Array>& values, Rounding rounding) {
  const Geometry geometry(operation);
  const Array a = factor(operation, 0, values, rounding),
              b = factor(operation, 1, values, rounding);
  Array sums(static_cast<size_t>(product(operation.result.extents)));
  switch (operation.convolution.result) {
    case 0:
      geometry.for_each([&](size_t x, size_t w, size_t y) { sums[x] += a[w] * b[y]; });
      break;
    case 1:
      geometry.for_each([&](size_t x, size_t w, size_t y) { sums[w] += a[x] * b[y]; });
      break;
    default:
      geometry.for_each([&](size_t x, size_t w, size_t y) { sums[y] += a[x] * b[w]; });
  }
  const auto [alpha, beta] = std::pair(operation.convolution.alpha, operation.convolution.beta);
  for (double& sum : sums) sum *= alpha;
  if (beta != 0)
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += beta * values.at(operation.result.id)[i];
  return sums;
}

// ---- other operations

// Leading axes are batches: where an operand has fewer by a factor of c, c consecutive batches
// share one.
Array multiply(const Operation& operation, std::map<int64_t, Array>& values, Rounding rounding) {
  const Extents &as = operation.inputs[0].extents, &bs = operation.inputs[1].extents,
                &cs = operation.result.extents;
  const Array a = factor(operation, 0, values, rounding),
              b = factor(operation, 1, values, rounding);
  const size_t rank = cs.size();
  const int64_t rows = cs[rank - 2], columns = cs[rank - 1], terms = as[rank - 1];
  auto batch_of = [&](const Extents& from, int64_t batch) {
    int64_t found = 0, step = 1;
    for (size_t axis = rank - 2; axis-- > 0;) {
      found += batch % cs[axis] / (cs[axis] / from[axis]) * step;
      step *= from[axis];
      batch /= cs[axis];
    }
    return found;
  };
  Array c;
  c.reserve(static_cast<size_t>(product(cs)));
  for (int64_t batch = 0; batch < product(cs) / (rows * columns); ++batch) {
    const double* const from_a = a.data() + batch_of(as, batch) * rows * terms;
    const double* const from_b = b.data() + batch_of(bs, batch) * terms * columns;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        double sum = 0;
        for (int64_t k = 0; k < terms; ++k)
          sum += from_a[row * terms + k] * from_b[k * columns + column];
        c.push_back(sum);
      }
  }
  return c;
}

// Returns the number of inputs; 0 for an unsupported mode.
size_t inputs_of(int pointwise_mode) {
  switch (pointwise_mode) {
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_GEN_INDEX:
      return 1;
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_CMP_GE:
      return 2;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return 3;
    default:
      return 0;
  }
}
double apply(int mode, double x, double b, double t) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b ? 1 : 0;
    default:
      return t != 0 ? x : b;
  }
}
Array pointwise(const Operation& operation, std::map<int64_t, Array>& values) {
  const Extents& extents = operation.result.extents;
  if (operation.mode == CUDNN_POINTWISE_GEN_INDEX) {
    Extents along(extents.size(), 0);
    along[static_cast<size_t>(operation.axis)] = 1;
    const Extents indices = places(extents, along);
    return {indices.begin(), indices.end()};
  }
  std::vector<Array> inputs;
  for (const Tensor& input : operation.inputs) {
    inputs.emplace_back();
    for (int64_t at : broadcast(input.extents, extents))
      inputs.back().push_back(values.at(input.id)[static_cast<size_t>(at)]);
  }
  Array results(inputs[0].size());
  for (size_t i = 0; i < results.size(); ++i)
    results[i] = apply(operation.mode, inputs[0][i], inputs.size() > 1 ? inputs[1][i] : 0,
                       inputs.size() > 2 ? inputs[2][i] : 0);
  return results;
}

Array reduce(const Operation& operation, std::map<int64_t, Array>& values) {
  const bool adds = operation.mode == CUDNN_REDUCE_TENSOR_ADD;
  Array results(static_cast<size_t>(product(operation.result.extents)),
                adds ? 0 : -std::numeric_limits<double>::infinity());
  const Tensor& x = operation.inputs[0];
  const Extents into = broadcast(operation.result.extents, x.extents);
  for (size_t i = 0; i < into.size(); ++i) {
    double& result = results[static_cast<size_t>(into[i])];
    const double value = values.at(x.id)[i];
    result = adds ? result + value : std::fmax(result, value);
  }
  return results;
}

// Views the same memory with other extents and strides.
Array reshape(const Operation& operation, std::map<int64_t, Array>& values) {
  const Tensor &x = operation.inputs[0], &y = operation.result;
  const Extents from = places(x.extents, x.strides);
  std::map<int64_t, double> memory;
  for (size_t i = 0; i < from.size(); ++i) memory[from[i]] = values.at(x.id)[i];
  Array results;
  for (int64_t at : places(y.extents, y.strides)) results.push_back(memory.at(at));
  return results;
}

bool factors(const Extents& of, const Extents& result, bool or_one) {
  for (size_t axis = 0; axis < result.size(); ++axis)
    if (of[axis] != result[axis] && (or_one ? of[axis] != 1 : result[axis] % of[axis] != 0))
      return false;
  return true;
}
bool is_matmul(const Extents& a, const Extents& b, const Extents& c) {
  const size_t rank = c.size();
  auto batches = [&](const Extents& of) { return Extents(of.begin(), of.end() - 2); };
  return rank >= 2 && a.size() == rank && b.size() == rank && a[rank - 2] == c[rank - 2] &&
         b[rank - 1] == c[rank - 1] && a[rank - 1] == b[rank - 2] &&
         factors(batches(a), batches(c), false) && factors(batches(b), batches(c), false);
}
// Returns extents and strides of the axes with several elements, independent of the order of axes.
std::vector<std::pair<int64_t, int64_t>> axes_of(const Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> axes;
  for (size_t axis = 0; axis < tensor.extents.size(); ++axis)
    if (tensor.extents[axis] > 1) axes.emplace_back(tensor.extents[axis], tensor.strides[axis]);
  std::ranges::sort(axes);
  return axes;
}
bool same_memory(const Tensor& x, const Tensor& y) {
  if (axes_of(x) == axes_of(y)) return true;  // transposed: avoids enumerating large tensors
  Extents from = places(x.extents, x.strides), to = places(y.extents, y.strides);
  std::ranges::sort(from);
  std::ranges::sort(to);
  return from == to;
}
}  // namespace

void require(bool holds, Status otherwise, const std::string& rule) {
  if (!holds) throw Refused{otherwise, rule};
}

size_t size_of(int type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
      return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_BOOLEAN:
      return 1;
    default:
      return 0;
  }
}

void check(const Operation& operation) {
  auto fits = [](bool holds, const char* rule) { require(holds, CUDNN_STATUS_BAD_PARAM, rule); };
  const Extents &x = operation.inputs[0].extents, &y = operation.result.extents;
  switch (operation.kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return fits(is_matmul(x, operation.inputs[1].extents, y), "C = A B");
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      fits(operation.mode == CUDNN_REDUCE_TENSOR_ADD || operation.mode == CUDNN_REDUCE_TENSOR_MAX,
           "a reduction that the fake has");
      return fits(x.size() == y.size() && factors(y, x, true), "axes are kept or become 1");
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return fits(same_memory(operation.inputs[0], operation.result), "the same memory");
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      fits(operation.inputs.size() == inputs_of(operation.mode), "inputs are as many as it has");
      for (const Tensor& input : operation.inputs)
        fits(input.extents.size() == y.size() && factors(input.extents, y, true),
             "inputs broadcast to the result");
      return fits(operation.axis >= 0 && operation.axis < static_cast<int64_t>(y.size()),
                  "an axis of the result");
    default:
      fits(Geometry(operation).fits(), "x, w and y are of one convolution");
  }
}

Array load(const Tensor& tensor, const void* from) {
  const Extents all = places(tensor.extents, tensor.strides);
  const Number type = number_of(tensor.type);
  Array values(all.size());
  std::ranges::transform(all, values.begin(),
                         [&](int64_t at) { return fake::load(type, from, at); });
  return values;
}

void store(const Tensor& tensor, const Array& values, void* to) {
  const Extents all = places(tensor.extents, tensor.strides);
  const Number type = number_of(tensor.type);
  for (size_t i = 0; i < all.size(); ++i) fake::store(type, to, all[i], values[i]);
}

void compute(const Operation& operation, std::map<int64_t, Array>& values, Rounding rounding) {
  auto result = [&] {
    switch (operation.kind) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return multiply(operation, values, rounding);
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return reduce(operation, values);
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return reshape(operation, values);
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return pointwise(operation, values);
      default:
        return convolve(operation, values, rounding);
    }
  }();
  for (double& value : result) value = rounded(operation.result.type, value);
  values[operation.result.id] = std::move(result);
}

}  // namespace fake::cudnn
