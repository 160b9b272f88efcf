#include "weft/onnx/net/call.h"

#include <unordered_set>

#include "weft/base/memory/storage.h"
#include "weft/onnx/net/interpreter.h"

namespace weft::onnx {
namespace {
constexpr int64_t most_elements = int64_t{1} << 24;  // limit for constants that decide the graph
}

Tensor leaf_of(const Tensor& constant) {
  return from_buffer(constant->storage->buffer(), constant.type());
}

void Call::refuse_text(const std::string& what) const {
  throw Error(ErrorKind::data, "[onnx] {}: {}.", place_, what);
}

const Tensor& Call::operator[](size_t input) const {
  if (!has(input)) refuse("it lacks operand {}", input);
  return inputs_[input];
}

bool Call::is_constant(size_t input) const {
  return has(input) && interpreter_.is_constant(inputs_[input]);
}

void Call::note_indices(size_t input, int64_t extent) const {
  interpreter_.note_indices(inputs_[input], extent, place_);
}

int Call::bits(size_t input) const { return has(input) ? interpreter_.bits_of(inputs_[input]) : 0; }
Tensor Call::with_bits(const Tensor& result, int bits) const {
  interpreter_.set_bits(result, bits);
  return result;
}

std::vector<Tensor> Call::all() const {
  if (size() == 0) refuse("it has no operands");
  std::vector<Tensor> values;
  values.reserve(size());
  for (size_t i = 0; i < size(); ++i) values.push_back((*this)[i]);
  return values;
}

// A file of a few bytes can compute a small constant from a value of very many elements.
void Call::check_folds(size_t input) const {
  std::vector<const weft::Node*> open{inputs_[input].node()};
  std::unordered_set<const weft::Node*> seen(open.begin(), open.end());
  while (!open.empty()) {
    const weft::Node* node = open.back();
    open.pop_back();
    if (node->inputs.empty()) continue;
    if (node->type.elements() > most_elements)
      refuse(
          "operand {} ('{}') is folded from {}. At most {} elements are computed before the "
          "model runs",
          input, node_.inputs[input], to_string(node->type), most_elements);
    for (const Tensor& each : node->inputs)
      if (seen.insert(each.node()).second) open.push_back(each.node());
  }
}

std::vector<int64_t> Call::integers(size_t input) const {
  const Tensor& value = (*this)[input];
  if (!is_constant(input))
    refuse("operand {} ('{}') decides shapes and is known only when the model runs", input,
           node_.inputs[input]);
  if (is_float(value.dtype()) || value.elements() > most_elements)
    refuse("operand {} is of few integers. Got {}", input, to_string(value.type()));
  check_folds(input);
  return constant_elements(cast(value, DType::i64)).to_vector<int64_t>();
}

std::vector<double> Call::numbers(size_t input) const {
  const Tensor& value = (*this)[input];
  if (!is_constant(input))
    refuse("operand {} ('{}') must be a constant, and is known only when the model runs", input,
           node_.inputs[input]);
  if (value.elements() > most_elements)
    refuse("operand {} is of few numbers. Got {}", input, to_string(value.type()));
  check_folds(input);
  return constant_elements(value).to_doubles();
}

int64_t Call::integer_at(size_t input) const {
  const std::vector<int64_t> all = integers(input);
  if (all.size() != 1) refuse("operand {} is one number. Got {}", input, all.size());
  return all[0];
}
double Call::number_at(size_t input) const {
  const std::vector<double> all = numbers(input);
  if (all.size() != 1) refuse("operand {} is one number. Got {}", input, all.size());
  return all[0];
}

const Attribute* Call::find(std::string_view attribute) const {
  const auto found = node_.attributes.find(attribute);
  return found == node_.attributes.end() ? nullptr : &found->second;
}
template <class T>
const T* Call::find_as(std::string_view attribute, const char* kind) const {
  const Attribute* found = find(attribute);
  if (found == nullptr) return nullptr;
  const T* value = std::get_if<T>(found);
  if (value == nullptr) refuse("attribute '{}' is {}", attribute, kind);
  return value;
}

template <class T>
const T& Call::required(std::string_view attribute, const char* kind) const {
  const T* value = find_as<T>(attribute, kind);
  if (value == nullptr) refuse("it lacks attribute '{}'", attribute);
  return *value;
}

bool Call::has(std::string_view attribute) const { return find(attribute) != nullptr; }
int64_t Call::integer(std::string_view attribute) const {
  return required<int64_t>(attribute, "an integer");
}
int64_t Call::integer(std::string_view attribute, int64_t fallback) const {
  const auto* value = find_as<int64_t>(attribute, "an integer");
  return value == nullptr ? fallback : *value;
}
double Call::number(std::string_view attribute) const {
  return required<double>(attribute, "a number");
}
double Call::number(std::string_view attribute, double fallback) const {
  const auto* value = find_as<double>(attribute, "a number");
  return value == nullptr ? fallback : *value;
}
std::string Call::text(std::string_view attribute, const std::string& fallback) const {
  const auto* value = find_as<std::string>(attribute, "a text");
  return value == nullptr ? fallback : *value;
}
std::vector<int64_t> Call::integers(std::string_view attribute) const {
  const auto* value = find_as<std::vector<int64_t>>(attribute, "a list of integers");
  return value == nullptr ? std::vector<int64_t>() : *value;
}
std::vector<double> Call::numbers(std::string_view attribute) const {
  const auto* value = find_as<std::vector<double>>(attribute, "a list of numbers");
  return value == nullptr ? std::vector<double>() : *value;
}
std::vector<std::string> Call::texts(std::string_view attribute) const {
  const auto* value = find_as<std::vector<std::string>>(attribute, "a list of texts");
  return value == nullptr ? std::vector<std::string>() : *value;
}
Tensor Call::tensor(std::string_view attribute) const {
  const auto* value = find_as<Tensor>(attribute, "a tensor");
  return value == nullptr ? Tensor() : leaf_of(*value);
}
const Graph& Call::graph(std::string_view attribute) const {
  return *required<std::shared_ptr<const Graph>>(attribute, "a graph");
}
ElementType Call::type_of(int64_t onnx_type) const {
  const std::optional<ElementType> type = element_type(onnx_type);
  if (!type) refuse("weft has no type {}", onnx_type_name(onnx_type));
  return *type;
}

int Call::axis_in(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank)
    refuse("axis {} is outside of its operand, which has {} axes", axis, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}
int Call::axis(std::string_view attribute, int64_t fallback, int rank) const {
  return axis_in(integer(attribute, fallback), rank);
}

std::optional<std::vector<int>> Call::axes(size_t input, int64_t since, int rank) const {
  std::vector<int64_t> given;
  if (opset_ >= since) {
    if (!has(input)) return std::nullopt;
    given = integers(input);
  } else {
    if (!has("axes")) return std::nullopt;
    given = integers("axes");
  }
  std::vector<int> axes;
  axes.reserve(given.size());
  for (int64_t axis : given) axes.push_back(axis_in(axis, rank));
  return axes;
}

}  // namespace weft::onnx
