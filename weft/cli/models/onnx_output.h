// Implements `weft convert --to onnx`: exports the forward pass of a model, with int8 layers where
// it is quantized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/shape.h"
#include "weft/models/model.h"
#include "weft/onnx/export/export.h"
#include "weft/quantization/int8.h"

namespace weft::cli {

struct OnnxOutput {
  std::string model, path;
  std::optional<DType> dtype = {};     // of a published model's weights; absent: its files'
  std::optional<int64_t> batch = {};   // rows; absent: any number
  int64_t context = 0;                 // tokens of a sequence; 0: the usual number
  std::vector<std::string> dims = {};  // NAME=N: extents of an ONNX file's inputs
  // Shapes of the data, which an ONNX file's first inputs take where dims are silent; -1: the rows.
  std::vector<Shape> samples = {};
  // How its layers are quantized; absent: as the run that trained it learned, or not at all.
  std::optional<quantization::Scheme> scheme = {};
};

struct OnnxWritten {
  size_t tensors = 0, bytes = 0;  // initializers
  std::string fixed;              // why the file takes one row alone; "" where it takes any number
  int64_t context = 0;            // tokens of a sequence, where it was not given; else 0
  // These count the quantized weights, their bytes, and the bytes that they had in float32; 0 where
  // no weight is quantized.
  size_t quantized = 0, quantized_bytes = 0, bytes_before = 0;
};

// `model` is a run, a checkpoint, a folder of Hugging Face's, a GGUF or an ONNX file. Throws
// Error(usage) for options that this kind of model does not take, and as loading the model does.
OnnxWritten write_onnx(const OnnxOutput& output);
// Adds a remark on the batches and sequences that a file takes, if it is limited to some.
void remark_limits(const OnnxWritten& written);
// Returns the layers of the model that int8 quantization replaces.
quantization::Layers layers_of(const OnnxOutput& output);

// An ExportSubject is a model in memory, with the names that its export has.
struct ExportSubject {
  std::shared_ptr<const void> owner;
  const nn::Module* module = nullptr;
  onnx::BuildGraph build;
  std::vector<std::string> inputs, outputs;
  int64_t context = 0;                               // tokens of a sequence; 0: it reads no tokens
  std::optional<quantization::Scheme> learned = {};  // by quantization-aware training
};
// Captures the forward pass of a model, for batches of the type that `type` returns.
onnx::BuildGraph forward_of(const Model& model, std::function<Type(int64_t)> type);
// Returns the number of tokens of a sequence: `given`, or if that is 0, the usual number but at
// most `most`. Throws Error(usage) if `given` exceeds `most`, the model's limit.
int64_t checked_context(int64_t given, int64_t most);
// Throws Error(usage) for a flag that is for other models: `whom`.
void refuse_flag(bool given, const char* flag, const char* whom, const std::string& model);

}  // namespace weft::cli
