#include "weft/backends/cpu/onednn/describe.h"

#include <string_view>

#include "weft/base/error.h"
#include "weft/base/host/isa.h"

namespace weft::onednn {

void check(dnnl_status_t status, const char* call) {
  if (status != dnnl_success)
    throw Error(ErrorKind::device, "[oneDNN] {} failed with status {}.", call,
                static_cast<int>(status));
}

namespace {
// Must run before oneDNN creates its first kernel, which fixes the cap for the whole process.
void cap_instructions() {
  constexpr dnnl_cpu_isa_t caps[] = {dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2,
                                     dnnl_cpu_isa_avx512_core, dnnl_cpu_isa_avx512_core_bf16,
                                     dnnl_cpu_isa_avx512_core_amx};
  if (!isa_is_capped()) return;
  check(dnnl_set_max_cpu_isa(caps[static_cast<size_t>(isa())]), "dnnl_set_max_cpu_isa");
}

Attributes make_attributes() {
  dnnl_primitive_attr_t made = nullptr;
  check(dnnl_primitive_attr_create(&made), "dnnl_primitive_attr_create");
  Attributes attributes(made);
  check(dnnl_primitive_attr_set_scratchpad_mode(made, dnnl_scratchpad_mode_user),
        "dnnl_primitive_attr_set_scratchpad_mode");
  return attributes;
}

Host make_host() {
  cap_instructions();
  Host host{
      .engine = {}, .stream = {}, .attributes = make_attributes(), .adding = make_attributes()};
  dnnl_engine_t made_engine = nullptr;
  check(dnnl_engine_create(&made_engine, dnnl_cpu, 0), "dnnl_engine_create");
  host.engine.reset(made_engine);
  dnnl_stream_t made_stream = nullptr;
  check(dnnl_stream_create(&made_stream, made_engine, dnnl_stream_in_order), "dnnl_stream_create");
  host.stream.reset(made_stream);
  dnnl_post_ops_t made_sum = nullptr;
  check(dnnl_post_ops_create(&made_sum), "dnnl_post_ops_create");
  const Handle<dnnl_post_ops, dnnl_post_ops_destroy> sum(made_sum);
  check(dnnl_post_ops_append_sum(made_sum, 1), "dnnl_post_ops_append_sum");
  check(dnnl_primitive_attr_set_post_ops(host.adding.get(), made_sum),
        "dnnl_primitive_attr_set_post_ops");
  return host;
}
}  // namespace

const Host& host() {
  static const Host instance = make_host();
  return instance;
}

namespace {
dnnl_data_type_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return dnnl_f32;
    case DType::bf16:
      return dnnl_bf16;
    case DType::i32:
      return dnnl_s32;
    case DType::i8:
      return dnnl_s8;
    case DType::u8:
      return dnnl_u8;
    default:
      WEFT_ASSERT(false, "no oneDNN type for {}", name(dtype));
  }
}

}  // namespace

dnnl_memory_desc_t strided(const Tensor& tensor) {
  dnnl_memory_desc_t layout;
  check(dnnl_memory_desc_init_by_strides(&layout, tensor.shape.size(), tensor.shape.begin(),
                                         data_type(tensor.dtype), tensor.strides.begin()),
        "dnnl_memory_desc_init_by_strides");
  return layout;
}

namespace {
// Returns the layout that the primitive is asked for: the tensor's own or, if it is `free`, any
// layout.
dnnl_memory_desc_t wanted(const Tensor& tensor) {
  if (!tensor.free) return strided(tensor);
  dnnl_memory_desc_t layout;
  check(dnnl_memory_desc_init_by_tag(&layout, tensor.shape.size(), tensor.shape.begin(),
                                     data_type(tensor.dtype), dnnl_format_tag_any),
        "dnnl_memory_desc_init_by_tag");
  return layout;
}

// `ref` is slow and `gemm` allocates hidden memory.
bool acceptable(std::string_view implementation) {
  return implementation.find("ref") == std::string_view::npos &&
         !implementation.starts_with("gemm") &&
         implementation.find(":gemm") == std::string_view::npos;
}

// Returns the first acceptable implementation, or null.
Description first_acceptable(const_dnnl_op_desc_t operation, const_dnnl_primitive_desc_t hint,
                             const Attributes& attributes = host().attributes) {
  dnnl_primitive_desc_iterator_t made = nullptr;
  dnnl_status_t status = dnnl_primitive_desc_iterator_create(&made, operation, attributes.get(),
                                                             host().engine.get(), hint);
  if (status == dnnl_unimplemented) return nullptr;
  check(status, "dnnl_primitive_desc_iterator_create");
  Iterator iterator(made);
  do {
    Description description(dnnl_primitive_desc_iterator_fetch(made));
    if (description == nullptr) return nullptr;
    if (acceptable(implementation_of(description.get()))) return description;
  } while (dnnl_primitive_desc_iterator_next(made) == dnnl_success);
  return nullptr;
}

Description describe_matmul(const Problem& problem) {
  dnnl_memory_desc_t a = wanted(problem.a), b = wanted(problem.b), result = wanted(problem.result);
  dnnl_matmul_desc_t operation;
  if (dnnl_matmul_desc_init(&operation, &a, &b, nullptr, &result) != dnnl_success) return nullptr;
  return first_acceptable(&operation, nullptr,
                          problem.accumulate ? host().adding : host().attributes);
}

Description describe_conv_forward(const Problem& problem, const Tensor& x, const Tensor& weight,
                                  const Tensor& y, dnnl_prop_kind_t kind) {
  dnnl_memory_desc_t src = wanted(x), filter = wanted(weight), dst = wanted(y);
  dnnl_convolution_desc_t operation;
  if (dnnl_dilated_convolution_forward_desc_init(&operation, kind, dnnl_convolution_direct, &src,
                                                 &filter, nullptr, &dst, problem.stride.begin(),
                                                 problem.dilation.begin(), problem.padding.begin(),
                                                 problem.padding_after.begin()) != dnnl_success)
    return nullptr;
  return first_acceptable(&operation, nullptr);
}

// Gradients need a description of the forward convolution, by any implementation, as a hint. The
// hint has the operands' type for all tensors, even if the gradient itself is wider.
Description describe_conv_hint(const Problem& problem, Tensor x, Tensor weight, Tensor y) {
  x.free = weight.free = y.free = true;
  x.dtype = weight.dtype = y.dtype = problem.a.dtype;
  dnnl_memory_desc_t src = wanted(x), filter = wanted(weight), dst = wanted(y);
  dnnl_convolution_desc_t operation;
  if (dnnl_dilated_convolution_forward_desc_init(
          &operation, dnnl_forward_training, dnnl_convolution_direct, &src, &filter, nullptr, &dst,
          problem.stride.begin(), problem.dilation.begin(), problem.padding.begin(),
          problem.padding_after.begin()) != dnnl_success)
    return nullptr;
  dnnl_primitive_desc_t made = nullptr;
  if (dnnl_primitive_desc_create(&made, &operation, host().attributes.get(), host().engine.get(),
                                 nullptr) != dnnl_success)
    return nullptr;
  return Description(made);
}

Description describe_conv_input_gradient(const Problem& problem) {
  Description hint = describe_conv_hint(problem, problem.result, problem.b, problem.a);
  if (hint == nullptr) return nullptr;
  dnnl_memory_desc_t dst = wanted(problem.a), filter = wanted(problem.b),
                     src = wanted(problem.result);
  dnnl_convolution_desc_t operation;
  if (dnnl_dilated_convolution_backward_data_desc_init(
          &operation, dnnl_convolution_direct, &src, &filter, &dst, problem.stride.begin(),
          problem.dilation.begin(), problem.padding.begin(),
          problem.padding_after.begin()) != dnnl_success)
    return nullptr;
  return first_acceptable(&operation, hint.get());
}

Description describe_conv_weight_gradient(const Problem& problem) {
  Description hint = describe_conv_hint(problem, problem.a, problem.result, problem.b);
  if (hint == nullptr) return nullptr;
  dnnl_memory_desc_t src = wanted(problem.a), dst = wanted(problem.b),
                     filter = wanted(problem.result);
  dnnl_convolution_desc_t operation;
  if (dnnl_dilated_convolution_backward_weights_desc_init(
          &operation, dnnl_convolution_direct, &src, &filter, nullptr, &dst, problem.stride.begin(),
          problem.dilation.begin(), problem.padding.begin(),
          problem.padding_after.begin()) != dnnl_success)
    return nullptr;
  return first_acceptable(&operation, hint.get());
}
}  // namespace

Description describe(const Problem& problem) {
  switch (problem.operation) {
    case Operation::matmul:
      return describe_matmul(problem);
    case Operation::conv:
      return describe_conv_forward(problem, problem.a, problem.b, problem.result,
                                   dnnl_forward_training);
    case Operation::conv_input_gradient:
      return describe_conv_input_gradient(problem);
    case Operation::conv_weight_gradient:
      return describe_conv_weight_gradient(problem);
  }
  WEFT_ASSERT(false, "unknown operation");
}

std::string implementation_of(const_dnnl_primitive_desc_t description) {
  const char* text = nullptr;
  check(dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0,
                                  static_cast<void*>(&text)),
        "dnnl_primitive_desc_query");
  return text;
}

dnnl_memory_desc_t layout_of(const_dnnl_primitive_desc_t description, int argument) {
  return *dnnl_primitive_desc_query_md(description, dnnl_query_exec_arg_md, argument);
}

std::array<int, 3> argument_names(Operation operation) {
  switch (operation) {
    case Operation::conv_input_gradient:
      return {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC};
    case Operation::conv_weight_gradient:
      return {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS};
    default:
      return {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  }
}
}  // namespace weft::onednn
