// Matrix products of few rows use the kernel of skinny_matmul.h. Others use oneDNN where it accepts
// the strides of the operands and is fast there, else the contraction of contraction.h, which
// accepts any strides.
#include <algorithm>

#include <fmt/format.h>

#include "weft/backends/cpu/gemm/contraction.h"
#include "weft/backends/cpu/gemm/few_rows.h"
#include "weft/backends/cpu/gemm/packed.h"
#include "weft/backends/cpu/gemm/skinny_matmul.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/backends/cpu/onednn/onednn.h"
#include "weft/base/host/isa.h"
#include "weft/base/host/parallel.h"

namespace weft::cpu {
namespace {

// Returns an operand or result in the form that oneDNN expects: broadcast batch axes have extent 1,
// and axes of extent 1 have the strides of a dense tensor.
onednn::Tensor tensor_of(const Contraction& task, DType dtype, const MatrixStrides& strides,
                         int64_t rows, int64_t columns) {
  onednn::Tensor tensor{dtype, {}, {}, false};
  for (int i = 0; i < task.batch.size(); ++i)
    tensor.shape.push_back(strides.batch[i] == 0 ? 1 : task.batch[i]);
  tensor.shape.push_back(rows);
  tensor.shape.push_back(columns);
  tensor.strides = strides.batch;
  const bool transposed = strides.row == 1 && (strides.column != 1 || rows > 1) && columns > 1;
  tensor.strides.push_back(rows > 1 ? strides.row : transposed ? 1 : columns);
  tensor.strides.push_back(columns > 1 ? strides.column : 1);
  int64_t dense = rows * columns;
  for (int i = task.batch.size() - 1; i >= 0; --i) {
    if (tensor.shape[i] == 1) tensor.strides[i] = dense;
    dense *= tensor.shape[i];
  }
  return tensor;
}

onednn::Problem problem_of(const Contraction& task) {
  onednn::Problem problem;
  problem.a = tensor_of(task, task.a_dtype, task.a, task.m, task.k);
  problem.b = tensor_of(task, task.b_dtype, task.b, task.k, task.n);
  problem.result = tensor_of(task, task.dtype, task.result, task.m, task.n);
  return problem;
}

// Returns whether the factors are integers that oneDNN multiplies, by a packed b.
bool are_bytes(const Contraction& task) {
  return task.dtype == DType::i32 && task.b_dtype == DType::i8 &&
         (task.a_dtype == DType::i8 || task.a_dtype == DType::u8) && onednn::multiplies_bytes();
}

// A Route is a way to compute a product. The choice follows measurements. In float32 the
// contraction is faster where a matrix exceeds the L2 cache, as it prefetches, and where a
// transposed a is long (weight gradients). Otherwise oneDNN packs a transposed b well by itself. It
// reads rows of b in place, so packing b first pays where many rows of a use it; with few rows of
// a, the contraction is faster where rows of b are multiples of 4 KiB apart and alias in the cache.
// In bfloat16 packing b pays where a is tall (input gradients of pointwise convolutions).
enum class Route : int {
  unpacked = static_cast<int>(Algorithm::product_unpacked),
  pack_b = static_cast<int>(Algorithm::product_packed),
  contraction = static_cast<int>(Algorithm::product_contraction),
  skinny = static_cast<int>(Algorithm::product_skinny),
};
Route route_of_many_rows(const Contraction& task) {
  constexpr int64_t cached = int64_t{512} << 10;  // elements
  if (are_bytes(task)) return Route::pack_b;
  if (task.a_dtype != task.b_dtype) return Route::contraction;
  if (task.a_dtype != DType::f32) {
    const bool tall = task.batch.empty() && task.m >= 4096 && task.m >= 8 * task.k;
    return tall && task.a.column == 1 && task.b.column == 1 ? Route::pack_b : Route::unpacked;
  }
  if (std::max({task.m * task.k, task.k * task.n, task.m * task.n}) > cached)
    return Route::contraction;
  if (task.batch.empty() && task.a.row == 1 && task.k > 256) return Route::contraction;
  if (task.b.column != 1 || task.k == 1) return Route::unpacked;
  if (task.batch.empty() && task.m >= 512 && task.n >= 64 && task.k >= 64) return Route::pack_b;
  const bool aliasing = task.b.row % 1024 == 0 && task.m > 16 && task.n >= 256;
  return aliasing ? Route::contraction : Route::unpacked;
}

// Returns whether AVX512-BF16's dot products are the fastest for the task.
bool has_dots(const Contraction& task) {
  return task.a_dtype == DType::bf16 && task.b_dtype == DType::bf16 && isa() == Isa::avx512_bf16;
}
// Returns whether the kernel for few rows pays: it copies a, which is much smaller than b.
bool skinny_pays(const Contraction& task) {
  const int64_t most_rows = has_dots(task) ? most_skinny_rows : most_skinny_rows / 2;
  return is_skinny(task) && task.m <= most_rows && task.n >= 16 * task.m;
}

// The kernel for few rows replaces the contraction, and replaces oneDNN while the product is bound
// by reading b. With more rows it replaces oneDNN if it has the dot products of AVX512-BF16, but
// not on AMX, whose matrix instructions only oneDNN uses. Packed panels are read faster than b's
// columns or rows.
Route route_of(const Contraction& task) {
  constexpr int64_t memory_bound_rows = 4;
  if (has_few_rows(task) && panels_bytes(task) > 0) return Route::contraction;
  const Route route = route_of_many_rows(task);
  const bool replaces =
      task.m <= memory_bound_rows || route == Route::contraction || has_dots(task);
  return skinny_pays(task) && replaces ? Route::skinny : route;
}

bool is_empty(const Contraction& task) {
  return element_count(task.batch) == 0 || task.m == 0 || task.n == 0 || task.k == 0;
}

constexpr std::string_view biased_name = "weft:matmul+";
std::string_view name_of(Route route) {
  return route == Route::contraction ? "weft:matmul"
         : route == Route::skinny    ? "weft:skinny_matmul"
         : route == Route::pack_b    ? "dnnl:matmul.packed"
                                     : "dnnl:matmul";
}

// Returns oneDNN's primitive for the product; nullopt: oneDNN has none. Only Route::pack_b lets
// oneDNN choose the layout of b.
std::optional<onednn::Primitive> library_primitive(const Contraction& task, Route route) {
  if (is_empty(task)) return std::nullopt;
  if (!are_bytes(task) && (task.a_dtype != task.b_dtype || !onednn::supports(task.a_dtype)))
    return std::nullopt;
  onednn::Problem problem = problem_of(task);
  problem.accumulate = task.accumulate;
  for (const onednn::Tensor* tensor : {&problem.a, &problem.b, &problem.result})
    for (int64_t stride : tensor->strides)
      if (stride < 1) return std::nullopt;  // flipped, or broadcast within a matrix
  problem.b.free = route == Route::pack_b;
  problem.packs_b = problem.b.free && task.fixed_b;
  return onednn::Primitive::make(problem);
}

// Returns the kernel of this route; nullopt where it cannot compute the task.
std::optional<KernelChoice> choice_by(Route route, const Contraction& task) {
  KernelChoice choice{.kernel = std::string(name_of(route)), .algorithm = static_cast<int>(route)};
  if (route == Route::skinny) {
    if (!is_skinny(task)) return std::nullopt;
    choice.workspace = skinny_workspace(task);
  } else if (route == Route::contraction) {
    if (task.accumulate && !accumulates(task)) return std::nullopt;
    choice.depth = contraction_depth;
    choice.packed_bytes = panels_bytes(task);
    if (choice.packed_bytes > 0)
      choice.packed_layout = fmt::format("panels of {} x {}", task.k, task.n);
    const bool packs = choice.packed_bytes == 0 || !has_few_rows(task);
    choice.workspace = packs ? contraction_workspace(task, thread_count()) : 0;
  } else {
    auto primitive = library_primitive(task, route);
    if (!primitive) return std::nullopt;
    choice.workspace = primitive->workspace();
    choice.packed_bytes = primitive->packed_bytes();
    choice.objects = primitive->objects();
  }
  return choice;
}

class LibraryMatmul : public Kernel {
 public:
  LibraryMatmul(onednn::Primitive primitive, std::vector<Bound> inputs, const Launch& launch)
      : primitive_(std::move(primitive)), inputs_(std::move(inputs)), result_(bind_result(launch)) {
    WEFT_ASSERT(primitive_.workspace() <= launch.workspace, "{} plans {} bytes but needs {}",
                launch.kernel, launch.workspace, primitive_.workspace());
    WEFT_ASSERT(primitive_.packed_bytes() == launch.packed_bytes,
                "{} plans {} packed bytes but needs {}", launch.kernel, launch.packed_bytes,
                primitive_.packed_bytes());
    if (launch.packed_bytes > 0) b_.emplace(inputs_[1], launch.packed_bytes);
  }
  void bind_variables(std::span<const std::shared_ptr<VariableState>> operands) override {
    if (b_) b_->bind(operands);
  }
  void run(void* const* operands, void* const* results, void* workspace) const override {
    primitive_.run(inputs_[0].in(operands), inputs_[1].in(operands), result_.out(results),
                   workspace, b_ ? b_->data() : nullptr, b_ && b_->packs_now());
  }

 private:
  onednn::Primitive primitive_;
  std::optional<Packed> b_;
  std::vector<Bound> inputs_;
  Bound result_;
};

// OwnProduct runs one of weft's own matrix products.
class OwnProduct : public Kernel {
 public:
  using Multiply = decltype(&contract);
  // `needed` is the bytes of scratch that `multiply` needs on this thread count.
  OwnProduct(const Contraction& task, std::vector<Bound> inputs, const Launch& launch,
             Multiply multiply, size_t needed)
      : task_(task),
        inputs_(std::move(inputs)),
        result_(bind_result(launch)),
        multiply_(multiply),
        threads_(thread_count()) {
    WEFT_ASSERT(needed <= launch.workspace, "{} plans {} bytes but needs {}", launch.kernel,
                launch.workspace, needed);
  }
  void run(void* const* operands, void* const* results, void* workspace) const override {
    multiply_(task_, inputs_[0].in(operands), inputs_[1].in(operands), result_.out(results),
              workspace, threads_);
  }

 private:
  Contraction task_;
  std::vector<Bound> inputs_;
  Bound result_;
  Multiply multiply_;
  int threads_;
};

// PanelProduct is the contraction with b in packed panels, and with a bias if the launch has
// one.
class PanelProduct : public Kernel {
 public:
  PanelProduct(const Contraction& task, std::vector<Bound> inputs, const std::optional<Bound>& bias,
               const Launch& launch)
      : task_(task),
        inputs_(std::move(inputs)),
        b_(inputs_[1], launch.packed_bytes, launch.packed_layout),
        bias_(bias),
        result_(bind_result(launch)),
        threads_(thread_count()) {
    WEFT_ASSERT(panels_bytes(task) == launch.packed_bytes, "{} plans {} packed bytes but needs {}",
                launch.kernel, launch.packed_bytes, panels_bytes(task));
  }
  void bind_variables(std::span<const std::shared_ptr<VariableState>> operands) override {
    b_.bind(operands);
  }
  void run(void* const* operands, void* const* results, void* workspace) const override {
    b_.refresh([&] { pack_panels(task_, inputs_[1].in(operands), b_.data()); });
    const auto* const bias = bias_ ? reinterpret_cast<const float*>(bias_->in(operands)) : nullptr;
    contract_panels(task_, inputs_[0].in(operands), b_.data(), bias, result_.out(results),
                    workspace, threads_);
  }

 private:
  Contraction task_;
  std::vector<Bound> inputs_;
  Packed b_;
  std::optional<Bound> bias_;
  Bound result_;
  int threads_;
};

// Returns whether it pays to copy a factor to a layout that oneDNN takes: for bfloat16 always (only
// oneDNN has the matrix instructions), for float32 if each copied element is used often enough.
bool copies_pay(DType dtype, int64_t uses) {
  return dtype == DType::bf16 || (dtype == DType::f32 && uses >= 256);
}

// Returns the product of a node of two factors, which may be of two types.
Contraction task_of(const Node& node, const Dims& a_strides, const Dims& b_strides,
                    const Dims& result_strides) {
  const Value &a = node.inputs[0], &b = node.inputs[1];
  Contraction task = simplest(node.type, a.type(), a_strides, b.type(), b_strides, result_strides);
  task.fixed_b = is_fixed(b);
  return task;
}

// Copied is the product after dense copies of b, of a, or of both. Copies keep the order of the
// factor's axes in memory, or are row-major.
struct Copied {
  Contraction task;
  std::vector<Dims> operand_order;  // empty where an operand keeps its layout
};
std::vector<Copied> copied(const Node& node, const Dims (&strides)[2]) {
  const DType dtype = node.inputs[0].dtype();
  const int rank = node.type.shape.size();
  const int64_t uses[] = {node.type.shape[rank - 1], node.type.shape[rank - 2]};
  std::vector<Copied> tasks;
  for (int copies : {2, 1, 3})
    for (bool by_row : {false, true}) {
      Copied made{.operand_order = {{}, {}}};
      Dims task_strides[2] = {strides[0], strides[1]};
      bool pays = true;
      for (int i = 0; i < 2; ++i) {
        if ((copies & (1 << i)) == 0) continue;
        pays &= copies_pay(dtype, uses[i]);
        const Shape& shape = node.inputs[static_cast<size_t>(i)].shape();
        made.operand_order[static_cast<size_t>(i)] =
            by_row ? Dims::iota(rank) : physical_order(shape, strides[i]);
        task_strides[i] = dense_strides(shape, made.operand_order[static_cast<size_t>(i)]);
      }
      if (!pays) continue;
      made.task =
          task_of(node, task_strides[0], task_strides[1], row_major_strides(node.type.shape));
      tasks.push_back(std::move(made));
    }
  return tasks;
}
}  // namespace

KernelChoice choose_product(const Contraction& task) {
  if (auto choice = choice_by(route_of(task), task)) return *choice;
  return *choice_by(skinny_pays(task) ? Route::skinny : Route::contraction, task);
}

std::vector<KernelChoice> product_alternatives(const Contraction& task) {
  std::vector<KernelChoice> all;
  for (Route route : {Route::unpacked, Route::pack_b, Route::contraction, Route::skinny})
    if (auto choice = choice_by(route, task)) all.push_back(std::move(*choice));
  return all;
}

bool is_product(const Launch& launch) {
  return launch.algorithm >= static_cast<int>(Algorithm::product_unpacked) &&
         launch.algorithm <= static_cast<int>(Algorithm::product_skinny);
}

std::unique_ptr<Kernel> compile_product(const Contraction& task, std::vector<Bound> inputs,
                                        const Launch& launch) {
  const Route route{launch.algorithm};
  if (route == Route::contraction && launch.packed_bytes > 0)
    return std::make_unique<PanelProduct>(task, std::move(inputs), std::nullopt, launch);
  if (route == Route::contraction)
    return std::make_unique<OwnProduct>(task, std::move(inputs), launch, contract,
                                        contraction_workspace(task, thread_count()));
  if (route == Route::skinny)
    return std::make_unique<OwnProduct>(task, std::move(inputs), launch, skinny_matmul,
                                        skinny_workspace(task));
  auto primitive = library_primitive(task, route);
  WEFT_ASSERT(primitive.has_value(), "oneDNN withdrew its kernel for {}", launch.kernel);
  return std::make_unique<LibraryMatmul>(std::move(*primitive), std::move(inputs), launch);
}

namespace {
// Returns the product with the copies that pay.
std::optional<Copied> best_copies(const Node& node, std::span<const Placement> operands) {
  const Dims strides[2] = {operands[0].strides, operands[1].strides};
  Copied without_copies{task_of(node, strides[0], strides[1], row_major_strides(node.type.shape)),
                        {}};
  const Contraction& task = without_copies.task;
  if (!contracts(task)) return std::nullopt;
  if (task.a_dtype != task.b_dtype) return without_copies;
  // A copy pays if it joins many small products to a large one, or if another kernel than the
  // contraction, such as oneDNN's matrix instructions, can then compute the product.
  if (!task.batch.empty())
    for (Copied& other : copied(node, strides))
      if (other.task.batch.empty()) return other;
  const auto is_contraction = [](const Contraction& of) {
    return Route{choose_product(of).algorithm} == Route::contraction;
  };
  if (is_empty(task) || route_of(task) == Route::contraction || !is_contraction(task))
    return without_copies;
  for (Copied& other : copied(node, strides))
    if (!is_contraction(other.task)) return other;
  return without_copies;
}
}  // namespace

std::optional<KernelChoice> choose_matmul(const Node& node, std::span<const Placement> operands) {
  std::optional<Copied> best = best_copies(node, operands);
  if (!best) return std::nullopt;
  KernelChoice choice = choose_product(best->task);
  choice.operand_order = std::move(best->operand_order);
  return choice;
}

// Chooses the contraction, which widens a narrow factor as it packs it. Products in bfloat16 are
// left to oneDNN's matrix instructions, after a conversion of the other factor.
std::optional<KernelChoice> choose_matmul_mixed(const Node& node,
                                                std::span<const Placement> operands) {
  if (node.type.dtype == DType::bf16) return std::nullopt;
  return choose_matmul(node, operands);
}

std::vector<KernelChoice> matmul_alternatives(const Node& node,
                                              std::span<const Placement> operands) {
  std::optional<Copied> best = best_copies(node, operands);
  if (!best) return {};
  std::vector<KernelChoice> all = product_alternatives(best->task);
  for (KernelChoice& choice : all) choice.operand_order = best->operand_order;
  return all;
}

namespace {
// Returns choices for so_far + a b: the product accumulates onto `so_far` in the memory of the
// result.
std::vector<KernelChoice> onto(const Node& node, std::span<const Placement> operands,
                               std::vector<KernelChoice> (*choices)(const Contraction&)) {
  const Value product =
      make_node(op("matmul"), {node.inputs[1], node.inputs[2]},
                node.type.dtype == node.inputs[1].dtype() ? Attrs() : Attrs{{"wide", int64_t{1}}});
  std::optional<Copied> best = best_copies(*product.node(), operands.subspan(1));
  if (!best) return {};
  best->task.accumulate = true;
  best->task.fixed_b = false;
  std::vector<KernelChoice> all = choices(best->task);
  for (KernelChoice& choice : all) {
    choice.operand_order = best->operand_order;
    choice.operand_order.resize(2);
    choice.operand_order.insert(choice.operand_order.begin(), Dims::iota(node.inputs[0].rank()));
    choice.in_place = 0;
  }
  return all;
}
std::vector<KernelChoice> by_rule(const Contraction& task) {
  for (Route route : {route_of(task), Route::contraction})
    if (auto choice = choice_by(route, task)) return {std::move(*choice)};
  return {};
}

class AddingMatmul : public Kernel {
 public:
  AddingMatmul(std::unique_ptr<Kernel> product, const Bound& so_far, const Bound& result)
      : product_(std::move(product)), so_far_(so_far), result_(result) {}
  void run(void* const* operands, void* const* results, void* workspace) const override {
    const std::byte* from = so_far_.in(operands);
    std::byte* to = result_.out(results);
    if (from != to) copy_bytes(to, from, result_.type.bytes());
    product_->run(operands, results, workspace);
  }

 private:
  std::unique_ptr<Kernel> product_;
  Bound so_far_, result_;
};
}  // namespace

std::optional<KernelChoice> choose_matmul_add(const Node& node,
                                              std::span<const Placement> operands) {
  std::vector<KernelChoice> choices = onto(node, operands, by_rule);
  return choices.empty() ? std::nullopt : std::optional(std::move(choices.front()));
}

std::vector<KernelChoice> matmul_add_alternatives(const Node& node,
                                                  std::span<const Placement> operands) {
  return onto(node, operands, product_alternatives);
}

std::unique_ptr<Kernel> compile_matmul_add(const Launch& launch) {
  const std::vector<Bound> inputs = bind_inputs(launch);
  const Bound result = bind_result(launch);
  Contraction task = simplest(result.type, inputs[1].type, inputs[1].strides, inputs[2].type,
                              inputs[2].strides, result.strides);
  task.accumulate = true;
  return std::make_unique<AddingMatmul>(compile_product(task, {inputs[1], inputs[2]}, launch),
                                        inputs[0], result);
}

std::unique_ptr<Kernel> compile_matmul(const Launch& launch) {
  const std::vector<Bound> inputs = bind_inputs(launch);
  const Bound result = bind_result(launch);
  const Contraction task =
      task_of(*launch.body.front().node(), inputs[0].strides, inputs[1].strides, result.strides);
  return compile_product(task, inputs, launch);
}

namespace {
// Returns whether a value is a float32 bias from a fixed variable: one number per column, the same
// in every row.
bool is_fixed_bias(const Value& value) {
  if (value.dtype() != DType::f32 || !is_fixed(value)) return false;
  const auto strides_of = [](const auto& self, const Value& view) -> std::optional<Placement> {
    if (view->op->view == nullptr) return Placement{-1, 0, row_major_strides(view.shape())};
    const std::optional<Placement> from = self(self, view->inputs[0]);
    return from ? view->op->view(*view.node(), *from) : std::nullopt;
  };
  const std::optional<Placement> at = strides_of(strides_of, value);
  if (!at || at->strides.empty()) return false;
  for (int i = 0; i + 1 < at->strides.size(); ++i)
    if (at->strides[i] != 0 && value.dim(i) > 1) return false;
  return at->strides[at->strides.size() - 1] == 1;
}

// Returns the bias of a body that is a `matmul` and the addition of a fixed bias; null: the body is
// another computation.
const Value* bias_of(std::span<const Value> body, const Value& result) {
  if (body.size() != 2 || !body[0]->is("matmul") || !body[1]->is("add")) return nullptr;
  const Value& product = body[0];
  if (result.node() != body[1].node() || result.type() != product.type()) return nullptr;
  const bool first = result->inputs[0].node() == product.node();
  const Value& bias = result->inputs[first ? 1 : 0];
  return is_fixed_bias(bias) && product.dtype() == DType::f32 ? &bias : nullptr;
}
}  // namespace

std::optional<KernelChoice> choose_biased_matmul(std::span<const Value> body,
                                                 std::span<const Value> results,
                                                 std::span<const Placement> operands) {
  if (results.size() != 1 || bias_of(body, results[0]) == nullptr) return std::nullopt;
  const Node& node = *body[0].node();
  const auto product = [&](const Dims& a, const Dims& b) {
    return task_of(node, a, b, row_major_strides(node.type.shape));
  };
  const Dims a = row_major_strides(node.inputs[0].shape());
  const Dims b = row_major_strides(node.inputs[1].shape());
  // Panels are read alike whatever the factors' strides were, so the route of dense factors
  // decides.
  if (node.annotations.by_algorithm || route_of(product(a, b)) != Route::contraction)
    return std::nullopt;
  const Dims dense = Dims::iota(node.type.shape.size());
  // Factors are copied if their strides would make the product a batch of several matrices, which
  // has no panels.
  for (const std::vector<Dims>& order : {std::vector<Dims>{{}, {}}, {dense, {}}, {dense, dense}}) {
    const Contraction task = product(order[0].empty() ? operands[0].strides : a,
                                     order[1].empty() ? operands[1].strides : b);
    if (panels_bytes(task) == 0) continue;
    std::optional<KernelChoice> choice = choice_by(Route::contraction, task);
    choice->kernel = biased_name;
    choice->operand_order = order;
    return choice;
  }
  return std::nullopt;
}

std::unique_ptr<Kernel> compile_biased_matmul(const Launch& launch) {
  const Node& node = *launch.body[0].node();
  const Value* const bias = bias_of(launch.body, launch.results[0].value);
  const Bound a = bind_operand(launch, node.inputs[0]), b = bind_operand(launch, node.inputs[1]);
  const Contraction task = task_of(node, a.strides, b.strides, bind_result(launch).strides);
  return std::make_unique<PanelProduct>(task, std::vector<Bound>{a, b}, bind_operand(launch, *bias),
                                        launch);
}
}  // namespace weft::cpu
