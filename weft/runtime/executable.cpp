#include "weft/runtime/executable.h"

#include <algorithm>
#include <cstring>

#include "weft/base/alignment.h"
#include "weft/base/buffer.h"
#include "weft/base/logging.h"
#include "weft/base/parallel.h"
#include "weft/base/stopwatch.h"
#include "weft/base/storage.h"
#include "weft/ir/op_def.h"
#include "weft/passes/passes.h"
#include "weft/runtime/compile_kernels.h"
#include "weft/runtime/poison.h"
#include "weft/runtime/residency.h"

namespace weft {
namespace {
#ifdef WEFT_DEBUG_BUILD
constexpr bool debug_build = true;
#else
constexpr bool debug_build = false;
#endif
}  // namespace

size_t staged_bytes(const Plan& plan) {
  size_t bytes = 0;
  for (const Access& input : plan.inputs) bytes += aligned(input.value.type().bytes());
  return bytes;
}

Executable::Executable(Plan plan, const KernelLibrary& library,
                       std::shared_ptr<Workspace> workspace, const std::string& folder,
                       size_t beside)
    : plan_(std::move(plan)),
      compiler_(library.compiler()),
      stages_inputs_(library.stages_inputs()),
      workspace_(std::move(workspace)),
      copies_(plan_) {
  if (workspace_ == nullptr) return;
  memory_ = &library.memory();
  residency_ = make_residency(plan_, *memory_, *workspace_, folder);
  set_poisoning(debug_build && memory_->is_host());
  start_team();
  residency_->check_fits(stages_inputs_ ? staged_bytes(plan_) : 0, beside);
  kernels_ = compile_kernels(plan_, compiler_, library.kernels(), *memory_);
  residency_->place_offloaded();
  make_staging();
  if (workspace_->last != nullptr) workspace_->last->detach_results();
  workspace_->reserve(plan_.arena_bytes, *memory_);
  residency_->place_constants();
  try_kernels(plan_, kernels_, library.kernels(), *memory_, *residency_);
}

// Waits for kernels, which must not outlive their memory or, at process exit, their compiler.
void Executable::finish_kernels() const {
  if (memory_ == nullptr) return;  // nothing ever ran
  try {
    memory_->finish();
  } catch (const Error& lost) {  // reported to whoever waits for a result
    logging::debug(1, "{}", lost.what());
  }
}

Executable::~Executable() {
  finish_kernels();
  if (workspace_ == nullptr || workspace_->last != this) return;
  workspace_->last = nullptr;
  try {
    detach_results();
  } catch (const Error& lost) {  // reported to whoever reads a result
    logging::debug(1, "{}", lost.what());
  }
}

std::byte* Executable::address(int slot) const { return residency_->address(slot); }

size_t Executable::used_arena_bytes() const {
  return workspace_ != nullptr ? workspace_->touched_bytes() : 0;
}

void Executable::bind() {
  residency_->place();
  for (auto& [launch, kernel] : residency_->copies()) kernels_[launch] = std::move(kernel);
  bound_.resize(plan_.launches.size());
  for (size_t i = 0; i < bound_.size(); ++i) {
    const Launch& launch = plan_.launches[i];
    BoundLaunch& bound = bound_[i];
    bound.operands.clear();
    bound.results.clear();
    for (const Access& access : launch.operands) bound.operands.push_back(address(access.at.slot));
    for (const Access& access : launch.results) bound.results.push_back(address(access.at.slot));
    for (void* result : bound.results)
      WEFT_ASSERT(reinterpret_cast<uintptr_t>(result) % buffer_alignment == 0,
                  "a result of {} is not aligned", launch.kernel);
    bound.workspace = launch.workspace_slot >= 0 ? address(launch.workspace_slot) : nullptr;
    kernels_[i]->bind(bound.operands.data(), bound.results.data(), bound.workspace);
  }
  recorded_ = nullptr;
  warm_ = false;
}

void Executable::release() {
  results_.clear();
  bound_.clear();
  if (workspace_->last == this) workspace_->last = nullptr;
  workspace_->buffer = nullptr;
}

void Executable::set_poisoning(bool on) {
  poison_ = on ? std::make_unique<Poison>(plan_) : nullptr;
}

// Gives results whose handles are still held their own bytes; unreferenced results are reused.
void Executable::detach_results() {
  for (Value& result : results_) {
    if (result.shared().use_count() < 2) continue;
    if (result->storage != nullptr) {
      fetch(*result.node());
    } else if (memory_->is_host()) {
      auto copy = Buffer::allocate(result.type().bytes());
      std::memcpy(copy->data, result->data->data, result.type().bytes());
      result->data = std::move(copy);
    }
    result = Value();
  }
}

void Executable::run_launches() {
  struct Settled {  // also settles when a launch throws
    Residency& residency;
    ~Settled() { residency.settle(); }
  } settled{*residency_};
  const bool waits = observer_ || memory_->is_synchronous();
  std::unique_ptr<Timeline> timeline;
  if (timer_) timeline = memory_->make_timeline();
  const double begin = now();
  if (timeline != nullptr) timeline->mark();
  for (size_t i = 0; i < bound_.size(); ++i) {
    logging::debug(6, "launch {} {}", i, plan_.launches[i].kernel);
    if (poison_ != nullptr) poison_->begin_launch(i);
    run_launch(i, waits);
    if (timeline != nullptr) timeline->mark();
    if (observer_) observer_(i);
    if (poison_ != nullptr) poison_->end_launch(i);
  }
  copy_assigned();
  if (timeline != nullptr) tell_times(*timeline, begin);
}

void Executable::tell_times(Timeline& timeline, double begin) const {
  const std::vector<double> marks = timeline.seconds();
  for (size_t i = 0; i < bound_.size(); ++i) timer_(i, begin + marks[i], marks[i + 1] - marks[i]);
}

void Executable::run_launch(size_t i, bool waits) const {
  const BoundLaunch& launch = bound_[i];
  try {
    kernels_[i]->run(launch.operands.data(), launch.results.data(), launch.workspace);
    if (waits) memory_->finish();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device) throw;
    throw error_of_launch(plan_, i, error, waits);
  }
}

void Executable::copy_assigned() {
  for (const Assign& assign : plan_.assigns) {
    if (!assign.copy) continue;
    const Type& type = assign.value.value.type();
    const std::byte* from = address(assign.value.at.slot) +
                            static_cast<size_t>(assign.value.at.offset) * size_of(type.dtype);
    memory_->copy(address(assign.state_slot), from, type.bytes());
  }
}

// The first run executes the launches directly, as libraries load code in it; the second is
// recorded.
void Executable::run_recorded() {
  if (recorded_ == nullptr && warm_) recorded_ = compiler_.record([this] { run_launches(); });
  if (recorded_ != nullptr)
    recorded_->run(nullptr, nullptr, nullptr);
  else
    run_launches();
  warm_ = true;
}

// Updates the result handles. Host results are reused if nobody holds them; device results are
// fetched when they are read.
void Executable::show_results() {
  results_.resize(plan_.outputs.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    const Access& output = plan_.outputs[i];
    const Type& type = output.value.type();
    std::byte* at =
        address(output.at.slot) + static_cast<size_t>(output.at.offset) * size_of(type.dtype);
    if (!results_[i].defined()) results_[i] = make_leaf(op("data"), type);
    Node& result = *results_[i].node();
    if (!memory_->is_host()) {
      result.data = nullptr;
      if (result.storage == nullptr)
        result.storage = std::make_shared<Storage>(*memory_, at, type.bytes());
    } else if (result.data == nullptr) {
      const Slot& slot = plan_.slots[static_cast<size_t>(output.at.slot)];
      result.data = std::make_shared<Buffer>();
      result.data->data = at;
      result.data->bytes = type.bytes();
      result.data->owner = slot.space == Space::constant ? slot.value->data : workspace_->buffer;
    }
  }
}

void Executable::make_staging() {
  const size_t bytes = stages_inputs_ ? staged_bytes(plan_) : 0;
  if (bytes == 0) return;
  inputs_here_ = memory_->allocate_host(bytes);
  inputs_there_ = memory_->allocate(bytes);
  input_copy_ = memory_->make_copy_stream(CopyDirection::to_device);
  input_copy_->wait_for_kernels();
}

// Copies inputs to their slots. Staged inputs are transferred while the previous step still runs.
void Executable::take_inputs(std::span<const Value> inputs) {
  size_t offset = 0;
  if (input_copy_ != nullptr) {
    input_copy_->finish();
    for (const Value& input : inputs) {
      std::memcpy(inputs_here_->data + offset, input->data->data, input.type().bytes());
      offset += aligned(input.type().bytes());
    }
    input_copy_->begin(inputs_there_->data, inputs_here_->data, offset);
    input_copy_->kernels_wait();
    offset = 0;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::byte* to = address(plan_.inputs[i].at.slot);
    const std::byte* from = inputs[i]->data->data;
    const size_t bytes = inputs[i].type().bytes();
    if (input_copy_ == nullptr)
      memory_->write(to, from, bytes);
    else
      memory_->copy(to, inputs_there_->data + offset, bytes);
    offset += aligned(bytes);
  }
  if (input_copy_ != nullptr) input_copy_->wait_for_kernels();
}

void Executable::settle_variables() {
  if (bound_.empty() || residency_->has_moved()) {
    for (Value& result : results_) result = Value();
    bind();
  }
  copies_.refresh();
}

std::span<const Value> Executable::run(std::span<const Value> inputs) {
  WEFT_CHECK(workspace_ != nullptr,
             "[run] this step was only planned (device null): it cannot run.");
  WEFT_CHECK(inputs.size() == plan_.inputs.size(), "[run] the step takes {} tensors. Got {}.",
             plan_.inputs.size(), inputs.size());
  // An input may be a result of the last run, which is copied out before it is overwritten.
  if (workspace_->last != nullptr) workspace_->last->detach_results();
  workspace_->last = this;
  workspace_->reserve(plan_.arena_bytes, *memory_);  // where it was released
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type& type = plan_.inputs[i].value.type();
    WEFT_CHECK(inputs[i].type() == type, "[run] input {} must be {}. Got {}.", i, to_string(type),
               to_string(inputs[i].type()));
    inputs[i].eval();  // may bring variables back to the host
  }
  settle_variables();
  residency_->lend();
  copies_.note_writes();
  if (poison_ != nullptr) poison_->begin_run(workspace_->buffer->data);
  take_inputs(inputs);
  if (!observer_ && !timer_)
    run_recorded();
  else
    run_launches();
  if (poison_ != nullptr) poison_->end_run();
  copies_.note_copies();
  show_results();
  return results_;
}

// Each iteration avoids at least one kernel, so the loop ends; one warning covers all of them.
std::unique_ptr<Executable> make_executable(const std::function<Plan()>& plan,
                                            const KernelLibrary& library,
                                            const std::shared_ptr<Workspace>& workspace,
                                            const std::string& folder, size_t beside) {
  std::vector<std::string> refusals;
  const size_t arena =
      workspace == nullptr || workspace->buffer == nullptr ? 0 : workspace->buffer->bytes;
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
    if (value->storage != nullptr) fetch(*value.node());
  if (library.only_plans()) workspace = nullptr;
  return make_executable([&] { return make_plan(graph, options); }, library, workspace,
                         options.step.offload.folder, options.step.beside);
}
}  // namespace weft
