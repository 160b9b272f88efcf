// Makes an ONNX file a Model, which recipes train (model.pretrained: net.onnx) and evaluate.
#pragma once

#include <memory>
#include <string>

#include "weft/models/model.h"

namespace weft::onnx {

// Reads a net from one input to the logits of the task's classes; its weights are those of the
// file, under their names. Throws Error(data) as read() and Net do, and Error(usage) for a net of
// several inputs or outputs, or one that does not take the task's samples.
std::unique_ptr<weft::Model> load_model(const std::string& file, const TaskShape& task);

// Returns the bytes of the file of a model, without the elements of the model's variables: they are
// external data in `weights`, a safetensors file of io::state_of(model) in the same folder. Both
// together are the net with those weights, for weft and for other runtimes. Files that differ in
// weights alone give the same bytes.
std::string kept_form(const std::string& file, const weft::Model& model,
                      const std::string& weights);

}  // namespace weft::onnx
