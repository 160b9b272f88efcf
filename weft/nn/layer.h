// A Layer is a module from one tensor to one tensor, so that layers can be chained.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/nn/module.h"

namespace weft::nn {

class Layer : public Module {
 public:
  using Module::Module;
  ~Layer() override;
  // Nodes that forward() makes carry this layer's path and the caller's line.
  Tensor operator()(const Arg& x) const;

 protected:
  virtual Tensor forward(const Tensor& x) const = 0;
};

// While an OutputScope lives, it keeps the results of the layers at `paths` that run on its thread.
// Of nested scopes only the innermost keeps results.
class OutputScope {
 public:
  explicit OutputScope(std::vector<std::string> paths);
  ~OutputScope();
  OutputScope(const OutputScope&) = delete;
  OutputScope& operator=(const OutputScope&) = delete;
  // Returns the last result of the layer at paths[i]; empty if that layer did not run.
  const Tensor& output(size_t i) const { return outputs_[i]; }

  // Tells the innermost scope, if any, the result of a layer, or of another part of a model that
  // has a path.
  static void note(const std::string& path, const Tensor& result);

 private:
  std::vector<std::string> paths_;
  std::vector<Tensor> outputs_;
  OutputScope* outer_;
};

// Sequential applies layers one after the other, named "0", "1", ... as in PyTorch.
class Sequential : public Layer {
 public:
  using Layer::Layer;
  ~Sequential() override;
  // Makes the next layer from the arguments after the name, as in add<Linear>(784, 256).
  template <std::derived_from<Layer> L, class... Args>
  L& add(Args&&... args) {
    auto layer =
        std::make_unique<L>(*this, std::to_string(layers_.size()), std::forward<Args>(args)...);
    L& made = *layer;
    layers_.push_back(std::move(layer));
    return made;
  }
  // Appends a layer that was made with this as its parent.
  Layer& push_back(std::unique_ptr<Layer> layer);

  size_t size() const { return layers_.size(); }
  const Layer& operator[](size_t i) const { return *layers_[i]; }
  using Layer::operator();

 protected:
  Tensor forward(const Tensor& x) const override;

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace weft::nn
