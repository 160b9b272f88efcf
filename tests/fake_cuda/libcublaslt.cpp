// Simulates cuBLASLt: products are computed by definition, in float64.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake.h"
#include "tests/fake_cuda/numbers.h"

namespace {
using Handle = void*;
constexpr int invalid = 7, execution_failed = 13, misaligned = 716;
enum DataType : int { r_32f = 0, r_64f = 1, r_16f = 2, r_16bf = 14 };
enum Epilogue : uint32_t {
  none = 1,
  bias_only = 4,
  gelu = 32,
  gelu_bias = 36,
  gelu_aux = 160,
  gelu_aux_bias = 164,
  dgelu = 192,
  bgradb = 512,
};

struct Matmul {
  int scale = 0;  // type of alpha and beta
  int32_t transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = none;
  void *bias = nullptr, *aux = nullptr;
  int64_t aux_stride = 0;

  bool adds_bias() const {
    return epilogue == bias_only || epilogue == gelu_bias || epilogue == gelu_aux_bias;
  }
  bool has_aux() const {
    return epilogue == gelu_aux || epilogue == gelu_aux_bias || epilogue == dgelu;
  }
};

// Return GELU by the tanh approximation, and its derivative.
double gelu_of(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double scale = std::sqrt(2 / M_PI), t = std::tanh(scale * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}
// A Layout is a column-major matrix layout.
struct Layout {
  int type = 0;
  int64_t rows = 0, columns = 0, stride = 0;
  int32_t batches = 1;
  int64_t batch_stride = 0;
};
struct Preference {
  uint32_t reduction_schemes = 0x7, alignment = 256;  // CUBLASLT_REDUCTION_SCHEME_MASK
};
struct Found {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};
template <class T>
const T& as(const void* of) {
  return *static_cast<const T*>(of);
}
fake::Number number_of(int type) {
  return type == r_64f   ? fake::Number::f64
         : type == r_32f ? fake::Number::f32
         : type == r_16f ? fake::Number::f16
                         : fake::Number::bf16;
}
double load(int type, const void* from, int64_t at) {
  return fake::load(number_of(type), from, at);
}
void store(int type, void* to, int64_t at, double value) {
  fake::store(number_of(type), to, at, value);
}

// An Operand gives element (row, column) of a matrix of the batch, or of its transpose.
struct Operand {
  Layout layout;
  const void* data = nullptr;
  bool transposed = false;

  int64_t rows() const { return transposed ? layout.columns : layout.rows; }
  int64_t columns() const { return transposed ? layout.rows : layout.columns; }
  int64_t place(int64_t batch, int64_t row, int64_t column) const {
    if (transposed) std::swap(row, column);
    return batch * layout.batch_stride + row + column * layout.stride;
  }
  double at(int64_t batch, int64_t row, int64_t column) const {
    return load(layout.type, data, place(batch, row, column));
  }
};

int give(Handle* to) {
  static int something;
  *to = &something;
  return 0;
}
template <class T>
int drop(Handle object) {
  delete static_cast<T*>(object);
  return 0;
}
}  // namespace

extern "C" {
int cublasLtCreate(Handle* handle) { return give(handle); }
int cublasLtMatmulDescCreate(Handle* matmul, int, int scale) {
  *matmul = new Matmul{.scale = scale};
  return 0;
}
int cublasLtMatmulDescDestroy(Handle matmul) { return drop<Matmul>(matmul); }
int cublasLtMatmulDescSetAttribute(Handle handle, int attribute, const void* value, size_t bytes) {
  Matmul& matmul = *static_cast<Matmul*>(handle);
  const bool is_wide = attribute == 8 || attribute == 11 || attribute == 12;
  if (bytes != (is_wide ? sizeof(int64_t) : sizeof(int32_t))) return invalid;
  switch (attribute) {
    case 3:
      matmul.transpose_a = as<int32_t>(value);
      return 0;
    case 4:
      matmul.transpose_b = as<int32_t>(value);
      return 0;
    case 7:
      matmul.epilogue = as<uint32_t>(value);
      switch (matmul.epilogue) {
        case none:
        case bias_only:
        case gelu:
        case gelu_bias:
        case gelu_aux:
        case gelu_aux_bias:
        case dgelu:
        case bgradb:
          return 0;
        default:
          return invalid;
      }
    case 8:
      matmul.bias = as<void*>(value);
      return 0;
    case 11:
      matmul.aux = as<void*>(value);
      return 0;
    case 12:
      matmul.aux_stride = as<int64_t>(value);
      return 0;
    default:
      return invalid;
  }
}
int cublasLtMatrixLayoutCreate(Handle* layout, int type, uint64_t rows, uint64_t columns,
                               int64_t stride) {
  *layout = new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride};
  return stride < static_cast<int64_t>(rows) ? invalid : 0;
}
int cublasLtMatrixLayoutDestroy(Handle layout) { return drop<Layout>(layout); }
int cublasLtMatrixLayoutSetAttribute(Handle handle, int attribute, const void* value,
                                     size_t bytes) {
  Layout& layout = *static_cast<Layout*>(handle);
  if (bytes != (attribute == 6 ? sizeof(int64_t) : sizeof(int32_t))) return invalid;
  switch (attribute) {
    case 5:
      layout.batches = as<int32_t>(value);
      return 0;
    case 6:
      layout.batch_stride = as<int64_t>(value);
      return 0;
    default:
      return invalid;
  }
}
int cublasLtMatmulPreferenceCreate(Handle* handle) {
  *handle = new Preference;
  return 0;
}
int cublasLtMatmulPreferenceDestroy(Handle preference) { return drop<Preference>(preference); }
int cublasLtMatmulPreferenceSetAttribute(Handle handle, int attribute, const void* value,
                                         size_t bytes) {
  if (bytes != (attribute == 1 ? sizeof(uint64_t) : sizeof(uint32_t))) return invalid;
  Preference& preference = *static_cast<Preference*>(handle);
  if (attribute == 3) preference.reduction_schemes = as<uint32_t>(value);
  if (attribute >= 5 && attribute <= 8)
    preference.alignment = std::min(preference.alignment, as<uint32_t>(value));
  return 0;
}
// Returns two equivalent algorithms, preceded by a third one if the preference allows all
// reductions and promises full alignment.
int cublasLtMatmulAlgoGetHeuristic(Handle, Handle matmul, Handle, Handle, Handle, Handle,
                                   Handle preference_handle, int most, Found* found, int* count) {
  const long refuses = fake::number("FAKE_CUBLASLT_REFUSES", 0);
  const bool none_does = refuses == 1 || (refuses == 2 && as<Matmul>(matmul).epilogue != none);
  const auto& preference = as<Preference>(preference_handle);
  std::vector<uint64_t> algorithms{0, 1};
  if (preference.reduction_schemes == Preference{}.reduction_schemes &&
      preference.alignment == Preference{}.alignment)
    algorithms.insert(algorithms.begin(), 2);
  *count = none_does ? 0 : std::min(most, static_cast<int>(algorithms.size()));
  for (int i = 0; i < *count; ++i) found[i] = {.algorithm = {algorithms[static_cast<size_t>(i)]}};
  return 0;
}
int cublasLtMatmulAlgoCheck(Handle, Handle, Handle, Handle, Handle, Handle, const void*,
                            Found* found) {
  *found = {};
  return 0;
}
int cublasLtMatmul(Handle, Handle handle, const void* alpha, const void* a_data, Handle a_layout,
                   const void* b_data, Handle b_layout, const void* beta, const void* so_far,
                   Handle so_far_layout, void* result, Handle result_layout, const void* algorithm,
                   void*, size_t, Handle stream) {
  const Matmul matmul = as<Matmul>(handle);
  const Operand a{as<Layout>(a_layout), a_data, matmul.transpose_a != 0};
  const Operand b{as<Layout>(b_layout), b_data, matmul.transpose_b != 0};
  const Operand c{as<Layout>(so_far_layout), so_far}, d{as<Layout>(result_layout), result};
  const int64_t terms = a.columns();
  const long fails = fake::number("FAKE_CUBLASLT_FAILS", 0);
  if (fails == 1 || (fails == 2 && matmul.epilogue != none) ||
      (fails == 3 && as<uint64_t>(algorithm) == 0))
    return execution_failed;
  const bool has_vector = matmul.adds_bias() || matmul.epilogue == bgradb;
  if (has_vector && reinterpret_cast<uintptr_t>(matmul.bias) % 16 != 0) fake::fault(misaligned);
  if (b.rows() != terms || d.rows() != a.rows() || d.columns() != b.columns()) return invalid;
  if (matmul.has_aux() &&
      (matmul.aux_stride % 8 != 0 || matmul.aux_stride < d.rows() ||
       reinterpret_cast<uintptr_t>(matmul.aux) % 16 != 0 || d.layout.batches > 1))
    return invalid;
  const double times = load(matmul.scale, alpha, 0), keeps = load(matmul.scale, beta, 0);
  const int refused = fake::enqueue(stream, [=] {
    for (int64_t batch = 0; batch < d.layout.batches; ++batch)
      for (int64_t column = 0; column < d.columns(); ++column)
        for (int64_t row = 0; row < d.rows(); ++row) {
          double sum = 0;
          for (int64_t k = 0; k < terms; ++k) sum += a.at(batch, row, k) * b.at(batch, k, column);
          sum *= times;
          if (keeps != 0) sum += keeps * c.at(batch, row, column);
          if (matmul.adds_bias()) sum += load(d.layout.type, matmul.bias, row);
          const int64_t aux = row + column * matmul.aux_stride;
          if (matmul.epilogue == dgelu) {
            sum *= gelu_slope(load(d.layout.type, matmul.aux, aux));
          } else {
            if (matmul.has_aux()) store(d.layout.type, matmul.aux, aux, sum);
            if ((matmul.epilogue & gelu) != 0) sum = gelu_of(sum);
          }
          store(d.layout.type, result, d.place(batch, row, column), sum);
        }
    if (matmul.epilogue != bgradb) return;
    for (int64_t column = 0; column < d.columns(); ++column) {
      double sum = 0;
      for (int64_t k = 0; k < terms; ++k) sum += b.at(0, k, column);
      store(d.layout.type, matmul.bias, column, sum);
    }
  });
  return refused == 0 ? 0 : execution_failed;
}
size_t cublasLtGetVersion() {
  return static_cast<size_t>(fake::number("FAKE_CUBLASLT_VERSION", 130000));
}
const char* cublasLtGetStatusString(int status) {
  return status == execution_failed ? "CUBLAS_STATUS_EXECUTION_FAILED" : "a status";
}
}
