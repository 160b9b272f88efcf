#include "weft/ir/value.h"

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "weft/base/storage.h"
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

Attrs::Attrs(std::initializer_list<Entry> entries) : entries_(entries) {}

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

namespace {
detail::Evaluate how_to_evaluate = nullptr;
}  // namespace
void detail::set_evaluate(Evaluate how) { how_to_evaluate = how; }

const Value& Value::eval() const {
  (void)type();  // throws for an empty handle
  if (!node_->has_data()) how_to_evaluate(std::span(this, 1));
  return *this;
}

double Value::item(std::source_location where) const {
  CallSite here(where, "item");
  WEFT_CHECK(elements() == 1, "[item] needs a tensor with one element. Got {}.", to_string(type()));
  return load(eval()->data(), dtype(), 0);
}

std::vector<double> Value::to_doubles(std::source_location where) const {
  CallSite here(where, "to_doubles");
  eval();
  std::vector<double> all(static_cast<size_t>(elements()));
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = load(node_->data(), dtype(), static_cast<int64_t>(i));
  return all;
}

template <class T>
std::vector<T> Value::to_vector(std::source_location where) const {
  CallSite here(where, "to_vector");
  WEFT_CHECK(dtype() == dtype_of<T>, "[to_vector] the tensor holds {}, not {}.", name(dtype()),
             name(dtype_of<T>));
  eval();
  std::vector<T> all(static_cast<size_t>(elements()));
  if constexpr (std::is_same_v<T, bool>) {
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = load(node_->data(), DType::boolean, static_cast<int64_t>(i)) != 0;
  } else {
    std::copy_n(reinterpret_cast<const T*>(node_->data()), all.size(), all.data());
  }
  return all;
}
template std::vector<float> Value::to_vector(std::source_location) const;
template std::vector<double> Value::to_vector(std::source_location) const;
template std::vector<int64_t> Value::to_vector(std::source_location) const;
template std::vector<int32_t> Value::to_vector(std::source_location) const;
template std::vector<int16_t> Value::to_vector(std::source_location) const;
template std::vector<uint16_t> Value::to_vector(std::source_location) const;
template std::vector<uint32_t> Value::to_vector(std::source_location) const;
template std::vector<int8_t> Value::to_vector(std::source_location) const;
template std::vector<uint8_t> Value::to_vector(std::source_location) const;
template std::vector<bool> Value::to_vector(std::source_location) const;

Tensor::~Tensor() = default;

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

namespace {
thread_local bool in_call = false;

// Extracts "relu" from "weft::Value weft::relu(weft::Arg)".
std::string_view function_name(std::string_view signature) {
  std::string_view name = signature.substr(0, signature.find('('));
  return name.substr(name.find_last_of(": ") + 1);
}
}  // namespace

CallSite::CallSite(const UserLocation& where, std::source_location callee)
    : CallSite(where, function_name(callee.function_name())) {}
CallSite::CallSite(const UserLocation& where, std::string_view op)
    : outermost_(!in_call), saved_(current_origin()) {
  if (!outermost_) return;
  in_call = true;
  UserLocation user = saved_.where.file == nullptr ? where : saved_.where;
  user.op = op;
  detail::set_origin({user, saved_.module, saved_.backward});
}
CallSite::~CallSite() {
  if (!outermost_) return;
  in_call = false;
  detail::set_origin(saved_);
}

OriginOverride::OriginOverride(const Origin& to) : saved_(origin) { detail::set_origin(to); }
OriginOverride::~OriginOverride() { detail::set_origin(saved_); }

}  // namespace weft
