// Makes nets of ONNX files narrower: from the shapes that the values of a net have with fewer
// channels follow the constants of its nodes (the groups of depthwise convolutions, the operands
// of Reshape and Expand), its initializers and what the file says of its values.
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
  // Results of nodes whose shapes change, by name: before and after.
  std::map<std::string, std::pair<Shape, Shape>, std::less<>> values;
};

// Returns the file of a net that make_model() made; null for any other model.
const Model* file_of(const weft::Model& net);
// Returns the names of the results of the nodes of a file, by which nn::OutputScope keeps them.
std::vector<std::string> results_of(const Model& file);

// Changes a file. Constants that its nodes compute themselves stay, so that the net may not take
// its inputs any more.
Model narrowed(Model file, const Narrowing& narrowing);
// Does the same to the file that a checkpoint keeps (kept_form). `net` is the narrower model, whose
// state is to be in `weights`.
std::string narrowed_form(const std::string& kept, const Model& file, const Narrowing& narrowing,
                          const weft::Model& net, const std::string& weights);

// An Edit is what changes in a node; internal to narrow.cpp and keep.cpp.
struct Edit {
  int64_t groups = 0;          // of a convolution; 0: stays
  std::vector<int64_t> shape;  // operand 1, an initializer of its own; empty: stays
  std::string shape_name;
  std::string unread;  // the initializer that nothing reads any more; empty: there is none
};
// Returns the edits of a file by the name of the node's first result.
std::map<std::string, Edit, std::less<>> edits_of(const Model& file, const Narrowing& narrowing);

}  // namespace weft::onnx
