// Prints what `weft quantize MODEL OUT.onnx` wrote and measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/cli/models/onnx_output.h"
#include "weft/quantization/int8.h"
#include "weft/quantization/layers.h"
#include "weft/train/task/evaluation.h"

namespace weft::cli {

// An OutputChange is the error of an output of the int8 net against the same output in float32.
struct OutputChange {
  std::string output;
  quantization::OutputError error;
};
// Measured holds the measurements of the net with int8 layers, and of the net before; empty without
// data.
struct Measured {
  std::vector<double> decibels = {};  // of each layer: quantization::sensitivities()
  std::optional<train::Evaluation> before = {}, after = {};
  std::vector<OutputChange> errors = {};  // on arrays, which have no labels
};

struct Int8Report {
  const std::string& path;
  const quantization::Layers& layers;
  const quantization::Scheme& scheme;
  const OnnxWritten& written;
  const Measured& measured;
};
// Prints the layers, the worst first, and what was measured; or one JSON object.
void report_int8(const Int8Report& report, bool as_json);

}  // namespace weft::cli
