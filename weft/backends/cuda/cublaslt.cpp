// This is one file because a choice promises a workspace, an alignment and an epilogue, and its
// kernel then asks cuBLASLt for exactly these, in the same terms.
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
#include "weft/backends/gpu/conversion.h"
#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/memory/alignment.h"
#include "weft/device/gemm.h"
#include "weft/ir/op_def.h"

namespace weft::cuda {

namespace cublaslt {
Library::Library() {
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
  library.find(version, "cublasLtGetVersion");
  library.find(status_text, "cublasLtGetStatusString");
}

void Library::check(int status, const char* call) const {
  if (status != 0) throw Error(ErrorKind::device, "[cuda] {}: {}.", call, status_text(status));
}

// The library is never unloaded, as the driver is not.
const Library& library() {
  static const Library* const instance = new Library;
  return *instance;
}

std::vector<Found> candidates(Handle handle, Handle matmul, const std::array<Handle, 3>& layouts,
                              const Alignments& alignments, size_t workspace) {
  constexpr int most = 8;
  const Library& api = library();
  Handle preference = nullptr;
  api.check(api.make_preference(&preference), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<void, int (*)(Handle)> owned{preference, api.free_preference};
  auto set = [&](int attribute, auto value) {
    api.check(api.set_preference(preference, attribute, &value, sizeof value),
              "cublasLtMatmulPreferenceSetAttribute");
  };
  set(most_workspace, static_cast<uint64_t>(workspace));
  set(reduction_schemes, sums_in_workspace);
  set(alignment_a, alignments.a);
  set(alignment_b, alignments.b);
  set(alignment_c, alignments.c);
  set(alignment_d, alignments.d);
  std::vector<Found> all(most);
  int count = 0;
  if (api.heuristic(handle, matmul, layouts[0], layouts[1], layouts[2], layouts[2], preference,
                    most, all.data(), &count) != 0)
    count = 0;
  all.resize(static_cast<size_t>(count));
  std::erase_if(
      all, [&](const Found& found) { return found.status != 0 || found.workspace > workspace; });
  return all;
}
}  // namespace cublaslt

namespace {
using namespace cublaslt;

constexpr int64_t aux_alignment = 8;  // alignment of rows of the auxiliary matrix, in elements

// Returns the cuBLASLt handle of the current context.
Handle handle() {
  static PerContext& handles = *new PerContext([] {
    Handle made = nullptr;
    library().check(library().create(&made), "cublasLtCreate");
    return made;
  });
  return handles.current();
}

// ---- products in cuBLASLt's terms

// Returns an operand's alignment in bytes; slots begin at multiples of buffer_alignment.
uint32_t alignment_of(const Bound& bound) {
  return static_cast<uint32_t>(
      std::gcd(buffer_alignment, static_cast<size_t>(std::abs(bound.byte_offset()))));
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

// cuBLASLt's manual requires this alignment of workspaces, which is stricter than the alignment of
// slots.
constexpr size_t workspace_alignment = 256;
constexpr size_t workspace_slack = workspace_alignment - buffer_alignment;

// Returns an upper bound of the workspace for split-K, as plans do not query the GPU.
size_t workspace_bytes(const Contraction& task) {
  constexpr size_t most = size_t{32} << 20, parts = 32;
  const auto elements = static_cast<size_t>(element_count(task.batch) * task.m * task.n);
  return aligned(std::min(most, parts * elements * sizeof(float))) + workspace_slack;
}

// Heuristics select kernels that assume this alignment, in bytes, of the matrices and vectors that
// an epilogue reads or writes besides the result. The plan copies operands of less alignment;
// results begin at multiples of buffer_alignment, even in shared slots.
constexpr int64_t epilogue_alignment = 16;
bool suits_epilogue(int64_t byte_offset) { return byte_offset % epilogue_alignment == 0; }
void check_alignment(const std::optional<Bound>& bound, const Launch& launch) {
  WEFT_ASSERT(!bound || suits_epilogue(bound->byte_offset()), "{} has a matrix at {} bytes",
              launch.kernel, bound->byte_offset());
}

// cuBLASLt adds biases of the result's type, from an aligned address, to every column that it
// computes. A bias of another type, alignment or number of elements (`count`) is first copied:
// returns the bytes of the copy, at the end of the workspace; 0: the bias is usable in place.
size_t converted_bytes(DType bias, int64_t byte_offset, const Contraction& task, int64_t count) {
  const DType result = task.dtype;
  const bool as_it_is = bias == result && count == task.n && suits_epilogue(byte_offset);
  return as_it_is ? 0 : aligned(static_cast<size_t>(task.n) * size_of(result));
}

// A Function is a composite that cuBLASLt computes of the sums, or of an auxiliary matrix and the
// sums.
struct Function {
  std::string_view op, name;  // name: part of the kernel's name
  uint32_t bits;
};
constexpr Function functions[] = {
    {"gelu_tanh", ".gelu", gelu_of_sum},
    {"gelu_tanh_gradient", ".gelu_gradient", times_gelu_slope | has_aux},
};
const Function* function_of(const OpDef* composite) {
  if (composite == nullptr) return nullptr;
  const auto* found = std::ranges::find(functions, composite->name, &Function::op);
  return found == std::end(functions) ? nullptr : found;
}

uint32_t epilogue_bits(const GemmLaunch& launch) {
  uint32_t bits = launch.bias ? adds_bias : 0;
  if (launch.a_sums) bits |= sums_of_b;  // weft's a is cuBLASLt's b
  if (const Function* function = function_of(launch.function)) bits |= function->bits;
  if (launch.sum) bits |= has_aux;
  return bits;
}

// epilogue_suffix() returns the suffix of the kernel's name: "", ".bias", ".bias.gelu", ...
bool has(const Value& part) { return part.defined(); }
bool has(const std::optional<Bound>& part) { return part.has_value(); }

template <class Parts>  // GemmEpilogue or GemmLaunch
std::string epilogue_suffix(const Parts& parts) {
  const Function* function = function_of(parts.function);
  return fmt::format("{}{}{}{}", has(parts.bias) ? ".bias" : "",
                     function == nullptr ? "" : function->name, has(parts.sum) ? ".and_sum" : "",
                     has(parts.a_sums) ? ".bias_gradient" : "");
}

// ---- the kernel

using Owned = std::shared_ptr<void>;

// Encodes an algorithm for plan.json and the cache.
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
  Product(gpu::Device& device, const Launch& launch)
      : stream_(stream_of(device)), launch_(launch), wide_(launch_.task.dtype == DType::f64) {
    const bool tf32 = launch.body.front()->annotations.tf32;
    size_t workspace = launch.workspace - workspace_slack;
    const Contraction& task = launch_.task;
    const Gemm& gemm = launch_.gemm;
    const DType sums = task.dtype;
    const int compute = wide_ ? compute_64f : tf32 ? compute_tf32 : compute_32f;
    Handle matmul = nullptr;
    api_.check(api_.make_matmul(&matmul, compute, wide_ ? r_64f : r_32f),
               "cublasLtMatmulDescCreate");
    matmul_ = {matmul, api_.free_matmul};
    set_matmul(transpose_a, int32_t{gemm.b.transposed});
    set_matmul(transpose_b, int32_t{gemm.a.transposed});
    layouts_[0] = layout(gemm.b, task.b_dtype, gemm.batches);
    layouts_[1] = layout(gemm.a, task.a_dtype, gemm.batches);
    layouts_[2] = layout(gemm.result, sums, gemm.batches);
    if (const uint32_t bits = epilogue_bits(launch_); bits != 0) set_matmul(epilogue, bits);
    // These addresses are not real yet: heuristics derive the operands' alignment from the
    // attributes.
    if (launch_.bias) {
      const size_t bytes =
          converted_bytes(launch_.bias->type.dtype, launch_.bias->byte_offset(), task, launch_.n);
      workspace -= bytes;
      set_matmul(bias_pointer,
                 uint64_t{bytes > 0 ? buffer_alignment : alignment_of(*launch_.bias)});
      converted_at_ = launch.workspace - bytes;
      if (bytes > 0)
        convert_ = gpu::make_conversion(device, {launch_.bias->type.dtype, launch_.bias->offset},
                                        {sums}, launch_.n);
    }
    clear_a_ = cleared(device, launch_.a, task.a, {task.m, task.k}, 1, launch_.k);
    clear_b_ = cleared(device, launch_.b, task.b, {task.k, task.n}, 0, launch_.k);
    for (const auto* beside : {&launch_.a_sums, &launch_.sum, &launch_.at})
      check_alignment(*beside, launch);
    if (launch_.a_sums) set_matmul(bias_pointer, uint64_t{alignment_of(*launch_.a_sums)});
    if (const std::optional<Bound>& aux = launch_.sum ? launch_.sum : launch_.at) {
      set_matmul(aux_pointer, uint64_t{alignment_of(*aux)});
      set_matmul(aux_stride, gemm.result.stride);
    }

    const uint32_t result = alignment_of(launch_.result);
    const Alignments alignments{.a = alignment_of(launch_.b),
                                .b = alignment_of(launch_.a),
                                .c = launch_.so_far ? alignment_of(*launch_.so_far) : result,
                                .d = result};
    const std::vector<Found> all = candidates(
        handle_, matmul_.get(), {layouts_[0].get(), layouts_[1].get(), layouts_[2].get()},
        alignments, workspace);
    std::string what = fmt::format(
        "cublaslt {} matmul{}, {} to {}: {} x {} x {} x {}, rows of {}, {}, {}{}{}{}",
        api_.version(), epilogue_suffix(launch_), name(task.a_dtype), name(sums), gemm.batches,
        task.m, task.n, task.k, gemm.a.stride, gemm.b.stride, gemm.result.stride,
        gemm.a.transposed ? ", a^T" : "", gemm.b.transposed ? ", b^T" : "", tf32 ? ", tf32" : "");
    // An algorithm's vector width depends on the alignment that the heuristics were given.
    const auto& [a, b, c, d] = alignments;
    if (std::min({a, b, c, d}) < 16)
      what += fmt::format(", aligned to {}, {}, {} and {}", a, b, c, d);
    WEFT_CHECK(!all.empty(), "[cuda] cuBLASLt has no algorithm for {}.", what);
    const std::string chosen = device.select(
        what, [&] { return to_text(fastest(device, all, workspace)); }, to_text(all[0].algorithm));
    found_ = all[0];
    if (std::optional<Algorithm> algorithm = algorithm_of(chosen)) {
      Found checked{};  // another version of cuBLASLt may have chosen it
      if (api_.check_algorithm(handle_, matmul_.get(), layouts_[0].get(), layouts_[1].get(),
                               layouts_[2].get(), layouts_[2].get(), &*algorithm, &checked) == 0 &&
          checked.workspace <= workspace) {
        found_ = checked;
        found_.algorithm = *algorithm;
      }
    }
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    if (clear_a_) clear_a_->run(nullptr, operands + launch_.a.index, nullptr);
    if (clear_b_) clear_b_->run(nullptr, operands + launch_.b.index, nullptr);
    if (launch_.bias) {
      const void* bias = launch_.bias->in(operands);
      if (convert_ != nullptr) {
        void* to = static_cast<std::byte*>(workspace) + converted_at_;
        convert_->run(operands + launch_.bias->index, &to, nullptr);
        bias = to;
      }
      set_matmul(bias_pointer, bias);
    }
    if (launch_.a_sums) set_matmul(bias_pointer, launch_.a_sums->out(results));
    if (launch_.sum) set_matmul(aux_pointer, launch_.sum->out(results));
    if (launch_.at) set_matmul(aux_pointer, launch_.at->in(operands));
    multiply(found_, launch_.a.in(operands), launch_.b.in(operands),
             launch_.so_far ? launch_.so_far->in(operands) : nullptr, launch_.result.out(results),
             reinterpret_cast<void*>(  // NOLINT(performance-no-int-to-ptr)
                 aligned(reinterpret_cast<uintptr_t>(workspace), workspace_alignment)));
  }

 private:
  // Returns a kernel that zeroes the padding of a factor up to the rounded extent of k, so that the
  // sums do not change; null where k is not rounded.
  static std::unique_ptr<Kernel> cleared(gpu::Device& device, const Bound& factor,
                                         const MatrixStrides& strides, Shape extents, int axis,
                                         int64_t terms) {
    if (extents[axis] == terms) return nullptr;
    const int64_t stride = axis == 0 ? strides.row : strides.column;
    extents[axis] -= terms;
    const Placement at{0, factor.offset + terms * stride, {strides.row, strides.column}};
    return gpu::make_zeros(device, {factor.type.dtype, extents}, at);
  }

  void multiply(const Found& by, const void* a, const void* b, const void* so_far, void* to,
                void* workspace) const {
    stream_.make_current();
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const void* alpha = wide_ ? static_cast<const void*>(&wide_one) : &one;
    const void* none = wide_ ? static_cast<const void*>(&wide_zero) : &zero;
    api_.check(
        api_.matmul(handle_, matmul_.get(), alpha, b, layouts_[0].get(), a, layouts_[1].get(),
                    so_far != nullptr ? alpha : none, so_far != nullptr ? so_far : to,
                    layouts_[2].get(), to, layouts_[2].get(), &by.algorithm, workspace,
                    by.workspace, stream_.stream),
        "cublasLtMatmul");
  }

  template <class T>
  void set_matmul(MatmulAttribute attribute, const T& value) const {
    api_.check(
        api_.set_matmul(matmul_.get(), attribute, static_cast<const void*>(&value), sizeof value),
        "cublasLtMatmulDescSetAttribute");
  }

  Owned layout(const GemmMatrix& matrix, DType dtype, int64_t batches) const {
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

  // Times a few runs of each algorithm on temporary memory.
  Algorithm fastest(gpu::Device& device, const std::vector<Found>& all, size_t workspace) const {
    const Gemm& gemm = launch_.gemm;
    auto room = [&](const Bound& bound, const GemmMatrix& matrix) {
      const int64_t last = bound.offset + (gemm.batches - 1) * matrix.batch_stride +
                           (matrix.columns - 1) * matrix.stride + matrix.rows;
      return device.allocate(static_cast<size_t>(last) * size_of(bound.type.dtype));
    };
    const auto a = room(launch_.a, gemm.a), b = room(launch_.b, gemm.b),
               to = room(launch_.result, gemm.result), scratch = device.allocate(workspace);
    std::shared_ptr<Buffer> row, aux;
    if (launch_.bias || launch_.a_sums) {
      const int64_t count = launch_.bias ? launch_.task.n : launch_.task.m;
      row = device.allocate(static_cast<size_t>(count) * sizeof(float));
      set_matmul(bias_pointer, row->data);
    }
    if (launch_.sum || launch_.at) {
      aux = room(launch_.result, gemm.result);
      set_matmul(aux_pointer, aux->data);
    }
    return all[gpu::fastest(device, all.size(),
                            [&](size_t i) {
                              multiply(all[i], a->data, b->data, nullptr, to->data, scratch->data);
                            })]
        .algorithm;
  }

  const Library& api_ = library();
  Stream stream_;
  Handle handle_ = handle();
  GemmLaunch launch_;
  bool wide_;
  Owned matmul_;
  std::array<Owned, 3> layouts_;  // layouts of b, a and result
  Found found_{};
  std::unique_ptr<Kernel> convert_;  // converts or copies the bias
  size_t converted_at_ = 0;          // offset in the workspace
  std::unique_ptr<Kernel> clear_a_, clear_b_;
};

// ---- the choice

bool pads() { return !env_lists("WEFT_CUDA_OFF", "padding"); }

// Returns whether to pad the result's rows: unaligned rows leave only slow kernels. Initial sums
// keep their layout, and a batch of single rows is one matrix only without padding.
bool pads_rows(const Node& product) {
  return pads() && is_matrix_product(product) &&
         product.type.shape[product.type.shape.size() - 2] > 1;
}

// The fast tensor-core kernels also need contiguous extents that are whole multiples of 16 bytes.
// Other extents are rounded up into the padding, which the product then includes.
std::optional<GemmRooms> rooms_for(const Node& product, std::span<const Placement> operands,
                                   const KernelChoice& choice) {
  const bool tensor_cores = size_of(product.inputs.back().dtype()) == 2 || product.annotations.tf32;
  return pads() && tensor_cores ? rooms_of(product, operands, choice) : std::nullopt;
}

// Returns whether cuBLASLt can compute the epilogue. Its GELU is less accurate than weft's, so it
// is used only for 16-bit types, whose rounding hides the difference.
bool can_do(const GemmEpilogue& epilogue, const Contraction& task) {
  return epilogue.function == nullptr || (function_of(epilogue.function) != nullptr &&
                                          size_of(task.dtype) == 2 && task.n % aux_alignment == 0);
}

// Chooses a product without batches, copying a to row-major order where its rows cannot be merged.
std::optional<GemmChoice> choose_one_gemm(const Node& product,
                                          std::span<const Placement> operands) {
  std::optional<GemmChoice> choice = choose_gemm(product, operands);
  if (!choice || choice->gemm.batches == 1) return choice;
  std::vector<Placement> copied(operands.begin(), operands.end());
  const Value& a = product.inputs[0];
  copied[0].strides = row_major_strides(a.shape());
  choice = choose_gemm(product, copied);
  if (choice) choice->choice.operand_order[0] = Dims::iota(a.rank());
  return choice;
}

class CublasLt : public gpu::Provider {
 public:
  std::string name() const override { return "cublaslt"; }

  std::optional<KernelChoice> choose(const Node& node,
                                     std::span<const Placement> operands) const override {
    std::optional<GemmChoice> known = choose_gemm(node, operands);
    if (!known) return std::nullopt;
    known->choice.kernel = "cublaslt:" + std::string(node.op->name);
    known->choice.padded_rows = pads_rows(node);
    known->choice.workspace = workspace_bytes(known->task);
    if (const auto rooms = rooms_for(node, operands, known->choice)) {
      known->choice.rooms = {rooms->a, rooms->b, rooms->result};
      if (node.inputs.size() == 3)  // initial sums
        known->choice.rooms.insert(known->choice.rooms.begin(), {{}, rooms->result.elements});
    }
    return known->choice;
  }

  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Value> results,
                                          std::span<const Placement> operands) const override {
    if (!has_epilogues_) return std::nullopt;
    const std::optional<GemmEpilogue> epilogue = epilogue_of(body, results);
    if (!epilogue || (epilogue->bias.defined() && epilogue->bias.dtype() == DType::f64))
      return std::nullopt;
    const bool has_matrix = epilogue->sum.defined() || epilogue->at.defined();  // beside the result
    std::optional<GemmChoice> known = has_matrix ? choose_one_gemm(*body.front().node(), operands)
                                                 : choose_gemm(*body.front().node(), operands);
    if (!known || !can_do(*epilogue, known->task)) return std::nullopt;
    KernelChoice& choice = known->choice;
    choice.kernel = "cublaslt:matmul" + epilogue_suffix(*epilogue);
    choice.padded_rows = pads_rows(*body.front().node());
    choice.workspace = workspace_bytes(known->task);
    const Node& product = *body.front().node();
    Contraction task = known->task;
    if (epilogue->function == nullptr)
      if (const auto rooms = rooms_for(product, operands, choice)) {
        choice.rooms.assign(operands.size() + results.size(), {});
        choice.rooms[0] = rooms->a, choice.rooms[1] = rooms->b;
        choice.rooms[operands.size()] = rooms->result;
        if (epilogue->a_sums.defined()) choice.rooms.back().elements = rooms->task.m;
        task = rooms->task;
      }
    if (epilogue->bias.defined()) {
      // The bias is the first operand after the product's inputs.
      const int64_t offset = operands[body.front()->inputs.size()].offset;
      const DType type = epilogue->bias.dtype();
      choice.workspace +=
          converted_bytes(type, offset * static_cast<int64_t>(size_of(type)), task, known->task.n);
    }
    if (epilogue->at.defined()) {
      choice.operand_order.push_back(Dims::iota(epilogue->at.rank()));
      choice.alignment = epilogue_alignment;
    }
    return choice;
  }
  bool is_epilogue(const Node& composite) const override {
    return has_epilogues_ && function_of(composite.op) != nullptr;
  }

  std::unique_ptr<Kernel> compile(gpu::Device& device, const Launch& launch) const override {
    return std::make_unique<Product>(device, launch);
  }

 private:
  bool has_epilogues_ = !env_lists("WEFT_CUDA_OFF", "epilogues");
};
}  // namespace

std::unique_ptr<gpu::Provider> cublaslt_provider() { return std::make_unique<CublasLt>(); }

}  // namespace weft::cuda
