#include "weft/backends/cpu/onednn.h"

#include <array>
#include <omp.h>
#include <utility>
#include <vector>

#include <dnnl.h>

#include "weft/base/buffer.h"
#include "weft/base/error.h"
#include "weft/base/isa.h"
#include "weft/base/parallel.h"

static_assert(DNNL_VERSION_MAJOR == 2, "weft is written for version 2 of oneDNN's API");

namespace weft::onednn {
namespace {
void check(dnnl_status_t status, const char* call) {
  if (status != dnnl_success)
    throw Error(ErrorKind::device, "[oneDNN] {} failed with status {}.", call,
                static_cast<int>(status));
}

// An owning handle of a C object.
template <class T, dnnl_status_t (*destroy)(T*)>
struct Destroy {
  using pointer = T*;
  void operator()(T* object) const { destroy(object); }
};
template <class T, dnnl_status_t (*destroy)(T*)>
using Handle = std::unique_ptr<T, Destroy<T, destroy>>;
using Engine = Handle<dnnl_engine, dnnl_engine_destroy>;
using Stream = Handle<dnnl_stream, dnnl_stream_destroy>;
using Attributes = Handle<dnnl_primitive_attr, dnnl_primitive_attr_destroy>;
using Memory = Handle<dnnl_memory, dnnl_memory_destroy>;
using Description = Handle<dnnl_primitive_desc, dnnl_primitive_desc_destroy>;
using Iterator = Handle<dnnl_primitive_desc_iterator, dnnl_primitive_desc_iterator_destroy>;
using Executable = Handle<dnnl_primitive, dnnl_primitive_destroy>;

// The host as oneDNN knows it; one for the process.
struct Host {
  Engine engine;
  Stream stream;
  Attributes attributes;  // scratchpads are ours to give
  Attributes adding;      // the same, and the result is added to what is there

  Host() : attributes(make_attributes()), adding(make_attributes()) {
    cap_instructions();
    dnnl_engine_t made_engine = nullptr;
    check(dnnl_engine_create(&made_engine, dnnl_cpu, 0), "dnnl_engine_create");
    engine.reset(made_engine);
    dnnl_stream_t made_stream = nullptr;
    check(dnnl_stream_create(&made_stream, made_engine, dnnl_stream_in_order),
          "dnnl_stream_create");
    stream.reset(made_stream);
    dnnl_post_ops_t made_sum = nullptr;
    check(dnnl_post_ops_create(&made_sum), "dnnl_post_ops_create");
    const Handle<dnnl_post_ops, dnnl_post_ops_destroy> sum(made_sum);
    check(dnnl_post_ops_append_sum(made_sum, 1), "dnnl_post_ops_append_sum");
    check(dnnl_primitive_attr_set_post_ops(adding.get(), made_sum),
          "dnnl_primitive_attr_set_post_ops");
  }
  // Before oneDNN makes its first kernel: the cap is one for the process.
  static void cap_instructions() {
    constexpr dnnl_cpu_isa_t caps[] = {dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2,
                                       dnnl_cpu_isa_avx512_core, dnnl_cpu_isa_avx512_core_bf16,
                                       dnnl_cpu_isa_avx512_core_amx};
    if (isa() == host_isa()) return;
    check(dnnl_set_max_cpu_isa(caps[static_cast<size_t>(isa())]), "dnnl_set_max_cpu_isa");
  }
  static Attributes make_attributes() {
    dnnl_primitive_attr_t made = nullptr;
    check(dnnl_primitive_attr_create(&made), "dnnl_primitive_attr_create");
    Attributes attributes(made);
    check(dnnl_primitive_attr_set_scratchpad_mode(made, dnnl_scratchpad_mode_user),
          "dnnl_primitive_attr_set_scratchpad_mode");
    return attributes;
  }
};
const Host& host() {
  static const Host instance;
  return instance;
}

dnnl_data_type_t data_type(DType dtype) {
  if (dtype == DType::f32) return dnnl_f32;
  if (dtype == DType::bf16) return dnnl_bf16;
  WEFT_ASSERT(false, "no oneDNN type for {}", name(dtype));
}

dnnl_memory_desc_t strided(const Tensor& tensor) {
  dnnl_memory_desc_t layout;
  check(dnnl_memory_desc_init_by_strides(&layout, tensor.shape.size(), tensor.shape.begin(),
                                         data_type(tensor.dtype), tensor.strides.begin()),
        "dnnl_memory_desc_init_by_strides");
  return layout;
}
// What the primitive is asked to take: the tensor as it lies, or any layout.
dnnl_memory_desc_t wanted(const Tensor& tensor) {
  if (!tensor.free) return strided(tensor);
  dnnl_memory_desc_t layout;
  check(dnnl_memory_desc_init_by_tag(&layout, tensor.shape.size(), tensor.shape.begin(),
                                     data_type(tensor.dtype), dnnl_format_tag_any),
        "dnnl_memory_desc_init_by_tag");
  return layout;
}

// `ref` is slow and `gemm` allocates behind our back.
bool acceptable(std::string_view implementation) {
  return implementation.find("ref") == std::string_view::npos &&
         !implementation.starts_with("gemm") &&
         implementation.find(":gemm") == std::string_view::npos;
}

std::string implementation_of(const_dnnl_primitive_desc_t description) {
  const char* text = nullptr;
  check(dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0,
                                  static_cast<void*>(&text)),
        "dnnl_primitive_desc_query");
  return text;
}

// The first acceptable implementation, or null.
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

// Gradients want the description of the forward convolution as a hint, of whatever implementation;
// it has one type for all, where a gradient may be wider than what it comes from.
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

// The names of a, b and the result among the primitive's arguments.
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

Memory make_memory(const dnnl_memory_desc_t& layout) {
  dnnl_memory_t made = nullptr;
  check(dnnl_memory_create(&made, &layout, host().engine.get(), DNNL_MEMORY_NONE),
        "dnnl_memory_create");
  return Memory(made);
}
Executable make_executable(const_dnnl_primitive_desc_t description) {
  dnnl_primitive_t made = nullptr;
  check(dnnl_primitive_create(&made, description), "dnnl_primitive_create");
  return Executable(made);
}
dnnl_memory_desc_t layout_of(const_dnnl_primitive_desc_t description, int argument) {
  return *dnnl_primitive_desc_query_md(description, dnnl_query_exec_arg_md, argument);
}
}  // namespace

// Memories are named by index: 0 to 2 are the caller's a, b and result; the rest lie in the
// workspace.
struct Primitive::Parts {
  struct Call {
    Executable primitive;
    std::vector<dnnl_exec_arg_t> arguments;
  };
  std::string implementation;
  int threads = thread_count();  // that the workspace was sized for
  size_t workspace = 0;
  std::vector<Memory> memories;
  std::vector<size_t> offsets;  // in the workspace, per memory from index 3
  std::vector<void*> placed;    // where each memory lies since the last run
  std::vector<Call> calls;      // in order

  dnnl_memory_t in_workspace(const dnnl_memory_desc_t& layout) {
    offsets.push_back(workspace);
    size_t bytes = dnnl_memory_desc_get_size(&layout);
    workspace += (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
    memories.push_back(make_memory(layout));
    return memories.back().get();
  }

  Call call(const_dnnl_primitive_desc_t description, std::vector<dnnl_exec_arg_t> arguments) {
    dnnl_memory_desc_t scratch = layout_of(description, DNNL_ARG_SCRATCHPAD);
    if (dnnl_memory_desc_get_size(&scratch) > 0)
      arguments.push_back({DNNL_ARG_SCRATCHPAD, in_workspace(scratch)});
    return {make_executable(description), std::move(arguments)};
  }

  Call convert(dnnl_memory_t from, const dnnl_memory_desc_t& from_layout, dnnl_memory_t to,
               const dnnl_memory_desc_t& to_layout) {
    dnnl_primitive_desc_t made = nullptr;
    check(dnnl_reorder_primitive_desc_create(&made, &from_layout, host().engine.get(), &to_layout,
                                             host().engine.get(), host().attributes.get()),
          "dnnl_reorder_primitive_desc_create");
    Description description(made);
    return call(made, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }
};

Primitive::Primitive(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Primitive::Primitive(Primitive&&) noexcept = default;
Primitive& Primitive::operator=(Primitive&&) noexcept = default;
Primitive::~Primitive() = default;

std::optional<Primitive> Primitive::make(const Problem& problem) {
  omp_set_num_threads(thread_count());  // per thread, and compilation has threads of its own
  Description description = describe(problem);
  if (description == nullptr) return std::nullopt;
  auto parts = std::make_unique<Parts>();
  parts->implementation = implementation_of(description.get());

  const std::array<const Tensor*, 3> tensors{&problem.a, &problem.b, &problem.result};
  const std::array<int, 3> names = argument_names(problem.operation);
  std::array<dnnl_memory_desc_t, 3> given;
  std::array<dnnl_memory_t, 3> used;
  for (size_t i = 0; i < 3; ++i) {
    given[i] = strided(*tensors[i]);
    parts->memories.push_back(make_memory(given[i]));
    used[i] = parts->memories.back().get();
  }
  std::vector<Parts::Call> after;
  for (size_t i = 0; i < 3; ++i) {
    dnnl_memory_desc_t chosen = layout_of(description.get(), names[i]);
    if (dnnl_memory_desc_equal(&chosen, &given[i])) continue;
    dnnl_memory_t caller = used[i];
    used[i] = parts->in_workspace(chosen);
    if (i == 2)
      after.push_back(parts->convert(used[i], chosen, caller, given[i]));
    else
      parts->calls.push_back(parts->convert(caller, given[i], used[i], chosen));
  }
  parts->calls.push_back(parts->call(
      description.get(), {{names[0], used[0]}, {names[1], used[1]}, {names[2], used[2]}}));
  for (Parts::Call& call : after) parts->calls.push_back(std::move(call));
  parts->placed.resize(parts->memories.size());
  return Primitive(std::move(parts));
}

const std::string& Primitive::implementation() const { return parts_->implementation; }
size_t Primitive::workspace() const { return parts_->workspace; }

void Primitive::run(const void* a, const void* b, void* result, void* workspace) const {
  if (omp_get_max_threads() != parts_->threads) omp_set_num_threads(parts_->threads);
  auto place = [&](size_t memory, void* data) {
    if (parts_->placed[memory] == data) return;
    parts_->placed[memory] = data;
    check(dnnl_memory_set_data_handle(parts_->memories[memory].get(), data),
          "dnnl_memory_set_data_handle");
  };
  place(0, const_cast<void*>(a));
  place(1, const_cast<void*>(b));
  place(2, result);
  for (size_t i = 3; i < parts_->memories.size(); ++i)
    place(i, static_cast<std::byte*>(workspace) + parts_->offsets[i - 3]);
  for (const Parts::Call& call : parts_->calls)
    check(dnnl_primitive_execute(call.primitive.get(), host().stream.get(),
                                 static_cast<int>(call.arguments.size()), call.arguments.data()),
          "dnnl_primitive_execute");
}

bool supports(DType dtype) {
  if (dtype == DType::f32) return true;
  if (dtype != DType::bf16) return false;
  Problem probe;
  probe.a = probe.b = probe.result = {DType::bf16, {16, 16}, {16, 1}};
  static const bool supported = describe_matmul(probe) != nullptr;
  return supported;
}

std::string version() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}
}  // namespace weft::onednn
