// Compiled steps and their plans.
#include <atomic>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/ir/plan.h"
#include "weft/ops/autodiff.h"
#include "weft/planner/costs.h"

#include "python/src/step.h"

namespace weft::python {
namespace {
std::atomic<bool> has_computed = false, is_forked = false;

// Works without the GIL: another thread may hold the session, and wait for the GIL to capture.
template <class Work>
auto in_session(Work&& work) {
  check_process();
  const nb::gil_scoped_release released;
  return work();
}

// Copies a result out of the arena, which the next run of the step overwrites. A result on a device
// moves by itself when it is read.
Tensor in_own_memory(const Tensor& result) {
  Storage& storage = *result->storage;
  if (storage.is_on_device() || storage.bytes() == 0) return result;
  std::shared_ptr<Buffer> memory = Buffer::allocate(storage.bytes());
  storage.copy_to(memory->data);
  return from_buffer(std::move(memory), result.type());
}
}  // namespace

std::vector<Type> types_of(const std::vector<PyType>& given) {
  std::vector<Type> types;
  for (const auto& [dtype, shape] : given) types.push_back({dtype, shape});
  return types;
}

void note_fork() { is_forked = has_computed.load(); }

// A child of fork() has none of the threads of the team, and would wait for them for ever.
void check_process() {
  if (is_forked)
    throw Error(ErrorKind::usage,
                "[fork] this process was forked from one that had started weft's threads. Hint: "
                "start workers with multiprocessing's 'spawn', or compute in the parent.");
  has_computed = true;
}

Step::Step(nb::callable function, const StepOptions& options)
    : function_(std::move(function)),
      device_(options.device),
      step_(
          std::in_place, [this](std::span<const Tensor> inputs) { return call(inputs); }, options) {
}

Step::~Step() {
  const nb::gil_scoped_release released;  // a run on another thread may need it to end
  step_.reset();
}

void Step::prepare(const std::vector<PyType>& types) {
  in_session([&] { step_->prepare(types_of(types)); });
}

std::vector<Tensor> Step::run(const std::vector<Tensor>& inputs) {
  return in_session([&] {
    const auto lock = step_->enter();
    const std::span<const Tensor> results = step_->run(inputs);
    std::vector<Tensor> lasting;
    for (const Tensor& result : results) lasting.push_back(in_own_memory(result));
    return lasting;
  });
}

void Step::bind(const std::vector<PyType>& types) {
  bound_ = types_of(types);
  in_session([&] { executable_ = &step_->prepare(bound_); });
}

void Step::run_at(std::span<const std::byte* const> inputs, std::span<std::byte* const> results) {
  in_session([&] { step_->run(bound_, inputs, results); });
}

const Executable& Step::bound() const {
  if (executable_ == nullptr)
    throw Error(ErrorKind::usage, "[step] the step is not bound to types yet");
  return *executable_;
}

StepPlan Step::plan(const std::vector<PyType>& types) { return plan_on(device_, types); }

StepPlan Step::plan_on(const std::string& device, const std::vector<PyType>& types) {
  return in_session([&] {
    LiveBytes live;
    StateBytes state;
    const PlanSummary summary = step_->plan_on(device, types_of(types), [&](const Plan& plan) {
      live = live_by_category(plan);
      for (const Slot& slot : plan.slots)
        if (slot.space == Space::state && plan.variable(slot).sources.empty())
          state[slot.category] += slot.bytes;
    });
    return StepPlan{summary, std::move(live), std::move(state)};
  });
}

Graph Step::capture(const std::vector<PyType>& types) const {
  return in_session([&] { return step_->capture(types_of(types)); });
}

int Step::traverse(visitproc visit, void* arg) const {
  Py_VISIT(function_.ptr());
  return 0;
}

std::vector<Tensor> Step::call(std::span<const Tensor> inputs) {
  const nb::gil_scoped_acquire gil;
  nb::list list;
  for (const Tensor& input : inputs) list.append(nb::cast(input));
  std::vector<Tensor> results;
  for (const nb::handle result : nb::cast<nb::sequence>(function_(list))) {
    std::optional<Arg> value = to_arg(result);
    if (!value || value->is_scalar)
      throw nb::type_error("a step returns tensors, in lists, tuples and dicts");
    results.push_back(std::move(value->value));
  }
  return results;
}

namespace {
template <class Byte>
std::span<Byte* const> pointers(const Addresses& addresses) {
  static_assert(sizeof(Byte*) == sizeof(uintptr_t));
  return {reinterpret_cast<Byte* const*>(addresses.data()), addresses.size()};
}

std::vector<PyType> result_types(const Step& step) {
  std::vector<PyType> types;
  for (const Access& output : step.bound().plan().outputs)
    types.emplace_back(output.value.dtype(), output.value.shape());
  return types;
}

int traverse_step(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Step>(self)->traverse(visit, arg) : 0;
}
int clear_step(PyObject* self) {
  nb::inst_ptr<Step>(self)->clear();
  return 0;
}
PyType_Slot step_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse_step)},
                            {Py_tp_clear, reinterpret_cast<void*>(&clear_step)},
                            {0, nullptr}};

Precision precision_named(const std::string& name) {
  if (name == "f32" || name == "as_written") return Precision::as_written;
  if (name == "tf32") return Precision::tf32;
  if (name == "bf16") return Precision::bf16_mixed;
  if (name == "fp16") return Precision::fp16_mixed;
  throw Error(ErrorKind::usage, "[compile] precision is 'f32', 'tf32', 'bf16' or 'fp16'. Got '{}'.",
              name);
}
Recompute recompute_named(const std::string& name) {
  if (name == "automatic") return Recompute::automatic;
  if (name == "none") return Recompute::none;
  if (name == "selective") return Recompute::selective;
  if (name == "full") return Recompute::full;
  throw Error(ErrorKind::usage,
              "[compile] recompute is 'automatic', 'none', 'selective' or 'full'. Got '{}'.", name);
}

// The words are those of a recipe's train.offload.
Category category_named(const std::string& name) {
  if (name == "parameters") return Category::parameter;
  if (name == "optimizer") return Category::optimizer_state;
  if (name == "gradients") return Category::gradient;
  if (name == "activations") return Category::activation;
  throw Error(ErrorKind::usage,
              "[compile] offload names any of 'parameters', 'optimizer', 'gradients' and "
              "'activations'. Got '{}'.",
              name);
}

StepOptions options_of(const std::string& mode, const std::string& device,
                       const std::string& precision, size_t memory, const std::string& recompute,
                       const std::vector<std::string>& rematerialize,
                       const std::vector<std::string>& offload, const std::string& offload_folder,
                       bool lend_arguments, bool keep_weights) {
  if (mode != "train" && mode != "eval")
    throw Error(ErrorKind::usage, "[compile] mode is 'train' or 'eval'. Got '{}'.", mode);
  Offload files{.folder = offload_folder};
  for (const std::string& name : offload) files.categories.push_back(category_named(name));
  return {.mode = mode == "train" ? Mode::train : Mode::eval,
          .device = device,
          .precision = precision_named(precision),
          .memory = memory,
          .recompute = recompute_named(recompute),
          .rematerialize = rematerialize,
          .offload = std::move(files),
          .pack_weights = keep_weights,
          .derive_weights = keep_weights,
          .lend_arguments = lend_arguments};
}

void bind_gradients(nb::module_& m) {
  m.def(
      "grad",
      [](const Arg& loss, nb::object by) -> nb::object {
        const CallSite site(loss.where, "grad");
        const bool is_one = nb::isinstance<Tensor>(by) || nb::isinstance<Variable>(by);
        const auto wanted = is_one ? std::vector{*to_arg(by)} : nb::cast<std::vector<Arg>>(by);
        std::vector<Tensor> found = grad(loss.value, values_of(wanted));
        return is_one ? nb::cast(found[0]) : nb::cast(found);
      },
      "loss"_a, "by"_a, "Returns d loss / d x for a tensor or variable x, or for each of a list.");
  m.def(
      "_gradients",
      [](const Tensor& y, const std::vector<Tensor>& by, const std::optional<Arg>& seed) {
        return gradients(y, by, or_empty(seed));
      },
      "y"_a, "by"_a, "seed"_a = nb::none());
  m.def(
      "custom_gradient",
      [](const Arg& y, const std::vector<Arg>& inputs, nb::callable rule) {
        const std::shared_ptr<void> held = keep(std::move(rule));
        return custom_gradient(y, values_of(inputs), [held](const Tensor& dy) {
          const nb::gil_scoped_acquire gil;
          const nb::handle function(static_cast<PyObject*>(held.get()));
          return nb::cast<std::vector<Tensor>>(function(dy));
        });
      },
      "y"_a, "inputs"_a, "rule"_a,
      "Returns y with the gradients of the inputs that the rule makes of that of y.");
}
}  // namespace

void bind_steps(nb::module_& m) {
  nb::class_<StepPlan>(m, "PlanSummary", "Memory, work and time of a planned step.")
      .def_ro("device", &PlanSummary::device)
      .def_ro("state_bytes", &PlanSummary::state_bytes)
      .def_ro("constant_bytes", &PlanSummary::constant_bytes)
      .def_ro("arena_bytes", &PlanSummary::arena_bytes)
      .def_ro("argument_bytes", &PlanSummary::argument_bytes)
      .def_ro("staging_bytes", &PlanSummary::staging_bytes)
      .def_ro("live_peak_bytes", &PlanSummary::live_peak_bytes)
      .def_ro("file_bytes", &PlanSummary::file_bytes)
      .def_ro("largest", &PlanSummary::largest)
      .def_ro("flops", &PlanSummary::flops)
      .def_ro("bytes", &PlanSummary::bytes)
      .def_ro("launches", &PlanSummary::launches)
      .def_ro("rematerialized", &PlanSummary::rematerialized)
      .def_prop_ro("memory_bytes", &PlanSummary::memory_bytes)
      .def_prop_ro("least_seconds", [](const StepPlan& plan) { return plan.seconds; })
      .def_prop_ro("seconds", &PlanSummary::expected_seconds)
      .def_prop_ro(
          "live_bytes", [](const StepPlan& plan) { return by_name(plan.live); },
          "Bytes that are live in the arena during each launch, by category.")
      .def_prop_ro(
          "state", [](const StepPlan& plan) { return by_name(plan.state); },
          "Bytes of state, by category.");
  nb::class_<StepOptions>(m, "StepOptions")
      .def(
          "__init__",
          [](StepOptions* self, const std::string& mode, const std::string& device,
             const std::string& precision, size_t memory, const std::string& recompute,
             const std::vector<std::string>& rematerialize, const std::vector<std::string>& offload,
             const std::string& offload_folder, bool lend_arguments, bool keep_weights) {
            new (self)
                StepOptions(options_of(mode, device, precision, memory, recompute, rematerialize,
                                       offload, offload_folder, lend_arguments, keep_weights));
          },
          nb::kw_only(), "mode"_a = "train", "device"_a = "auto", "precision"_a = "f32",
          "memory"_a = 0, "recompute"_a = "automatic",
          "rematerialize"_a = std::vector<std::string>{}, "offload"_a = std::vector<std::string>{},
          "offload_folder"_a = ".", "lend_arguments"_a = false, "keep_weights"_a = true);
  nb::class_<Step>(m, "Step", nb::type_slots(step_slots),
                   "A function of lists of tensors, compiled once for each list of input types.")
      .def(nb::init<nb::callable, const StepOptions&>(), "function"_a, "options"_a)
      .def("prepare", &Step::prepare, "types"_a)
      .def("run", &Step::run, "inputs"_a)
      .def("bind", &Step::bind, "types"_a)
      .def(
          "run_at",
          [](Step& self, const Addresses& inputs, const Addresses& results) {
            self.run_at(pointers<const std::byte>(inputs), pointers<std::byte>(results));
          },
          "inputs"_a, "results"_a)
      .def("result_types", &result_types)
      .def("plan_text", [](const Step& self) { return to_text(self.bound().plan()); })
      .def("plan", &Step::plan, "types"_a)
      .def("plan_on", &Step::plan_on, "device"_a, "types"_a);
  m.def("_note_fork", &note_fork);
  // Names a line of the user's program, and the path of a module, for operations from here on;
  // without a file each operation names the line that calls it.
  m.def(
      "_set_origin",
      [](const std::optional<std::string>& file, unsigned line, const std::string& module) {
        Origin origin;
        if (file) origin.where = {interned(*file).c_str(), line};
        origin.module = module.empty() ? nullptr : &interned(module);
        detail::set_origin(origin);
      },
      "file"_a = nb::none(), "line"_a = 0, "module"_a = "");
  bind_gradients(m);
}

}  // namespace weft::python
