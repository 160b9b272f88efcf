#include "weft/runtime/results.h"

#include <utility>

#include "weft/base/logging.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/ir/op_def.h"

namespace weft {

Results::Results(const BoundPlan& bound, const Residency& residency, DeviceMemory& memory,
                 std::shared_ptr<Workspace> workspace)
    : plan_(bound.plan),
      bindings_(bound.bindings),
      residency_(residency),
      memory_(memory),
      workspace_(std::move(workspace)),
      values_(plan_.outputs.size()) {}

Results::~Results() {
  if (workspace_->results != this) return;
  workspace_->results = nullptr;
  try {
    detach();
  } catch (const Error& lost) {  // reported to whoever reads a result
    logging::debug(1, "{}", lost.what());
  }
}

void Results::claim_arena() {
  if (have_left_) forget();
  workspace_->detach_results();
  workspace_->results = this;
}

void Results::detach() {
  for (Value& value : values_) {
    if (!value.defined() || value.shared().use_count() < 2) continue;
    if (value->storage->is_on(memory_)) value->storage->move_to_own_memory();
    value = Value();
  }
}

std::span<const Value> Results::show() {
  for (size_t i = 0; i < values_.size(); ++i) {
    const Access& output = plan_.outputs[i];
    const Type& type = output.value.type();
    if (!values_[i].defined()) values_[i] = make_leaf(op("data"), type);
    std::shared_ptr<Storage>& storage = values_[i]->storage;
    if (storage != nullptr && storage->is_on(memory_)) continue;
    const auto slot = static_cast<size_t>(output.at.slot);
    auto view = std::make_shared<Buffer>();
    view->data = residency_.address(output.at.slot) +
                 static_cast<size_t>(output.at.offset) * size_of(type.dtype);
    view->bytes = type.bytes();
    view->owner = plan_.slots[slot].space == Space::constant ? bindings_.constants[slot]->buffer()
                                                             : workspace_->buffer;
    storage = std::make_shared<Storage>(memory_, std::move(view));
  }
  if (workspace_->moves_results) leave_arena();
  return values_;
}

void Results::leave_arena() {
  for (const Value& value : values_) value->storage->move_to_own_memory();
  workspace_->results = nullptr;
  have_left_ = true;
}

void Results::forget() {
  for (Value& value : values_) value = Value();
  have_left_ = false;
}

void Results::release() {
  forget();
  if (workspace_->results == this) workspace_->results = nullptr;
  workspace_->buffer = nullptr;
}

}  // namespace weft
