// Declares descriptors of cuDNN with their attributes, and the graphs that they describe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/fake_cuda/cudnn_operations.h"

namespace fake::cudnn {

enum class Use : uint8_t { required, optional, read_only };
struct Attribute {
  AttributeName name;
  AttributeType type;
  int64_t most = 1;  // values
  Use use = Use::required;
};
// Returns the attributes of descriptors of that kind, as far as weft uses them; none for an unknown
// kind.
const std::vector<Attribute>& attributes_of(int kind);

struct ConvolutionNames {
  Kind kind;
  size_t result;  // index among the tensors
  AttributeName alpha, beta, convolution;
  std::array<AttributeName, 3> tensors;  // x, w, y
};
extern const std::array<ConvolutionNames, 3> convolutions;

struct Descriptor;
using Shared = std::shared_ptr<const Descriptor>;
struct Value {
  int type = 0;
  int64_t count = 0;
  std::vector<std::byte> bytes;
  std::vector<Shared> parts;  // for CUDNN_TYPE_BACKEND_DESCRIPTOR
};
struct Descriptor {
  Kind kind{};
  bool is_final = false;
  std::map<int, Value> values = {};

  bool has(AttributeName name) const { return values.contains(name); }
  template <class T>
  std::vector<T> all(AttributeName name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> them(static_cast<size_t>(found->second.count));
    std::memcpy(static_cast<void*>(them.data()), found->second.bytes.data(),
                them.size() * sizeof(T));
    return them;
  }
  template <class T>
  T one(AttributeName name, T otherwise = {}) const {
    return has(name) ? all<T>(name)[0] : otherwise;
  }
  const std::vector<Shared>& parts(AttributeName name) const { return values.at(name).parts; }
  const Descriptor& part(AttributeName name, Kind kind) const {
    const Descriptor& found = *parts(name).at(0);
    require(found.kind == kind, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
            "attribute " + std::to_string(name) + " takes another descriptor");
    return found;
  }
  template <class T>
  void say(AttributeName name, AttributeType type, const std::vector<T>& them) {
    const auto* first = reinterpret_cast<const std::byte*>(them.data());
    values[name] = {
        type, static_cast<int64_t>(them.size()), {first, first + them.size() * sizeof(T)}, {}};
  }
  void say(AttributeName name, std::vector<Shared> them) {
    const auto count = static_cast<int64_t>(them.size());
    values[name] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, count, {}, std::move(them)};
  }
};

// Throw Refused for an invalid descriptor.
void check_tensor(const Descriptor& descriptor);
void check_convolution(const Descriptor& descriptor);
Operation operation_of(const Descriptor& descriptor);
// Returns the operations of a graph in executable order.
std::vector<Operation> operations_of(const Descriptor& graph);

}  // namespace fake::cudnn
