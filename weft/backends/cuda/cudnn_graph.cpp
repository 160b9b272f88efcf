#include "weft/backends/cuda/cudnn_graph.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "weft/backends/cuda/cublaslt.h"
#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/driver.h"
#include "weft/backends/cuda/shared_library.h"
#include "weft/base/buffer.h"
#include "weft/base/error.h"
#include "weft/base/logging.h"

namespace weft::cuda::cudnn {
namespace {

// ---- the library

using Handle = void*;  // cudnnHandle_t, cudnnBackendDescriptor_t, cudaStream_t

// Numbers of cudnn_graph.h.
enum Kind : int {
  pointwise_kind = 0,
  convolution_kind = 1,
  engine_kind = 2,
  engine_config_kind = 3,
  heuristics_kind = 4,
  execution_plan_kind = 5,
  conv_forward_kind = 10,
  conv_weight_gradient_kind = 11,
  conv_input_gradient_kind = 12,
  pointwise_operation_kind = 13,
  operation_graph_kind = 15,
  variant_pack_kind = 16,
  tensor_kind = 17,
  matmul_kind = 18,
  matmul_operation_kind = 19,
  reduction_kind = 21,
  reduction_operation_kind = 22,
  reshape_operation_kind = 31,
  device_properties_kind = 38,
};
enum Attribute : int {
  pointwise_mode = 0,
  pointwise_precision = 1,
  pointwise_axis = 9,
  convolution_precision = 100,
  convolution_mode = 101,
  convolution_dilations = 102,
  convolution_strides = 103,
  convolution_padding_after = 104,
  convolution_padding_before = 105,
  convolution_spatial_axes = 106,
  heuristics_mode = 200,
  heuristics_graph = 201,
  heuristics_results = 202,
  heuristics_device = 204,
  config_engine = 300,
  config_workspace = 303,
  plan_config = 401,
  plan_workspace = 402,
  plan_device = 407,
  conv_forward_alpha = 700,
  conv_forward_beta = 701,
  conv_forward_convolution = 702,
  conv_forward_weight = 703,
  conv_forward_x = 704,
  conv_forward_y = 705,
  conv_input_gradient_alpha = 706,
  conv_input_gradient_beta = 707,
  conv_input_gradient_convolution = 708,
  conv_input_gradient_weight = 709,
  conv_input_gradient_dx = 710,
  conv_input_gradient_dy = 711,
  conv_weight_gradient_alpha = 712,
  conv_weight_gradient_beta = 713,
  conv_weight_gradient_convolution = 714,
  conv_weight_gradient_dw = 715,
  conv_weight_gradient_x = 716,
  conv_weight_gradient_dy = 717,
  pointwise_descriptor = 750,
  pointwise_x = 751,
  pointwise_b = 752,
  pointwise_y = 753,
  pointwise_t = 758,
  graph_operations = 801,
  tensor_alignment = 900,
  tensor_type = 901,
  tensor_shape = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_is_virtual = 907,
  tensor_is_by_value = 908,
  pack_ids = 1000,
  pack_addresses = 1001,
  pack_workspace = 1003,
  engine_notes = 1303,
  matmul_precision = 1500,
  matmul_a = 1520,
  matmul_b = 1521,
  matmul_c = 1522,
  matmul_descriptor = 1523,
  reduction_mode = 1600,
  reduction_precision = 1601,
  reduction_x = 1610,
  reduction_y = 1611,
  reduction_descriptor = 1612,
  reshape_x = 2200,
  reshape_y = 2201,
  device_handle = 2701,
  device_json = 2702,
};
enum AttributeType : int {
  handle_type = 0,
  data_type_type = 1,
  boolean_type = 2,
  int64_type = 3,
  float_type = 4,
  double_type = 5,
  void_pointer_type = 6,
  convolution_mode_type = 7,
  heuristics_mode_type = 8,
  note_type = 11,
  pointwise_mode_type = 14,
  descriptor_type = 15,
  reduction_mode_type = 18,
  char_type = 24,
};
enum Note : int {
  tensor_core = 0,
  strict_nan = 9,
  note_count = 10,
};
enum HeuristicsMode : int { fallback_heuristics = 2, best_heuristics = 3 };
constexpr int cross_correlation = 1;
// Earlier ones sum over keys that are not there in gradients of attention.
constexpr size_t least_version = 91600;

struct Library {
  Library() {
    library.find(version, "cudnnGetVersion");
    if (version() < least_version)
      throw Error(ErrorKind::device,
                  "[cuda] {} is too old: it is cuDNN {}.{}, weft needs {}.{} or later.",
                  library.path(), version() / 10000, version() % 10000 / 100, least_version / 10000,
                  least_version % 10000 / 100);
    library.find(create, "cudnnCreate");
    library.find(set_stream, "cudnnSetStream");
    library.find(make_descriptor, "cudnnBackendCreateDescriptor");
    library.find(free_descriptor, "cudnnBackendDestroyDescriptor");
    library.find(set_attribute, "cudnnBackendSetAttribute");
    library.find(get_attribute, "cudnnBackendGetAttribute");
    library.find(finalize, "cudnnBackendFinalize");
    library.find(execute, "cudnnBackendExecute");
    library.find(status_text, "cudnnGetErrorString");
    library.find(last_error, "cudnnGetLastErrorString");
  }
  void check(int status, const char* call) const {
    if (status != 0) throw Error(ErrorKind::device, "[cuda] {}: {}.", call, reason(status));
  }
  std::string reason(int status) const {
    std::array<char, 1024> detail{};
    last_error(detail.data(), detail.size());
    return detail[0] == '\0' ? status_text(status)
                             : fmt::format("{} ({})", status_text(status), detail.data());
  }

  // cuDNN ends the process where it does not find this.
  SharedLibrary products = open_cublaslt();
  SharedLibrary library{{"libcudnn.so.9"},
                        "it comes with Python's package nvidia-cudnn-cu13, and from "
                        "developer.nvidia.com/cudnn."};
  size_t (*version)() = nullptr;
  int (*create)(Handle*) = nullptr;
  int (*set_stream)(Handle, Handle stream) = nullptr;
  int (*make_descriptor)(int kind, Handle*) = nullptr;
  int (*free_descriptor)(Handle) = nullptr;
  int (*set_attribute)(Handle, int attribute, int type, int64_t count, const void*) = nullptr;
  int (*get_attribute)(Handle, int attribute, int type, int64_t wanted, int64_t* count,
                       void*) = nullptr;
  int (*finalize)(Handle) = nullptr;
  int (*execute)(Handle, Handle plan, Handle pack) = nullptr;
  const char* (*status_text)(int) = nullptr;
  void (*last_error)(char*, size_t) = nullptr;
};

// Never let go, as the driver is not.
const Library& library() {
  static const Library* const instance = new Library;
  return *instance;
}

// For the context that is current.
Handle handle() {
  static PerContext& handles = *new PerContext([] {
    Handle made = nullptr;
    library().check(library().create(&made), "cudnnCreate");
    return made;
  });
  return handles.current();
}

// ---- descriptors

Descriptor make(Kind kind) {
  Handle made = nullptr;
  library().check(library().make_descriptor(kind, &made), "cudnnBackendCreateDescriptor");
  return {made, library().free_descriptor};
}
void set(const Descriptor& to, Attribute attribute, AttributeType type, int64_t count,
         const void* values) {
  library().check(library().set_attribute(to.get(), attribute, type, count, values),
                  "cudnnBackendSetAttribute");
}
void set(const Descriptor& to, Attribute attribute, AttributeType type, const auto& value) {
  set(to, attribute, type, 1, static_cast<const void*>(&value));
}
void set(const Descriptor& to, Attribute attribute, const Dims& values) {
  set(to, attribute, int64_type, values.size(), values.begin());
}
void set(const Descriptor& to, Attribute attribute, const Descriptor& part) {
  const Handle handle = part.get();
  set(to, attribute, descriptor_type, 1, static_cast<const void*>(&handle));
}
void set(const Descriptor& to, Attribute attribute, const Tensor& tensor) {
  set(to, attribute, tensor.descriptor);
}
void finish(const Descriptor& descriptor) {
  library().check(library().finalize(descriptor.get()), "cudnnBackendFinalize");
}
int64_t count_of(const Descriptor& of, Attribute attribute, AttributeType type) {
  int64_t count = 0;
  library().check(library().get_attribute(of.get(), attribute, type, 0, &count, nullptr),
                  "cudnnBackendGetAttribute");
  return count;
}
// At most as many as `into` holds; returns how many.
size_t get(const Descriptor& of, Attribute attribute, AttributeType type, auto into) {
  int64_t count = 0;
  library().check(
      library().get_attribute(of.get(), attribute, type, static_cast<int64_t>(into.size()), &count,
                              static_cast<void*>(into.data())),
      "cudnnBackendGetAttribute");
  return static_cast<size_t>(count);
}
size_t bytes_of(const Descriptor& of, Attribute attribute) {
  int64_t bytes = 0;
  get(of, attribute, int64_type, std::span(&bytes, 1));
  return static_cast<size_t>(bytes);
}

int data_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1;
    case DType::f16:
      return 2;
    case DType::i32:
      return 4;
    case DType::bf16:
      return 9;
    case DType::boolean:
      return 11;
    default:
      WEFT_ASSERT(dtype == DType::f32, "no tensor of cuDNN has elements of {}", name(dtype));
      return 0;
  }
}
void set(const Descriptor& to, Attribute attribute, DType dtype) {
  set(to, attribute, data_type_type, data_type(dtype));
}

Descriptor describe(int64_t id, DType dtype, const Shape& shape, const Dims& strides,
                    int64_t alignment) {
  Descriptor made = make(tensor_kind);
  set(made, tensor_id, int64_type, id);
  set(made, tensor_type, dtype);
  set(made, tensor_shape, shape);
  set(made, tensor_strides, strides);
  set(made, tensor_alignment, int64_type, alignment);
  return made;
}

// ---- the choice of an engine

std::vector<Descriptor> ranked(const Descriptor& graph, const Descriptor& properties,
                               HeuristicsMode mode) {
  const Descriptor heuristics = make(heuristics_kind);
  set(heuristics, heuristics_graph, graph);
  set(heuristics, heuristics_mode, heuristics_mode_type, mode);
  set(heuristics, heuristics_device, properties);
  if (library().finalize(heuristics.get()) != 0) return {};  // it has nothing for such graphs
  std::vector<Descriptor> configs;
  std::vector<Handle> handles;
  for (int64_t left = count_of(heuristics, heuristics_results, descriptor_type); left > 0; --left) {
    configs.push_back(make(engine_config_kind));
    handles.push_back(configs.back().get());
  }
  configs.resize(get(heuristics, heuristics_results, descriptor_type, std::span(handles)));
  return configs;
}

// Notes of all else say that it rounds more, or yields other bits each time.
bool keeps_rules(const Descriptor& config, bool exact) {
  const Descriptor engine = make(engine_kind);
  Handle handle = engine.get();
  get(config, config_engine, descriptor_type, std::span(&handle, 1));
  std::array<int, note_count> notes{};
  const size_t count = get(engine, engine_notes, note_type, std::span(notes));
  return std::all_of(notes.begin(), notes.begin() + static_cast<ptrdiff_t>(count), [&](int note) {
    return note == strict_nan || (note == tensor_core && !exact);
  });
}
}  // namespace

bool is_installed() {
  try {
    library();
    return true;
  } catch (const Error& missing) {
    logging::debug(1, "{}", missing.what());
    return false;
  }
}

Descriptor properties_of_current_device() {
  Descriptor made = make(device_properties_kind);
  set(made, device_handle, handle_type, handle());
  finish(made);
  return made;
}

Descriptor properties_from(const std::string& json) {
  Descriptor made = make(device_properties_kind);
  set(made, device_json, char_type, static_cast<int64_t>(json.size()), json.data());
  finish(made);
  return made;
}

int64_t Graph::next_id() { return ++count_; }

Tensor Graph::tensor(DType dtype, const Shape& shape, const Dims& strides, int64_t alignment) {
  const int64_t id = next_id();
  in_memory_.push_back(id);
  int64_t elements = 1;
  for (int axis = 0; axis < shape.size(); ++axis) elements += strides[axis] * (shape[axis] - 1);
  bytes_.push_back(static_cast<size_t>(elements) * size_of(dtype));
  Tensor made{id, describe(id, dtype, shape, strides, alignment), shape};
  finish(made.descriptor);
  return made;
}

Tensor Graph::between(DType dtype, const Shape& shape, const Dims& strides) {
  const int64_t id = next_id();
  Tensor made{id,
              describe(id, dtype, shape, strides.empty() ? row_major_strides(shape) : strides, 16),
              shape};
  set(made.descriptor, tensor_is_virtual, boolean_type, true);
  finish(made.descriptor);
  return made;
}

Tensor Graph::constant(float value, int rank) {
  const int64_t id = next_id();
  constant_ids_.push_back(id);
  constants_.push_back(value);
  const Dims ones = Dims::filled(rank, 1);
  Tensor made{id, describe(id, DType::f32, ones, ones, 16), ones};
  set(made.descriptor, tensor_is_by_value, boolean_type, true);
  finish(made.descriptor);
  return made;
}

void Graph::conv(Direction direction, const Tensor& x, const Tensor& weight, const Tensor& y,
                 const ConvAttributes& attributes) {
  const Descriptor convolution = make(convolution_kind);
  set(convolution, convolution_precision, attributes.sums);
  set(convolution, convolution_mode, convolution_mode_type, cross_correlation);
  set(convolution, convolution_spatial_axes, int64_type, int64_t{attributes.stride.size()});
  set(convolution, convolution_strides, attributes.stride);
  set(convolution, convolution_padding_before, attributes.padding);
  set(convolution, convolution_padding_after, attributes.padding);
  set(convolution, convolution_dilations, attributes.dilation);
  finish(convolution);

  struct Names {
    Kind kind;
    Attribute alpha, beta, convolution, x, weight, y;
  };
  const Names names = direction == Direction::forward
                          ? Names{conv_forward_kind, conv_forward_alpha,
                                  conv_forward_beta, conv_forward_convolution,
                                  conv_forward_x,    conv_forward_weight,
                                  conv_forward_y}
                      : direction == Direction::input_gradient
                          ? Names{conv_input_gradient_kind, conv_input_gradient_alpha,
                                  conv_input_gradient_beta, conv_input_gradient_convolution,
                                  conv_input_gradient_dx,   conv_input_gradient_weight,
                                  conv_input_gradient_dy}
                          : Names{conv_weight_gradient_kind, conv_weight_gradient_alpha,
                                  conv_weight_gradient_beta, conv_weight_gradient_convolution,
                                  conv_weight_gradient_x,    conv_weight_gradient_dw,
                                  conv_weight_gradient_dy};
  const Descriptor operation = make(names.kind);
  set(operation, names.convolution, convolution);
  set(operation, names.x, x);
  set(operation, names.weight, weight);
  set(operation, names.y, y);
  if (attributes.sums == DType::f64) {
    set(operation, names.alpha, double_type, 1.0);
    set(operation, names.beta, double_type, 0.0);
  } else {
    set(operation, names.alpha, float_type, 1.0f);
    set(operation, names.beta, float_type, 0.0f);
  }
  finish(operation);
  operations_.push_back(operation);
}

void Graph::matmul(const Tensor& a, const Tensor& b, const Tensor& result) {
  const Descriptor matmul = make(matmul_kind);
  set(matmul, matmul_precision, DType::f32);
  finish(matmul);
  const Descriptor operation = make(matmul_operation_kind);
  set(operation, matmul_descriptor, matmul);
  set(operation, matmul_a, a);
  set(operation, matmul_b, b);
  set(operation, matmul_c, result);
  finish(operation);
  operations_.push_back(operation);
}

void Graph::pointwise(Pointwise mode, const std::vector<Tensor>& inputs, const Tensor& result,
                      int axis) {
  const Descriptor pointwise = make(pointwise_kind);
  set(pointwise, pointwise_mode, pointwise_mode_type, mode);
  set(pointwise, pointwise_precision,
      mode == Pointwise::greater_equal ? DType::boolean : DType::f32);
  if (axis >= 0) set(pointwise, pointwise_axis, int64_type, int64_t{axis});
  finish(pointwise);
  const Descriptor operation = make(pointwise_operation_kind);
  set(operation, pointwise_descriptor, pointwise);
  constexpr std::array names{pointwise_x, pointwise_b, pointwise_t};
  for (size_t i = 0; i < inputs.size(); ++i) set(operation, names[i], inputs[i]);
  set(operation, pointwise_y, result);
  finish(operation);
  operations_.push_back(operation);
}

void Graph::reduce(Reduction mode, const Tensor& x, const Tensor& result) {
  const Descriptor reduction = make(reduction_kind);
  set(reduction, reduction_mode, reduction_mode_type, mode);
  set(reduction, reduction_precision, DType::f32);
  finish(reduction);
  const Descriptor operation = make(reduction_operation_kind);
  set(operation, reduction_descriptor, reduction);
  set(operation, reduction_x, x);
  set(operation, reduction_y, result);
  finish(operation);
  operations_.push_back(operation);
}

void Graph::reshape(const Tensor& x, const Tensor& result) {
  const Descriptor operation = make(reshape_operation_kind);
  set(operation, reshape_x, x);
  set(operation, reshape_y, result);
  finish(operation);
  operations_.push_back(operation);
}

std::vector<ExecutionPlan> Graph::plans(const Descriptor& properties, size_t most_workspace,
                                        bool exact, const std::string& what, size_t most) const {
  const Descriptor graph = make(operation_graph_kind);
  std::vector<Handle> handles(operations_.size());
  std::ranges::transform(operations_, handles.begin(), &Descriptor::get);
  set(graph, graph_operations, descriptor_type, static_cast<int64_t>(handles.size()),
      static_cast<const void*>(handles.data()));
  finish(graph);

  std::vector<ExecutionPlan> all;
  ExecutionPlan found;
  found.bytes_ = bytes_;
  found.ids_ = in_memory_;
  found.ids_.insert(found.ids_.end(), constant_ids_.begin(), constant_ids_.end());
  found.constants_ = std::make_shared<const std::vector<float>>(constants_);
  std::string reason = "no engine";
  for (HeuristicsMode mode : {best_heuristics, fallback_heuristics})
    for (const Descriptor& config : ranked(graph, properties, mode)) {
      if (!keeps_rules(config, exact) || bytes_of(config, config_workspace) > most_workspace)
        continue;
      const Descriptor plan = make(execution_plan_kind);
      set(plan, plan_device, properties);
      set(plan, plan_config, config);
      if (const int status = library().finalize(plan.get()); status != 0) {
        reason = library().reason(status);
        continue;
      }
      found.workspace_ = bytes_of(plan, plan_workspace);
      if (found.workspace_ > most_workspace) continue;
      found.plan_ = plan;
      found.made_of_ = {properties, config};
      all.push_back(found);
      if (all.size() == most) return all;
    }
  if (!all.empty()) return all;
  throw Error(ErrorKind::device, "[cuda] cuDNN {}.{} cannot do {} in {} bytes of workspace: {}.",
              library().version() / 10000, library().version() % 10000 / 100, what, most_workspace,
              reason);
}

namespace {
// By a few runs of each, on memory of its own.
size_t fastest(gpu::Device& device, const std::vector<ExecutionPlan>& all) {
  std::vector<std::shared_ptr<Buffer>> memory;
  std::vector<void*> addresses;
  for (size_t bytes : all.front().bytes()) {
    memory.push_back(device.allocate(bytes));
    addresses.push_back(memory.back()->data);
  }
  const size_t workspace = std::ranges::max(all, {}, &ExecutionPlan::workspace).workspace();
  const std::shared_ptr<Buffer> scratch = device.allocate(workspace);
  const Stream stream = stream_of(device);
  return gpu::fastest(device, all.size(),
                      [&](size_t i) { all[i].run(stream, addresses, scratch->data); });
}
}  // namespace

ExecutionPlan select_plan(gpu::Device& device, const std::string& what,
                          const std::function<std::vector<ExecutionPlan>(size_t most)>& plans) {
  constexpr size_t most = 8;
  const std::string chosen = device.select(
      fmt::format("cudnn {} {}", library().version(), what),
      [&] { return std::to_string(fastest(device, plans(most))); }, "0");
  size_t rank = 0;
  std::from_chars(chosen.data(), chosen.data() + chosen.size(), rank);
  return plans(std::min(rank + 1, most)).back();
}

void ExecutionPlan::run(const Stream& stream, std::span<void* const> addresses,
                        void* workspace) const {
  const bool same = bound_ != nullptr && bound_to_.back() == workspace &&
                    std::equal(addresses.begin(), addresses.end(), bound_to_.begin());
  if (!same) {
    bound_to_.assign(addresses.begin(), addresses.end());
    for (const float& constant : *constants_) bound_to_.push_back(const_cast<float*>(&constant));
    bound_ = make(variant_pack_kind);
    set(bound_, pack_ids, int64_type, static_cast<int64_t>(ids_.size()), ids_.data());
    set(bound_, pack_addresses, void_pointer_type, static_cast<int64_t>(bound_to_.size()),
        static_cast<const void*>(bound_to_.data()));
    set(bound_, pack_workspace, void_pointer_type, workspace);
    finish(bound_);
    bound_to_.push_back(workspace);
  }
  stream.make_current();
  const Handle own = handle();
  library().check(library().set_stream(own, stream.stream), "cudnnSetStream");
  library().check(library().execute(own, plan_.get(), bound_.get()), "cudnnBackendExecute");
}

}  // namespace weft::cuda::cudnn
