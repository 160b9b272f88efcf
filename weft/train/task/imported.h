// Declares what runs need of nets from ONNX files (model.pretrained: net.onnx): the file that a
// recipe or a checkpoint names, how such a net reads texts with labels, and what checkpoints keep.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "weft/models/model.h"
#include "weft/onnx/file/model.h"
#include "weft/train/task/dataset.h"

namespace weft::train {

// Returns whether model.pretrained is an ONNX file. Checkpoints keep its graph as net_file, which
// has its weights in the checkpoint's own.
bool trains_onnx(const Recipe& recipe);
inline constexpr std::string_view net_file = "model.onnx";
// Returns that file of a checkpoint; the recipe's where it has none, or "" is given.
std::string onnx_file_of(const Recipe& recipe, const std::string& checkpoint);

// This file of a checkpoint keeps the labels of texts, by class.
inline constexpr std::string_view labels_file = "labels.json";

// Sets the frame and the labels of `data`, whose tokenizer is read, where the net's logits are
// those of a text or of its words rather than of the next token: [batch, classes], or fewer than
// the tokenizer has tokens. Labels are those of the checkpoint, where it has some. Throws
// Error(data) for a tokenizer without a padding token, and for a damaged checkpoint.
void read_labels(DataOptions& data, const onnx::Model& net);

// Makes the model of a net for the task of an experiment. Throws as onnx::make_model() does.
std::unique_ptr<Model> make_imported(const onnx::Model& net, const Experiment& experiment);
// Throws Error(usage) where the experiment's net does not take its batches, tells fewer classes
// apart than the data have, or knows fewer tokens. Returns how many classes it tells apart.
int64_t check_net(const Experiment& experiment, const std::string& file);

// Adds to an experiment what its checkpoints keep: the graph of the file, which is that of
// `checkpoint` where it has one, and the labels of texts. Says where the recipe's file is another
// net by now.
void keep_imported(Experiment& experiment, const std::string& file, const std::string& checkpoint);

}  // namespace weft::train
