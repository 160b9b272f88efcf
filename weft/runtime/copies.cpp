#include "weft/runtime/copies.h"

#include <algorithm>
#include <mutex>
#include <span>

#include "weft/base/host/parallel.h"
#include "weft/base/memory/storage.h"
#include "weft/base/numbers/narrow.h"
#include "weft/runtime/executable.h"

namespace weft {
namespace {
// Held while copies are refreshed: steps of several sessions may read one variable, whose copies
// they share.
std::recursive_mutex refreshing;

template <class Narrow>
void round_elements(const std::byte* from, std::byte* to, int64_t count) {
  const auto* const wide = reinterpret_cast<const float*>(from);
  auto* const narrow = reinterpret_cast<Narrow*>(to);
  parallel_for(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) narrow[i] = weft::narrow<Narrow>(wide[i]);
  });
}

void make_anew(VariableState& copy) {
  Storage& source = *copy.copy_of->storage;
  const Type& type = copy.type;
  std::shared_ptr<Buffer> elements;
  if (source.is_on_device()) {
    elements = Buffer::allocate(source.bytes());
    source.copy_to(elements->data);
  } else {
    source.on_host();
    elements = source.buffer();
  }
  const std::shared_ptr<Buffer> rounded = Buffer::allocate(type.bytes());
  if (type.dtype == DType::bf16)
    round_elements<BFloat16>(elements->data, rounded->data, type.elements());
  else
    round_elements<Half>(elements->data, rounded->data, type.elements());
  copy.storage->copy_from(rounded->data, type.bytes());
  copy.storage->note_write();  // for kernels that keep the copy packed
  copy.storage->note_copy_of(source);
}

// Returns whether a source was written since the derived variable was computed.
bool is_stale(const VariableState& derived) {
  return !std::ranges::equal(derived.derivation->sources, derived.derivation->seen, {},
                             [](const auto& source) { return source->storage->writes(); });
}

// Computes derived variables by one plan.
void derive_anew(std::span<const std::shared_ptr<VariableState>> stale,
                 const KernelLibrary& library) {
  Graph graph;
  for (const auto& derived : stale) graph.outputs.push_back(derived->derivation->expression);
  PassOptions options;
  // This plan is the one that computes what is derived. It runs once after a weight was written,
  // for which packing does not pay.
  options.step.derive_weights = options.step.pack_weights = false;
  const auto executable =
      compile_graph(graph, library, std::make_shared<Workspace>(), std::move(options));
  const std::span<const Value> elements = executable->run({});
  for (size_t i = 0; i < stale.size(); ++i) {
    VariableState& derived = *stale[i];
    elements[i]->storage->on_host();
    derived.storage->copy_from(elements[i]->data(), derived.type.bytes());
    derived.storage->note_write();
    derived.derivation->seen.clear();
    for (const auto& source : derived.derivation->sources)
      derived.derivation->seen.push_back(source->storage->writes());
  }
}
}  // namespace

Copies::Copies(const BoundPlan& bound, const KernelLibrary& library) : library_(library) {
  const Plan& plan = bound.plan;
  const auto variable = [&](int slot) -> std::shared_ptr<VariableState> {
    const int index = plan.slots[static_cast<size_t>(slot)].variable;
    return index < 0 ? nullptr : bound.bindings.variables[static_cast<size_t>(index)];
  };
  for (const Launch& launch : plan.launches)
    for (const Access& operand : launch.operands)
      if (std::shared_ptr<VariableState> state = variable(operand.at.slot); state != nullptr) {
        auto& list = state->derivation != nullptr ? derived_ : read_;
        const bool follows_others = state->derivation != nullptr || state->copy_of != nullptr;
        if (follows_others && std::ranges::find(list, state) == list.end())
          list.push_back(std::move(state));
      }
  for (const Assign& assign : plan.assigns) assigned_.push_back(variable(assign.state_slot));
}

void Copies::refresh() const {
  if (read_.empty() && derived_.empty()) return;
  const std::lock_guard lock(refreshing);  // deriving runs a plan, which refreshes what it reads
  for (const auto& copy : read_)
    if (!copy->storage->is_copy_of(*copy->copy_of->storage)) make_anew(*copy);
  std::vector<std::shared_ptr<VariableState>> stale;  // allocates nothing while it stays empty
  for (const auto& derived : derived_)
    if (is_stale(*derived)) stale.push_back(derived);
  if (!stale.empty()) derive_anew(stale, library_);
}

void Copies::note_writes() const {
  for (const auto& state : assigned_) state->storage->note_write();
}

void Copies::note_copies() const {
  for (const auto& state : assigned_)
    if (state->copy_of != nullptr) state->storage->note_copy_of(*state->copy_of->storage);
}

}  // namespace weft
