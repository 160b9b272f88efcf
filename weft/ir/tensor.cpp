#include "weft/ir/tensor.h"

#include <algorithm>
#include <type_traits>

#include "weft/ir/node.h"

namespace weft {

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

}  // namespace weft
