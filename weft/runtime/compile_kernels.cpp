#include "weft/runtime/compile_kernels.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "weft/base/host/parallel.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/host/team.h"
#include "weft/base/logging.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/memory/storage.h"
#include "weft/device/communicator.h"
#include "weft/ir/op_def.h"
#include "weft/ops/collective.h"

namespace weft {

Error error_of_launch(const Plan& plan, size_t i, const Error& error, bool waited) {
  const Launch& failed = plan.launches[i];
  std::string text = error.what();
  text.insert(std::min(text.find(" Hint: "), text.size()),
              fmt::format(" {} {}, {} of {}{}{}.", waited ? "Kernel" : "At or before kernel",
                          failed.kernel, i + 1, plan.launches.size(),
                          failed.module.empty() ? "" : ", of ", failed.module));
  return {error.kind(), text};
}

namespace {
// Returns everything that a library can tell kernels apart by.
std::string signature_of(const Launch& launch) {
  std::string text = launch.kernel + to_string(launch.body.front()->attrs) +
                     to_string(launch.body.front()->annotations);
  if (launch.padded) text += " padded";
  for (const auto* accesses : {&launch.operands, &launch.results})
    for (const auto& [value, at] : *accesses)
      text += fmt::format(" {}+{}{}", to_string(value.type()), at.offset, to_string(at.strides));
  return text;
}

// Refusals collects the kernels that libraries refused, by launch.
class Refusals {
 public:
  Refusals(const Plan& plan, const KernelChooser& chooser) : plan_(plan), chooser_(chooser) {}

  // Returns whether an equal launch was refused, and then records this one as refused, too.
  bool covers(size_t launch) {
    if (alike_.empty()) return false;
    const auto known = alike_.find(signature_of(plan_.launches[launch]));
    if (known == alike_.end()) return false;
    add(launch, Error(known->second));
    return true;
  }
  void add(size_t launch, const Error& error) {
    const Launch& refused = plan_.launches[launch];
    alike_.try_emplace(signature_of(refused), error);
    std::string& said = by_launch_[launch];
    said = fmt::format("{} Refused: {}{}{}", error.what(), refused.kernel,
                       refused.module.empty() ? "" : " of ", refused.module);
    logging::debug(1, "refused: {}", said);
    chooser_.avoid(refused);
  }
  void check() const {
    if (by_launch_.empty()) return;
    std::vector<std::string> all;
    all.reserve(by_launch_.size());
    for (const auto& [launch, said] : by_launch_) all.push_back(said);
    throw KernelsRefused(std::move(all));
  }

 private:
  const Plan& plan_;
  const KernelChooser& chooser_;
  std::map<size_t, std::string> by_launch_;
  std::map<std::string, Error> alike_;  // by signature
};

// Kernels are compiled before they know variables, as one plan serves several sets of them.
void bind_variables(const BoundPlan& bound, const PlanKernels& kernels) {
  const Plan& plan = bound.plan;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i] == nullptr) continue;
    std::vector<std::shared_ptr<VariableState>> variables;
    for (const Access& operand : plan.launches[i].operands) {
      const int index = plan.slots[static_cast<size_t>(operand.at.slot)].variable;
      variables.push_back(index < 0 ? nullptr
                                    : bound.bindings.variables[static_cast<size_t>(index)]);
    }
    kernels[i]->bind_variables(variables);
  }
}
}  // namespace

// Generated kernels and library kernels for a device compile on helper threads. Library kernels for
// the host use its thread team, so the calling thread compiles them.
PlanKernels compile_kernels(const BoundPlan& bound, const KernelCompiler& compiler,
                            const KernelChooser& chooser, DeviceMemory& memory) {
  const Plan& plan = bound.plan;
  Stopwatch watch;
  PlanKernels kernels(plan.launches.size());
  Refusals refusals(plan, chooser);
  std::vector<size_t> here, apart;
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const Launch::Kind kind = plan.launches[i].kind;
    if (kind == Launch::Kind::fused || (kind == Launch::Kind::library && !memory.is_host()))
      apart.push_back(i);
    else if (kind == Launch::Kind::library)
      here.push_back(i);
  }
  std::atomic<size_t> next = 0, compiled = 0;
  std::exception_ptr failure;
  std::optional<Error> measured;  // error of the kernel that lost the device while it was measured
  std::mutex mutex;
  logging::LongWork compiling(fmt::format("compiling {} kernels", here.size() + apart.size()));
  auto compile = [&](size_t i) {
    logging::debug(4, "kernel {} {}", i, plan.launches[i].kernel);
    {
      std::lock_guard lock(mutex);
      if (refusals.covers(i)) return;
    }
    try {
      kernels[i] = compiler.compile(plan, plan.launches[i]);
    } catch (const LostWhileMeasured& lost) {
      std::lock_guard lock(mutex);
      if (!measured) measured = error_of_launch(plan, i, lost, true);
      throw;
    } catch (const Error& error) {
      memory.finish();  // throws for a lost device, which is no refusal
      if (!chooser.may_refuse(plan.launches[i]) || error.kind() == ErrorKind::does_not_fit) throw;
      std::lock_guard lock(mutex);
      refusals.add(i, error);
    }
    compiling.go_on(fmt::format("{} are done", ++compiled));
  };
  auto work = [&, &team = current_team()] {
    const TeamScope same(team);
    try {
      for (size_t i = next++; i < apart.size(); i = next++) compile(apart[i]);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = apart.size();
    }
  };
  {
    std::vector<std::jthread> helpers;
    try {
      for (int64_t i = 1; i < std::min<int64_t>(compile_threads(), std::ssize(apart)); ++i)
        helpers.emplace_back(work);
    } catch (const std::system_error&) {
      logging::debug(1, "only {} threads compile: the system allows no more", helpers.size() + 1);
    }
    for (size_t i : here) compile(i);
    work();
  }
  if (measured) throw Error(*measured);
  if (failure) std::rethrow_exception(failure);
  refusals.check();
  bind_variables(bound, kernels);
  logging::debug(1, "kernels         {:8.2f} ms", watch.milliseconds());
  return kernels;
}

namespace {
// Returns the bytes of the substitute for an operand or result outside of the arena.
size_t outside_bytes(const Plan& plan, const Access& access) {
  const Slot& slot = plan.slots[static_cast<size_t>(access.at.slot)];
  return slot.space == Space::arena ? 0 : aligned(std::max<size_t>(slot.bytes, 1));
}

void try_kernel(const Plan& plan, const Kernel& kernel, size_t launch, const Residency& residency,
                std::byte* outside) {
  auto addresses_of = [&](const std::vector<Access>& accesses) {
    std::vector<void*> addresses;
    for (const Access& access : accesses) {
      const size_t bytes = outside_bytes(plan, access);
      addresses.push_back(bytes == 0 ? residency.address(access.at.slot) : outside);
      outside += bytes;
    }
    return addresses;
  };
  const Launch& tried = plan.launches[launch];
  const std::vector<void*> operands = addresses_of(tried.operands),
                           results = addresses_of(tried.results);
  kernel.run(operands.data(), results.data(),
             tried.workspace_slot >= 0 ? residency.address(tried.workspace_slot) : nullptr);
}
}  // namespace

// Libraries that refuse a kernel only when it runs do so here, before a step has updated anything.
// Equal kernels are tried once. Variables have no place on the device yet and must not be written,
// so separate memory stands in for operands and results outside of the arena.
void try_kernels(const Plan& plan, const PlanKernels& kernels, const KernelChooser& chooser,
                 DeviceMemory& memory, const Residency& residency) {
  Refusals refusals(plan, chooser);
  std::set<std::string> signatures;
  std::vector<size_t> distinct;
  size_t most = 0;
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const Launch& launch = plan.launches[i];
    if (launch.kind != Launch::Kind::library || !chooser.may_refuse(launch)) continue;
    if (!signatures.insert(signature_of(launch)).second) continue;
    distinct.push_back(i);
    size_t bytes = 0;
    for (const auto* accesses : {&launch.operands, &launch.results})
      for (const Access& access : *accesses) bytes += outside_bytes(plan, access);
    most = std::max(most, bytes);
  }
  const std::shared_ptr<Buffer> outside = most > 0 ? memory.allocate(most) : nullptr;
  for (const size_t i : distinct) {
    try {
      try_kernel(plan, *kernels[i], i, residency, outside == nullptr ? nullptr : outside->data);
      if (memory.is_synchronous()) memory.finish();
    } catch (const Error& error) {
      try {
        memory.finish();
      } catch (const Error& lost) {  // the device is lost, so no other kernel would help
        throw error_of_launch(plan, i, lost, memory.is_synchronous());
      }
      refusals.add(i, error);
    }
  }
  memory.finish();
  refusals.check();
}

void share_gathered(const BoundPlan& bound, Communicator& ranks) {
  std::vector<Storage*> gathered;
  size_t bytes = 0;
  for (const Launch& launch : bound.plan.launches) {
    if (launch.kind != Launch::Kind::collective) continue;
    const Access& result = launch.results[0];
    const Slot& slot = bound.plan.slots[static_cast<size_t>(result.at.slot)];
    const VariableState* const variable = bound.bindings.variable(slot);
    if (slot.space != Space::state || variable == nullptr) continue;
    Storage& storage = *variable->storage;
    if (collective_of(*launch.body.front().node()).kind != Collective::Kind::all_gather ||
        result.at.offset != 0 || result.value.type().bytes() != storage.bytes() ||
        ranks.is_common(storage.on_host().data))
      continue;
    gathered.push_back(&storage);
    bytes += aligned(storage.bytes());
  }
  const std::shared_ptr<Buffer> all = bytes > 0 ? ranks.allocate_common(bytes) : nullptr;
  if (all == nullptr) return;
  size_t offset = 0;
  for (Storage* storage : gathered) {
    storage->move_to(Buffer::part(all, offset, storage->bytes()));
    offset += aligned(storage->bytes());
  }
}

namespace {
// Runs one kernel after another, which are of one launch.
class Both : public Kernel {
 public:
  Both(std::unique_ptr<Kernel> first, std::unique_ptr<Kernel> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  void run(void* const* operands, void* const* results, void* workspace) const override {
    first_->run(operands, results, workspace);
    second_->run(operands, results, workspace);
  }
  void bind(void* const* operands, void* const* results, void* workspace) const override {
    first_->bind(operands, results, workspace);
    second_->bind(operands, results, workspace);
  }

 private:
  std::unique_ptr<Kernel> first_, second_;
};

bool share_bytes(const Slot& a, const Slot& b) {
  return a.space == Space::arena && b.space == Space::arena && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}
// Returns whether a launch must wait until the other ranks are done with a slot of a collective: it
// writes there, or reads a variable that they may be writing.
bool disturbs(const Plan& plan, const Launch& launch, int slot) {
  const Slot& of = plan.slots[static_cast<size_t>(slot)];
  const auto overlaps = [&](int other) {
    return other == slot || share_bytes(plan.slots[static_cast<size_t>(other)], of);
  };
  const auto is_of_slot = [&](const Access& access) { return access.at.slot == slot; };
  return std::ranges::any_of(launch.results,
                             [&](const Access& access) { return overlaps(access.at.slot); }) ||
         (launch.workspace_slot >= 0 && overlaps(launch.workspace_slot)) ||
         (of.space != Space::arena && std::ranges::any_of(launch.operands, is_of_slot));
}
// Returns the launch after which poison fills a slot, or the last one where it fills none.
size_t filled_after(const Plan& plan, int slot) {
  const size_t end = plan.launches.size() - 1;
  const Slot& of = plan.slots[static_cast<size_t>(slot)];
  return of.space == Space::arena && of.last >= 0 ? std::min(static_cast<size_t>(of.last), end)
                                                  : end;
}

// Has the ranks settle a collective before the launch that needs it, or before the last one.
void place_settle(const Plan& plan, const Launch& collective, size_t await, bool poisons,
                  std::unique_ptr<Kernel> settle, PlanKernels& kernels) {
  const int operand = collective.operands[0].at.slot, result = collective.results[0].at.slot;
  const size_t last =
      poisons ? std::max(await, std::min(filled_after(plan, operand), filled_after(plan, result)))
              : plan.launches.size() - 1;
  size_t at = await + 1;
  while (at < last && !disturbs(plan, plan.launches[at], operand) &&
         !disturbs(plan, plan.launches[at], result))
    ++at;
  at = std::min(at, last);
  while (at > await && kernels[at] == nullptr) --at;  // transfers get their kernels later
  if (at > await)
    kernels[at] = std::make_unique<Both>(std::move(settle), std::move(kernels[at]));
  else
    kernels[at] = std::make_unique<Both>(std::move(kernels[at]), std::move(settle));
}
}  // namespace

void compile_collectives(const Plan& plan, Communicator* ranks, bool poisons,
                         PlanKernels& kernels) {
  struct Begun {
    const Launch* launch = nullptr;
    std::unique_ptr<Kernel> await, settle;
  };
  std::map<int, Begun> begun;  // by the slot of the result
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const Launch& launch = plan.launches[i];
    if (launch.kind == Launch::Kind::collective) {
      WEFT_CHECK(ranks != nullptr,
                 "[run] the step is for several ranks, which this process has not joined. Hint: "
                 "weft launch.");
      Communicator::Exchange exchange = ranks->compile(plan, launch);
      kernels[i] = std::move(exchange.begin);
      begun[launch.results[0].at.slot] = {&launch, std::move(exchange.await),
                                          std::move(exchange.settle)};
    } else if (launch.kind == Launch::Kind::await) {
      const auto found = begun.find(launch.operands[0].at.slot);
      if (found == begun.end()) continue;
      Begun ended = std::move(begun.extract(found).mapped());
      kernels[i] = std::move(ended.await);
      if (ended.settle != nullptr)
        place_settle(plan, *ended.launch, i, poisons, std::move(ended.settle), kernels);
    }
  }
}

}  // namespace weft
