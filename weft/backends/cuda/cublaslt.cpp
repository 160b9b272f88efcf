#include "weft/backends/cuda/cublaslt.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/driver.h"
#include "weft/base/buffer.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/stopwatch.h"
#include "weft/device/bound.h"
#include "weft/device/contraction.h"
#include "weft/ir/op_def.h"

namespace weft::cuda {
namespace {

// ---- the library

// Numbers of cublasLt.h, cublas_api.h and library_types.h.
enum DataType : int { r_32f = 0, r_64f = 1, r_16f = 2, r_16bf = 14 };
enum ComputeType : int { compute_32f = 68, compute_64f = 70, compute_tf32 = 77 };
enum MatmulAttribute : int { transpose_a = 3, transpose_b = 4 };
enum LayoutAttribute : int { batch_count = 5, batch_stride = 6 };
enum PreferenceAttribute : int {
  most_workspace = 1,
  reduction_schemes = 3,
  alignment_a = 5,
  alignment_b = 6,
  alignment_c = 7,
  alignment_d = 8,
};
constexpr uint32_t sums_in_workspace = 2;  // parts of K are added in the type of the sums

struct Algorithm {
  uint64_t data[8];
};
struct Found {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

struct Library {
  Library() {
    library.find(create, "cublasLtCreate");
    library.find(make_matmul, "cublasLtMatmulDescCreate");
    library.find(free_matmul, "cublasLtMatmulDescDestroy");
    library.find(set_matmul, "cublasLtMatmulDescSetAttribute");
    library.find(make_layout, "cublasLtMatrixLayoutCreate");
    library.find(free_layout, "cublasLtMatrixLayoutDestroy");
    library.find(set_layout, "cublasLtMatrixLayoutSetAttribute");
    library.find(make_preference, "cublasLtMatmulPreferenceCreate");
    library.find(free_preference, "cublasLtMatmulPreferenceDestroy");
    library.find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    library.find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    library.find(check_algorithm, "cublasLtMatmulAlgoCheck");
    library.find(matmul, "cublasLtMatmul");
    library.find(status_text, "cublasLtGetStatusString");
    check(create(&handle), "cublasLtCreate");
  }
  void check(int status, const char* call) const {
    if (status != 0) throw Error(ErrorKind::device, "[cuda] {}: {}.", call, status_text(status));
  }

  SharedLibrary library{{"libcublasLt.so.13", "libcublasLt.so.12"},
                        "it comes with CUDA, and with Python's package nvidia-cublas."};
  Handle handle = nullptr;
  int (*create)(Handle*) = nullptr;
  int (*make_matmul)(Handle*, int compute, int scale) = nullptr;
  int (*free_matmul)(Handle) = nullptr;
  int (*set_matmul)(Handle, int attribute, const void*, size_t) = nullptr;
  int (*make_layout)(Handle*, int type, uint64_t rows, uint64_t columns, int64_t stride) = nullptr;
  int (*free_layout)(Handle) = nullptr;
  int (*set_layout)(Handle, int attribute, const void*, size_t) = nullptr;
  int (*make_preference)(Handle*) = nullptr;
  int (*free_preference)(Handle) = nullptr;
  int (*set_preference)(Handle, int attribute, const void*, size_t) = nullptr;
  int (*heuristic)(Handle, Handle matmul, Handle a, Handle b, Handle c, Handle d, Handle preference,
                   int wanted, Found*, int* found) = nullptr;
  int (*check_algorithm)(Handle, Handle matmul, Handle a, Handle b, Handle c, Handle d,
                         const Algorithm*, Found*) = nullptr;
  int (*matmul)(Handle, Handle matmul, const void* alpha, const void* a, Handle a_layout,
                const void* b, Handle b_layout, const void* beta, const void* c, Handle c_layout,
                void* d, Handle d_layout, const Algorithm*, void* workspace, size_t bytes,
                Handle stream) = nullptr;
  const char* (*status_text)(int) = nullptr;
};

// For the context that is current, which is always the same. Never let go, as the driver is not.
const Library& library() {
  static const Library* const instance = new Library;
  return *instance;
}

// ---- products as it sees them

// A matrix in memory, column by column.
struct Matrix {
  int64_t rows = 0, columns = 0, stride = 0;  // between columns, in elements
  bool transposed = false;                    // what it stands for is its transpose
  int64_t batch_stride = 0;
  uint32_t alignment = 0;  // bytes, of where it begins
};

// The library sums column by column and weft row by row, so it is asked for the transposed product:
// result^T = b^T a^T.
struct Problem {
  Matrix b, a, result;
  int64_t batches = 1;
};

// Slots begin at multiples of buffer_alignment.
uint32_t alignment_of(const Bound& bound) {
  return static_cast<uint32_t>(
      std::gcd(buffer_alignment, static_cast<size_t>(std::abs(bound.byte_offset()))));
}

// `rows` x `columns` with those strides; nullopt where neither lies densely.
std::optional<Matrix> matrix_of(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  if (rows == 1 && columns == 1) return Matrix{1, 1, 1};
  if ((row == 1 || rows == 1) && (columns == 1 || column >= rows))
    return Matrix{rows, columns, columns == 1 ? rows : column};
  if ((column == 1 || columns == 1) && (rows == 1 || row >= columns))
    return Matrix{columns, rows, rows == 1 ? columns : row, true};
  return std::nullopt;
}

std::optional<Problem> problem_of(const Contraction& task) {
  const int axes = task.batch.size();
  if (axes > 1) return std::nullopt;
  auto b = matrix_of(task.n, task.k, task.b.column, task.b.row);
  auto a = matrix_of(task.k, task.m, task.a.column, task.a.row);
  auto result = matrix_of(task.n, task.m, task.result.column, task.result.row);
  if (!a || !b || !result || result->transposed) return std::nullopt;
  if (axes == 1) {
    b->batch_stride = task.b.batch[0];
    a->batch_stride = task.a.batch[0];
    result->batch_stride = task.result.batch[0];
    if (std::min({b->batch_stride, a->batch_stride, result->batch_stride}) < 0) return std::nullopt;
  }
  return Problem{*b, *a, *result, axes == 1 ? task.batch[0] : 1};
}

bool is_empty(const Contraction& task) {
  return element_count(task.batch) == 0 || task.m == 0 || task.n == 0 || task.k == 0;
}

DataType data_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return r_64f;
    case DType::f16:
      return r_16f;
    case DType::bf16:
      return r_16bf;
    default:
      return r_32f;
  }
}

// Parts of K may be summed apart where the result is small. Where no GPU is asked, this is a cap.
size_t workspace_bytes(const Contraction& task) {
  constexpr size_t most = size_t{32} << 20, parts = 32;
  const auto elements = static_cast<size_t>(element_count(task.batch) * task.m * task.n);
  const size_t bytes = std::min(most, parts * elements * sizeof(float));
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

// ---- the kernel

using Owned = std::shared_ptr<void>;

// As it stands in plan.json and in the cache.
std::string to_text(const Algorithm& algorithm) {
  return fmt::format("{:016x}", fmt::join(algorithm.data, "."));
}
std::optional<Algorithm> algorithm_of(const std::string& text) {
  Algorithm algorithm{};
  const char *at = text.data(), *end = at + text.size();
  for (uint64_t& word : algorithm.data) {
    const auto [next, error] = std::from_chars(at, end, word, 16);
    if (error != std::errc()) return std::nullopt;
    at = next == end ? next : next + 1;
  }
  return at == end ? std::optional(algorithm) : std::nullopt;
}

class Product : public Kernel {
 public:
  // `so_far`: what the sums begin with.
  Product(gpu::Device& device, const Contraction& task, const Problem& problem, const Bound& a,
          const Bound& b, const Bound& result, const std::optional<Bound>& so_far, bool tf32,
          size_t workspace)
      : stream_(stream_of(device).stream),
        a_(a),
        b_(b),
        result_(result),
        so_far_(so_far),
        wide_(task.dtype == DType::f64) {
    const DType sums = task.wide ? DType::f32 : task.dtype;
    const int compute = wide_ ? compute_64f : tf32 ? compute_tf32 : compute_32f;
    Handle matmul = nullptr;
    api_.check(api_.make_matmul(&matmul, compute, wide_ ? r_64f : r_32f),
               "cublasLtMatmulDescCreate");
    matmul_ = {matmul, api_.free_matmul};
    set_transposed(transpose_a, problem.b);
    set_transposed(transpose_b, problem.a);
    layouts_[0] = layout(problem.b, task.dtype, problem.batches);
    layouts_[1] = layout(problem.a, task.dtype, problem.batches);
    layouts_[2] = layout(problem.result, sums, problem.batches);

    const std::vector<Found> all = candidates(problem, workspace);
    const std::string what =
        fmt::format("cublaslt {} to {}: {} x {} x {} x {}{}{}{}", name(task.dtype), name(sums),
                    problem.batches, task.m, task.n, task.k, problem.a.transposed ? ", a^T" : "",
                    problem.b.transposed ? ", b^T" : "", tf32 ? ", tf32" : "");
    WEFT_CHECK(!all.empty(), "[cuda] cuBLASLt has no algorithm for {}.", what);
    const std::string chosen = device.select(
        what, [&] { return to_text(fastest(device, all, workspace)); }, to_text(all[0].algorithm));
    found_ = all[0];
    if (std::optional<Algorithm> algorithm = algorithm_of(chosen)) {
      Found checked{};  // as another version of the library may have written it
      if (api_.check_algorithm(api_.handle, matmul_.get(), layouts_[0].get(), layouts_[1].get(),
                               layouts_[2].get(), layouts_[2].get(), &*algorithm, &checked) == 0 &&
          checked.workspace <= workspace) {
        found_ = checked;
        found_.algorithm = *algorithm;
      }
    }
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    multiply(found_, a_.in(operands), b_.in(operands), so_far_ ? so_far_->in(operands) : nullptr,
             result_.out(results), workspace);
  }

 private:
  void multiply(const Found& by, const void* a, const void* b, const void* so_far, void* to,
                void* workspace) const {
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const void* alpha = wide_ ? static_cast<const void*>(&wide_one) : &one;
    const void* none = wide_ ? static_cast<const void*>(&wide_zero) : &zero;
    api_.check(api_.matmul(api_.handle, matmul_.get(), alpha, b, layouts_[0].get(), a,
                           layouts_[1].get(), so_far != nullptr ? alpha : none,
                           so_far != nullptr ? so_far : to, layouts_[2].get(), to,
                           layouts_[2].get(), &by.algorithm, workspace, by.workspace, stream_),
               "cublasLtMatmul");
  }

  void set_transposed(MatmulAttribute attribute, const Matrix& matrix) {
    const int32_t operation = matrix.transposed ? 1 : 0;
    api_.check(api_.set_matmul(matmul_.get(), attribute, &operation, sizeof operation),
               "cublasLtMatmulDescSetAttribute");
  }

  Owned layout(const Matrix& matrix, DType dtype, int64_t batches) const {
    Handle made = nullptr;
    api_.check(api_.make_layout(&made, data_type(dtype), static_cast<uint64_t>(matrix.rows),
                                static_cast<uint64_t>(matrix.columns), matrix.stride),
               "cublasLtMatrixLayoutCreate");
    Owned owned{made, api_.free_layout};
    const auto count = static_cast<int32_t>(batches);
    api_.check(api_.set_layout(made, batch_count, &count, sizeof count),
               "cublasLtMatrixLayoutSetAttribute");
    api_.check(api_.set_layout(made, batch_stride, &matrix.batch_stride, sizeof(int64_t)),
               "cublasLtMatrixLayoutSetAttribute");
    return owned;
  }

  // That fit into the workspace, the first the one that the library holds to be the fastest.
  std::vector<Found> candidates(const Problem& problem, size_t workspace) const {
    constexpr int most = 8;
    Handle preference = nullptr;
    api_.check(api_.make_preference(&preference), "cublasLtMatmulPreferenceCreate");
    const Owned owned{preference, api_.free_preference};
    auto set = [&](int attribute, auto value) {
      api_.check(api_.set_preference(preference, attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
    };
    set(most_workspace, static_cast<uint64_t>(workspace));
    set(reduction_schemes, sums_in_workspace);
    set(alignment_a, problem.b.alignment);
    set(alignment_b, problem.a.alignment);
    set(alignment_c, problem.result.alignment);
    set(alignment_d, problem.result.alignment);
    std::vector<Found> all(most);
    int count = 0;
    if (api_.heuristic(api_.handle, matmul_.get(), layouts_[0].get(), layouts_[1].get(),
                       layouts_[2].get(), layouts_[2].get(), preference, most, all.data(),
                       &count) != 0)
      count = 0;
    all.resize(static_cast<size_t>(count));
    std::erase_if(
        all, [&](const Found& found) { return found.status != 0 || found.workspace > workspace; });
    return all;
  }

  // By a few runs of each, on memory of its own.
  Algorithm fastest(gpu::Device& device, const std::vector<Found>& all, size_t workspace) const {
    auto room = [&](const Bound& bound) {
      int64_t elements = 1;
      for (int i = 0; i < bound.strides.size(); ++i)
        elements += bound.strides[i] * (bound.type.shape[i] - 1);
      return device.allocate(static_cast<size_t>(elements) * size_of(bound.type.dtype));
    };
    const auto a = room(a_), b = room(b_), to = room(result_), scratch = device.allocate(workspace);
    size_t best = 0;
    double least = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      constexpr int runs = 10;
      auto run = [&] { multiply(all[i], a->data, b->data, nullptr, to->data, scratch->data); };
      run();
      device.finish();
      Stopwatch watch;
      for (int k = 0; k < runs; ++k) run();
      device.finish();
      const double took = watch.milliseconds() / runs;
      log::debug(1, "measured cublaslt algorithm {} {:9.3f} ms", i, took);
      if (i == 0 || took < least) best = i, least = took;
    }
    return all[best].algorithm;
  }

  const Library& api_ = library();
  Handle stream_;
  Bound a_, b_, result_;
  std::optional<Bound> so_far_;
  bool wide_;
  Owned matmul_;
  std::array<Owned, 3> layouts_;  // of b, a, result
  Found found_{};
};

// ---- the choice

// a and b of a product, which is all of a `matmul` and what `matmul_add` adds.
size_t first_factor(std::string_view op) { return op == "matmul_add" ? 1 : 0; }

class CublasLt : public gpu::Provider {
 public:
  std::string name() const override { return "cublaslt"; }

  std::optional<KernelChoice> choose(const Node& node,
                                     std::span<const Placement> operands) const override {
    const std::string_view op = node.op->name;
    if (op != "matmul" && op != "matmul_add") return std::nullopt;
    const size_t first = first_factor(op);
    const Value &a = node.inputs[first], &b = node.inputs[first + 1];
    if (!is_float(a.dtype())) return std::nullopt;
    // As they lie, or with copies of one or both, row by row.
    for (int copies = 0; copies < 4; ++copies) {
      const bool copy_a = (copies & 1) != 0, copy_b = (copies & 2) != 0;
      const Contraction task = simplest(
          node.type, a.type(), copy_a ? row_major_strides(a.shape()) : operands[first].strides,
          b.shape(), copy_b ? row_major_strides(b.shape()) : operands[first + 1].strides,
          row_major_strides(node.type.shape));
      if (is_empty(task)) return std::nullopt;
      if (!problem_of(task)) continue;
      KernelChoice choice{.kernel = "cublaslt:" + std::string(op),
                          .workspace = workspace_bytes(task)};
      choice.operand_order.resize(node.inputs.size());
      if (first == 1) choice.operand_order[0] = Dims::iota(node.type.shape.size());
      if (copy_a) choice.operand_order[first] = Dims::iota(a.rank());
      if (copy_b) choice.operand_order[first + 1] = Dims::iota(b.rank());
      if (first == 1) choice.in_place = 0;
      return choice;
    }
    return std::nullopt;
  }

  std::unique_ptr<Kernel> compile(gpu::Device& device, const Step& step) const override {
    const std::vector<Bound> inputs = bind_inputs(step);
    const Bound result = bind_result(step);
    const size_t first = first_factor(step.body.front()->op->name);
    const Bound &a = inputs[first], &b = inputs[first + 1];
    const Contraction task =
        simplest(result.type, a.type, a.strides, b.type.shape, b.strides, result.strides);
    std::optional<Problem> problem = problem_of(task);
    WEFT_ASSERT(problem.has_value(), "{} lies as cuBLASLt cannot take it", step.kernel);
    problem->a.alignment = alignment_of(a);
    problem->b.alignment = alignment_of(b);
    problem->result.alignment = alignment_of(result);
    return std::make_unique<Product>(device, task, *problem, a, b, result,
                                     first == 1 ? std::optional(inputs[0]) : std::nullopt,
                                     step.body.front()->attrs.has("tf32"), step.workspace);
  }
};
}  // namespace

std::unique_ptr<gpu::Provider> cublaslt_provider() { return std::make_unique<CublasLt>(); }

}  // namespace weft::cuda
