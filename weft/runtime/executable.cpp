#include "weft/runtime/executable.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "weft/base/host/parallel.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/host/team.h"
#include "weft/base/logging.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/device/communicator.h"
#include "weft/passes/passes.h"
#include "weft/runtime/binding.h"
#include "weft/runtime/compile_kernels.h"
#include "weft/runtime/copies.h"
#include "weft/runtime/inputs.h"
#include "weft/runtime/poison.h"
#include "weft/runtime/residency.h"
#include "weft/runtime/results.h"

namespace weft {
namespace {
#ifdef WEFT_DEBUG_BUILD
constexpr bool debug_build = true;
#else
constexpr bool debug_build = false;
#endif

bool is_argument(const Plan& plan, const Access& access) {
  return plan.slots[static_cast<size_t>(access.at.slot)].space == Space::argument;
}

// Returns by result whether the caller's memory for it is its slot. Of several results that are a
// whole slot it is the first; a result that is a part of a slot, or an input, is copied.
std::vector<bool> lent_results(const Plan& plan) {
  std::set<int> taken;  // slots
  for (const Access& input : plan.inputs) taken.insert(input.at.slot);
  std::vector<bool> lent;
  lent.reserve(plan.outputs.size());
  for (const Access& output : plan.outputs) {
    const bool is_whole =
        output.at.offset == 0 &&
        output.value.type().bytes() == plan.slots[static_cast<size_t>(output.at.slot)].bytes;
    lent.push_back(is_argument(plan, output) && is_whole && taken.insert(output.at.slot).second);
  }
  return lent;
}
}  // namespace

// Running holds everything that an executable needs to run. A plan that cannot run has none.
class Executable::Running {
 public:
  Running(const BoundPlan& bound, const KernelLibrary& library,
          std::shared_ptr<Workspace> workspace, const std::string& folder, size_t beside)
      : plan_(bound.plan),
        compiler_(library.compiler()),
        workspace_(std::move(workspace)),
        memory_(library.memory()),
        residency_(make_residency(bound, memory_, *workspace_, folder)),
        copies_(bound, library),
        results_(bound, *residency_, memory_, workspace_) {
    const auto lock = memory_.enter();
    set_poisoning(debug_build && memory_.is_host());
    start_team();
    const bool stages = library.stages_inputs();
    residency_->check_fits(stages ? staged_bytes(plan_) : 0, beside);
    if (memory_.is_host() && workspace_->communicator != nullptr)
      share_gathered(bound, *workspace_->communicator);
    kernels_ = compile_kernels(bound, compiler_, library.kernels(), memory_);
    compile_collectives(plan_, workspace_->communicator.get(), poison_.has_value(), kernels_);
    residency_->place_offloaded();
    inputs_.emplace(plan_, *residency_, memory_, stages);
    workspace_->detach_results();
    workspace_->reserve(plan_.arena_bytes, memory_);
    residency_->place_constants();
    try_kernels(plan_, kernels_, library.kernels(), memory_, *residency_);
  }

  // Waits for kernels, which must not outlive their memory or, at process exit, their compiler.
  ~Running() {
    const auto lock = memory_.enter();
    try {
      memory_.finish();
    } catch (const Error& lost) {  // reported to whoever waits for a result
      logging::debug(1, "{}", lost.what());
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  std::span<const Value> run(std::span<const Value> inputs);
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> results);
  void settle_variables() {
    const auto lock = memory_.enter();
    settle();
  }
  void release() {
    results_.release();
    binding_.invalidate();
  }
  std::byte* address(int slot) const { return residency_->address(slot); }
  size_t used_arena_bytes() const {
    const auto lock = memory_.enter();
    return workspace_->touched_bytes();
  }
  void set_observer(LaunchObserver observer) { observer_ = std::move(observer); }
  void set_timer(LaunchTimer timer) { timer_ = std::move(timer); }
  void set_poisoning(bool on) {
    poison_.reset();
    if (on) poison_.emplace(plan_);
  }

 private:
  void check(std::span<const Value> inputs) const;
  void check_count(std::string_view what, size_t got, size_t wanted) const;
  void begin_run();
  void end_run();
  void lend(std::span<const std::byte* const> inputs, std::span<std::byte* const> results);
  void copy_results(std::span<std::byte* const> results);
  void settle();
  void run_recorded();
  void run_launches();
  void run_launch(size_t i, bool waits) const;
  void copy_assigned();
  void tell_times(Timeline& timeline, double begin) const;

  const Plan& plan_;
  const KernelCompiler& compiler_;
  std::shared_ptr<Workspace> workspace_;
  DeviceMemory& memory_;  // the memory that kernels see
  std::unique_ptr<Residency> residency_;
  Copies copies_;
  PlanKernels kernels_;
  Binding binding_{plan_, kernels_, *residency_};
  std::optional<Inputs> inputs_;      // from the end of compilation on
  std::unique_ptr<Kernel> recorded_;  // all launches as they are bound; null: not recorded yet
  bool warm_ = false;                 // whether the launches ran once since they were bound
  Results results_;
  // By result: whether its slot is memory of the caller, whose address this result gives.
  std::vector<bool> lends_result_ = lent_results(plan_);
  LaunchObserver observer_;
  LaunchTimer timer_;
  std::optional<Poison> poison_;
};

void Executable::Running::run_launches() {
  std::optional<Computing> on_threads;  // of the host, which a device leaves to others
  if (memory_.is_host()) on_threads.emplace();
  struct Settled {  // also settles when a launch throws
    Residency& residency;
    ~Settled() { residency.settle(); }
  } settled{*residency_};
  const bool waits = observer_ || memory_.is_synchronous();
  Communicator* const ranks = workspace_->communicator.get();
  std::unique_ptr<Timeline> timeline;
  if (timer_) timeline = memory_.make_timeline();
  const double begin = now();
  if (timeline != nullptr) timeline->mark();
  for (size_t i = 0; i < binding_.size(); ++i) {
    logging::debug(6, "launch {} {}", i, plan_.launches[i].kernel);
    if (poison_) poison_->begin_launch(i);
    run_launch(i, waits);
    if (ranks != nullptr && ranks->is_under_way()) ranks->poll();
    if (timeline != nullptr) timeline->mark();
    if (observer_) observer_(i);
    if (poison_) poison_->end_launch(i);
  }
  copy_assigned();
  if (timeline != nullptr) tell_times(*timeline, begin);
}

void Executable::Running::tell_times(Timeline& timeline, double begin) const {
  const std::vector<double> marks = timeline.seconds();
  for (size_t i = 0; i < binding_.size(); ++i) timer_(i, begin + marks[i], marks[i + 1] - marks[i]);
}

void Executable::Running::run_launch(size_t i, bool waits) const {
  try {
    binding_.run(i);
    if (waits) memory_.finish();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device) throw;
    throw error_of_launch(plan_, i, error, waits);
  }
}

void Executable::Running::copy_assigned() {
  for (const Assign& assign : plan_.assigns) {
    if (!assign.copy) continue;
    const Type& type = assign.value.value.type();
    const std::byte* from = address(assign.value.at.slot) +
                            static_cast<size_t>(assign.value.at.offset) * size_of(type.dtype);
    memory_.copy(address(assign.state_slot), from, type.bytes());
  }
}

// The first run executes the launches directly, as libraries load code in it; the second is
// recorded.
void Executable::Running::run_recorded() {
  if (recorded_ == nullptr && warm_) recorded_ = compiler_.record([this] { run_launches(); });
  if (recorded_ != nullptr)
    recorded_->run(nullptr, nullptr, nullptr);
  else
    run_launches();
  warm_ = true;
}

void Executable::Running::settle() {
  if (!binding_.is_valid()) {
    results_.forget();
    binding_.bind();
    recorded_ = nullptr;
    warm_ = false;
  }
  copies_.refresh();
}

void Executable::Running::check_count(std::string_view what, size_t got, size_t wanted) const {
  WEFT_CHECK(got == wanted, "[run] the step {} {} tensors. Got {}.", what, wanted, got);
}

void Executable::Running::check(std::span<const Value> inputs) const {
  check_count("takes", inputs.size(), plan_.inputs.size());
  WEFT_CHECK(std::ranges::find(plan_.slots, Space::argument, &Slot::space) == plan_.slots.end(),
             "[run] the step was compiled to run in its caller's memory (lend_arguments). Hint: "
             "give it addresses.");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type& type = plan_.inputs[i].value.type();
    WEFT_CHECK(inputs[i].type() == type, "[run] input {} must be {}. Got {}.", i, to_string(type),
               to_string(inputs[i].type()));
  }
}

void Executable::Running::begin_run() {
  settle();
  residency_->lend();
  copies_.note_writes();
  if (poison_) poison_->begin_run(workspace_->buffer->data);
}

void Executable::Running::end_run() {
  if (poison_) poison_->end_run();
  copies_.note_copies();
}

std::span<const Value> Executable::Running::run(std::span<const Value> inputs) {
  check(inputs);
  const auto lock = memory_.enter();
  results_.claim_arena();                           // an input may be a result of the last run
  workspace_->reserve(plan_.arena_bytes, memory_);  // where it was released
  for (const Value& input : inputs) input.eval();   // may bring variables back to the host
  begin_run();
  inputs_->take(inputs);
  if (!observer_ && !timer_)
    run_recorded();
  else
    run_launches();
  end_run();
  return results_.show();
}

void Executable::Running::run(std::span<const std::byte* const> inputs,
                              std::span<std::byte* const> results) {
  check_count("takes", inputs.size(), plan_.inputs.size());
  check_count("returns", results.size(), plan_.outputs.size());
  const auto lock = memory_.enter();
  results_.claim_arena();
  workspace_->reserve(plan_.arena_bytes, memory_);
  begin_run();
  lend(inputs, results);
  run_launches();
  end_run();
  copy_results(results);
}

// Kernels read at any address that is a multiple of the element's size, but they store whole
// vectors.
void Executable::Running::lend(std::span<const std::byte* const> inputs,
                               std::span<std::byte* const> results) {
  const auto check_aligned = [](const char* what, size_t i, const std::byte* at, size_t to) {
    WEFT_CHECK(reinterpret_cast<uintptr_t>(at) % to == 0,
               "[run] {} {} must be aligned to {} bytes.", what, i, to);
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Access& input = plan_.inputs[i];
    check_aligned("input", i, inputs[i], size_of(input.value.dtype()));
    if (!is_argument(plan_, input))
      memory_.write(residency_->address(input.at.slot), inputs[i], input.value.type().bytes());
    else  // whose slot no launch writes
      binding_.lend(input.at.slot, const_cast<std::byte*>(inputs[i]));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    check_aligned("result", i, results[i], buffer_alignment);
    if (lends_result_[i]) binding_.lend(plan_.outputs[i].at.slot, results[i]);
  }
}

void Executable::Running::copy_results(std::span<std::byte* const> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (lends_result_[i]) continue;
    const Access& output = plan_.outputs[i];
    const Type& type = output.value.type();
    memory_.read(
        results[i],
        address(output.at.slot) + static_cast<size_t>(output.at.offset) * size_of(type.dtype),
        type.bytes());
  }
}

Executable::Executable(BoundPlan plan, const KernelLibrary& library,
                       std::shared_ptr<Workspace> workspace, const std::string& folder,
                       size_t beside)
    : bound_(std::move(plan)) {
  if (workspace != nullptr)
    running_ = std::make_unique<Running>(bound_, library, std::move(workspace), folder, beside);
}
Executable::~Executable() = default;

Executable::Running& Executable::running() const {
  WEFT_CHECK(running_ != nullptr, "[run] this step was only planned (device null): it cannot run.");
  return *running_;
}
std::span<const Value> Executable::run(std::span<const Value> inputs) {
  return running().run(inputs);
}
void Executable::run(std::span<const std::byte* const> inputs,
                     std::span<std::byte* const> results) {
  running().run(inputs, results);
}
void Executable::settle_variables() { running().settle_variables(); }
std::byte* Executable::address(int slot) const { return running().address(slot); }
size_t Executable::used_arena_bytes() const {
  return running_ != nullptr ? running_->used_arena_bytes() : 0;
}
void Executable::release() { running().release(); }
void Executable::set_observer(LaunchObserver observer) {
  running().set_observer(std::move(observer));
}
void Executable::set_timer(LaunchTimer timer) { running().set_timer(std::move(timer)); }
void Executable::set_poisoning(bool on) { running().set_poisoning(on); }

namespace {
size_t arena_bytes(const Workspace* workspace) {
  return workspace == nullptr || workspace->buffer == nullptr ? 0 : workspace->buffer->bytes;
}
}  // namespace

// Each iteration avoids at least one kernel, so the loop ends; one warning covers all of them.
std::unique_ptr<Executable> make_executable(const std::function<BoundPlan()>& plan,
                                            const KernelLibrary& library,
                                            const std::shared_ptr<Workspace>& workspace,
                                            const std::string& folder, size_t beside) {
  std::vector<std::string> refusals;
  const size_t arena = arena_bytes(workspace.get());
  for (;;) {
    try {
      auto made = std::make_unique<Executable>(plan(), library, workspace, folder, beside);
      if (refusals.empty()) return made;
      const size_t others = refusals.size() - 1;
      logging::warn(
          "{}{}. The step is planned again without these kernels, which may be slower.",
          refusals.front(),
          others == 0 ? "" : fmt::format(" and {} more (WEFT_DEBUG=1 lists them)", others));
      return made;
    } catch (const KernelsRefused& refused) {
      refusals.insert(refusals.end(), refused.refusals.begin(), refused.refusals.end());
      workspace->shrink(arena);
    }
  }
}

std::unique_ptr<Executable> compile_graph(const Graph& graph, const KernelLibrary& library,
                                          std::shared_ptr<Workspace> workspace,
                                          PassOptions options) {
  options.library = &library;
  options.threads = thread_count();
  for (const Value& value : graph.nodes())  // results of steps that nobody has read yet
    if (value->storage != nullptr) value->storage->on_host();
  if (library.only_plans()) workspace = nullptr;
  return make_executable([&] { return bound_plan(graph, options); }, library, workspace,
                         options.step.offload.folder, options.step.beside);
}
}  // namespace weft
