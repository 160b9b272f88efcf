// Makes an ONNX file a Model, which recipes train (model.pretrained: net.onnx) and evaluate.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "weft/models/model.h"
#include "weft/onnx/file/model.h"

namespace weft::onnx {

// Makes a model from the task's samples to logits. Its weights are those of the file, under their
// names, in the same memory. Besides tokens it may take attention_mask (0 at padding),
// token_type_ids (zeros) and position_ids. Of several outputs, the one called logits is used.
// Throws Error(data) as Net does, and Error(usage) for a net of other inputs or outputs, or one
// that does not take the task's samples.
std::unique_ptr<weft::Model> make_model(Model file, const TaskShape& task);

// Returns whether the logits classify whole texts [batch, classes] or their words
// [batch, length, classes], instead of scoring the next of `tokens` tokens. Throws Error(usage) as
// make_model() does.
bool has_labels(const Model& file, int64_t tokens);

// Ends holds the names of the samples' input and of the logits in the file of a net.
struct Ends {
  std::string samples, logits;
};
// Returns nullopt for a net that make_model() did not make.
std::optional<Ends> ends_of(const weft::Model& net);

// Returns the bytes of a model's file without the elements of the model's variables. These become
// external data in `weights`, a safetensors file of io::state_of(model) in the same folder. Both
// files together are the net with those weights, for weft and for other runtimes: batch
// normalization uses running statistics that are state. Files that differ only in weights give the
// same bytes.
std::string checkpoint_form(const std::string& file, const weft::Model& model,
                            const std::string& weights);

}  // namespace weft::onnx
