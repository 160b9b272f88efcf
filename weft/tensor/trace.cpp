// Defines variables, the random key and capture.
#include "weft/tensor/trace.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "weft/base/memory/storage.h"
#include "weft/ir/graph.h"
#include "weft/ir/op_def.h"
#include "weft/ops/apply.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/methods.h"
#include "weft/tensor/session_state.h"

namespace weft {
namespace detail {
namespace {
thread_local Trace* active = nullptr;  // the capture in progress

// A TraceScope makes a trace the active one while the user's function runs.
class TraceScope {
 public:
  explicit TraceScope(Trace& trace) {
    WEFT_CHECK(active == nullptr, "[compile] a compiled step is called while another is captured.");
    active = &trace;
  }
  ~TraceScope() { active = nullptr; }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
};
}  // namespace

Trace* active_trace() { return active; }

Trace::Touched& Trace::touch(const std::shared_ptr<VariableState>& state) {
  auto [known, is_new] = place.try_emplace(state.get(), touched.size());
  if (!is_new) return touched[known->second];
  Tensor leaf = variable_leaf(state);
  return touched.emplace_back(Touched{state, leaf, leaf});
}

Graph capture(const CompiledStep::Function& function, std::span<const Type> types, Mode mode) {
  Trace trace;
  trace.mode = mode;
  Graph graph;
  TraceScope scope(trace);
  for (size_t i = 0; i < types.size(); ++i)
    graph.inputs.push_back(input(types[i], static_cast<int>(i)));
  graph.outputs = function(graph.inputs);
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    WEFT_CHECK(graph.outputs[i].defined(), "[compile] result {} of the step is an empty tensor.",
               i);
  if (!trace.streams.empty()) {
    Variable step = random_step();
    step.assign(step.value() + 1);
  }
  for (const Trace::Touched& touched : trace.touched)
    if (touched.current.node() != touched.leaf.node())
      graph.assignments.push_back({touched.leaf, touched.current});
  return graph;
}
}  // namespace detail

std::vector<Tensor> transform_captured(std::span<const Tensor> results,
                                       const std::function<Graph(const Graph&)>& pass) {
  detail::Trace* const trace = detail::active_trace();
  WEFT_ASSERT(trace != nullptr, "no step is being captured");
  Graph graph;
  graph.outputs.assign(results.begin(), results.end());
  std::vector<size_t> assigned;
  for (size_t i = 0; i < trace->touched.size(); ++i) {
    const detail::Trace::Touched& touched = trace->touched[i];
    if (touched.current.node() == touched.leaf.node()) continue;
    assigned.push_back(i);
    graph.assignments.push_back({touched.leaf, touched.current});
  }
  graph = pass(graph);  // the pass may touch more variables
  for (size_t i = 0; i < assigned.size(); ++i)
    trace->touched[assigned[i]].current = graph.assignments[i].value;
  return graph.outputs;
}

void detail::detach_readers(VariableState& state) {
  const std::shared_ptr<Node> leaf = state.leaf.lock();
  if (leaf == nullptr) return;
  auto copy = Buffer::allocate(state.type.bytes());
  state.storage->copy_to(copy->data);
  leaf->storage = std::make_shared<Storage>(std::move(copy));
  leaf->op = &op("data");
  state.leaf.reset();
  leaf->variable = nullptr;
}

template class TensorMethods<Variable>;

Variable::Variable(std::string name, Type type, Category category)
    : state_(std::make_shared<VariableState>(std::move(name), type, category)) {}

Variable::~Variable() = default;

VariableState& Variable::known() const {
  WEFT_CHECK(state_ != nullptr, "[variable] this variable is empty: it was never given a type.");
  return *state_;
}
int64_t Variable::dim(int axis) const { return shape()[normalize_axis(axis, rank(), "dim")]; }
Tensor Variable::value() const {
  (void)known();
  if (auto* trace = detail::active_trace()) return trace->touch(state_).current;
  must_be_whole(*state_);
  if (std::shared_ptr<Node> known = state_->leaf.lock()) return Tensor(std::move(known));
  Tensor leaf = variable_leaf(state_);
  state_->leaf = leaf.shared();
  return leaf;
}

void Variable::assign(const Tensor& value, std::source_location where) const {
  CallSite here(where, "assign");
  WEFT_CHECK(value.type() == type(), "[assign] {} is {}. Got {}.", name(), to_string(type()),
             to_string(value.type()));
  if (auto* trace = detail::active_trace()) {
    trace->touch(state_).current = value;
  } else {
    must_be_whole(*state_);
    value.eval();
    detail::detach_readers(*state_);
    const Buffer& elements = state_->storage->on_host();
    std::memcpy(elements.data, value->data(), type().bytes());
    elements.release(0, type().bytes());
    state_->storage->note_write();
  }
}

std::span<std::byte> Variable::bytes() const {
  must_be_whole(known());
  detail::detach_readers(known());  // the caller may write
  state_->storage->note_write();
  return {state_->storage->on_host().data, type().bytes()};
}
std::span<float> Variable::floats() const {
  WEFT_CHECK(type().dtype == DType::f32, "[variable] {} is {}, not f32.", name(),
             to_string(type()));
  auto raw = bytes();
  return {reinterpret_cast<float*>(raw.data()), raw.size() / sizeof(float)};
}

void Variable::adopt(std::shared_ptr<Buffer> elements) const {
  const size_t bytes = type().bytes();
  WEFT_CHECK(elements->bytes == bytes, "[variable] {} takes {} bytes. Got {}.", name(), bytes,
             elements->bytes);
  WEFT_CHECK(reinterpret_cast<uintptr_t>(elements->data) % size_of(dtype()) == 0,
             "[variable] the elements of {} are not aligned to {} bytes.", name(),
             size_of(dtype()));
  detail::detach_readers(*state_);
  state_->storage->adopt(std::move(elements));
}

std::vector<Tensor> grad(const Tensor& loss, std::span<const Variable> variables,
                         std::source_location where) {
  std::vector<Tensor> values;
  for (const Variable& variable : variables) {
    // The loss depends on the value that the step read, even if a newer one was assigned since.
    auto* trace = detail::active_trace();
    values.push_back(trace != nullptr ? trace->touch(variable.state()).leaf : variable.value());
  }
  return grad(loss, values, where);
}
Tensor grad(const Tensor& loss, const Tensor& value, std::source_location where) {
  return grad(loss, {value}, where).front();
}
Tensor grad(const Tensor& loss, const Variable& variable, std::source_location where) {
  return grad(loss, {variable}, where).front();
}
std::vector<Tensor> grad(const Tensor& loss, std::span<const Tensor> values,
                         std::source_location where) {
  CallSite here(where, "grad");
  std::vector<Tensor> found = gradients(loss, values);
  for (const Tensor& value : values)
    WEFT_CHECK(
        value->op->leaf != LeafKind::scalar,
        "[grad] {} of full(), zeros() or ones() has no gradient, as what it is moved to is a "
        "constant of its own. Hint: a Variable, or tensor() of elements.",
        to_string(value.type()));
  return found;
}

namespace {
thread_local Mode outside_mode = Mode::train;  // outside of captured steps
}  // namespace

void manual_seed(int64_t value) {
  detail::SessionState& session = detail::session_state();
  session.seed = value;
  session.draws_outside = 0;
  session.random_step.assign(tensor(std::vector<int64_t>{0}, {}));
}
int64_t current_seed() { return detail::session_state().seed; }

Mode current_mode() {
  auto* trace = detail::active_trace();
  return trace != nullptr ? trace->mode : outside_mode;
}
namespace {
void set_mode(Mode mode) {
  auto* trace = detail::active_trace();
  (trace != nullptr ? trace->mode : outside_mode) = mode;
}
}  // namespace
ModeScope::ModeScope(Mode mode) : saved_(current_mode()) { set_mode(mode); }
ModeScope::~ModeScope() { set_mode(saved_); }

Variable random_step() { return detail::session_state().random_step; }

RandomKey next_random_key() {
  detail::SessionState& session = detail::session_state();
  if (auto* trace = detail::active_trace()) {
    const std::string* module = current_origin().module;
    const int64_t stream = trace->streams.next(module != nullptr ? *module : "");
    return {.step = session.random_step.value(), .seed = session.seed, .stream = stream};
  }
  // Outside of steps every call gets a step number below -1, which no step has; parameters are
  // drawn at -1. The number is an element, not a constant, so that a loop draws with one plan.
  return {.step = tensor(std::vector<int64_t>{-2 - session.draws_outside++}, {}),
          .seed = session.seed};
}

Tensor rand(const Shape& shape, std::source_location where) {
  return uniform(shape, next_random_key(), 0, 1, where);
}
Tensor randn(const Shape& shape, std::source_location where) {
  return normal(shape, next_random_key(), 0, 1, where);
}
Tensor randint(int64_t low, int64_t high, const Shape& shape, std::source_location where) {
  CallSite here(where);
  // A float32 in [0, 1) has 24 bits.
  WEFT_CHECK(low < high && high - low <= 1 << 24,
             "[randint] high must be above low, by at most 16777216. Got {} and {}.", low, high);
  const Tensor unit = uniform(shape, next_random_key());
  return low + cast(floor(unit * (high - low)), DType::i64);
}
Tensor bernoulli(double probability, const Shape& shape, std::source_location where) {
  return bernoulli(shape, next_random_key(), probability, where);
}
Tensor randperm(int64_t count, std::source_location where) {
  return permutation(count, next_random_key(), where);
}
Tensor dropout(Arg x, double probability) {
  CallSite here(x.where);
  WEFT_CHECK(probability >= 0 && probability <= 1,
             "[dropout] the probability must be in [0, 1]. Got {}.", probability);
  if (probability == 0 || current_mode() == Mode::eval) return x.value;
  return dropout(std::move(x), probability, next_random_key());
}

Tensor tensor(const std::vector<float>& elements, const Shape& shape, std::source_location where) {
  return constant(elements, shape, where);
}
Tensor tensor(const std::vector<double>& elements, const Shape& shape, DType dtype,
              std::source_location where) {
  return constant(elements, shape, dtype, where);
}
Tensor tensor(const std::vector<int64_t>& elements, const Shape& shape,
              std::source_location where) {
  CallSite here(where);
  Type type{DType::i64, shape};
  WEFT_CHECK(static_cast<int64_t>(elements.size()) == type.elements(),
             "[tensor] {} has {} elements. Got {}.", to_string(type), type.elements(),
             elements.size());
  auto buffer = Buffer::allocate(type.bytes());
  std::ranges::copy(std::as_bytes(std::span(elements)), buffer->data);
  return from_buffer(std::move(buffer), type);
}
Tensor tensor_over(std::shared_ptr<void> owner, void* data, Type type) {
  auto buffer = std::make_shared<Buffer>();
  buffer->data = static_cast<std::byte*>(data);
  buffer->bytes = type.bytes();
  buffer->owner = std::move(owner);
  return from_buffer(std::move(buffer), type);
}
}  // namespace weft
