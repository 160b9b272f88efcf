#include "weft/ir/value.h"

#include <mutex>
#include <unordered_set>

#include "weft/base/buffer.h"
#include "weft/base/device_memory.h"
#include "weft/ir/op_def.h"

namespace weft {
namespace {
thread_local Origin origin;
}  // namespace

const std::string& interned(const std::string& text) {
  static std::unordered_set<std::string> pool;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return *pool.insert(text).first;
}

std::string to_string(const Type& type) {
  return std::string(name(type.dtype)) + to_string(type.shape);
}

size_t Type::bytes() const {
  size_t count = static_cast<size_t>(elements()), bytes = 0;
  WEFT_CHECK(!__builtin_mul_overflow(count, size_of(dtype), &bytes),
             "[shape] {} has more bytes than can be counted.", to_string(*this));
  return bytes;
}

const Attr* Attrs::find(std::string_view key) const {
  for (const Entry& entry : entries_)
    if (entry.key == key) return &entry.value;
  return nullptr;
}
const Attr& Attrs::get(std::string_view key) const {
  const Attr* attr = find(key);
  WEFT_ASSERT(attr != nullptr, "missing attribute {}", key);
  return *attr;
}
int64_t Attrs::integer(std::string_view key) const { return std::get<int64_t>(get(key)); }
double Attrs::number(std::string_view key) const {
  const Attr& attr = get(key);
  if (auto* integer = std::get_if<int64_t>(&attr)) return static_cast<double>(*integer);
  return std::get<double>(attr);
}
const std::string& Attrs::text(std::string_view key) const {
  return std::get<std::string>(get(key));
}
const Dims& Attrs::dims(std::string_view key) const { return std::get<Dims>(get(key)); }
Attrs Attrs::with(Entry more) const {
  Attrs all = *this;
  all.entries_.push_back(std::move(more));
  return all;
}

const Type& Value::type() const {
  if (node_ == nullptr) {
    std::string_view op = current_user_location().op;
    WEFT_CHECK(false, "[{}] this tensor is empty: it was never assigned.",
               op.empty() ? "tensor" : op);
  }
  return node_->type;
}
const Shape& Value::shape() const { return type().shape; }
DType Value::dtype() const { return type().dtype; }
int Value::rank() const { return shape().size(); }
int64_t Value::dim(int axis) const { return shape()[normalize_axis(axis, rank(), "dim")]; }
int64_t Value::elements() const { return type().elements(); }

Node::~Node() {
  // A chain of a million nodes must not recurse a million deep: the outermost destructor drains a
  // list.
  thread_local std::vector<Value>* draining = nullptr;
  if (draining != nullptr) {
    for (Value& input : inputs) draining->push_back(std::move(input));
    if (expression.defined()) draining->push_back(std::move(expression));
    return;
  }
  std::vector<Value> pending = std::move(inputs);
  pending.push_back(std::move(expression));
  draining = &pending;
  while (!pending.empty()) {
    Value last = std::move(pending.back());
    pending.pop_back();
  }
  draining = nullptr;
}

bool Node::is(std::string_view op_name) const { return op->name == op_name; }
void Node::fetch() {
  std::shared_ptr<Buffer> here = Buffer::allocate(type.bytes());
  elsewhere.memory->read(here->data, elsewhere.at, type.bytes());
  data = std::move(here);
  elsewhere = {};
}

const std::string& Node::module() const {
  static const std::string none;
  return origin.module != nullptr ? *origin.module : none;
}

namespace detail {
void set_origin(const Origin& to) {
  origin = to;
  set_current_user_location(to.where);
}
}  // namespace detail

OriginScope::OriginScope(const std::string& module) : OriginScope(module, origin.where) {}
OriginScope::OriginScope(const std::string& module, UserLocation where) : saved_(origin) {
  detail::set_origin(
      {saved_.where.file != nullptr ? saved_.where : where, &interned(module), saved_.backward});
}
OriginScope::~OriginScope() { detail::set_origin(saved_); }
Origin current_origin() { return origin; }

OriginOverride::OriginOverride(const Origin& to) : saved_(origin) { detail::set_origin(to); }
OriginOverride::~OriginOverride() { detail::set_origin(saved_); }

}  // namespace weft
