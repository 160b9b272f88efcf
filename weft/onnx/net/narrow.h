// Makes nets of ONNX files narrower. The shapes that a net's values have with fewer channels decide
// the constants of its nodes (groups of depthwise convolutions, operands of Reshape and Expand),
// its initializers, and the declared types of its values.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/models/model.h"
#include "weft/onnx/file/model.h"

namespace weft::onnx {

// A Narrowing says what changes in a net.
struct Narrowing {
  std::map<std::string, Tensor> initializers;  // elements in memory, by the initializer's name
  // Shapes of results of nodes before and after, by name; only shapes that change.
  std::map<std::string, std::pair<Shape, Shape>, std::less<>> values;
};

// Returns the file of a net that make_model() made; null for any other model.
const Model* file_of(const weft::Model& net);
// Returns the names of the results of the nodes of a file, by which nn::OutputScope keeps them.
std::vector<std::string> results_of(const Model& file);

// Returns the narrower file. Constants that its nodes compute do not change, so that the net may
// refuse its inputs.
Model narrowed(Model file, const Narrowing& narrowing);
// Narrows the file that a checkpoint keeps (checkpoint_form) in the same way. `net` is the narrower
// model, whose state will be in `weights`.
std::string narrowed_form(const std::string& form, const Model& file, const Narrowing& narrowing,
                          const weft::Model& net, const std::string& weights);

// An Edit is the change of one node; internal to narrow.cpp and checkpoint_form.cpp.
struct Edit {
  int64_t groups = 0;          // of a convolution; 0: no change
  std::vector<int64_t> shape;  // new operand 1, a new initializer; empty: no change
  std::string shape_name;
  std::string unread;  // initializer that loses its last reader; empty: none
};
// Returns the edits of a file by the name of the node's first result.
std::map<std::string, Edit, std::less<>> edits_of(const Model& file, const Narrowing& narrowing);

}  // namespace weft::onnx
