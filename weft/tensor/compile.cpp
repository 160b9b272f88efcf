// Runs pending work outside of compiled steps and reads results.
#include <algorithm>
#include <array>
#include <mutex>
#include <ranges>
#include <set>
#include <unordered_map>

#include "weft/base/logging.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/device/registry.h"
#include "weft/ir/mesh.h"
#include "weft/ir/op_def.h"
#include "weft/ops/apply.h"
#include "weft/ops/autodiff.h"
#include "weft/runtime/executable.h"
#include "weft/runtime/residency.h"
#include "weft/runtime/summary.h"
#include "weft/tensor/eager.h"
#include "weft/tensor/session_state.h"
#include "weft/tensor/trace.h"

namespace weft {
using detail::SessionState;
using detail::SessionUse;
namespace {
bool is_ready(const Tensor& value) {
  (void)value.type();  // throws for an empty handle
  return value->has_data();
}

// Turns a computed node into a leaf that holds its elements. Keeps its expression for gradients.
void settle(const Tensor& value, const Tensor& result) {
  if (is_float(value.dtype()) && !value->inputs.empty())
    value->expression = rebuild(*value.node(), value->inputs);
  value->storage = result->storage;
  value->op = result->op;
  value->attrs = {};
  value->inputs.clear();
}

// Gives a variable's handle the variable's present elements, through which gradients still flow.
void read_variable(const Tensor& leaf) {
  const std::shared_ptr<VariableState> state = leaf->variable;
  detail::detach_readers(*state);
  if (!is_float(leaf.dtype())) return;
  Tensor now = variable_leaf(state);
  state->leaf = now.shared();
  leaf->expression = make_node(op("identity"), {now});
}

// Expressions finds the nodes behind values that were just read, and the expressions among them
// that a gradient may still need: those that lead to a variable, to a tensor that is held
// elsewhere, or to a cut. Nobody can ask for other gradients, so all other expressions are dropped.
class Expressions {
 public:
  explicit Expressions(std::span<const Tensor> read) {
    for (const Tensor& value : read) reach(value);
    for (size_t i = 0; i < order_.size(); ++i) {
      Node& node = *order_[i];
      for (const Tensor& input : node.inputs) ++reach(input).references;
      if (node.expression.defined()) ++reach(node.expression).references;
    }
    std::ranges::sort(order_, computed_before, [](Node* node) -> Node& { return *node; });
    for (const Node* node : order_) found_.at(node).leads = leads(*node);
    for (const Tensor& value : read) found_.at(value.node()).needed = true;
    for (const Node* node : std::views::reverse(order_)) need_inputs(*node);
  }

  // Returns the dropped values, for the caller to free.
  std::vector<Tensor> drop(std::span<const Tensor> read) {
    std::vector<Tensor> dropped;
    size_t remaining = 0;
    for (Node* node : order_) {
      if (!node->expression.defined()) continue;
      const Found& found = found_.at(node);
      if (found.leads && found.needed)
        ++remaining;
      else
        dropped.push_back(std::move(node->expression));
    }
    if (remaining <= longest_chain) return dropped;
    for (const Tensor& value : read)
      if (value->expression.defined()) {
        value->cut = true;
        dropped.push_back(std::move(value->expression));
      }
    return dropped;
  }

 private:
  struct Found {
    long handles = 0;     // all handles to the node
    long references = 0;  // handles held by other nodes that were found
    bool leads = false;   // leads to something a gradient can be asked for
    bool needed = false;  // a gradient that can be asked for goes through it
    bool is_held() const { return handles > references; }
  };

  Found& reach(const Tensor& value) {
    auto [found, is_new] = found_.try_emplace(value.node());
    if (is_new) {
      found->second.handles = value.shared().use_count();
      order_.push_back(value.node());
    }
    return found->second;
  }
  static const Node& expression_of(const Node& node) {
    return node.expression.defined() ? *node.expression.node() : node;
  }
  bool leads(const Node& node) const {
    const Node& expression = expression_of(node);
    if (!is_float(node.type.dtype)) return false;
    if (expression.op->gradient == nullptr && expression.op->decompose == nullptr) return false;
    return std::ranges::any_of(expression.inputs, [&](const Tensor& input) {
      const Found& found = found_.at(input.node());
      return is_float(input.dtype()) &&
             (input->variable != nullptr || input->cut || found.is_held() || found.leads);
    });
  }
  void need_inputs(const Node& node) {
    Found& found = found_.at(&node);
    found.needed |= found.is_held();
    if (!found.needed || !found.leads) return;
    for (const Tensor& input : expression_of(node).inputs) found_.at(input.node()).needed = true;
  }

  std::vector<Node*> order_;
  std::unordered_map<const Node*, Found> found_;
};

const bool can_evaluate =
    (detail::set_evaluate([](std::span<const Tensor> values) { eval(values); }), true);
}  // namespace

void eval(std::span<const Tensor> values) {
  WEFT_CHECK(
      detail::active_trace() == nullptr,
      "[eval] values are not known while a step is captured. Hint: return them from the step.");
  std::vector<Tensor> wanted;
  for (const Tensor& value : values) {
    if (is_ready(value)) continue;
    if (value->storage != nullptr)
      value->storage->on_host();
    else if (value->variable != nullptr)
      read_variable(value);
    else
      wanted.push_back(value);
  }
  if (wanted.empty()) return;
  const std::vector<Tensor> results = detail::run_eagerly(wanted);
  for (size_t i = 0; i < wanted.size(); ++i) settle(wanted[i], results[i]);
  Expressions(wanted).drop(wanted);
}

Tensor constant_elements(const Tensor& value) {
  if (is_ready(value)) return value;
  const DeviceScope scope("reference");
  return detail::run_eagerly(std::array{value}).front();
}

// ---- compiled steps

struct CompiledStep::State {
  Function function;
  StepOptions options;
  struct Cached {
    std::vector<Type> types;
    std::optional<int64_t> seed;  // seed of a step that draws random numbers: its kernels hold it
    const KernelLibrary* device;
    std::unique_ptr<Executable> executable;

    template <class Inputs, class Projection = std::identity>
    bool is_for(const Inputs& inputs, Projection type_of = {}) const {
      return std::ranges::equal(types, inputs, {}, {}, type_of) &&
             (!seed || *seed == current_seed());
    }
  };
  Session session = current_session();
  std::vector<Cached> cache = {};
  std::shared_ptr<Workspace> workspace = nullptr;  // the caller's; null: shared by the session's

  ~State() {
    const SessionUse use(session);
    cache.clear();
  }

  // Returns null if no executable is cached for these types.
  Executable* prepared(std::span<const Type> types) const {
    for (const Cached& cached : cache)
      if (cached.is_for(types)) return cached.executable.get();
    return nullptr;
  }
  Graph capture(std::span<const Type> types) const {
    WEFT_CHECK(options.activations == DType::f32 || options.activations == DType::bf16,
               "[compile] activations are stored in f32 or bf16. Got {}.",
               name(options.activations));
    if (options.mesh == nullptr) return detail::capture(function, types, options.mode);
    std::vector<Type> wholes(types.begin(), types.end());
    for (Type& type : wholes)
      if (!type.shape.empty()) type.shape[0] *= options.mesh->size(data_axis);
    return detail::capture(function, wholes, options.mode);
  }
};

namespace {
// Returns whether a step reads a value that was computed outside of it as a constant: the value
// derives from elements in memory, or from no variable.
bool is_constant(const Tensor& value) {
  Graph made_of;
  made_of.outputs = {value};
  bool has_data = false, has_variable = false;
  for (const Tensor& part : made_of.nodes()) {
    has_data |= part->op->leaf == LeafKind::data;
    has_variable |= part->variable != nullptr;
  }
  return has_data || !has_variable;
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Warns of tensors that the function captures, since a capture by reference suggests that the step
// sees later assignments. Nodes with an id below `first` were built before the function ran.
void warn_of_constants(const Graph& graph, uint64_t first) {
  std::vector<Tensor> read = graph.roots();
  for (const Tensor& value : graph.nodes())
    if (value->id >= first) read.insert(read.end(), value->inputs.begin(), value->inputs.end());
  std::set<const Node*> seen;
  for (const Tensor& value : read) {
    if (value->id >= first || !seen.insert(value.node()).second || !is_constant(value)) continue;
    const UserLocation& where = value->origin.where;
    logging::warn(
        "[compile] the step reads {}{}, which was computed outside of it, as a constant: later "
        "assignments do not change it. Hint: pass it to the step, make it a Variable, or compute "
        "it in the step.",
        to_string(value.type()),
        where.file != nullptr ? fmt::format(" of {}:{}", file_name(where.file), where.line) : "");
  }
}
}  // namespace

void detail::wrong_number_of_inputs(int expected, size_t got) {
  detail::throw_user_error(
      fmt::format("[compile] the step takes {} tensors. Got {}.", expected, got));
}

CompiledStep::CompiledStep(Function function, const StepOptions& options)
    : state_(new State{std::move(function), options}) {}
CompiledStep::~CompiledStep() = default;
CompiledStep::CompiledStep(CompiledStep&&) noexcept = default;
CompiledStep& CompiledStep::operator=(CompiledStep&&) noexcept = default;

void CompiledStep::use_workspace(std::span<std::byte> memory) {
  WEFT_CHECK(state_->cache.empty(),
             "[workspace] the step has an arena already. Hint: call "
             "use_workspace() before the first run.");
  WEFT_CHECK(!memory.empty(), "[workspace] must have bytes. Got an empty span.");
  const size_t beyond = reinterpret_cast<uintptr_t>(memory.data()) % buffer_alignment;
  WEFT_CHECK(beyond == 0,
             "[workspace] must be aligned to {} bytes. Got an address that is {} bytes beyond.",
             buffer_alignment, beyond);
  WEFT_CHECK(library(state_->options.device).memory().is_host(),
             "[workspace] is memory of the host. {} allocates its own.", state_->options.device);
  state_->workspace = std::make_shared<Workspace>();
  state_->workspace->lent = memory;
}

std::unique_lock<std::recursive_mutex> CompiledStep::enter() const {
  return std::unique_lock(SessionState::of(state_->session).running);
}

Graph CompiledStep::capture(std::span<const Type> types) const {
  const SessionUse use(state_->session);
  return state_->capture(types);
}

Executable& CompiledStep::prepare(std::span<const Type> types) {
  const SessionUse use(state_->session);
  if (Executable* known = state_->prepared(types)) return *known;
  const StepOptions& options = state_->options;
  const uint64_t first = scalar(0)->id;
  const Graph graph = state_->capture(types);
  if (state_->cache.empty()) warn_of_constants(graph, first);
  const KernelLibrary& device = library(options.device);
  const bool draws = std::ranges::any_of(
      graph.nodes(), [](const Tensor& value) { return value->op->kind == OpKind::random; });
  use.state().note_thread();
  const std::shared_ptr<Communicator> communicator =
      options.mesh == nullptr ? nullptr : options.mesh->communicator;
  const std::shared_ptr<Workspace> workspace =
      state_->workspace != nullptr ? state_->workspace
                                   : use.state().workspace_of(device.memory(), communicator);
  auto executable = use.state().on(
      device, [&] { return compile_graph(graph, device, workspace, {.step = options}); });
  state_->cache.push_back({{types.begin(), types.end()},
                           draws ? std::optional(current_seed()) : std::nullopt,
                           &device,
                           std::move(executable)});
  return *state_->cache.back().executable;
}

PlanSummary CompiledStep::plan(std::span<const Type> types) {
  return plan_on(state_->options.device, types);
}

PlanSummary CompiledStep::plan_on(const Device& on, std::span<const Type> types,
                                  const std::function<void(const Plan&)>& see) {
  const SessionUse use(state_->session);
  const StepOptions& options = state_->options;
  const std::string& device = on.name();
  const KernelLibrary& own = library(device);
  const KernelLibrary& planner = own.only_plans() ? own : library("null:" + device);
  const MachineSpec machine = known_spec(device);
  const Executable* known = state_->prepared(types);
  std::unique_ptr<Executable> planned;
  if (known == nullptr || device != options.device) {
    planned = compile_graph(state_->capture(types), planner, nullptr, {.step = options});
    known = planned.get();
  }
  PlanSummary summary = summarize(known->plan(), planner, machine);
  summary.device = machine.name.empty() ? device : machine.name;
  if (see) see(known->plan());
  return summary;
}

void CompiledStep::run(std::span<const Type> types, std::span<const std::byte* const> inputs,
                       std::span<std::byte* const> results) {
  const SessionUse use(state_->session);
  use.state().note_thread();
  Executable& executable = prepare(types);
  use.state().on(library(state_->options.device), [&] { executable.run(inputs, results); });
}

std::span<const Tensor> CompiledStep::run(std::span<const Tensor> inputs) {
  const SessionUse use(state_->session);
  use.state().note_thread();
  auto for_inputs = [&](const State::Cached& cached) {
    return cached.is_for(inputs, &Tensor::type);
  };
  auto known = std::ranges::find_if(state_->cache, for_inputs);
  if (known == state_->cache.end()) {
    std::vector<Type> types;
    for (const Tensor& input : inputs) types.push_back(input.type());
    prepare(types);
    known = std::prev(state_->cache.end());
  }
  return use.state().on(*known->device, [&] { return known->executable->run(inputs); });
}
}  // namespace weft
