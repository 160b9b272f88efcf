// Declares the contents of an ONNX file without the classes of protobuf: the reader fills them in,
// the importer interprets them, and the exporter builds them. Format: the ONNX specification
// (docs/IR.md, onnx.proto), IR versions 3 and up.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weft/tensor/tensor.h"

namespace weft::onnx {

struct Graph;

// An Attribute holds a value of one of ONNX's attribute types; sparse tensors and types are refused
// by the reader.
using Attribute = std::variant<int64_t, double, std::string, Tensor, std::shared_ptr<const Graph>,
                               std::vector<int64_t>, std::vector<double>, std::vector<std::string>,
                               std::vector<Tensor>>;

struct Node {
  std::string op, domain;                    // domain "" means "ai.onnx"
  std::string name;                          // may be empty
  std::vector<std::string> inputs, outputs;  // "": absent
  std::map<std::string, Attribute, std::less<>> attributes;
  // In a function, an attribute may refer to an attribute of the call: own name to the call's.
  std::map<std::string, std::string, std::less<>> references = {};
  int value_bits = 0;  // bits of the numbers in a Constant's tensor, as in ElementType
};

// A Dim is an extent, or the name of an extent that is bound when the model is loaded or run.
struct Dim {
  int64_t extent = -1;  // -1: named by `symbol`, or unknown if that is empty
  std::string symbol;
};

struct ValueInfo {
  std::string name;
  std::optional<DType> dtype;             // absent: the file does not say
  int bits = 0;                           // as in ElementType
  std::optional<std::vector<Dim>> shape;  // absent: the file does not say
  std::string refused;  // what the value is, if it is no tensor or has a type that weft lacks
};

struct Initializer {
  std::string name;
  Tensor value;  // elements in memory
  int bits = 0;  // as in ElementType (types.h)
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;  // in the order of the file; Net sorts them topologically
  std::vector<Initializer> initializers;
  std::vector<ValueInfo> inputs;    // without inputs that have an initializer
  std::vector<ValueInfo> defaults;  // inputs that have an initializer
  std::vector<ValueInfo> outputs;
  std::map<std::string, ValueInfo, std::less<>> values;  // declared types of intermediate values
};

struct Function {
  std::string name, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> attributes;                     // attributes without a default
  std::map<std::string, Attribute, std::less<>> defaults;  // attributes and their defaults
  std::vector<Node> nodes;
  std::map<std::string, int64_t, std::less<>> opsets;
};

struct Model {
  std::string file;  // for messages
  int64_t ir_version = 0;
  std::string producer;
  std::map<std::string, int64_t, std::less<>> opsets;  // domain to version; "" is ai.onnx
  Graph graph;
  std::vector<Function> functions;
  std::map<std::string, std::string, std::less<>> metadata;
};

// Operator sets of ai.onnx that weft reads.
inline constexpr int64_t oldest_opset = 7, newest_opset = 28;

// Reads a model of at most 2 GiB, the limit of protobuf, and maps its external data. Throws
// Error(data) with one line that names the file and the place: for bytes that are no message,
// tensors whose bytes do not fit their shape, external data outside of the folder, and types of
// numbers that weft lacks; Error(usage) where there is no file. The elements take at most eight
// times the bytes of the file.
Model read(const std::string& path);
// Reads a model from bytes; `name` stands for the file in messages, and external data is refused.
Model parse(std::string_view bytes, const std::string& name);
// WriteOptions says where the elements of initializers go: into the model's file or, if together
// they have more than `most_inline_bytes`, into a file PATH.data beside it, to which the model
// refers by name as external data. Initializers below 1 KiB stay in the model's file.
struct WriteOptions {
  int64_t most_inline_bytes = (int64_t{2} << 30) - (int64_t{64} << 20);  // of protobuf's 2 GiB
};
// Writes a model; equal models give equal bytes. Both files appear whole, the model last. Throws
// Error(failed) for a file that cannot be written, and Error(usage) for a model whose nodes alone
// are larger than protobuf's messages can be.
void write(const Model& model, const std::string& path, const WriteOptions& options = {});
// Reads a tensor from a file of its own (TensorProto), the form of test data of ONNX.
Tensor read_tensor(const std::string& path);

// Appends the named defaults to the ordinary inputs, since the caller will give their elements.
// Skips names that are no defaults: whoever binds the inputs reports them.
void override_defaults(Model& model, std::span<const std::string> names);

// Returns whether the path ends in ".onnx".
bool is_model_file(const std::string& path);
// Throws Error(usage) for a path that ends in ".onnx" where no file exists.
void check_there(const std::string& path);

// Returns "file: node 'conv1' (Conv)" for messages.
std::string place_of(const std::string& file, const Node& node, size_t index);

}  // namespace weft::onnx
