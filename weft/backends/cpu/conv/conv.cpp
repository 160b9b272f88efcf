// Convolutions use oneDNN where it supports the type, else im2col (im2col.h), and Winograd's
// algorithm for 3 x 3 in float32 (winograd.h). Activations are channels-last, which is faster than
// oneDNN's blocked layouts with conversions around them; weights stay row-major and are converted
// inside.
#include "weft/backends/cpu/conv/conv.h"

#include <algorithm>

#include "weft/backends/cpu/conv/winograd.h"
#include "weft/backends/cpu/gemm/contraction.h"
#include "weft/backends/cpu/gemm/packed.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/base/host/isa.h"
#include "weft/base/host/parallel.h"

namespace weft::cpu {
const Dims channels_last{0, 2, 3, 1}, row_major{0, 1, 2, 3};

Convolution convolution_of(const Node& node) {
  Convolution conv;
  Shape x = node.inputs[0].shape(), weight = node.inputs[1].shape(), y = node.type.shape;
  if (node.op->role == Role::input_gradient) {
    conv.kind = Convolution::Kind::input_gradient;
    std::swap(x, y);
  } else if (node.op->role == Role::weight_gradient) {
    conv.kind = Convolution::Kind::weight_gradient;
    std::swap(weight, y);
  }
  conv.dtype = node.inputs[0].dtype();
  conv.weight_dtype = node.inputs[1].dtype();
  conv.wide = node.type.dtype != conv.dtype;
  conv.batch = x[0];
  conv.channels = x[1];
  conv.outputs = y[1];
  conv.groups = node.attrs.integer("groups");
  conv.in = {x[2], x[3]};
  conv.out = {y[2], y[3]};
  conv.kernel = {weight[2], weight[3]};
  conv.stride = node.attrs.dims("stride");
  conv.padding = node.attrs.dims("padding");
  conv.dilation = node.attrs.dims("dilation");
  return conv;
}

bool has_fixed_weight(const Node& node) {
  return node.op->role != Role::weight_gradient && is_fixed(node.inputs[1]);
}

onednn::Problem problem_of(const Node& node, const Convolution& conv) {
  auto activation = [&](const Shape& shape) {
    return onednn::Tensor{conv.dtype, shape, dense_strides(shape, channels_last), false};
  };
  Shape filter = conv.weight_shape();
  if (conv.groups > 1)
    filter = {conv.groups, filter[0] / conv.groups, filter[1], filter[2], filter[3]};
  const onednn::Tensor weight{conv.dtype, filter, row_major_strides(filter), true};
  const onednn::Tensor x = activation(conv.x_shape()), y = activation(conv.y_shape());
  onednn::Problem problem{.stride = conv.stride,
                          .padding = conv.padding,
                          .padding_after = conv.padding,
                          .dilation = {conv.dilation[0] - 1, conv.dilation[1] - 1}};
  switch (conv.kind) {
    case Convolution::Kind::forward:
      problem.operation = onednn::Operation::conv;
      problem.a = x, problem.b = weight, problem.result = y;
      break;
    case Convolution::Kind::input_gradient:
      problem.operation = onednn::Operation::conv_input_gradient;
      problem.a = y, problem.b = weight, problem.result = x;
      break;
    case Convolution::Kind::weight_gradient:
      problem.operation = onednn::Operation::conv_weight_gradient;
      problem.a = x, problem.b = y, problem.result = weight;
      break;
  }
  problem.a.dtype = node.inputs[0].dtype();
  problem.b.dtype = node.inputs[1].dtype();
  problem.result.dtype = node.type.dtype;
  problem.packs_b = has_fixed_weight(node);
  return problem;
}

std::optional<onednn::Problem> library_problem(const Node& node, const Convolution& conv) {
  const bool empty = element_count(conv.x_shape()) == 0 ||
                     element_count(conv.weight_shape()) == 0 || element_count(conv.y_shape()) == 0;
  if (empty) return std::nullopt;
  const bool multiplies = node.type.dtype == DType::i32
                              ? node.inputs[1].dtype() == DType::i8 && onednn::multiplies_bytes()
                              : onednn::supports(conv.dtype);
  if (!multiplies) return std::nullopt;
  return problem_of(node, conv);
}

namespace {
std::optional<onednn::Primitive> library_primitive(const Node& node, const Convolution& conv) {
  const std::optional<onednn::Problem> problem = library_problem(node, conv);
  return problem ? onednn::Primitive::make(*problem) : std::nullopt;
}

// Returns a 1 x 1 convolution as a matrix product: channels-last activations have a row for each
// pixel.
std::optional<Contraction> as_product(const Convolution& conv) {
  auto all = [](const Dims& dims, int64_t value) { return std::ranges::count(dims, value) == 2; };
  if (!all(conv.kernel, 1) || !all(conv.stride, 1) || !all(conv.padding, 0) || conv.groups != 1)
    return std::nullopt;
  const int64_t elements = conv.batch * conv.in[0] * conv.in[1];
  const int64_t channels = conv.channels, outputs = conv.outputs;
  Contraction task{
      .a_dtype = conv.dtype, .b_dtype = conv.weight_dtype, .dtype = conv.result_dtype()};
  const MatrixStrides x{{}, channels, 1}, y{{}, outputs, 1}, weight{{}, channels, 1};
  switch (conv.kind) {
    case Convolution::Kind::forward:
      task.m = elements, task.n = outputs, task.k = channels;
      task.a = x, task.b = {{}, 1, channels}, task.result = y;
      break;
    case Convolution::Kind::input_gradient:
      task.m = elements, task.n = channels, task.k = outputs;
      task.a = y, task.b = weight, task.result = x;
      break;
    case Convolution::Kind::weight_gradient:
      task.m = outputs, task.n = channels, task.k = elements;
      task.a = {{}, 1, outputs}, task.b = x, task.result = weight;
      break;
  }
  return task;
}

// The product is faster for weight gradients and, in bfloat16, for input gradients
// (docs/decisions/0007-kernels-are-measured-when-asked.md).
bool better_as_product(const Convolution& conv) {
  return conv.kind == Convolution::Kind::weight_gradient ||
         (conv.kind == Convolution::Kind::input_gradient && conv.dtype == DType::bf16);
}

class LibraryConv : public Kernel {
 public:
  LibraryConv(onednn::Primitive primitive, const Launch& launch)
      : primitive_(std::move(primitive)),
        inputs_(bind_inputs(launch)),
        result_(bind_result(launch)) {
    WEFT_ASSERT(primitive_.workspace() <= launch.workspace, "{} plans {} bytes but needs {}",
                launch.kernel, launch.workspace, primitive_.workspace());
    WEFT_ASSERT(primitive_.packed_bytes() == launch.packed_bytes,
                "{} plans {} packed bytes but needs {}", launch.kernel, launch.packed_bytes,
                primitive_.packed_bytes());
    if (launch.packed_bytes > 0) weight_.emplace(inputs_[1], launch.packed_bytes);
  }
  void bind_variables(std::span<const std::shared_ptr<VariableState>> operands) override {
    if (weight_) weight_->bind(operands);
  }
  void run(void* const* operands, void* const* results, void* workspace) const override {
    primitive_.run(inputs_[0].in(operands), inputs_[1].in(operands), result_.out(results),
                   workspace, weight_ ? weight_->data() : nullptr, weight_ && weight_->packs_now());
  }

 private:
  onednn::Primitive primitive_;
  std::optional<Packed> weight_;
  std::vector<Bound> inputs_;
  Bound result_;
};

// OwnConv runs one of our own algorithms, which may keep the weight packed.
class OwnConv : public Kernel {
 public:
  struct Algorithm {
    void (*convolve)(const Convolution& conv, const void* a, const void* b, void* result,
                     void* workspace, int threads);
    void (*pack)(const Convolution& conv, const void* weight, void* packed);
  };
  // `needed` and `packed_bytes` are the bytes of workspace and of the packed weight.
  OwnConv(const Convolution& conv, const Launch& launch, Algorithm algorithm, size_t needed,
          size_t packed_bytes)
      : conv_(conv),
        inputs_(bind_inputs(launch)),
        result_(bind_result(launch)),
        algorithm_(algorithm),
        threads_(thread_count()) {
    WEFT_ASSERT(needed <= launch.workspace, "{} plans {} bytes but needs {}", launch.kernel,
                launch.workspace, needed);
    WEFT_ASSERT(packed_bytes == launch.packed_bytes, "{} plans {} packed bytes but needs {}",
                launch.kernel, launch.packed_bytes, packed_bytes);
    if (launch.packed_bytes > 0) weight_.emplace(inputs_[1], launch.packed_bytes);
  }
  void bind_variables(std::span<const std::shared_ptr<VariableState>> operands) override {
    if (weight_) weight_->bind(operands);
  }
  void run(void* const* operands, void* const* results, void* workspace) const override {
    const void* b = inputs_[1].in(operands);
    if (weight_ && weight_->packs_now()) algorithm_.pack(conv_, b, weight_->data());
    algorithm_.convolve(conv_, inputs_[0].in(operands), weight_ ? weight_->data() : b,
                        result_.out(results), workspace, threads_);
  }

 private:
  Convolution conv_;
  std::optional<Packed> weight_;
  std::vector<Bound> inputs_;
  Bound result_;
  Algorithm algorithm_;
  int threads_;
};

KernelChoice laid_out(const Node& node, KernelChoice choice) {
  const bool gradient = node.op->role == Role::weight_gradient;
  choice.operand_order = {channels_last, gradient ? channels_last : row_major};
  if (!gradient) choice.result_order = channels_last;
  return choice;
}

std::optional<KernelChoice> library_choice(const Node& node, const Convolution& conv) {
  auto primitive = library_primitive(node, conv);
  if (!primitive) return std::nullopt;
  return laid_out(node, {.kernel = "dnnl:" + std::string(node.op->name),
                         .workspace = primitive->workspace(),
                         .packed_bytes = primitive->packed_bytes(),
                         .objects = primitive->objects()});
}
// A fixed weight is packed once by our own algorithms.
Convolution with_packed_weight(const Node& node, Convolution conv) {
  conv.packed_weight = conv.kind == Convolution::Kind::forward && is_fixed(node.inputs[1]);
  return conv;
}
KernelChoice windows_choice(const Node& node, const Convolution& given) {
  const Convolution conv = with_packed_weight(node, given);
  return laid_out(node, {.kernel = "weft:" + std::string(node.op->name),
                         .algorithm = static_cast<int>(Algorithm::conv_windows),
                         .workspace = im2col_workspace(conv, thread_count()),
                         .packed_bytes = conv.packed_weight ? node.inputs[1].type().bytes() : 0});
}
KernelChoice winograd_choice(const Node& node, const Convolution& given) {
  const Convolution conv = with_packed_weight(node, given);
  return laid_out(node, {.kernel = "weft:winograd",
                         .algorithm = static_cast<int>(Algorithm::conv_winograd),
                         .workspace = winograd_workspace(conv, thread_count()),
                         .packed_bytes = conv.packed_weight ? winograd_packed_bytes(conv) : 0});
}

// Returns whether windows are faster than oneDNN, by measurement: pixels that are apart, in vectors
// narrower than AVX-512's.
bool windows_pay(const Convolution& conv) {
  const auto all_ones = [](const Dims& dims) { return std::ranges::count(dims, 1) == 2; };
  return isa() < Isa::avx512 && conv.kind == Convolution::Kind::forward && conv.groups == 1 &&
         conv.dtype == DType::f32 && all_ones(conv.kernel) && !all_ones(conv.stride);
}
}  // namespace

std::optional<KernelChoice> choose_conv(const Node& node, std::span<const Placement>) {
  const Convolution conv = convolution_of(node);
  if (!contracts(Contraction{conv.dtype, conv.dtype, conv.dtype})) return std::nullopt;
  if (auto product = as_product(conv); product && better_as_product(conv))
    return laid_out(node, choose_product(*product));
  if (winograd_pays(with_packed_weight(node, conv))) return winograd_choice(node, conv);
  if (windows_pay(conv)) return windows_choice(node, conv);
  if (auto choice = library_choice(node, conv)) return choice;
  return windows_choice(node, conv);
}

// Where oneDNN cannot sum products of 8-bit integers exactly, weft's kernels sum the products in
// pairs. Convolutions with few products per result, such as depthwise ones, are left to floats.
std::optional<KernelChoice> choose_conv_mixed(const Node& node, std::span<const Placement>) {
  const Convolution conv = convolution_of(node);
  if (auto choice = library_choice(node, conv)) return choice;
  constexpr int64_t enough = 32;
  const int64_t terms = conv.weight_shape()[1] * conv.kernel[0] * conv.kernel[1];
  if (terms < enough || terms % 2 != 0) return std::nullopt;
  if (auto product = as_product(conv)) return laid_out(node, choose_product(*product));
  return windows_choice(node, conv);
}

std::vector<KernelChoice> conv_alternatives(const Node& node, std::span<const Placement>) {
  const Convolution conv = convolution_of(node);
  std::vector<KernelChoice> all;
  if (!contracts(Contraction{conv.dtype, conv.dtype, conv.dtype})) return all;
  if (auto choice = library_choice(node, conv)) all.push_back(std::move(*choice));
  if (winograd_can(conv)) all.push_back(winograd_choice(node, conv));
  if (auto product = as_product(conv))
    for (KernelChoice& choice : product_alternatives(*product))
      all.push_back(laid_out(node, std::move(choice)));
  else
    all.push_back(windows_choice(node, conv));
  return all;
}

std::unique_ptr<Kernel> compile_conv(const Launch& launch) {
  const Convolution conv = convolution_of(*launch.body.front().node());
  if (is_product(launch)) {
    std::vector<Bound> inputs = bind_inputs(launch);  // a weight's gradient is dy^T x
    if (conv.kind == Convolution::Kind::weight_gradient) std::ranges::reverse(inputs);
    return compile_product(*as_product(conv), std::move(inputs), launch);
  }
  const bool by_tiles = is_by(launch, Algorithm::conv_winograd);
  if (by_tiles || is_by(launch, Algorithm::conv_windows)) {
    const Convolution own = with_packed_weight(*launch.body.front().node(), conv);
    const size_t weight_bytes = launch.body.front()->inputs[1].type().bytes();
    const size_t packed_bytes = !own.packed_weight ? 0
                                : by_tiles         ? winograd_packed_bytes(own)
                                                   : weight_bytes;
    return std::make_unique<OwnConv>(
        own, launch,
        by_tiles ? OwnConv::Algorithm{winograd_convolve, winograd_pack_weight}
                 : OwnConv::Algorithm{im2col_convolve, im2col_pack_weight},
        by_tiles ? winograd_workspace(own, thread_count()) : im2col_workspace(own, thread_count()),
        packed_bytes);
  }
  auto primitive = library_primitive(*launch.body.front().node(), conv);
  WEFT_ASSERT(primitive.has_value(), "oneDNN withdrew its kernel for {}", launch.kernel);
  return std::make_unique<LibraryConv>(std::move(*primitive), launch);
}
}  // namespace weft::cpu
