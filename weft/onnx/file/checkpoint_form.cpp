// Keeps the graph of an ONNX file beside the weights of a checkpoint.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/io/safetensors.h"
#include "weft/onnx/file/message.h"
#include "weft/onnx/file/types.h"
#include "weft/onnx/net/model_net.h"
#include "weft/onnx/net/narrow.h"

namespace weft::onnx {
namespace {
struct Place {
  uint64_t offset = 0, bytes = 0;
};
using Places = std::map<std::string, Place, std::less<>>;

void drop_elements(::onnx::TensorProto& tensor) {
  tensor.clear_raw_data();
  tensor.clear_float_data();
  tensor.clear_int32_data();
  tensor.clear_int64_data();
  tensor.clear_double_data();
  tensor.clear_uint64_data();
  tensor.clear_external_data();
  tensor.clear_data_location();
}

void refer_to(::onnx::TensorProto& tensor, const std::string& file, const Place& place) {
  drop_elements(tensor);
  tensor.set_data_location(::onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] : {std::pair<const char*, std::string>{"location", file},
                                   {"offset", std::to_string(place.offset)},
                                   {"length", std::to_string(place.bytes)}}) {
    auto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }
}

// An Inliner moves the external data of tensors into the message itself.
class Inliner {
 public:
  explicit Inliner(ExternalData& external) : external_(external) {}

  void tensor(::onnx::TensorProto& tensor) {
    if (tensor.data_location() != ::onnx::TensorProto::EXTERNAL) return;
    const std::optional<ElementType> element = element_type(tensor.data_type());
    uint64_t bits = element && element->bits > 0 ? static_cast<uint64_t>(element->bits)
                    : element                    ? 8 * size_of(element->dtype)
                                                 : 0;
    for (int64_t extent : tensor.dims()) bits *= static_cast<uint64_t>(extent);
    const auto part = external_.bytes_of(tensor, (bits + 7) / 8, "'" + tensor.name() + "'");
    drop_elements(tensor);
    tensor.set_raw_data(part->data, part->bytes);
  }
  void graph(::onnx::GraphProto& graph) {
    for (auto& each : *graph.mutable_initializer()) tensor(each);
    nodes(*graph.mutable_node());
  }
  template <class Nodes>
  void nodes(Nodes& all) {
    for (auto& node : all)
      for (auto& attribute : *node.mutable_attribute()) {
        if (attribute.has_t()) tensor(*attribute.mutable_t());
        if (attribute.has_g()) graph(*attribute.mutable_g());
        for (auto& each : *attribute.mutable_tensors()) tensor(each);
      }
  }

 private:
  ExternalData& external_;
};

// Returns the offset and the size, in bytes, of each state tensor in the model's safetensors file.
Places places_of(const weft::Model& model) {
  const std::vector<io::NamedBytes> tensors = io::bytes_of(io::state_of(model));
  const std::vector<uint64_t> offsets = io::offsets_in_file(tensors, io::pytorch_metadata());
  Places places;
  for (size_t i = 0; i < tensors.size(); ++i)
    places[tensors[i].name] = {offsets[i], tensors[i].type.bytes()};
  return places;
}

void refer_to(::onnx::ModelProto& proto, const std::string& file, const Places& places) {
  for (auto& each : *proto.mutable_graph()->mutable_initializer())
    if (const auto place = places.find(each.name()); place != places.end())
      refer_to(each, file, place->second);
}

// ---- evaluation

template <class Items>
void remove_named(Items& items, const std::string& name) {
  items.erase(std::remove_if(items.begin(), items.end(),
                             [&](const auto& each) { return each.name() == name; }),
              items.end());
}

void add_reads(const ::onnx::GraphProto& graph, std::set<std::string>& names) {
  for (const auto& node : graph.node()) {
    names.insert(node.input().begin(), node.input().end());
    for (const auto& attribute : node.attribute())
      if (attribute.has_g()) add_reads(attribute.g(), names);
  }
  for (const auto& output : graph.output()) names.insert(output.name());
}

// Makes BatchNormalization nodes use the running statistics where these are state of the model.
// weft decides by the step's mode; other runtimes obey the node's training_mode, which the export
// may have set.
void use_statistics(::onnx::GraphProto& graph, const Places& state) {
  std::set<std::string> read;
  add_reads(graph, read);
  for (auto& node : *graph.mutable_node()) {
    if (node.op_type() != "BatchNormalization" || !node.domain().empty() ||
        node.input_size() != 5 || !state.contains(node.input(3)) || !state.contains(node.input(4)))
      continue;
    auto& outputs = *node.mutable_output();
    if (outputs.size() > 1 && std::any_of(outputs.begin() + 1, outputs.end(),
                                          [&](const auto& name) { return read.contains(name); }))
      continue;
    outputs.DeleteSubrange(1, std::max(0, outputs.size() - 1));
    remove_named(*node.mutable_attribute(), "training_mode");
  }
}

// ---- narrower nets

void set_shape(::onnx::TensorProto& tensor, const Shape& shape) {
  tensor.clear_dims();
  for (const int64_t extent : shape) tensor.add_dims(extent);
}
void set_shape(::onnx::TensorShapeProto& to, const Shape& shape) {
  to.clear_dim();
  for (const int64_t extent : shape) to.add_dim()->set_dim_value(extent);
}

void apply(const Edit& edit, ::onnx::NodeProto& node, ::onnx::ModelProto& proto) {
  ::onnx::GraphProto& graph = *proto.mutable_graph();
  for (auto& attribute : *node.mutable_attribute())
    if (edit.groups > 0 && attribute.name() == "group") attribute.set_i(edit.groups);
  if (edit.shape.empty()) return;
  node.set_input(1, edit.shape_name);
  if (!edit.unread.empty()) {
    remove_named(*graph.mutable_initializer(), edit.unread);
    remove_named(*graph.mutable_input(), edit.unread);
  }
  auto& shape = *graph.add_initializer();
  shape.set_name(edit.shape_name);
  shape.set_data_type(::onnx::TensorProto::INT64);
  shape.add_dims(std::ssize(edit.shape));
  for (const int64_t extent : edit.shape) shape.add_int64_data(extent);
  if (proto.ir_version() >= 4) return;
  auto& input = *graph.add_input();  // before IR version 4, inputs include all initializers
  input.set_name(edit.shape_name);
  auto& type = *input.mutable_type()->mutable_tensor_type();
  type.set_elem_type(::onnx::TensorProto::INT64);
  set_shape(*type.mutable_shape(), {std::ssize(edit.shape)});
}

std::string deterministic(const ::onnx::ModelProto& proto) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    proto.SerializeToCodedStream(&coded);
  }
  return bytes;
}
}  // namespace

std::string checkpoint_form(const std::string& path, const weft::Model& model,
                            const std::string& weights) {
  const Places places = places_of(model);
  const std::shared_ptr<Buffer> file = io::map_file(path);
  ::onnx::ModelProto proto;
  parse_message(proto, {reinterpret_cast<const char*>(file->data), file->bytes}, path);
  refer_to(proto, weights, places);
  use_statistics(*proto.mutable_graph(), places);
  ExternalData external(path, folder_of(path));
  Inliner inliner(external);
  for (auto& each : *proto.mutable_graph()->mutable_initializer())
    if (!places.contains(each.name())) inliner.tensor(each);
  inliner.nodes(*proto.mutable_graph()->mutable_node());
  for (auto& each : *proto.mutable_functions()) inliner.nodes(*each.mutable_node());
  return deterministic(proto);
}

std::string narrowed_form(const std::string& form, const Model& file, const Narrowing& narrowing,
                          const weft::Model& net, const std::string& weights) {
  ::onnx::ModelProto proto;
  parse_message(proto, form, file.file);
  ::onnx::GraphProto& graph = *proto.mutable_graph();
  for (auto& each : *graph.mutable_initializer())
    if (const auto narrow = narrowing.initializers.find(each.name());
        narrow != narrowing.initializers.end())
      set_shape(each, narrow->second.shape());
  for (auto& each : *graph.mutable_input())  // before IR version 4, these include initializers
    if (const auto narrow = narrowing.initializers.find(each.name());
        narrow != narrowing.initializers.end())
      set_shape(*each.mutable_type()->mutable_tensor_type()->mutable_shape(),
                narrow->second.shape());
  const auto edits = edits_of(file, narrowing);
  for (auto& node : *graph.mutable_node()) {
    const auto edit = node.output_size() == 0 ? edits.end() : edits.find(node.output(0));
    if (edit != edits.end()) apply(edit->second, node, proto);
  }
  auto& values = *graph.mutable_value_info();
  values.erase(std::remove_if(values.begin(), values.end(),
                              [&](const auto& each) {
                                return narrowing.values.contains(each.name()) ||
                                       narrowing.initializers.contains(each.name());
                              }),
               values.end());
  refer_to(proto, weights, places_of(net));
  return deterministic(proto);
}

}  // namespace weft::onnx
