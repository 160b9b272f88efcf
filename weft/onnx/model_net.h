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

}  // namespace weft::onnx
