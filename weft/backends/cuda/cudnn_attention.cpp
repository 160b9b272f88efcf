#include "weft/backends/cuda/cudnn_attention.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "weft/backends/cuda/cuda_device.h"
#include "weft/base/error.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/rounding.h"
#include "weft/device/bound.h"
#include "weft/ir/op_def.h"

namespace weft::cuda::cudnn {
namespace {
constexpr int64_t aligned_bytes = 16;  // vector width of the engines' loads and stores

template <class T>
T transposed(const T& dims) {
  return {dims[0], dims[1], dims[3], dims[2]};
}

// ---- the graphs

class AttentionGraph {
 public:
  explicit AttentionGraph(const Heads& heads)
      : heads_(heads), scores_{heads.batch, heads.heads, heads.queries, heads.keys} {}

  Tensor operand(const Shape& shape, const Dims& strides) {
    return graph.tensor(heads_.dtype, shape, strides, aligned_bytes);
  }
  Tensor per_row() {
    return graph.tensor(DType::f32, heads_.rows(), row_major_strides(heads_.rows()), aligned_bytes);
  }
  Tensor scores(DType dtype = DType::f32) { return graph.between(dtype, scores_); }

  Tensor combine(Pointwise mode, const Tensor& a, const Tensor& b) {
    Tensor result = graph.between(DType::f32, a.shape);
    graph.pointwise(mode, {a, b}, result);
    return result;
  }
  Tensor map(Pointwise mode, const Tensor& x) {
    Tensor result = graph.between(DType::f32, x.shape);
    graph.pointwise(mode, {x}, result);
    return result;
  }
  Tensor reduce_rows(Reduction mode, const Tensor& x) {
    Tensor result = graph.between(DType::f32, heads_.rows());
    graph.reduce(mode, x, result);
    return result;
  }

  Tensor scaled(const Tensor& x) {
    return combine(Pointwise::multiply, x, graph.constant(static_cast<float>(heads_.scale), 4));
  }
  Tensor scaled_products(const Tensor& q, const Tensor& k_across) {
    const Tensor products = scores();
    graph.matmul(q, k_across, products);
    return scaled(products);
  }
  // Applies the causal mask: a query attends to keys up to its own position.
  Tensor masked(const Tensor& x) {
    if (!heads_.causal) return x;
    const Tensor row = scores(DType::i32), column = scores(DType::i32);
    const Tensor seen = scores(DType::boolean), result = scores();
    graph.pointwise(Pointwise::index, {x}, row, 2);
    graph.pointwise(Pointwise::index, {x}, column, 3);
    graph.pointwise(Pointwise::greater_equal, {row, column}, seen);
    const Tensor hidden = graph.constant(-std::numeric_limits<float>::infinity(), 4);
    graph.pointwise(Pointwise::select, {x, hidden, seen}, result);
    return result;
  }
  // Transposes `x` and rounds it to the operands' type, for a matrix product.
  Tensor across(const Tensor& x) {
    const Shape shape = transposed(x.shape);
    Tensor result = graph.between(heads_.dtype, shape, transposed(row_major_strides(x.shape)));
    graph.reshape(x, result);
    return result;
  }

  Graph graph;

 private:
  const Heads& heads_;
  Shape scores_;
};

std::string describe(const Heads& heads, std::string_view op) {
  return fmt::format("{} of {} q {}, k {}, v {}{}", op, name(heads.dtype), to_string(heads.q()),
                     to_string(heads.k()), to_string(heads.v()), heads.causal ? ", causal" : "");
}

// ---- memory

}  // namespace

GradientScratch::GradientScratch(const Heads& heads) : batch(heads.batch) {
  constexpr size_t most_products = size_t{256} << 20;
  const size_t products = static_cast<size_t>(heads.heads) *
                          round_up(static_cast<size_t>(heads.queries), 128) *
                          round_up(static_cast<size_t>(heads.keys), 128) * size_of(heads.dtype);
  auto of = [&](int64_t sequences) { return static_cast<size_t>(sequences) * products; };
  const int64_t statistics = heads.heads * heads.queries * int64_t{sizeof(float)};
  for (int64_t part = heads.batch - 1; part > 0 && of(batch) > most_products; --part)
    if (heads.batch % part == 0 && part * statistics % aligned_bytes == 0) batch = part;
  Heads part = heads;
  part.batch = batch;
  dots = aligned(Type{DType::f32, part.rows()}.bytes());
  engine = engine_bytes + of(batch);
}

namespace {
// Returns whether vectors are within rows, as engines require but do not check.
bool is_aligned(const Shape& shape, const Placement& at, DType dtype) {
  const int64_t elements = aligned_bytes / static_cast<int64_t>(size_of(dtype));
  bool aligned = at.strides[3] == 1 && at.offset % elements == 0;
  for (int axis = 0; axis < 3; ++axis)
    aligned &= shape[axis] == 1 || (at.strides[axis] > 0 && at.strides[axis] % elements == 0);
  return aligned;
}
void check_aligned(const Bound& bound, const Launch& launch) {
  WEFT_ASSERT(bound.alignment() % aligned_bytes == 0, "{} has a tensor at {} bytes", launch.kernel,
              bound.byte_offset());
}
// Replaces the strides of axes of extent 1, which are arbitrary but must be positive for cuDNN.
Dims strides_of(const Shape& shape, const Dims& strides) {
  Dims all = strides;
  for (int axis = 0; axis < 4; ++axis)
    if (shape[axis] == 1) all[axis] = axis == 3 ? 1 : element_count(shape);
  return all;
}

// ---- the kernels

class Attention : public Kernel {
 public:
  Attention(gpu::Device& device, const Launch& launch)
      : stream_(stream_of(device)),
        inputs_(bind_inputs(launch)),
        result_(bind_result(launch, launch.body[0])) {
    for (const Bound& input : inputs_) check_aligned(input, launch);
    const Heads heads(*launch.body.front().node());
    const AttentionStrides strides{
        strides_of(heads.q(), inputs_[0].strides), strides_of(heads.k(), inputs_[1].strides),
        strides_of(heads.v(), inputs_[2].strides), strides_of(heads.y(), result_.strides)};
    if (launch.body.size() > 1) statistics_ = bind_result(launch, launch.body[1]);
    const std::string_view what = statistics_ ? "attention with statistics" : "attention";
    plan_ = attention_graph(heads, strides, statistics_.has_value())
                .select(device, {launch.workspace}, describe(heads, what));
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    std::array<void*, 5> addresses{const_cast<std::byte*>(inputs_[0].in(operands)),
                                   const_cast<std::byte*>(inputs_[1].in(operands)),
                                   const_cast<std::byte*>(inputs_[2].in(operands)),
                                   result_.out(results), nullptr};
    if (statistics_) addresses[4] = statistics_->out(results);
    plan_.run(stream_, std::span(addresses).first(statistics_ ? 5 : 4), workspace);
  }

 private:
  Stream stream_;
  std::vector<Bound> inputs_;
  Bound result_;
  std::optional<Bound> statistics_;
  ExecutionPlan plan_;
};

class AttentionGradient : public Kernel {
 public:
  AttentionGradient(gpu::Device& device, const Launch& launch)
      : stream_(stream_of(device)),
        inputs_(bind_inputs(launch)),
        result_(bind_result(launch)),
        scratch_(Heads(*launch.body.front().node())) {
    WEFT_ASSERT(scratch_.bytes() <= launch.workspace, "{} plans {} bytes but needs {}",
                launch.kernel, launch.workspace, scratch_.bytes());
    for (const Bound& input : inputs_) check_aligned(input, launch);
    Heads part(*launch.body.front().node());
    const int64_t parts = part.batch / scratch_.batch;
    part.batch = scratch_.batch;
    const AttentionStrides strides{
        strides_of(part.q(), inputs_[0].strides), strides_of(part.k(), inputs_[1].strides),
        strides_of(part.v(), inputs_[2].strides), strides_of(part.y(), inputs_[4].strides)};
    const Dims dy = strides_of(part.y(), inputs_[3].strides);
    const Dims gradient = strides_of(part.q(), result_.strides);
    plans_.assign(static_cast<size_t>(parts),
                  attention_gradient_graph(part, strides, dy, gradient)
                      .select(device, {scratch_.engine}, describe(part, "attention_backward")));
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    std::byte* const dots = static_cast<std::byte*>(workspace);
    std::byte* const engine = dots + scratch_.dots;
    for (size_t part = 0; part < plans_.size(); ++part) {
      auto in = [&](int input) {
        const Bound& bound = inputs_[input];
        return const_cast<std::byte*>(bound.in(operands)) + first_of(part, bound);
      };
      auto out = [&](int64_t i) {  // the gradient of operand i, which has a third of the heads
        return result_.out(results) + first_of(part, result_) +
               i * result_.type.shape[1] / 3 * result_.strides[1] *
                   static_cast<int64_t>(size_of(result_.type.dtype));
      };
      plans_[part].run(stream_,
                       std::array<void*, 10>{in(0), in(1), in(2), in(4), in(5), in(3), dots, out(0),
                                             out(1), out(2)},
                       engine);
    }
  }

 private:
  // Returns the byte offset of a part of the batch.
  int64_t first_of(size_t part, const Bound& bound) const {
    return static_cast<int64_t>(part) * scratch_.batch * bound.strides[0] *
           static_cast<int64_t>(size_of(bound.type.dtype));
  }

  Stream stream_;
  std::vector<Bound> inputs_;
  Bound result_;
  GradientScratch scratch_;
  std::vector<ExecutionPlan> plans_;  // one for each part
};
}  // namespace

Graph attention_graph(const Heads& heads, const AttentionStrides& strides, bool statistics) {
  AttentionGraph on(heads);
  const Tensor q = on.operand(heads.q(), strides.q);
  const Tensor k_across = on.operand(transposed(heads.k()), transposed(strides.k));
  const Tensor v = on.operand(heads.v(), strides.v), y = on.operand(heads.y(), strides.y);
  const Tensor scores = on.masked(on.scaled_products(q, k_across));
  const Tensor peak = on.reduce_rows(Reduction::maximum, scores);
  const Tensor exponentials =
      on.map(Pointwise::exponential, on.combine(Pointwise::subtract, scores, peak));
  const Tensor sums = on.reduce_rows(Reduction::sum, exponentials);
  // cuDNN recognizes attention by its log-sum-exp, so the graph has it even if nobody reads it.
  on.graph.pointwise(Pointwise::add, {peak, on.map(Pointwise::logarithm, sums)},
                     statistics ? on.per_row() : on.graph.between(DType::f32, heads.rows()));
  const Tensor probabilities = on.scores(heads.dtype);
  on.graph.pointwise(Pointwise::divide, {exponentials, sums}, probabilities);
  on.graph.matmul(probabilities, v, y);
  return std::move(on.graph);
}

// Follows Dao et al. 2022, but computes dq by one matrix product, for a fixed order of summation.
Graph attention_gradient_graph(const Heads& heads, const AttentionStrides& strides,
                               const Dims& dy_strides, const Dims& gradient) {
  AttentionGraph on(heads);
  const Tensor q = on.operand(heads.q(), strides.q);
  const Tensor k_across = on.operand(transposed(heads.k()), transposed(strides.k));
  const Tensor v_across = on.operand(transposed(heads.v()), transposed(strides.v));
  const Tensor y = on.operand(heads.y(), strides.y), statistics = on.per_row();
  const Tensor dy = on.operand(heads.y(), dy_strides), dots = on.per_row();
  const Tensor dq = on.operand(heads.q(), gradient), dk = on.operand(heads.k(), gradient),
               dv = on.operand(heads.v(), gradient);

  const Tensor dot = on.reduce_rows(Reduction::sum, on.combine(Pointwise::multiply, dy, y));
  on.graph.pointwise(Pointwise::multiply, {dot, on.graph.constant(1, 4)}, dots);

  const Tensor probabilities = on.map(
      Pointwise::exponential,
      on.masked(on.combine(Pointwise::subtract, on.scaled_products(q, k_across), statistics)));
  on.graph.matmul(on.across(probabilities), dy, dv);

  const Tensor dp = on.scores();
  on.graph.matmul(dy, v_across, dp);
  const Tensor dscores = on.scaled(
      on.combine(Pointwise::multiply, on.combine(Pointwise::subtract, dp, dots), probabilities));
  on.graph.matmul(on.across(dscores), q, dk);
  const Tensor k = on.graph.between(heads.dtype, heads.k(), strides.k);
  on.graph.reshape(k_across, k);
  on.graph.matmul(dscores, k, dq);
  return std::move(on.graph);
}

std::optional<KernelChoice> choose_attention(const Node& node,
                                             std::span<const Placement> operands) {
  constexpr int64_t most_depth = 128, whole = 8;
  constexpr size_t matrices = 5;  // operands that are matrices; the statistics follow
  const bool backward = node.op->role == Role::backward;
  const Heads heads(node);
  const bool narrow = computes_wider(heads.dtype);
  const bool deep = std::max(heads.depth, heads.width) > most_depth;
  const bool odd = heads.depth % whole != 0 || heads.width % whole != 0;
  const bool empty = element_count(heads.q()) == 0 || element_count(heads.v()) == 0;
  const bool single = backward && heads.queries == 1;  // no engine supports this gradient
  const bool shared = backward && heads.key_heads != heads.heads;
  if (!narrow || !is_plain_attention(node) || deep || odd || empty || single || shared)
    return std::nullopt;
  // The heads of a token are adjacent in memory, as the projections around attention need them.
  const Dims by_token{0, 2, 1, 3};
  KernelChoice choice{
      .kernel = "cudnn:" + std::string(node.op->name),
      .alignment = aligned_bytes,
      .result_order = by_token,
      .workspace = backward ? GradientScratch(heads).bytes() : GradientScratch::engine_bytes};
  choice.operand_order.resize(operands.size());
  for (size_t i = 0; i < std::min(operands.size(), matrices); ++i)
    if (!is_aligned(node.inputs[i].shape(), operands[i], heads.dtype))
      choice.operand_order[i] = by_token;
  if (backward) choice.operand_order[matrices] = Dims::iota(4);
  return choice;
}
std::optional<KernelChoice> choose_attention_with(std::span<const Value> body,
                                                  std::span<const Value> results,
                                                  std::span<const Placement> operands) {
  // cuDNN provides the statistics only where it also computes the backward pass.
  if (!is_attention_with_logsumexp(body, results) || body.front().dim(2) == 1) return std::nullopt;
  std::optional<KernelChoice> choice = choose_attention(*body.front().node(), operands);
  if (choice) choice->kernel += ".and_logsumexp";
  return choice;
}

std::unique_ptr<Kernel> compile_attention(gpu::Device& device, const Launch& launch) {
  if (launch.body.front()->op->role == Role::backward)
    return std::make_unique<AttentionGradient>(device, launch);
  return std::make_unique<Attention>(device, launch);
}

}  // namespace weft::cuda::cudnn
