#include "weft/backends/cuda/cudnn_graph.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "weft/backends/cuda/cublaslt.h"
#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/cudnn_api.h"
#include "weft/backends/cuda/driver.h"
#include "weft/backends/cuda/shared_library.h"
#include "weft/base/buffer.h"
#include "weft/base/env.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/logging.h"
#include "weft/base/made_once.h"
#include "weft/codegen/object_cache.h"

namespace weft::cuda::cudnn {
namespace {
using namespace api;

// ---- the library

// Earlier versions sum over out-of-range keys in gradients of attention.
constexpr size_t least_version = 91600;
constexpr const char* comes_with =
    "it comes with Python's package nvidia-cudnn-cu13, and from developer.nvidia.com/cudnn.";

struct Library : Functions {
  Library() {
    library.find(version, "cudnnGetVersion");
    if (version() < least_version)
      throw Error(ErrorKind::device,
                  "[cuda] {} is too old: it is cuDNN {}.{}, weft needs {}.{} or later.",
                  library.path(), version() / 10000, version() % 10000 / 100, least_version / 10000,
                  least_version % 10000 / 100);
    library.find(cuda_version, "cudnnGetCudartVersion");
    if (const int cuda = static_cast<int>(cuda_version() / 1000); cuda != products.cuda())
      throw Error(ErrorKind::device, "[cuda] {} is built for CUDA {}, {} for CUDA {}.",
                  library.path(), cuda, products.library.path(), products.cuda());
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

  // The parts are loaded here because cuDNN aborts the process if it does not find the first of
  // them, and has no engines without the others.
  const cublaslt::Library& products = cublaslt::library();
  SharedLibrary library{{"libcudnn.so.9"}, comes_with};
  SharedLibrary parts[3] = {{{"libcudnn_graph.so.9"}, comes_with},
                            {{"libcudnn_heuristic.so.9"}, comes_with},
                            {{"libcudnn_engines_precompiled.so.9"}, comes_with}};
};

// The library is never unloaded, as the driver is not.
const Library& library() {
  static const Library* const instance = new Library;
  return *instance;
}

// Returns the cuDNN handle of the current context.
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
// Reads at most as many values as `into` holds; returns their count.
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

DataType data_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return double_data;
    case DType::f16:
      return half_data;
    case DType::i32:
      return int32_data;
    case DType::bf16:
      return bfloat16_data;
    case DType::boolean:
      return boolean_data;
    default:
      WEFT_ASSERT(dtype == DType::f32, "no tensor of cuDNN has elements of {}", name(dtype));
      return float_data;
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
  if (library().finalize(heuristics.get()) != 0) return {};  // no heuristics for this graph
  std::vector<Descriptor> configs;
  std::vector<Handle> handles;
  for (int64_t left = count_of(heuristics, heuristics_results, descriptor_type); left > 0; --left) {
    configs.push_back(make(engine_config_kind));
    handles.push_back(configs.back().get());
  }
  configs.resize(get(heuristics, heuristics_results, descriptor_type, std::span(handles)));
  return configs;
}

bool allows_nondeterministic() { return env_lists("WEFT_CUDA_ALLOW", "nondeterministic"); }

// Returns the rules as a part of keys, as ranks depend on them.
std::string to_text(const EngineRules& rules) {
  return fmt::format("at most {} bytes{}{}", rules.workspace, rules.exact ? ", exact" : "",
                     allows_nondeterministic() ? ", nondeterministic" : "");
}

std::string words_of(const std::vector<int>& notes) {
  constexpr std::array<const char*, note_count> words{"uses tensor cores",
                                                      "narrows its inputs",
                                                      "sums in a narrower type",
                                                      "uses Fourier transforms",
                                                      "is nondeterministic",
                                                      "uses Winograd's algorithm",
                                                      "uses Winograd's algorithm (4x4)",
                                                      "uses Winograd's algorithm (6x6)",
                                                      "uses Winograd's algorithm (13x13)",
                                                      "keeps NaNs"};
  std::string text;
  for (int note : notes) {
    const bool is_known = note >= 0 && note < note_count;
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        is_known ? words[static_cast<size_t>(note)] : "has an unknown property");
  }
  return text;
}

// Returns the notes of an engine that the rules forbid: additional rounding or nondeterminism.
std::vector<int> offences(std::vector<int> notes, const EngineRules& rules) {
  std::erase_if(notes, [&](int note) {
    return note == strict_nan || (note == tensor_core && !rules.exact) ||
           (note == nondeterministic && allows_nondeterministic());
  });
  return notes;
}

Engine engine_of(Descriptor config, const EngineRules& rules) {
  const Descriptor described = make(engine_kind);
  Handle handle = described.get();
  get(config, config_engine, descriptor_type, std::span(&handle, 1));
  Engine engine;
  get(described, engine_number, int64_type, std::span(&engine.number, 1));
  std::vector<int> notes(note_count);
  notes.resize(get(described, engine_notes, note_type, std::span(notes)));
  engine.notes = words_of(notes);
  engine.workspace = bytes_of(config, config_workspace);
  engine.config = std::move(config);
  const std::vector<int> bad = offences(notes, rules);
  const bool fits = engine.workspace <= rules.workspace;
  if (!bad.empty())
    engine.offence = words_of(bad);
  else if (!fits)
    engine.offence = fmt::format("needs {} bytes of workspace", engine.workspace);
  engine.only_nondeterministic = bad == std::vector<int>{nondeterministic} && fits;
  return engine;
}

// Engines iterates over the engines that heuristics name for a graph, best first. It evaluates the
// fallback heuristics only on demand.
class Engines {
 public:
  Engines(Descriptor graph, Descriptor properties, const EngineRules& rules)
      : graph_(std::move(graph)), properties_(std::move(properties)), rules_(rules) {}

  std::optional<Engine> next() {
    while (at_ == configs_.size()) {
      if (modes_.empty()) return std::nullopt;
      configs_ = ranked(graph_, properties_, modes_.front());
      modes_ = modes_.subspan(1);
      at_ = 0;
    }
    return engine_of(configs_[at_++], rules_);
  }

 private:
  static constexpr std::array all_modes{best_heuristics, fallback_heuristics};
  Descriptor graph_, properties_;
  EngineRules rules_;
  std::span<const HeuristicsMode> modes_ = all_modes;
  std::vector<Descriptor> configs_;
  size_t at_ = 0;
};

// PassedOver logs each rejected engine with its reason.
class PassedOver {
 public:
  explicit PassedOver(const std::string& what) : what_(what) {}

  void add(const Engine& engine, const std::string& reason) {
    ++count_;
    only_nondeterministic_ += engine.only_nondeterministic ? 1 : 0;
    last_reason_ = reason;
    logging::debug(4, "cuDNN's engine {} for {} is rejected: it {}", engine.number, what_, reason);
  }
  int only_nondeterministic() const { return only_nondeterministic_; }
  // Returns why no engine is left: how many were rejected, and the reason for the last.
  std::string reason() const {
    if (count_ == 0) return "no engine";
    return fmt::format(
        "all of its {} engines were rejected; the last {}{}", count_, last_reason_,
        only_nondeterministic_ == 0
            ? ""
            : fmt::format("; {} would be accepted with WEFT_CUDA_ALLOW=nondeterministic",
                          only_nondeterministic_));
  }

 private:
  const std::string& what_;
  std::string last_reason_;
  int count_ = 0, only_nondeterministic_ = 0;
};
}  // namespace

bool is_installed() {
  static const bool found = [] {
    try {
      library();
      return true;
    } catch (const Error& missing) {
      logging::warn("{} Convolutions and attention use weft's own kernels, which are slower.",
                    missing.what());
      return false;
    }
  }();
  return found;
}

// Caches the properties, because concurrent compilations must not share the handle.
Descriptor properties_of_current_device() {
  static MadeOnce<Descriptor>& known = *new MadeOnce<Descriptor>;  // never destroyed
  const Handle own = handle();
  return known.get(fmt::format("{}", fmt::ptr(own)), [own] {
    Descriptor made = make(device_properties_kind);
    set(made, device_handle, handle_type, own);
    finish(made);
    return made;
  });
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
  text_ += fmt::format("{} = {}{} by {} at {}\n", id, name(dtype), to_string(shape),
                       to_string(strides), alignment);
  Tensor made{id, describe(id, dtype, shape, strides, alignment), shape};
  finish(made.descriptor);
  return made;
}

Tensor Graph::between(DType dtype, const Shape& shape, const Dims& strides) {
  const int64_t id = next_id();
  const Dims lies = strides.empty() ? Dims(row_major_strides(shape)) : strides;
  text_ += fmt::format("{} = {}{} by {}\n", id, name(dtype), to_string(shape), to_string(lies));
  Tensor made{id, describe(id, dtype, shape, lies, 16), shape};
  set(made.descriptor, tensor_is_virtual, boolean_type, true);
  finish(made.descriptor);
  return made;
}

Tensor Graph::constant(float value, int rank) {
  const int64_t id = next_id();
  constant_ids_.push_back(id);
  constants_.push_back(value);
  text_ += fmt::format("{} = {} of rank {}\n", id, value, rank);
  const Dims ones = Dims::filled(rank, 1);
  Tensor made{id, describe(id, DType::f32, ones, ones, 16), ones};
  set(made.descriptor, tensor_is_by_value, boolean_type, true);
  finish(made.descriptor);
  return made;
}

void Graph::conv(Direction direction, const Tensor& x, const Tensor& weight, const Tensor& y,
                 const ConvAttributes& attributes) {
  text_ += fmt::format("conv {} of {} {} {}, {} {} {} {}\n", static_cast<int>(direction), x.id,
                       weight.id, y.id, to_string(attributes.stride), to_string(attributes.padding),
                       to_string(attributes.dilation), name(attributes.sums));
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
  text_ += fmt::format("{} = {} times {}\n", result.id, a.id, b.id);
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
  text_ += fmt::format("{} = pointwise {} {}", result.id, static_cast<int>(mode), axis);
  for (const Tensor& input : inputs) text_ += fmt::format(" {}", input.id);
  text_ += '\n';
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
  text_ += fmt::format("{} = reduce {} {}\n", result.id, static_cast<int>(mode), x.id);
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
  text_ += fmt::format("{} = reshape {}\n", result.id, x.id);
  const Descriptor operation = make(reshape_operation_kind);
  set(operation, reshape_x, x);
  set(operation, reshape_y, result);
  finish(operation);
  operations_.push_back(operation);
}

Descriptor Graph::finished() const {
  Descriptor graph = make(operation_graph_kind);
  std::vector<Handle> handles(operations_.size());
  std::ranges::transform(operations_, handles.begin(), &Descriptor::get);
  set(graph, graph_operations, descriptor_type, static_cast<int64_t>(handles.size()),
      static_cast<const void*>(handles.data()));
  finish(graph);
  return graph;
}

// Returns a plan without an engine.
ExecutionPlan Graph::empty_plan() const {
  ExecutionPlan plan;
  plan.bytes_ = bytes_;
  plan.ids_ = in_memory_;
  plan.ids_.insert(plan.ids_.end(), constant_ids_.begin(), constant_ids_.end());
  plan.constants_ = std::make_shared<const std::vector<float>>(constants_);
  return plan;
}

std::vector<Engine> Graph::engines(const Descriptor& properties, const EngineRules& rules) const {
  std::vector<Engine> all;
  Engines engines(finished(), properties, rules);
  while (std::optional<Engine> engine = engines.next()) all.push_back(*std::move(engine));
  return all;
}

std::vector<Engine> Graph::unnamed_engines(const Descriptor& properties,
                                           const EngineRules& rules) const {
  const Descriptor graph = finished();
  std::set<int64_t> named;
  for (const Engine& engine : engines(properties, rules)) named.insert(engine.number);
  int64_t count = 0, engines = 0;
  if (library().get_attribute(graph.get(), graph_engine_count, int64_type, 1, &count, &engines) !=
      0)
    return {};
  std::vector<Engine> all;
  for (int64_t number = 0; number < engines; ++number) {
    if (named.contains(number)) continue;
    const Descriptor engine = make(engine_kind), config = make(engine_config_kind);
    set(engine, engine_graph, graph);
    set(engine, engine_number, int64_type, number);
    // Before cuDNN 9.8 the attribute does not exist, and the engine is for the current device.
    const Handle device = properties.get();
    (void)library().set_attribute(engine.get(), engine_device, descriptor_type, 1,
                                  static_cast<const void*>(&device));
    if (library().finalize(engine.get()) != 0) continue;  // does not support the graph
    set(config, config_engine, engine);
    if (library().finalize(config.get()) != 0) continue;
    const auto both = std::make_shared<std::pair<Descriptor, Descriptor>>(engine, config);
    all.push_back(engine_of(Descriptor(both, config.get()), rules));
  }
  return all;
}

ExecutionPlan Graph::plan(const Descriptor& properties, const Engine& engine) const {
  ExecutionPlan built = empty_plan();
  built.plan_ = make(execution_plan_kind);
  set(built.plan_, plan_device, properties);
  set(built.plan_, plan_config, engine.config);
  finish(built.plan_);
  built.workspace_ = bytes_of(built.plan_, plan_workspace);
  built.made_of_ = {properties, engine.config};
  built.engine_ = fmt::format("engine {}{}{}, {} bytes", engine.number,
                              engine.notes.empty() ? "" : ", ", engine.notes, built.workspace_);
  return built;
}

// A rank counts allowed engines before their plans are built, so that a measured rank is found
// again without building the plans before it.
std::vector<ExecutionPlan> Graph::plans(const Descriptor& properties, const EngineRules& rules,
                                        const std::string& what, size_t most,
                                        size_t first_rank) const {
  std::vector<ExecutionPlan> all;
  Engines engines(finished(), properties, rules);
  PassedOver passed_over(what);
  size_t rank = 0;
  while (all.size() < most) {
    const std::optional<Engine> engine = engines.next();
    if (!engine) break;
    if (!engine->offence.empty()) {
      passed_over.add(*engine, engine->offence);
      continue;
    }
    if (rank++ < first_rank) continue;
    try {
      ExecutionPlan built = plan(properties, *engine);
      built.rank_ = rank - 1;
      if (built.workspace() > rules.workspace)
        passed_over.add(*engine, fmt::format("needs {} bytes of workspace", built.workspace()));
      else
        all.push_back(std::move(built));
    } catch (const Error& refused) {
      passed_over.add(*engine, fmt::format("cannot be built: {}", refused.what()));
    }
  }
  if (all.empty() && first_rank > 0) return plans(properties, rules, what, most);
  if (all.empty())
    throw Error(ErrorKind::device, "[cuda] cuDNN {}.{} cannot do {} in {} bytes of workspace: {}.",
                library().version() / 10000, library().version() % 10000 / 100, what,
                rules.workspace, passed_over.reason());
  if (const int refused = passed_over.only_nondeterministic(); refused > 0)
    logging::debug(1,
                   "cuDNN's engines for {}: {} are rejected only because they are "
                   "nondeterministic; WEFT_CUDA_ALLOW=nondeterministic accepts them",
                   what, refused);
  return all;
}

std::optional<ExecutionPlan> Graph::plan_from(const Descriptor& properties,
                                              const std::string& json) const {
  ExecutionPlan plan = empty_plan();
  plan.plan_ = make(execution_plan_kind);
  plan.made_of_ = {properties};
  set(plan.plan_, plan_device, properties);
  const auto count = static_cast<int64_t>(json.size() + 1);  // including the terminating zero
  const int set_status =
      library().set_attribute(plan.plan_.get(), plan_json, char_type, count, json.c_str());
  if (set_status != 0 || library().finalize(plan.plan_.get()) != 0) return std::nullopt;
  plan.workspace_ = bytes_of(plan.plan_, plan_workspace);
  return plan;
}

std::string ExecutionPlan::json() const {
  int64_t count = 0;
  if (library().get_attribute(plan_.get(), plan_json, char_type, 0, &count, nullptr) != 0)
    return "";
  std::string json(static_cast<size_t>(count), '\0');
  if (library().get_attribute(plan_.get(), plan_json, char_type, count, &count, json.data()) != 0)
    return "";
  return json.c_str();  // drops what follows the first zero
}

// Returns the key of a plan in the disk cache.
std::string Graph::key_of(size_t rank, const EngineRules& rules, const std::string& machine) const {
  return fmt::format("cudnn {} engine and plan {} of {}, on {}\n{}", library().version(), rank,
                     to_text(rules), machine, text_);
}

namespace {
// Writes a plan to the disk cache: a line with its engine, then cuDNN's serialization.
ExecutionPlan kept(const std::string& key, ExecutionPlan built) {
  if (const std::string json = built.json(); !json.empty())
    loop::write_object(key, built.engine() + "\n" + json);
  return built;
}
}  // namespace

ExecutionPlan Graph::read_or_build(const Descriptor& properties, const EngineRules& rules,
                                   const std::string& what, size_t rank,
                                   const std::string& machine) const {
  const std::string key = key_of(rank, rules, machine);
  if (const std::optional<std::string> object = loop::read_object(key)) {
    const size_t end = object->find('\n');
    std::optional<ExecutionPlan> known;
    if (end != std::string::npos) known = plan_from(properties, object->substr(end + 1));
    if (known && known->workspace() <= rules.workspace) {
      known->engine_ = object->substr(0, end);
      return *known;
    }
  }
  return kept(key, plans(properties, rules, what, 1, rank).front());
}

namespace {
// Times a few runs of each plan on temporary memory.
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

ExecutionPlan Graph::select(gpu::Device& device, const EngineRules& rules,
                            const std::string& what) const {
  constexpr size_t most = 8;
  const Stream stream = stream_of(device);
  const std::string signature = fmt::format("cudnn {} {}, {}, graph {}", library().version(), what,
                                            to_text(rules), to_hex(hash_text(text_)));
  static MadeOnce<ExecutionPlan>& built = *new MadeOnce<ExecutionPlan>;  // never destroyed
  auto built_once = [&](size_t rank, const std::function<ExecutionPlan()>& make) {
    return built.get(
        fmt::format("{} {} {}\n{}", fmt::ptr(stream.context), rank, to_text(rules), text_), make);
  };
  std::vector<ExecutionPlan> all;  // candidates to measure
  const std::string chosen = device.select(
      signature,
      [&] {
        const ExecutionPlan& best = all[fastest(device, all)];
        built_once(best.rank(),
                   [&] { return kept(key_of(best.rank(), rules, device.machine()), best); });
        return std::to_string(best.rank());
      },
      "0", [&] { all = plans(properties_of_current_device(), rules, what, most); });
  size_t rank = 0;
  std::from_chars(chosen.data(), chosen.data() + chosen.size(), rank);
  ExecutionPlan plan = built_once(rank, [&] {
    return read_or_build(properties_of_current_device(), rules, what, rank, device.machine());
  });
  device.describe(signature, fmt::format("{}: {}", rank, plan.engine()));
  return plan;
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
