#include "weft/ir/node.h"

#include <utility>

#include "weft/base/memory/storage.h"
#include "weft/ir/op_def.h"

namespace weft {

Node::~Node() {
  // The outermost destructor drains a list: deep recursion would overflow the stack.
  thread_local std::vector<Value>* draining = nullptr;
  if (draining != nullptr) {
    for (Value& input : inputs) draining->push_back(std::move(input));
    if (expression.defined()) draining->push_back(std::move(expression));
    if (annotations.composite.defined()) draining->push_back(std::move(annotations.composite));
    return;
  }
  std::vector<Value> pending = std::move(inputs);
  pending.push_back(std::move(expression));
  pending.push_back(std::move(annotations.composite));
  draining = &pending;
  while (!pending.empty()) {
    Value last = std::move(pending.back());
    pending.pop_back();
  }
  draining = nullptr;
}

bool Node::has_data() const {
  return storage != nullptr && !storage->is_on_device() && storage->buffer() != nullptr;
}
std::byte* Node::data() const { return storage->buffer()->data; }
bool Node::is(std::string_view op_name) const { return op->name == op_name; }

const std::string& Node::module() const {
  static const std::string none;
  return origin.module != nullptr ? *origin.module : none;
}

}  // namespace weft
