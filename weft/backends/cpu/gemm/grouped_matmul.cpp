// Grouped matrix products run the contraction of contraction.h once for each group that has rows.
// The contraction takes the number of rows at run time; oneDNN's primitives are made for one number
// of rows. The matrix of a group without rows is not read. A row's result has the same bits
// whatever the other groups.
#include "weft/backends/cpu/gemm/contraction.h"
#include "weft/backends/cpu/gemm/row_groups.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/base/host/parallel.h"

namespace weft::cpu {
namespace {
// Returns the product of all rows by one matrix.
Contraction product_of(const Type& x, const Dims& x_strides, const Type& w, const Dims& w_strides) {
  const DType dtype = x.dtype;
  return {.a_dtype = dtype,
          .b_dtype = dtype,
          .dtype = dtype,
          .m = x.shape[0],
          .n = w.shape[2],
          .k = x.shape[1],
          .a = {.row = x_strides[0], .column = x_strides[1]},
          .b = {.row = w_strides[1], .column = w_strides[2]},
          .result = {.row = w.shape[2], .column = 1}};
}
// Returns x transposed times dy over all rows.
Contraction weight_gradient_of(const Type& x, const Dims& x_strides, const Type& dy,
                               const Dims& dy_strides) {
  const DType dtype = x.dtype;
  return {.a_dtype = dtype,
          .b_dtype = dtype,
          .dtype = dtype,
          .m = x.shape[1],
          .n = dy.shape[1],
          .k = x.shape[0],
          .a = {.row = x_strides[1], .column = x_strides[0]},
          .b = {.row = dy_strides[0], .column = dy_strides[1]},
          .result = {.row = dy.shape[1], .column = 1}};
}

KernelChoice choice(std::string kernel, size_t workspace) {
  return {.kernel = std::move(kernel),
          .operand_order = {{}, {}, Dims::iota(1)},
          .workspace = workspace};
}

class GroupedMatmul : public Kernel {
 public:
  explicit GroupedMatmul(const Launch& launch)
      : inputs_(bind_inputs(launch)),
        result_(bind_result(launch)),
        all_(product_of(inputs_[0].type, inputs_[0].strides, inputs_[1].type, inputs_[1].strides)),
        threads_(thread_count()) {
    const size_t needed = contraction_workspace_by_rows(all_, threads_);
    WEFT_ASSERT(needed <= launch.workspace, "{} plans {} bytes but needs {}", launch.kernel,
                launch.workspace, needed);
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    const DType dtype = all_.dtype;
    const std::byte *x = inputs_[0].in(operands), *w = inputs_[1].in(operands);
    std::byte* to = result_.out(results);
    const int64_t end = for_each_group(
        inputs_[2], operands, all_.m, [&](int64_t group, int64_t from, int64_t count) {
          Contraction task = all_;
          task.m = count;
          contract(task, element(x, dtype, from * task.a.row),
                   element(w, dtype, group * inputs_[1].strides[0]),
                   element(to, dtype, from * task.n), workspace, threads_);
        });
    fill_zeros(element(to, dtype, end * all_.n), dtype, (all_.m - end) * all_.n);
  }

 private:
  std::vector<Bound> inputs_;  // x, w, counts
  Bound result_;
  Contraction all_;
  int threads_;
};

class GroupedWeightGradient : public Kernel {
 public:
  explicit GroupedWeightGradient(const Launch& launch)
      : inputs_(bind_inputs(launch)),
        result_(bind_result(launch)),
        all_(weight_gradient_of(inputs_[0].type, inputs_[0].strides, inputs_[1].type,
                                inputs_[1].strides)),
        threads_(thread_count()) {
    const size_t needed = contraction_workspace(all_, threads_);
    WEFT_ASSERT(needed <= launch.workspace, "{} plans {} bytes but needs {}", launch.kernel,
                launch.workspace, needed);
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    const DType dtype = all_.dtype;
    const std::byte *x = inputs_[0].in(operands), *dy = inputs_[1].in(operands);
    std::byte* to = result_.out(results);
    const int64_t matrix = all_.m * all_.n;
    for_each_group(inputs_[2], operands, all_.k, [&](int64_t group, int64_t from, int64_t count) {
      std::byte* sums = element(to, dtype, group * matrix);
      if (count == 0) return fill_zeros(sums, dtype, matrix);
      Contraction task = all_;
      task.k = count;
      contract(task, element(x, dtype, from * task.a.column), element(dy, dtype, from * task.b.row),
               sums, workspace, threads_);
    });
  }

 private:
  std::vector<Bound> inputs_;  // x, dy, counts
  Bound result_;
  Contraction all_;
  int threads_;
};
}  // namespace

std::optional<KernelChoice> choose_grouped_matmul(const Node& node,
                                                  std::span<const Placement> operands) {
  const Contraction all = product_of(node.inputs[0].type(), operands[0].strides,
                                     node.inputs[1].type(), operands[1].strides);
  return choice("weft:grouped_matmul", contraction_workspace_by_rows(all, thread_count()));
}
std::unique_ptr<Kernel> compile_grouped_matmul(const Launch& launch) {
  return std::make_unique<GroupedMatmul>(launch);
}

std::optional<KernelChoice> choose_grouped_weight_gradient(const Node& node,
                                                           std::span<const Placement> operands) {
  const Contraction all = weight_gradient_of(node.inputs[0].type(), operands[0].strides,
                                             node.inputs[1].type(), operands[1].strides);
  return choice("weft:grouped_weight_gradient", contraction_workspace(all, thread_count()));
}
std::unique_ptr<Kernel> compile_grouped_weight_gradient(const Launch& launch) {
  return std::make_unique<GroupedWeightGradient>(launch);
}
}  // namespace weft::cpu
