#include "weft/runtime/executable.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "weft/base/alignment.h"
#include "weft/base/buffer.h"
#include "weft/base/logging.h"
#include "weft/base/memory.h"
#include "weft/base/parallel.h"
#include "weft/base/stopwatch.h"
#include "weft/ir/op_def.h"
#include "weft/passes/passes.h"
#include "weft/passes/transfers.h"
#include "weft/runtime/footprint.h"
#include "weft/runtime/poison.h"
#include "weft/runtime/transfers.h"

namespace weft {
namespace {
#ifdef WEFT_DEBUG_BUILD
constexpr bool debug_build = true;
#else
constexpr bool debug_build = false;
#endif

double steady_seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// A null memory is the host's; `held`: bytes that this process has there already for it; `beside`:
// bytes of the host that the program holds for other things.
void check_plan_fits(const Plan& plan, const DeviceMemory* memory, size_t staged, size_t held,
                     size_t beside) {
  size_t state = 0, constants = 0;
  for (const Slot& slot : plan.slots) {
    if (slot.space == Space::state) state += slot.bytes;
    if (slot.space == Space::constant) constants += slot.bytes;
  }
  auto mebibytes = [](size_t bytes) { return bytes >> 20; };
  const std::string what = fmt::format(
      "the plan does not fit: its arena of {} MiB, state of {} MiB and constants "
      "of {} MiB",
      mebibytes(plan.arena_bytes), mebibytes(state), mebibytes(constants));
  const size_t bytes = plan.arena_bytes + state + constants + staged;
  if (memory == nullptr) {  // compiling it must not end the process
    const Plan* const plans[] = {&plan};
    const size_t others = beside + runtime_bytes(thread_count(), plans);
    return check_fits(fmt::format("{}, and {} MiB of data and of what compiles and runs it,", what,
                                  mebibytes(others)),
                      bytes + others);
  }
  const MemoryUse use = memory->use();
  if (bytes > use.available + held)
    throw Error(ErrorKind::does_not_fit,
                "{} take {} MiB of the device's memory, which has {} MiB, {} of them free.", what,
                mebibytes(bytes), mebibytes(use.total), mebibytes(use.available + held));
  if (use.largest > 0 && plan.arena_bytes > use.largest)
    throw Error(ErrorKind::does_not_fit,
                "the plan does not fit: its arena takes {} MiB at once. The device gives at most "
                "{} MiB at once, of {} MiB in all.",
                mebibytes(plan.arena_bytes), mebibytes(use.largest), mebibytes(use.total));
}
}  // namespace

size_t staged_bytes(const Plan& plan) {
  size_t bytes = 0;
  for (const Access& input : plan.inputs) bytes += aligned(input.value.type().bytes());
  return bytes;
}

namespace {
// The last page of a fresh arena is full of these, so that zeros that are written there show, too.
constexpr std::byte untouched{0xa5};
constexpr size_t marked_bytes = 4096;
size_t begin_of_page(size_t end) { return (end - 1) / marked_bytes * marked_bytes; }
}  // namespace

void Workspace::reserve(size_t bytes, DeviceMemory* of) {
  if (buffer != nullptr && buffer->bytes >= bytes) return;
  memory = of;
  if (memory != nullptr) buffer = nullptr;  // before there are two
  buffer = memory != nullptr ? memory->allocate(bytes) : Buffer::allocate(bytes);
  if (memory == nullptr) buffer->populate();
  if (bytes == 0) return;
  const std::vector<std::byte> mark(bytes - begin_of_page(bytes), untouched);
  std::byte* const to = buffer->data + begin_of_page(bytes);
  if (memory != nullptr)
    memory->write(to, mark.data(), mark.size());
  else
    std::ranges::copy(mark, to);
}

size_t Workspace::touched_bytes() const {
  std::array<std::byte, marked_bytes> page;
  for (size_t end = buffer == nullptr ? 0 : buffer->bytes; end > 0;) {
    const size_t begin = begin_of_page(end);
    if (memory != nullptr)
      memory->read(page.data(), buffer->data + begin, end - begin);
    else
      std::copy_n(buffer->data + begin, end - begin, page.data());
    const std::byte before = end == buffer->bytes ? untouched : std::byte{};
    for (; end > begin; --end)
      if (page[end - begin - 1] != before) return aligned(end);
  }
  return 0;
}

Executable::Executable(Plan plan, const KernelLibrary& library,
                       std::shared_ptr<Workspace> workspace, const std::string& folder,
                       size_t beside)
    : plan_(std::move(plan)),
      library_(library),
      memory_(workspace == nullptr ? nullptr : library.memory()),
      workspace_(std::move(workspace)),
      folder_(folder) {
  steps_.resize(plan_.steps.size());
  if (workspace_ == nullptr) return;
  set_poisoning(debug_build && memory_ == nullptr);
  start_team();
  check_plan_fits(plan_, memory_, library.stages_inputs() ? staged_bytes(plan_) : 0, held_bytes(),
                  beside);
  compile_kernels();
  if (memory_ != nullptr) {
    place_with_host();
    make_side_copies();
    make_staging();
  } else {
    place_in_files();
  }
  if (workspace_->last != nullptr) workspace_->last->detach_results();
  workspace_->reserve(plan_.arena_bytes, memory_);
  if (memory_ != nullptr) {
    for (const Slot& slot : plan_.slots) {
      if (slot.space != Space::constant) continue;
      std::shared_ptr<Buffer>& constant = constants_[slot.value.node()];
      constant = memory_->allocate(slot.value.type().bytes());
      if (slot.value->data != nullptr)
        memory_->write(constant->data, slot.value->data->data, slot.value.type().bytes());
    }
    try_kernels();
    return;
  }
  for (const Assign& assign : plan_.assigns)
    if (const Slot& slot = plan_.slots[static_cast<size_t>(assign.state_slot)];
        slot.space == Space::state)
      slot.value->variable->elements().populate();
}

// Of what the plan needs on the device, what lies there already.
size_t Executable::held_bytes() const {
  if (memory_ == nullptr) return 0;
  size_t bytes = workspace_->buffer == nullptr ? 0 : workspace_->buffer->bytes;
  for (const Slot& slot : plan_.slots)
    if (slot.space == Space::state && slot.value->variable->has_place_on(*memory_))
      bytes += slot.bytes;
  return bytes;
}

// One file for the variables that have none yet, and for the plan's own slots. Those that a device
// had are in theirs again.
void Executable::place_in_files() {
  auto paged = [](size_t bytes) {
    return (bytes + FileRange::alignment - 1) / FileRange::alignment * FileRange::alignment;
  };
  std::vector<VariableState*> to_move;
  const size_t own = file_ ? 0 : paged(plan_.file_bytes);
  size_t bytes = own;
  for (const Slot& slot : plan_.slots) {
    VariableState* variable = slot.space == Space::file ? slot.value->variable.get() : nullptr;
    if (variable == nullptr) continue;
    if (variable->file && variable->is_away()) variable->elements();
    if (variable->file) continue;
    to_move.push_back(variable);
    bytes += paged(slot.bytes);
  }
  if (bytes == 0) return;
  const FileRange file(folder_, bytes);
  if (own > 0) file_ = file.part(0, plan_.file_bytes);
  size_t offset = own;
  for (VariableState* variable : to_move) {
    variable->move_to(file.part(offset, variable->type.bytes()));
    offset += paged(variable->type.bytes());
  }
}

namespace {
class BeginCopy : public Kernel {
 public:
  // `before`: the latest with the same memory of the host; null: there is none.
  BeginCopy(SideCopy& copy, const SideCopy* before, const Step& step)
      : copy_(copy), before_(before) {
    const Access &from = step.operands[0], &to = step.results[0];
    const size_t size = size_of(from.value.dtype());
    from_ = static_cast<size_t>(from.at.offset) * size;
    to_ = static_cast<size_t>(to.at.offset) * size;
    bytes_ = from.value.type().bytes();
  }
  void run(void* const* operands, void* const* results, void*) const override {
    copy_.allow();
    if (before_ != nullptr) copy_.follow(*before_);
    copy_.begin(static_cast<std::byte*>(results[0]) + to_,
                static_cast<const std::byte*>(operands[0]) + from_, bytes_);
  }

 private:
  SideCopy& copy_;
  const SideCopy* before_;
  size_t from_, to_, bytes_;
};

class AwaitCopy : public Kernel {
 public:
  explicit AwaitCopy(SideCopy& copy) : copy_(copy) {}
  void run(void* const*, void* const*, void*) const override { copy_.await(); }

 private:
  SideCopy& copy_;
};
}  // namespace

// What files are to the host's memory, the host's memory is to that of a device.
void Executable::place_with_host() {
  std::set<VariableState*> variables;
  const size_t own = host_ == nullptr ? aligned(plan_.file_bytes) : 0;
  size_t bytes = own;
  for (const Slot& slot : plan_.slots) {
    VariableState* variable = slot.space == Space::file ? slot.value->variable.get() : nullptr;
    if (variable == nullptr || (variable->buffer != nullptr && variable->buffer->pinned)) continue;
    if (variables.insert(variable).second) bytes += aligned(slot.bytes);
  }
  if (bytes == 0) return;
  check_fits("the plan does not fit: what is kept with the host", bytes);
  const std::shared_ptr<Buffer> memory = memory_->allocate_host(bytes);
  if (own > 0) host_ = memory;
  size_t offset = own;
  for (VariableState* variable : variables) {
    variable->move_to(Buffer::part(memory, offset, variable->type.bytes()));
    offset += aligned(variable->type.bytes());
  }
}

void Executable::make_side_copies() {
  std::map<int, SideCopy*> latest;  // by the slot, on the device and with the host
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = plan_.steps[i];
    if (step.kind == Step::Kind::await) {
      steps_[i].kernel = std::make_unique<AwaitCopy>(*latest.at(step.operands[0].at.slot));
    } else if (step.kind == Step::Kind::transfer) {
      const bool fetch = is_fetch(plan_, step);
      side_copies_.push_back(
          memory_->make_side_copy(fetch ? CopyDirection::to_device : CopyDirection::to_host));
      SideCopy* const copy = side_copies_.back().get();
      SideCopy*& before = latest[file_slot(plan_, step)];
      steps_[i].kernel = std::make_unique<BeginCopy>(*copy, before, step);
      before = latest[memory_slot(plan_, step)] = copy;
    }
  }
}

// Where somebody else's steps may still copy.
void Executable::lend_variables() {
  for (const Slot& slot : plan_.slots) {
    if (slot.space == Space::arena || slot.value->variable == nullptr) continue;
    if (memory_ == nullptr || slot.space == Space::file) slot.value->variable->lend_to(memory_);
  }
}

void Executable::make_transfers() {
  transfers_ = nullptr;
  auto range_of = [&](int slot) {
    const Slot& at = plan_.slots[static_cast<size_t>(slot)];
    return at.value->variable != nullptr ? at.value->variable->file
                                         : file_.part(at.offset, at.type.bytes());
  };
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = plan_.steps[i];
    if (step.kind == Step::Kind::await) {
      steps_[i].kernel = transfers_->await(step.operands[0].at.slot);
    } else if (step.kind == Step::Kind::transfer) {
      if (transfers_ == nullptr) transfers_ = std::make_unique<Transfers>();
      const bool fetch = is_fetch(plan_, step);
      const Access& memory = (fetch ? step.results : step.operands)[0];
      const auto offset = static_cast<size_t>(memory.at.offset) * size_of(memory.value.dtype());
      steps_[i].kernel =
          transfers_->begin(range_of(file_slot(plan_, step)), fetch, memory.at.slot, offset);
    }
  }
}

// Generated kernels on threads of their own. So are kernels of libraries for a device; those for
// the host, which share its threads, are compiled by the caller.
void Executable::compile_kernels() {
  Stopwatch watch;
  std::vector<size_t> here, apart;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step::Kind kind = plan_.steps[i].kind;
    if (kind == Step::Kind::fused || (kind == Step::Kind::library && memory_ != nullptr))
      apart.push_back(i);
    else if (kind == Step::Kind::library)
      here.push_back(i);
  }
  std::atomic<size_t> next = 0, compiled = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  logging::LongWork compiling(fmt::format("compiling {} kernels", here.size() + apart.size()));
  auto compile = [&](size_t i) {
    logging::debug(4, "kernel {} {}", i, plan_.steps[i].kernel);
    try {
      steps_[i].kernel = library_.compile(plan_, plan_.steps[i]);
    } catch (const Error& error) {
      if (!library_.may_refuse(plan_.steps[i]) || error.kind() == ErrorKind::does_not_fit) throw;
      try {
        if (memory_ != nullptr) memory_->finish();
      } catch (const Error& lost) {  // the device, while kernels of the library were measured
        throw error_of_step(i, lost, true);
      }
      std::lock_guard lock(mutex);
      refuse(i, error);
    }
    compiling.go_on(fmt::format("{} are done", ++compiled));
  };
  auto work = [&] {
    try {
      for (size_t i = next++; i < apart.size(); i = next++) compile(apart[i]);
    } catch (...) {
      std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    try {
      for (int64_t i = 1; i < std::min<int64_t>(compile_threads(), std::ssize(apart)); ++i)
        helpers.emplace_back(work);
    } catch (const std::system_error&) {
      logging::debug(1, "{} threads compile, as the system gives no more", helpers.size() + 1);
    }
    for (size_t i : here) compile(i);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  check_refusals();
  logging::debug(1, "kernels         {:8.2f} ms", watch.milliseconds());
}

void Executable::refuse(size_t step, const Error& error) {
  const Step& refused = plan_.steps[step];
  std::string& said = refusals_[step];
  said = fmt::format("{} Refused: {}{}{}", error.what(), refused.kernel,
                     refused.module.empty() ? "" : " of ", refused.module);
  logging::debug(1, "refused: {}", said);
  library_.avoid(refused);
}

void Executable::check_refusals() const {
  if (refusals_.empty()) return;
  std::vector<std::string> all;
  all.reserve(refusals_.size());
  for (const auto& [step, said] : refusals_) all.push_back(said);
  throw KernelsRefused(std::move(all));
}

namespace {
// All that a library can tell kernels apart by.
std::string signature_of(const Step& step) {
  std::string text =
      step.kernel + to_string(step.body.front()->attrs) + to_string(step.body.front()->annotations);
  if (step.padded) text += " padded";
  for (const auto* accesses : {&step.operands, &step.results})
    for (const auto& [value, at] : *accesses)
      text += fmt::format(" {}+{}{}", to_string(value.type()), at.offset, to_string(at.strides));
  return text;
}
}  // namespace

// What stands in for an operand or a result outside of the arena.
size_t Executable::outside_bytes(const Access& access) const {
  const Slot& slot = plan_.slots[static_cast<size_t>(access.at.slot)];
  return slot.space == Space::arena ? 0 : aligned(std::max<size_t>(slot.bytes, 1));
}

// What a library says only when its kernel runs, it says before a step has updated anything.
// Kernels that are alike are tried once. No variable has a place on the device yet, and none may be
// written: memory beside the arena stands in for what the step has there.
void Executable::try_kernels() {
  std::set<std::string> signatures;
  std::vector<size_t> distinct;
  size_t most = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = plan_.steps[i];
    if (step.kind != Step::Kind::library || !library_.may_refuse(step)) continue;
    if (!signatures.insert(signature_of(step)).second) continue;
    distinct.push_back(i);
    size_t bytes = 0;
    for (const auto* accesses : {&step.operands, &step.results})
      for (const Access& access : *accesses) bytes += outside_bytes(access);
    most = std::max(most, bytes);
  }
  const std::shared_ptr<Buffer> outside = most > 0 ? memory_->allocate(most) : nullptr;
  for (const size_t i : distinct) {
    try {
      try_kernel(i, outside == nullptr ? nullptr : outside->data);
      if (memory_->is_synchronous()) memory_->finish();
    } catch (const Error& error) {
      try {
        memory_->finish();
      } catch (const Error& lost) {  // the device, which no other kernel would change
        throw error_of_step(i, lost, memory_->is_synchronous());
      }
      refuse(i, error);
    }
  }
  memory_->finish();
  check_refusals();
}

void Executable::try_kernel(size_t step, std::byte* outside) const {
  auto addresses_of = [&](const std::vector<Access>& accesses) {
    std::vector<void*> addresses;
    for (const Access& access : accesses) {
      const size_t bytes = outside_bytes(access);
      addresses.push_back(bytes == 0 ? address(access.at.slot) : outside);
      outside += bytes;
    }
    return addresses;
  };
  const Step& tried = plan_.steps[step];
  const std::vector<void*> operands = addresses_of(tried.operands),
                           results = addresses_of(tried.results);
  steps_[step].kernel->run(operands.data(), results.data(),
                           tried.workspace_slot >= 0 ? address(tried.workspace_slot) : nullptr);
}

// What still runs would outlive its memory, and at the end of the process its compiler.
void Executable::finish_kernels() const {
  if (memory_ == nullptr) return;
  try {
    memory_->finish();
  } catch (const Error& lost) {  // lost, which whoever waits for a result is told
    logging::debug(1, "{}", lost.what());
  }
}

Executable::~Executable() {
  finish_kernels();
  if (workspace_ == nullptr || workspace_->last != this) return;
  workspace_->last = nullptr;
  try {
    detach_results();
  } catch (const Error& lost) {  // of a device that is lost, as whoever reads a result is told
    logging::debug(1, "{}", lost.what());
  }
}

std::byte* Executable::address(int slot) const {
  const Slot& at = plan_.slots[static_cast<size_t>(slot)];
  switch (at.space) {
    case Space::arena:
      return workspace_->buffer->data + at.offset;
    case Space::state:
      return memory_ != nullptr ? at.value->variable->elements_on(*memory_).data
                                : at.value->variable->elements().data;
    case Space::constant:
      return memory_ != nullptr ? constants_.at(at.value.node())->data : at.value->data->data;
    case Space::file:
      if (memory_ == nullptr) break;
      return at.value->variable != nullptr ? at.value->variable->buffer->data
                                           : host_->data + at.offset;
  }
  return nullptr;
}

// Variables that have no place there yet, in as few allocations as the device allows: drivers round
// each of them up.
void Executable::place_on_device() {
  std::vector<VariableState*> group;
  size_t bytes = 0;
  auto place = [&] {
    const std::shared_ptr<Buffer> all = memory_->allocate(bytes);
    size_t offset = 0;
    for (VariableState* variable : group) {
      variable->move_to(*memory_, Buffer::part(all, offset, variable->type.bytes()));
      offset += aligned(variable->type.bytes());
    }
    group.clear();
    bytes = 0;
  };
  const size_t largest = memory_->use().largest;
  std::set<const VariableState*> seen;
  for (const Slot& slot : plan_.slots) {
    if (slot.space != Space::state) continue;
    VariableState* variable = slot.value->variable.get();
    if (variable->has_place_on(*memory_) || !seen.insert(variable).second) continue;
    if (largest > 0 && !group.empty() && bytes + aligned(slot.bytes) > largest) place();
    group.push_back(variable);
    bytes += aligned(slot.bytes);
  }
  if (!group.empty()) place();
}

size_t Executable::used_arena_bytes() const {
  return workspace_ != nullptr ? workspace_->touched_bytes() : 0;
}

void Executable::bind() {
  if (memory_ != nullptr) {
    place_with_host();
    place_on_device();
  } else {
    place_in_files();
    make_transfers();
  }
  const std::byte* arena = workspace_->buffer->data;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = plan_.steps[i];
    BoundStep& bound = steps_[i];
    bound.operands.clear();
    bound.results.clear();
    for (const Access& access : step.operands) bound.operands.push_back(address(access.at.slot));
    for (const Access& access : step.results) bound.results.push_back(address(access.at.slot));
    for (void* result : bound.results)
      WEFT_ASSERT(reinterpret_cast<uintptr_t>(result) % buffer_alignment == 0,
                  "a result of {} is not aligned", step.kernel);
    bound.workspace = step.workspace_slot >= 0 ? address(step.workspace_slot) : nullptr;
    bound.kernel->bind(bound.operands.data(), bound.results.data(), bound.workspace);
  }
  bound_to_ = const_cast<std::byte*>(arena);
  bound_moves_ = VariableState::moves;
  recorded_ = nullptr;
  warm_ = false;
}

void Executable::set_poisoning(bool on) {
  poison_ = on ? std::make_unique<Poison>(plan_) : nullptr;
}

// A result handle that outlives the run gets bytes of its own; one that nobody holds is used again.
void Executable::detach_results() {
  for (Value& result : results_) {
    if (result.shared().use_count() > 1) {
      if (memory_ != nullptr) {
        if (result->elsewhere.memory != nullptr) result->fetch();
        result = Value();
        continue;
      }
      auto copy = Buffer::allocate(result.type().bytes());
      std::memcpy(copy->data, result->data->data, result.type().bytes());
      result->data = std::move(copy);
      result = Value();
    }
  }
}

void Executable::run_steps() {
  struct Settled {  // also when a step throws
    Transfers* transfers;
    ~Settled() {
      if (transfers != nullptr) transfers->settle();
    }
  } settled{transfers_.get()};
  const bool waits = memory_ != nullptr && (observer_ || memory_->is_synchronous());
  std::unique_ptr<Timeline> timeline;
  if (timer_) timeline = memory_ != nullptr ? memory_->make_timeline() : host_timeline();
  const double begin = steady_seconds();
  if (timeline != nullptr) timeline->mark();
  for (size_t i = 0; i < steps_.size(); ++i) {
    logging::debug(6, "step {} {}", i, plan_.steps[i].kernel);
    if (poison_ != nullptr) poison_->begin_step(i);
    run_step(i, waits);
    if (timeline != nullptr) timeline->mark();
    if (observer_) observer_(i);
    if (poison_ != nullptr) poison_->end_step(i);
  }
  copy_assigned();
  if (timeline != nullptr) tell_times(*timeline, begin);
}

void Executable::tell_times(Timeline& timeline, double begin) const {
  const std::vector<double> marks = timeline.seconds();
  for (size_t i = 0; i < steps_.size(); ++i) timer_(i, begin + marks[i], marks[i + 1] - marks[i]);
}

void Executable::run_step(size_t i, bool waits) const {
  const BoundStep& step = steps_[i];
  try {
    step.kernel->run(step.operands.data(), step.results.data(), step.workspace);
    if (waits) memory_->finish();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device) throw;
    throw error_of_step(i, error, waits || memory_ == nullptr);
  }
}

// The same error with the step's kernel before the hint, if there is one.
Error Executable::error_of_step(size_t i, const Error& error, bool waited) const {
  const Step& failed = plan_.steps[i];
  std::string text = error.what();
  text.insert(
      std::min(text.find(" Hint: "), text.size()),
      fmt::format(" {} {}, {} of {}{}{}.", waited ? "Kernel" : "At or before kernel", failed.kernel,
                  i + 1, steps_.size(), failed.module.empty() ? "" : ", of ", failed.module));
  return {error.kind(), text};
}

void Executable::copy_assigned() {
  for (const Assign& assign : plan_.assigns) {
    if (!assign.copy) continue;
    const Type& type = assign.value.value.type();
    const std::byte* from = address(assign.value.at.slot) +
                            static_cast<size_t>(assign.value.at.offset) * size_of(type.dtype);
    if (memory_ != nullptr)
      memory_->copy(address(assign.state_slot), from, type.bytes());
    else
      std::memmove(address(assign.state_slot), from, type.bytes());
  }
}

// The first run is done as it stands, as libraries load their code in it; the second is recorded.
void Executable::run_recorded() {
  if (recorded_ == nullptr && warm_) recorded_ = library_.record([this] { run_steps(); });
  if (recorded_ != nullptr)
    recorded_->run(nullptr, nullptr, nullptr);
  else
    run_steps();
  warm_ = true;
}

// Where results lie. With the host they are used again where nobody holds them; from a device they
// come when somebody asks for them.
void Executable::show_results() {
  results_.resize(plan_.outputs.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    const Access& output = plan_.outputs[i];
    const Type& type = output.value.type();
    std::byte* at =
        address(output.at.slot) + static_cast<size_t>(output.at.offset) * size_of(type.dtype);
    if (!results_[i].defined()) results_[i] = make_leaf(op("data"), type);
    if (memory_ != nullptr) {
      results_[i]->data = nullptr;
      results_[i]->elsewhere = {memory_, at};
    } else if (results_[i]->data == nullptr) {
      const Slot& slot = plan_.slots[static_cast<size_t>(output.at.slot)];
      results_[i]->data = std::make_shared<Buffer>();
      results_[i]->data->data = at;
      results_[i]->data->bytes = type.bytes();
      results_[i]->data->owner =
          slot.space == Space::constant ? slot.value->data : workspace_->buffer;
    }
  }
}

void Executable::make_staging() {
  const size_t bytes = library_.stages_inputs() ? staged_bytes(plan_) : 0;
  if (bytes == 0) return;
  inputs_here_ = memory_->allocate_host(bytes);
  inputs_there_ = memory_->allocate(bytes);
  input_copy_ = memory_->make_side_copy(CopyDirection::to_device);
  input_copy_->allow();
}

// To their slots. Staged ones are on their way while the step before still runs.
void Executable::take_inputs(std::span<const Value> inputs) {
  size_t offset = 0;
  if (input_copy_ != nullptr) {
    input_copy_->finish();
    for (const Value& input : inputs) {
      std::memcpy(inputs_here_->data + offset, input->data->data, input.type().bytes());
      offset += aligned(input.type().bytes());
    }
    input_copy_->begin(inputs_there_->data, inputs_here_->data, offset);
    input_copy_->await();
    offset = 0;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::byte* to = address(plan_.inputs[i].at.slot);
    const std::byte* from = inputs[i]->data->data;
    const size_t bytes = inputs[i].type().bytes();
    if (memory_ == nullptr)
      std::memcpy(to, from, bytes);
    else if (input_copy_ == nullptr)
      memory_->write(to, from, bytes);
    else
      memory_->copy(to, inputs_there_->data + offset, bytes);
    offset += aligned(bytes);
  }
  if (input_copy_ != nullptr) input_copy_->allow();
}

std::span<const Value> Executable::run(std::span<const Value> inputs) {
  WEFT_CHECK(workspace_ != nullptr,
             "[run] this step was only planned (device null): it cannot run.");
  WEFT_CHECK(inputs.size() == plan_.inputs.size(), "[run] the step takes {} tensors. Got {}.",
             plan_.inputs.size(), inputs.size());
  // An input may be a result of the last run: detach keeps its bytes before they are overwritten.
  if (workspace_->last != nullptr) workspace_->last->detach_results();
  workspace_->last = this;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type& type = plan_.inputs[i].value.type();
    WEFT_CHECK(inputs[i].type() == type, "[run] input {} must be {}. Got {}.", i, to_string(type),
               to_string(inputs[i].type()));
    inputs[i].eval();  // may bring variables back to the host
  }
  if (bound_to_ != workspace_->buffer->data || bound_moves_ != VariableState::moves) {
    for (Value& result : results_) result = Value();
    bind();
  }
  lend_variables();
  if (poison_ != nullptr) poison_->begin_run(bound_to_);
  take_inputs(inputs);
  if (memory_ != nullptr && !observer_ && !timer_)
    run_recorded();
  else
    run_steps();
  if (poison_ != nullptr) poison_->end_run();
  show_results();
  return results_;
}

// Each turn leaves out a kernel, of which there are so many; one warning tells of all turns.
std::unique_ptr<Executable> make_executable(const std::function<Plan()>& plan,
                                            const KernelLibrary& library,
                                            const std::shared_ptr<Workspace>& workspace,
                                            const std::string& folder, size_t beside) {
  std::vector<std::string> refusals;
  for (;;) {
    try {
      auto made = std::make_unique<Executable>(plan(), library, workspace, folder, beside);
      if (refusals.empty()) return made;
      const size_t others = refusals.size() - 1;
      logging::warn(
          "{}{}. The step is planned again without, which may be slower.", refusals.front(),
          others == 0 ? "" : fmt::format(" and {} more (WEFT_DEBUG=1 lists them)", others));
      return made;
    } catch (const KernelsRefused& refused) {
      refusals.insert(refusals.end(), refused.refusals.begin(), refused.refusals.end());
    }
  }
}

std::unique_ptr<Executable> compile_graph(const Graph& graph, const KernelLibrary& library,
                                          std::shared_ptr<Workspace> workspace,
                                          PassOptions options) {
  options.library = &library;
  options.threads = thread_count();
  for (const Value& value : graph.nodes())  // results of steps, which nobody has read yet
    if (value->elsewhere.memory != nullptr) value.node()->fetch();
  if (library.name().starts_with("null")) workspace = nullptr;
  return make_executable([&] { return make_plan(graph, options); }, library, workspace,
                         options.offload.folder, options.beside);
}
}  // namespace weft
