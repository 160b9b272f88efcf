// Declares how runs use nets from ONNX files (model.pretrained: net.onnx): which file a recipe or a
// checkpoint names, how such a net reads texts with labels, and which files checkpoints keep.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "weft/models/model.h"
#include "weft/onnx/file/model.h"
#include "weft/train/task/dataset.h"

namespace weft::train {

// Returns whether model.pretrained is an ONNX file. Checkpoints keep its graph as net_file, whose
// weights are in the checkpoint's own weight file.
bool trains_onnx(const Recipe& recipe);
inline constexpr std::string_view net_file = "model.onnx";
// Returns the path of net_file in `checkpoint`; the recipe's ONNX file if the checkpoint has none,
// or is "".
std::string onnx_file_of(const Recipe& recipe, const std::string& checkpoint);

// This file of a checkpoint keeps the labels of texts, by class.
inline constexpr std::string_view labels_file = "labels.json";

// Sets the frame and the labels of `data`, whose tokenizer has been read, if the net predicts
// labels of a text or of its words rather than the next token: its logits are [batch, classes], or
// fewer than the tokenizer's tokens. If the checkpoint has labels, these are used. Throws
// Error(data) for a tokenizer without a padding token, and for a damaged checkpoint.
void read_labels(DataOptions& data, const onnx::Model& net);

// Makes the model of a net for the task of an experiment. Throws as onnx::make_model() does.
std::unique_ptr<Model> make_imported(const onnx::Model& net, const Experiment& experiment);
// Throws Error(usage) where the experiment's net does not take its batches, tells fewer classes
// apart than the data have, or knows fewer tokens. Returns how many classes it tells apart.
int64_t check_net(const Experiment& experiment, const std::string& file);

// Adds to an experiment the files that its checkpoints keep: the graph of the net in `file`, and
// the labels of texts. Warns if the recipe's file is by now another net than `file`, which is in
// `checkpoint` then.
void add_imported_files(Experiment& experiment, const std::string& file,
                        const std::string& checkpoint);

}  // namespace weft::train
