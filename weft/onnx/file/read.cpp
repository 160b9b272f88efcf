// Reads ONNX files: protobuf's messages become the structures of model.h.
#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <google/protobuf/unknown_field_set.h>

#include "weft/base/error.h"
#include "weft/base/memory/buffer.h"
#include "weft/io/files.h"
#include "weft/onnx/file/message.h"
#include "weft/onnx/file/model.h"
#include "weft/onnx/file/types.h"

namespace weft::onnx {
namespace {
using io::printable;

constexpr int64_t oldest_ir = 3;  // the first with operator sets

// Operator sets that weft reads.
struct Sets {
  const char* domain;
  int64_t oldest, newest;
};
constexpr Sets known_sets[] = {{"", oldest_opset, newest_opset},
                               {"ai.onnx.ml", 1, 5},
                               {"ai.onnx.preview", 1, 1},
                               {"ai.onnx.preview.training", 1, 1}};

// The domains "" and "ai.onnx" both mean the operators of the specification.
std::string domain_of(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

class Reader {
 public:
  // An empty folder refuses external data.
  Reader(const std::string& file, std::string folder)
      : file_(file), external_(file, std::move(folder)) {}

  Model model(::onnx::ModelProto& proto) {
    Model model{.file = file_, .ir_version = proto.ir_version(), .producer = proto.producer_name()};
    if (!proto.has_graph()) fail("it has no graph");
    if (proto.ir_version() < oldest_ir)
      fail("it is of IR version {}; weft reads {} and up", proto.ir_version(), oldest_ir);
    if (proto.opset_import().empty()) fail("it names no operator set");
    model.opsets = opsets(proto.opset_import());
    for (const auto& entry : proto.metadata_props()) model.metadata[entry.key()] = entry.value();
    model.graph = graph(*proto.mutable_graph(), "the graph");
    for (::onnx::FunctionProto& function : *proto.mutable_functions())
      model.functions.push_back(this->function(function));
    return model;
  }

  Tensor tensor(::onnx::TensorProto& proto, const std::string& what) {
    const std::optional<ElementType> element = element_type(proto.data_type());
    if (!element)
      fail("{} holds {}, which weft has no type for", what, onnx_type_name(proto.data_type()));
    if (proto.has_segment()) fail("{} is a segment of a tensor, which is not supported", what);
    const Type type{element->dtype, shape_of(proto, what)};
    if (proto.data_location() == ::onnx::TensorProto::EXTERNAL)
      return external(proto, type, *element, what);
    if (proto.has_raw_data()) {
      auto bytes = std::shared_ptr<std::string>(proto.release_raw_data());
      return elements(bytes, {bytes->data(), bytes->size()}, type, *element, what);
    }
    return typed(proto, type, *element, what);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::data, "[onnx] {}: {}.", printable(file_),
                fmt::format(format, std::forward<Args>(args)...));
  }

  Shape shape_of(const ::onnx::TensorProto& proto, const std::string& what) const {
    if (proto.dims_size() > max_rank)
      fail("{} has {} axes; weft's tensors have at most {}", what, proto.dims_size(), max_rank);
    Shape shape;
    int64_t count = 1;
    for (int64_t extent : proto.dims()) {
      if (extent < 0 || __builtin_mul_overflow(count, extent, &count))
        fail("{} has an impossible extent {}", what, extent);
      shape.push_back(extent);
    }
    return shape;
  }

  void check_count(size_t got, const Type& type, const std::string& what) const {
    if (got != static_cast<size_t>(type.elements()))
      fail("{} of shape {} needs {} elements and has {}", what, to_string(type.shape),
           type.elements(), got);
  }

  // Returns elements in little-endian bytes, which `owner` keeps alive.
  Tensor elements(std::shared_ptr<void> owner, std::span<char> bytes, const Type& type,
                  const ElementType& element, const std::string& what) const {
    const int64_t count = type.elements();
    if (count > static_cast<int64_t>(message_limit) * 1024) fail("{} has too many elements", what);
    const int64_t in_byte = element.bits > 0 ? 8 / element.bits : 1;
    const int64_t needed = element.bits > 0 ? (count + in_byte - 1) / in_byte
                                            : count * static_cast<int64_t>(size_of(type.dtype));
    if (std::ssize(bytes) != needed)
      fail("{} of shape {} needs {} bytes and has {}", what, to_string(type.shape), needed,
           bytes.size());
    if (element.bits > 0) return from_buffer(unpacked(bytes, count, element), type);
    const bool is_aligned = reinterpret_cast<uintptr_t>(bytes.data()) % size_of(type.dtype) == 0;
    if (is_aligned) return tensor_over(std::move(owner), bytes.data(), type);
    auto copy = Buffer::allocate(bytes.size());
    std::ranges::copy(std::as_bytes(bytes), copy->data);
    return from_buffer(std::move(copy), type);
  }

  // Returns the elements of the message's repeated field for their type (float_data, int32_data,
  // ...).
  Tensor typed(const ::onnx::TensorProto& proto, const Type& type, const ElementType& element,
               const std::string& what) const {
    switch (type.dtype) {
      case DType::f32:
        return copied<float>(proto.float_data(), type, what);
      case DType::f64:
        return copied<double>(proto.double_data(), type, what);
      case DType::i64:
        return copied<int64_t>(proto.int64_data(), type, what);
      case DType::u32:
        return copied<uint32_t>(proto.uint64_data(), type, what);
      default:
        break;
    }
    if (element.bits > 0) {
      std::string bytes;
      for (int32_t pair : proto.int32_data()) bytes.push_back(static_cast<char>(pair));
      auto owner = std::make_shared<std::string>(std::move(bytes));
      return elements(owner, {owner->data(), owner->size()}, type, element, what);
    }
    switch (size_of(type.dtype)) {  // int32_data holds one element per number, in its low bits
      case 1:
        return copied<uint8_t>(proto.int32_data(), type, what);
      case 2:
        return copied<uint16_t>(proto.int32_data(), type, what);
      default:
        return copied<int32_t>(proto.int32_data(), type, what);
    }
  }

  template <class T, class Field>
  Tensor copied(const Field& field, const Type& type, const std::string& what) const {
    check_count(static_cast<size_t>(field.size()), type, what);
    auto buffer = Buffer::allocate(type.bytes());
    auto* to = reinterpret_cast<T*>(buffer->data);
    for (int i = 0; i < field.size(); ++i) to[i] = static_cast<T>(field[i]);
    return from_buffer(std::move(buffer), type);
  }

  Tensor external(const ::onnx::TensorProto& proto, const Type& type, const ElementType& element,
                  const std::string& what) {
    const auto packed = static_cast<uint64_t>(type.bytes());
    const uint64_t usual =
        element.bits > 0 ? (packed * static_cast<uint64_t>(element.bits) + 7) / 8 : packed;
    const std::shared_ptr<Buffer> part = external_.bytes_of(proto, usual, what);
    return elements(part, {reinterpret_cast<char*>(part->data), part->bytes}, type, element, what);
  }

  // ---- graphs

  template <class Imports>
  std::map<std::string, int64_t, std::less<>> opsets(const Imports& imports) const {
    std::map<std::string, int64_t, std::less<>> versions;
    for (const auto& import : imports) versions[domain_of(import.domain())] = import.version();
    for (const Sets& each : known_sets) {
      const auto found = versions.find(each.domain);
      if (found == versions.end() || (found->second >= each.oldest && found->second <= each.newest))
        continue;
      const std::string of = *each.domain == 0 ? "" : fmt::format(" of {}", each.domain);
      const std::string to = each.newest > each.oldest ? fmt::format(" to {}", each.newest) : "";
      fail("it uses opset {}{}; weft reads {}{}", found->second, of, each.oldest, to);
    }
    return versions;
  }

  Attribute attribute(::onnx::AttributeProto& proto, const std::string& where) {
    const std::string what = fmt::format("attribute '{}' of {}", printable(proto.name()), where);
    switch (proto.type()) {
      case ::onnx::AttributeProto::INT:
        return proto.i();
      case ::onnx::AttributeProto::FLOAT:
        return static_cast<double>(proto.f());
      case ::onnx::AttributeProto::STRING:
        return proto.s();
      case ::onnx::AttributeProto::TENSOR:
        return tensor(*proto.mutable_t(), what);
      case ::onnx::AttributeProto::GRAPH:
        return std::make_shared<const Graph>(graph(*proto.mutable_g(), what));
      case ::onnx::AttributeProto::INTS:
        return std::vector<int64_t>(proto.ints().begin(), proto.ints().end());
      case ::onnx::AttributeProto::FLOATS:
        return std::vector<double>(proto.floats().begin(), proto.floats().end());
      case ::onnx::AttributeProto::STRINGS:
        return std::vector<std::string>(proto.strings().begin(), proto.strings().end());
      case ::onnx::AttributeProto::TENSORS: {
        std::vector<Tensor> all;
        for (::onnx::TensorProto& each : *proto.mutable_tensors())
          all.push_back(tensor(each, what));
        return all;
      }
      default:
        fail("{} is of a kind that weft does not read ({})", what, static_cast<int>(proto.type()));
    }
  }

  Node node(::onnx::NodeProto& proto, size_t index) {
    Node node{.op = proto.op_type(),
              .domain = domain_of(proto.domain()),
              .name = proto.name(),
              .inputs = {proto.input().begin(), proto.input().end()},
              .outputs = {proto.output().begin(), proto.output().end()},
              .attributes = {}};
    const std::string where =
        node.name.empty() ? fmt::format("node {} ({})", index, printable(node.op))
                          : fmt::format("node '{}' ({})", printable(node.name), printable(node.op));
    for (::onnx::AttributeProto& each : *proto.mutable_attribute()) {
      if (node.attributes.contains(each.name()) || node.references.contains(each.name()))
        fail("{} has two attributes '{}'", where, printable(each.name()));
      if (!each.ref_attr_name().empty())
        node.references[each.name()] = each.ref_attr_name();
      else
        node.attributes.emplace(each.name(), attribute(each, where));
      if (const auto held = element_type(each.t().data_type()); held && each.name() == "value")
        node.value_bits = held->bits;
    }
    return node;
  }

  template <class Nodes>
  std::vector<Node> nodes(Nodes& protos) {
    std::vector<Node> all;
    for (::onnx::NodeProto& proto : protos) all.push_back(node(proto, all.size()));
    return all;
  }

  // Shapes of inputs and outputs (border) bind. The file only hints at those of values inside of a
  // graph, so that an impossible one is ignored.
  enum class Place { border, inside };
  ValueInfo value_info(const ::onnx::ValueInfoProto& proto, Place place = Place::border) const {
    ValueInfo info{.name = proto.name(), .dtype = {}, .shape = {}, .refused = {}};
    const auto kind = proto.type().value_case();
    if (kind == ::onnx::TypeProto::VALUE_NOT_SET) return info;
    if (kind != ::onnx::TypeProto::kTensorType) {
      constexpr const char* names[] = {"a sequence", "a map", "a sparse tensor", "an optional"};
      const int index = kind == ::onnx::TypeProto::kSequenceType       ? 0
                        : kind == ::onnx::TypeProto::kMapType          ? 1
                        : kind == ::onnx::TypeProto::kSparseTensorType ? 2
                                                                       : 3;
      info.refused = names[index];
      return info;
    }
    const auto& tensor = proto.type().tensor_type();
    if (const auto element = element_type(tensor.elem_type())) {
      info.dtype = element->dtype;
      info.bits = element->bits;
    } else if (tensor.elem_type() != 0) {
      info.refused = "a tensor of " + onnx_type_name(tensor.elem_type());
    }
    if (!tensor.has_shape()) return info;
    const bool is_possible = tensor.shape().dim_size() <= max_rank &&
                             std::ranges::none_of(tensor.shape().dim(), [](const auto& dim) {
                               return dim.dim_value() < 0;
                             });
    if (place == Place::inside && !is_possible) return info;
    if (tensor.shape().dim_size() > max_rank)
      fail("'{}' has {} axes; weft's tensors have at most {}", printable(info.name),
           tensor.shape().dim_size(), max_rank);
    std::vector<Dim> shape;
    for (const auto& dim : tensor.shape().dim()) {
      if (dim.has_dim_value() && dim.dim_value() < 0)
        fail("'{}' has an impossible extent {}", printable(info.name), dim.dim_value());
      if (dim.has_dim_value())
        shape.push_back({dim.dim_value(), ""});
      else
        shape.push_back({-1, dim.dim_param()});
    }
    info.shape = std::move(shape);
    return info;
  }

  Graph graph(::onnx::GraphProto& proto, const std::string& what) {
    Graph graph{.name = proto.name()};
    if (proto.sparse_initializer_size() > 0)
      fail("{} has sparse initializers, which are not supported", what);
    std::set<std::string> known;
    for (::onnx::TensorProto& each : *proto.mutable_initializer()) {
      std::string name = each.name();
      if (!known.insert(name).second) fail("{} has two initializers '{}'", what, printable(name));
      Tensor value = tensor(each, fmt::format("initializer '{}'", printable(name)));
      const int bits = element_type(each.data_type())->bits;
      graph.initializers.push_back({std::move(name), std::move(value), bits});
    }
    for (const auto& each : proto.input())
      (known.contains(each.name()) ? graph.defaults : graph.inputs).push_back(value_info(each));
    for (const auto& each : proto.output()) graph.outputs.push_back(value_info(each));
    for (const auto& each : proto.value_info())
      graph.values.emplace(each.name(), value_info(each, Place::inside));
    graph.nodes = nodes(*proto.mutable_node());
    return graph;
  }

  Function function(::onnx::FunctionProto& proto) {
    Function function{.name = proto.name(),
                      .domain = domain_of(proto.domain()),
                      .inputs = {proto.input().begin(), proto.input().end()},
                      .outputs = {proto.output().begin(), proto.output().end()},
                      .attributes = {proto.attribute().begin(), proto.attribute().end()}};
    function.opsets = opsets(proto.opset_import());
    // Field 11, attributes with defaults, is newer than the message classes, which keep it as an
    // unknown field.
    const auto& unknown = proto.GetReflection()->GetUnknownFields(proto);
    for (int i = 0; i < unknown.field_count(); ++i) {
      const auto& field = unknown.field(i);
      if (field.number() != 11 ||
          field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
        continue;
      ::onnx::AttributeProto fallback;
      if (!fallback.ParseFromString(field.length_delimited()))
        fail("function '{}' has a damaged attribute", printable(function.name));
      std::string name = fallback.name();
      function.defaults.emplace(name, attribute(fallback, "function " + printable(function.name)));
    }
    function.nodes = nodes(*proto.mutable_node());
    return function;
  }

  std::string file_;
  ExternalData external_;
};

std::string_view text_of(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data), buffer.bytes};
}
}  // namespace

std::string place_of(const std::string& file, const Node& node, size_t index) {
  if (node.name.empty())
    return fmt::format("{}: node {} ({})", printable(file), index, printable(node.op));
  return fmt::format("{}: node '{}' ({})", printable(file), printable(node.name),
                     printable(node.op));
}

void override_defaults(Model& model, std::span<const std::string> names) {
  Graph& graph = model.graph;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(graph.defaults, name, &ValueInfo::name);
    if (found == graph.defaults.end()) continue;
    graph.inputs.push_back(std::move(*found));
    graph.defaults.erase(found);
    std::erase_if(graph.initializers, [&](const Initializer& each) { return each.name == name; });
  }
}

bool is_model_file(const std::string& path) { return path.ends_with(".onnx"); }

void check_there(const std::string& path) {
  if (is_model_file(path) && !io::exists(path, ErrorKind::usage))
    throw Error(ErrorKind::usage, "{}: there is no such file.", printable(path));
}

Model parse(std::string_view bytes, const std::string& name) {
  ::onnx::ModelProto proto;
  parse_message(proto, bytes, name);
  return Reader(name, "").model(proto);
}

Model read(const std::string& path) {
  check_there(path);
  const std::shared_ptr<Buffer> file = io::map_file(path);
  ::onnx::ModelProto proto;
  parse_message(proto, text_of(*file), path);
  return Reader(path, folder_of(path)).model(proto);
}

Tensor read_tensor(const std::string& path) {
  const std::shared_ptr<Buffer> file = io::map_file(path);
  ::onnx::TensorProto proto;
  parse_message(proto, text_of(*file), path);
  return Reader(path, "").tensor(proto, "the tensor");
}

}  // namespace weft::onnx
