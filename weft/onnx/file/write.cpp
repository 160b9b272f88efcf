// Writes ONNX files: the structures of model.h become protobuf's messages.
#include <filesystem>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/unknown_field_set.h>
#define ONNX_ML 1
#include <onnx/onnx_pb.h>

#include "weft/base/error.h"
#include "weft/base/numbers/rounding.h"
#include "weft/io/files.h"
#include "weft/onnx/file/model.h"
#include "weft/onnx/file/types.h"

namespace weft::onnx {
namespace {
using Proto = ::onnx::AttributeProto;

constexpr uint64_t alignment = 4096;     // bytes; external data can then be mapped
constexpr size_t least_external = 1024;  // bytes; smaller initializers stay in the message
constexpr int function_defaults = 11;    // number of a field of FunctionProto that its class lacks

class Writer {
 public:
  // An empty name keeps all elements in the message.
  explicit Writer(std::string data_name) : data_name_(std::move(data_name)) {}

  void model(const Model& model, ::onnx::ModelProto& proto) {
    proto.set_ir_version(model.ir_version);
    proto.set_producer_name(model.producer);
    opsets(model.opsets, *proto.mutable_opset_import());
    for (const auto& [key, value] : model.metadata) {
      auto& entry = *proto.add_metadata_props();
      entry.set_key(key);
      entry.set_value(value);
    }
    graph(model.graph, *proto.mutable_graph());
    for (const Function& each : model.functions) function(each, *proto.add_functions());
  }

  // Returns the tensors whose elements are external, in the order of the file.
  struct External {
    Tensor value;
    uint64_t offset;
  };
  const std::vector<External>& external() const { return external_; }

 private:
  template <class Imports>
  static void opsets(const std::map<std::string, int64_t, std::less<>>& versions,
                     Imports& imports) {
    for (const auto& [domain, version] : versions) {
      auto& import = *imports.Add();
      import.set_domain(domain);
      import.set_version(version);
    }
  }

  static void describe(const Tensor& value, ::onnx::TensorProto& proto) {
    proto.set_data_type(static_cast<int>(onnx_type(value.dtype())));
    for (int64_t extent : value.shape()) proto.add_dims(extent);
  }
  static void tensor(const Tensor& value, ::onnx::TensorProto& proto) {
    describe(value, proto);
    value.eval();
    proto.set_raw_data(value->data(), value.type().bytes());
  }

  void initializer(const Initializer& each, ::onnx::TensorProto& proto) {
    proto.set_name(each.name);
    const size_t bytes = each.value.type().bytes();
    if (data_name_.empty() || bytes < least_external) return tensor(each.value, proto);
    describe(each.value, proto);
    proto.set_data_location(::onnx::TensorProto::EXTERNAL);
    const uint64_t offset = round_up(end_, alignment);
    auto entry = [&](const char* key, const std::string& text) {
      auto& field = *proto.add_external_data();
      field.set_key(key);
      field.set_value(text);
    };
    entry("location", data_name_);
    entry("offset", std::to_string(offset));
    entry("length", std::to_string(bytes));
    external_.push_back({each.value, offset});
    end_ = offset + bytes;
  }

  void attribute(const std::string& name, const Attribute& value, Proto& proto) {
    proto.set_name(name);
    std::visit([&](const auto& held) { fill(held, proto); }, value);
  }
  static void fill(int64_t value, Proto& proto) {
    proto.set_type(Proto::INT);
    proto.set_i(value);
  }
  static void fill(double value, Proto& proto) {
    proto.set_type(Proto::FLOAT);
    proto.set_f(static_cast<float>(value));
  }
  static void fill(const std::string& value, Proto& proto) {
    proto.set_type(Proto::STRING);
    proto.set_s(value);
  }
  static void fill(const Tensor& value, Proto& proto) {
    proto.set_type(Proto::TENSOR);
    tensor(value, *proto.mutable_t());
  }
  void fill(const std::shared_ptr<const Graph>& value, Proto& proto) {
    proto.set_type(Proto::GRAPH);
    graph(*value, *proto.mutable_g());
  }
  static void fill(const std::vector<int64_t>& values, Proto& proto) {
    proto.set_type(Proto::INTS);
    for (int64_t value : values) proto.add_ints(value);
  }
  static void fill(const std::vector<double>& values, Proto& proto) {
    proto.set_type(Proto::FLOATS);
    for (double value : values) proto.add_floats(static_cast<float>(value));
  }
  static void fill(const std::vector<std::string>& values, Proto& proto) {
    proto.set_type(Proto::STRINGS);
    for (const std::string& value : values) proto.add_strings(value);
  }
  static void fill(const std::vector<Tensor>& values, Proto& proto) {
    proto.set_type(Proto::TENSORS);
    for (const Tensor& value : values) tensor(value, *proto.add_tensors());
  }

  void node(const Node& node, ::onnx::NodeProto& proto) {
    proto.set_op_type(node.op);
    proto.set_domain(node.domain);
    proto.set_name(node.name);
    for (const std::string& input : node.inputs) proto.add_input(input);
    for (const std::string& output : node.outputs) proto.add_output(output);
    for (const auto& [name, value] : node.attributes)
      attribute(name, value, *proto.add_attribute());
    for (const auto& [name, of_call] : node.references) {
      Proto& reference = *proto.add_attribute();
      reference.set_name(name);
      reference.set_ref_attr_name(of_call);
    }
  }

  static void value_info(const ValueInfo& info, ::onnx::ValueInfoProto& proto) {
    proto.set_name(info.name);
    if (!info.dtype) return;
    auto& tensor = *proto.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(static_cast<int>(onnx_type(*info.dtype)));
    if (!info.shape) return;
    auto& shape = *tensor.mutable_shape();
    for (const Dim& dim : *info.shape) {
      auto& extent = *shape.add_dim();
      if (dim.extent >= 0)
        extent.set_dim_value(dim.extent);
      else if (!dim.symbol.empty())
        extent.set_dim_param(dim.symbol);
    }
  }

  void graph(const Graph& graph, ::onnx::GraphProto& proto) {
    proto.set_name(graph.name);
    for (const ValueInfo& each : graph.inputs) value_info(each, *proto.add_input());
    for (const ValueInfo& each : graph.defaults) value_info(each, *proto.add_input());
    for (const ValueInfo& each : graph.outputs) value_info(each, *proto.add_output());
    for (const Initializer& each : graph.initializers) initializer(each, *proto.add_initializer());
    for (const Node& each : graph.nodes) node(each, *proto.add_node());
  }

  void function(const Function& function, ::onnx::FunctionProto& proto) {
    proto.set_name(function.name);
    proto.set_domain(function.domain);
    for (const std::string& name : function.inputs) proto.add_input(name);
    for (const std::string& name : function.outputs) proto.add_output(name);
    for (const std::string& name : function.attributes) proto.add_attribute(name);
    opsets(function.opsets, *proto.mutable_opset_import());
    for (const auto& [name, value] : function.defaults) {
      Proto fallback;
      attribute(name, value, fallback);
      proto.GetReflection()->MutableUnknownFields(&proto)->AddLengthDelimited(
          function_defaults, fallback.SerializeAsString());
    }
    for (const Node& each : function.nodes) node(each, *proto.add_node());
  }

  std::string data_name_;
  uint64_t end_ = 0;  // bytes of external elements so far
  std::vector<External> external_;
};

// FileStream lets protobuf write to a file as it goes, without a copy of the whole message.
class FileStream : public google::protobuf::io::CopyingOutputStream {
 public:
  explicit FileStream(io::AtomicFile& file) : file_(file) {}
  bool Write(const void* data, int bytes) override {
    file_.write(data, static_cast<size_t>(bytes));
    return true;
  }

 private:
  io::AtomicFile& file_;
};

void write_external(const std::string& path, const std::vector<Writer::External>& tensors) {
  io::AtomicFile file(path);
  uint64_t end = 0;
  for (const auto& [value, offset] : tensors) {
    file.write(std::string(offset - end, '\0'));
    value.eval();
    file.write(value->data(), value.type().bytes());
    end = offset + value.type().bytes();
  }
  file.commit();
}
}  // namespace

void write(const Model& model, const std::string& path, const WriteOptions& options) {
  int64_t bytes = 0;
  for (const Initializer& each : model.graph.initializers)
    bytes += static_cast<int64_t>(each.value.type().bytes());
  const bool is_external = bytes > options.most_inline_bytes;
  const std::string data_path = path + ".data";
  Writer writer(is_external ? std::filesystem::path(data_path).filename().string() : "");
  ::onnx::ModelProto proto;
  writer.model(model, proto);
  if (proto.ByteSizeLong() >= static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    throw Error(ErrorKind::usage,
                "[onnx] {}: its nodes have {} bytes; a file has at most 2 GiB, besides weights.",
                io::printable(path), proto.ByteSizeLong());
  if (!writer.external().empty()) write_external(data_path, writer.external());
  io::AtomicFile file(path);
  {
    FileStream stream(file);
    google::protobuf::io::CopyingOutputStreamAdaptor buffered(&stream);
    google::protobuf::io::CodedOutputStream coded(&buffered);
    coded.SetSerializationDeterministic(true);
    proto.SerializeWithCachedSizes(&coded);
  }
  file.commit();
}

}  // namespace weft::onnx
