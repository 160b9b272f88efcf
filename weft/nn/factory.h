// Makes layers by name, as a recipe lists them: [{conv2d: {out_channels: 32, kernel_size: 3}},
// relu, ...]. The features or channels of a layer's input are known, and so are no options.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/nn/layer.h"
#include "weft/nn/options.h"

namespace weft::nn {

struct LayerSpec {
  std::string name;  // "conv2d"
  Options options = {};
  UserLocation where = {};  // the recipe's line, named by errors and reports; `file` is interned
};

struct LayerKind {
  std::string_view name;
  std::string_view options;  // as written in a recipe; "" for none
  std::string_view doc;
};
std::vector<LayerKind> layer_kinds();

// Makes the layer `spec` for inputs of type `input` (with a batch axis) as child `name` of
// `parent`. Errors begin with `place` ("layers[2]") and name the option and its limit.
std::unique_ptr<Layer> make_layer(Module& parent, const std::string& name, const LayerSpec& spec,
                                  const Type& input, const std::string& place);

// Appends the layers, each made for the result type of the layer before it; returns the result type
// of the last.
Type add_layers(Sequential& into, std::span<const LayerSpec> specs, const Type& input);

}  // namespace weft::nn
