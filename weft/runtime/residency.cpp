// This is one file because its two residencies, of the host with files and of a device with the
// host, answer the same questions about a plan's slots, on top of one base class.
#include "weft/runtime/residency.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/memory/memory.h"
#include "weft/base/memory/storage.h"
#include "weft/base/numbers/rounding.h"
#include "weft/device/communicator.h"
#include "weft/passes/memory/transfers.h"
#include "weft/runtime/footprint.h"
#include "weft/runtime/results.h"
#include "weft/runtime/summary.h"
#include "weft/runtime/transfers.h"

namespace weft {
namespace {
// Fills the last page of a fresh arena, so that zeros written there are detected, too.
constexpr std::byte untouched{0xa5};
constexpr size_t marked_bytes = 4096;
size_t begin_of_page(size_t end) { return (end - 1) / marked_bytes * marked_bytes; }

// Returns the first bytes of the caller's memory, zeroed.
std::shared_ptr<Buffer> part_of(std::span<std::byte> lent, size_t bytes) {
  if (bytes > lent.size())
    throw Error(ErrorKind::does_not_fit,
                "[workspace] the step needs an arena of {} bytes. Got {}. Hint: its plan tells "
                "arena_bytes beforehand.",
                bytes, lent.size());
  std::memset(lent.data(), 0, bytes);
  auto buffer = std::make_shared<Buffer>();
  buffer->data = lent.data();
  buffer->bytes = bytes;
  return buffer;
}
}  // namespace

void Workspace::reserve(size_t bytes, DeviceMemory& of) {
  if (buffer != nullptr && buffer->bytes >= bytes) return;
  memory = &of;
  if (!of.is_host()) buffer = nullptr;  // freed first, so that there are never two
  buffer = !lent.empty()             ? part_of(lent, bytes)
           : communicator != nullptr ? communicator->allocate(bytes)
                                     : of.allocate(bytes);
  if (lent.empty() && of.is_host()) buffer->populate();
  if (bytes == 0) return;
  const std::vector<std::byte> mark(bytes - begin_of_page(bytes), untouched);
  of.write(buffer->data + begin_of_page(bytes), mark.data(), mark.size());
}

void Workspace::shrink(size_t bytes) {
  if (buffer == nullptr || buffer->bytes == bytes) return;
  buffer = nullptr;
  if (bytes > 0) reserve(bytes, *memory);
}

void Workspace::detach_results() {
  if (results != nullptr) results->detach();
}

void Workspace::leave_to_results() {
  if (buffer == nullptr || !lent.empty()) return;
  results = nullptr;
  const auto lock = memory->enter();
  const size_t bytes = buffer->bytes;
  buffer = nullptr;
  reserve(bytes, *memory);
}

size_t Workspace::touched_bytes() const {
  std::array<std::byte, marked_bytes> page;
  for (size_t end = buffer == nullptr ? 0 : buffer->bytes; end > 0;) {
    const size_t begin = begin_of_page(end);
    memory->read(page.data(), buffer->data + begin, end - begin);
    const std::byte before = end == buffer->bytes ? untouched : std::byte{};
    for (; end > begin; --end)
      if (page[end - begin - 1] != before) return aligned(end);
  }
  return 0;
}

void Residency::place() {
  place_variables();
  variables_.clear();
  std::set<const Storage*> seen;
  for (const Slot& slot : plan_.slots) {
    if (slot.space == Space::arena || slot.variable < 0) continue;
    Storage& held = storage(slot);
    if (slot.space == Space::state) held.on(memory_);
    if (seen.insert(&held).second) variables_.emplace_back(&held, 0);
  }
  for (auto& [storage, moves] : variables_) moves = storage->moves();
  arena_ = workspace_.buffer->data;
}

bool Residency::has_moved() const {
  return arena_ != workspace_.buffer->data ||
         std::ranges::any_of(
             variables_, [](const auto& known) { return known.first->moves() != known.second; });
}

std::byte* Residency::address(int slot) const {
  const Slot& at = plan_.slots[static_cast<size_t>(slot)];
  switch (at.space) {
    case Space::arena:
      return workspace_.buffer->data + at.offset;
    case Space::state:
      return storage(at).on(memory_).data;
    case Space::constant:
      return constant(static_cast<size_t>(slot));
    case Space::file:
      return offloaded_address(at);
    case Space::argument:
      return arguments_[static_cast<size_t>(slot)];
  }
  return nullptr;
}

// A storage that changes its borrower waits for copies that steps of other plans began.
void Residency::lend() const {
  for (const Slot& slot : plan_.slots) {
    if (slot.space == Space::arena || slot.variable < 0) continue;
    Storage& held = storage(slot);
    if (memory_.is_host())
      held.lend_to(nullptr);
    else if (slot.space == Space::file)
      held.lend_to(&memory_);
  }
}

std::vector<VariableState*> Residency::offloaded_variables() const {
  std::vector<VariableState*> all;
  for (const Slot& slot : plan_.slots)
    if (slot.space == Space::file && slot.variable >= 0 &&
        std::ranges::find(all, bindings_.variable(slot)) == all.end())
      all.push_back(bindings_.variable(slot));
  return all;
}

size_t Residency::bytes_in(Space space) const {
  size_t bytes = 0;
  for (const Slot& slot : plan_.slots)
    if (slot.space == space) bytes += slot.bytes;
  return bytes;
}

namespace {
size_t mebibytes(size_t bytes) { return bytes >> 20; }

class HostResidency : public Residency {
 public:
  HostResidency(const BoundPlan& bound, DeviceMemory& memory, Workspace& workspace,
                std::string folder)
      : Residency(bound, memory, workspace), folder_(std::move(folder)) {}

  void check_fits(size_t, size_t beside) const override {  // compiling must not run out of memory
    const Plan* const plans[] = {&plan_};
    const size_t mapped = mapped_bytes();
    const size_t state = bytes_in(Space::state) - mapped, constants = bytes_in(Space::constant);
    const size_t others = beside + runtime_bytes(thread_count(), plans);
    try {
      weft::check_fits(
          fmt::format("the plan does not fit: its arena of {} MiB, state of {} MiB and constants "
                      "of {} MiB, and {} MiB for data, code and the compiler,",
                      mebibytes(plan_.arena_bytes), mebibytes(state), mebibytes(constants),
                      mebibytes(others)),
          plan_.arena_bytes + state + constants + others, mapped);
    } catch (const Error& error) {
      throw Error(error.kind(), "{} The largest value is {}.", error.what(), largest_value(plan_));
    }
  }

  // Allocates one file for the variables that have no file yet and for the plan's own slots.
  // Variables that were on a device return to their file.
  void place_offloaded() override {
    auto paged = [](size_t bytes) { return round_up(bytes, FileRange::alignment); };
    std::vector<VariableState*> to_move;
    const size_t own = file_ ? 0 : paged(plan_.file_bytes);
    size_t bytes = own;
    for (VariableState* variable : offloaded_variables()) {
      Storage& storage = *variable->storage;
      if (storage.file() && storage.is_on_device()) storage.on_host();
      if (storage.file()) continue;
      to_move.push_back(variable);
      bytes += paged(storage.bytes());
    }
    if (bytes == 0) return;
    const FileRange file(folder_, bytes);
    if (own > 0) file_ = file.part(0, plan_.file_bytes);
    size_t offset = own;
    for (VariableState* variable : to_move) {
      variable->storage->move_to(file.part(offset, variable->storage->bytes()));
      offset += paged(variable->storage->bytes());
    }
  }

  // Constants need no place: kernels read them from their own buffers. Populates the pages of
  // assigned state, so that a run need not.
  void place_constants() override {
    for (const Assign& assign : plan_.assigns)
      if (const Slot& slot = plan_.slots[static_cast<size_t>(assign.state_slot)];
          slot.space == Space::state)
        storage(slot).on_host().populate();
  }

  CopyKernels copies() override {
    transfers_ = nullptr;
    CopyKernels kernels;
    std::multiset<int> moving;  // slots
    for (size_t i = 0; i < plan_.launches.size(); ++i) {
      const Launch& launch = plan_.launches[i];
      if (launch.kind == Launch::Kind::await) {
        const auto moved = moving.find(launch.operands[0].at.slot);
        if (moved == moving.end()) continue;  // a collective is awaited
        moving.erase(moved);
        kernels.emplace_back(i, transfers_->await(launch.operands[0].at.slot));
      } else if (launch.kind == Launch::Kind::transfer) {
        if (transfers_ == nullptr) transfers_ = std::make_unique<Transfers>();
        moving.insert(memory_slot(plan_, launch));
        const bool to_memory = is_fetch(plan_, launch);
        const Access& memory = (to_memory ? launch.results : launch.operands)[0];
        const auto offset = static_cast<size_t>(memory.at.offset) * size_of(memory.value.dtype());
        kernels.emplace_back(i, transfers_->begin(range_of(file_slot(plan_, launch)), to_memory,
                                                  memory.at.slot, offset));
      }
    }
    return kernels;
  }
  void settle() override {
    if (transfers_ != nullptr) transfers_->settle();
  }

 private:
  // Returns the bytes of state that is a view of files and that the plan does not write: the
  // operating system drops these pages where memory is short.
  size_t mapped_bytes() const {
    std::vector<bool> is_assigned(plan_.slots.size());
    for (const Assign& assign : plan_.assigns)
      is_assigned[static_cast<size_t>(assign.state_slot)] = true;
    size_t bytes = 0;
    for (size_t i = 0; i < plan_.slots.size(); ++i) {
      const Slot& slot = plan_.slots[i];
      if (slot.space == Space::state && !is_assigned[i] && storage(slot).is_mapped())
        bytes += slot.bytes;
    }
    return bytes;
  }

  void place_variables() override {
    place_offloaded();
    align_assigned();
  }
  // Kernels read state at any address that is a multiple of the element's size, but they store
  // whole vectors. Assigned state that is a view of a file moves to memory of its own where the
  // file aligns it less.
  void align_assigned() {
    for (const Assign& assign : plan_.assigns) {
      const Slot& slot = plan_.slots[static_cast<size_t>(assign.state_slot)];
      if (slot.space != Space::state) continue;
      Storage& held = storage(slot);
      const auto address = reinterpret_cast<uintptr_t>(held.on_host().data);
      if (address % buffer_alignment != 0) held.move_to(Buffer::allocate(held.bytes()));
    }
  }
  std::byte* constant(size_t slot) const override {
    return bindings_.constants[slot]->buffer()->data;
  }
  std::byte* offloaded_address(const Slot&) const override { return nullptr; }

  FileRange range_of(int slot) const {
    const Slot& at = plan_.slots[static_cast<size_t>(slot)];
    return at.variable >= 0 ? storage(at).file() : file_.part(at.offset, at.type.bytes());
  }

  std::string folder_;
  FileRange file_;                        // for the plan's own slots
  std::unique_ptr<Transfers> transfers_;  // null without transfers
};

class BeginCopy : public Kernel {
 public:
  // `before` is the latest copy that uses the same host memory, or null.
  BeginCopy(CopyStream& copy, const CopyStream* before, const Launch& launch)
      : copy_(copy), before_(before) {
    const Access &from = launch.operands[0], &to = launch.results[0];
    const size_t size = size_of(from.value.dtype());
    from_ = static_cast<size_t>(from.at.offset) * size;
    to_ = static_cast<size_t>(to.at.offset) * size;
    bytes_ = from.value.type().bytes();
  }
  void run(void* const* operands, void* const* results, void*) const override {
    copy_.wait_for_kernels();
    if (before_ != nullptr) copy_.wait_for(*before_);
    copy_.begin(static_cast<std::byte*>(results[0]) + to_,
                static_cast<const std::byte*>(operands[0]) + from_, bytes_);
  }

 private:
  CopyStream& copy_;
  const CopyStream* before_;
  size_t from_, to_, bytes_;
};

class AwaitCopy : public Kernel {
 public:
  explicit AwaitCopy(CopyStream& copy) : copy_(copy) {}
  void run(void* const*, void* const*, void*) const override { copy_.kernels_wait(); }

 private:
  CopyStream& copy_;
};

class DeviceResidency : public Residency {
 public:
  using Residency::Residency;

  void check_fits(size_t staged, size_t) const override {
    const size_t state = bytes_in(Space::state), constants = bytes_in(Space::constant);
    const size_t bytes = plan_.arena_bytes + state + constants + staged;
    const MemoryUse use = memory_.use();
    if (const size_t there = use.available + held_bytes(); bytes > there)
      throw Error(ErrorKind::does_not_fit,
                  "the plan does not fit: its arena of {} MiB, state of {} MiB and constants of {} "
                  "MiB take {} MiB of the device's memory, which has {} MiB, {} of them free. The "
                  "largest value is {}.",
                  mebibytes(plan_.arena_bytes), mebibytes(state), mebibytes(constants),
                  mebibytes(bytes), mebibytes(use.total), mebibytes(there), largest_value(plan_));
    if (use.largest > 0 && plan_.arena_bytes > use.largest)
      throw Error(ErrorKind::does_not_fit,
                  "the plan does not fit: its arena is one allocation of {} MiB. The device allows "
                  "at most {} MiB per allocation, of {} MiB in total.",
                  mebibytes(plan_.arena_bytes), mebibytes(use.largest), mebibytes(use.total));
  }

  // Offloads to host memory, as the host offloads to files.
  void place_offloaded() override {
    std::vector<VariableState*> to_move;
    const size_t own = host_ == nullptr ? aligned(plan_.file_bytes) : 0;
    size_t bytes = own;
    for (VariableState* variable : offloaded_variables()) {
      const std::shared_ptr<Buffer>& buffer = variable->storage->buffer();
      if (buffer != nullptr && buffer->pinned) continue;
      to_move.push_back(variable);
      bytes += aligned(variable->storage->bytes());
    }
    if (bytes == 0) return;
    weft::check_fits("the plan does not fit: what is offloaded to host memory", bytes);
    const std::shared_ptr<Buffer> memory = memory_.allocate_host(bytes);
    if (own > 0) host_ = memory;
    size_t offset = own;
    for (VariableState* variable : to_move) {
      Storage& storage = *variable->storage;
      storage.move_to(Buffer::part(memory, offset, storage.bytes()));
      offset += aligned(storage.bytes());
    }
  }

  void place_constants() override {
    constants_.resize(plan_.slots.size());
    for (size_t i = 0; i < plan_.slots.size(); ++i) {
      if (plan_.slots[i].space != Space::constant) continue;
      const size_t bytes = plan_.slots[i].type.bytes();
      constants_[i] = memory_.allocate(bytes);
      if (const auto& elements = bindings_.constants[i]; elements != nullptr)
        memory_.write(constants_[i]->data, elements->buffer()->data, bytes);
    }
  }

  CopyKernels copies() override {
    CopyKernels kernels;
    if (!copies_.empty()) return kernels;
    std::map<int, CopyStream*> latest;  // by slot, on the device and on the host
    for (size_t i = 0; i < plan_.launches.size(); ++i) {
      const Launch& launch = plan_.launches[i];
      if (launch.kind == Launch::Kind::await) {
        const auto copy = latest.find(launch.operands[0].at.slot);
        if (copy == latest.end()) continue;  // a collective is awaited
        kernels.emplace_back(i, std::make_unique<AwaitCopy>(*copy->second));
      } else if (launch.kind == Launch::Kind::transfer) {
        const bool to_device = is_fetch(plan_, launch);
        copies_.push_back(memory_.make_copy_stream(to_device ? CopyDirection::to_device
                                                             : CopyDirection::to_host));
        CopyStream* const copy = copies_.back().get();
        CopyStream*& before = latest[file_slot(plan_, launch)];
        kernels.emplace_back(i, std::make_unique<BeginCopy>(*copy, before, launch));
        before = latest[memory_slot(plan_, launch)] = copy;
      }
    }
    return kernels;
  }

 private:
  // Returns the plan's bytes that the device holds already: the arena, and variables placed there.
  size_t held_bytes() const {
    size_t bytes = workspace_.buffer == nullptr ? 0 : workspace_.buffer->bytes;
    for (const Slot& slot : plan_.slots)
      if (slot.space == Space::state && storage(slot).has_place_on(memory_)) bytes += slot.bytes;
    return bytes;
  }

  // Allocates variables that have no place yet, in as few allocations as the device allows, because
  // drivers round each allocation up.
  void place_variables() override {
    place_offloaded();
    std::vector<Storage*> group;
    size_t bytes = 0;
    auto place_group = [&] {
      const std::shared_ptr<Buffer> all = memory_.allocate(bytes);
      size_t offset = 0;
      for (Storage* storage : group) {
        storage->move_to(memory_, Buffer::part(all, offset, storage->bytes()));
        offset += aligned(storage->bytes());
      }
      group.clear();
      bytes = 0;
    };
    const size_t largest = memory_.use().largest;
    std::set<const Storage*> seen;
    for (const Slot& slot : plan_.slots) {
      if (slot.space != Space::state) continue;
      Storage* held = &storage(slot);
      if (held->has_place_on(memory_) || !seen.insert(held).second) continue;
      if (largest > 0 && !group.empty() && bytes + aligned(slot.bytes) > largest) place_group();
      group.push_back(held);
      bytes += aligned(slot.bytes);
    }
    if (!group.empty()) place_group();
  }

  std::byte* constant(size_t slot) const override { return constants_[slot]->data; }
  std::byte* offloaded_address(const Slot& slot) const override {
    return slot.variable >= 0 ? storage(slot).buffer()->data : host_->data + slot.offset;
  }

  std::vector<std::shared_ptr<Buffer>> constants_;  // by slot; null: no constant
  std::shared_ptr<Buffer> host_;                    // for the plan's own slots
  std::vector<std::unique_ptr<CopyStream>> copies_;
};
}  // namespace

std::unique_ptr<Residency> make_residency(const BoundPlan& bound, DeviceMemory& memory,
                                          Workspace& workspace, const std::string& folder) {
  if (memory.is_host()) return std::make_unique<HostResidency>(bound, memory, workspace, folder);
  return std::make_unique<DeviceResidency>(bound, memory, workspace);
}

}  // namespace weft
