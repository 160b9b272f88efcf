#include "weft/nn/layer.h"

namespace weft::nn {

namespace {
thread_local OutputScope* outputs = nullptr;  // the innermost
}

OutputScope::OutputScope(std::vector<std::string> paths)
    : paths_(std::move(paths)), outputs_(paths_.size()), outer_(std::exchange(outputs, this)) {}
OutputScope::~OutputScope() { outputs = outer_; }
void OutputScope::note(const std::string& path, const Tensor& result) {
  if (outputs == nullptr) return;
  for (size_t i = 0; i < outputs->paths_.size(); ++i)
    if (outputs->paths_[i] == path) outputs->outputs_[i] = result;
}

Layer::~Layer() = default;

Tensor Layer::operator()(const Arg& x) const {
  OriginScope scope(path(), x.where);
  WEFT_CHECK(x.value.defined(), "[{}] a layer takes a tensor.", path());
  Tensor result = forward(x.value);
  OutputScope::note(path(), result);
  return result;
}

Sequential::~Sequential() {
  while (!layers_.empty()) layers_.pop_back();  // newest first, which ~Module() finds fastest
}

Layer& Sequential::push_back(std::unique_ptr<Layer> layer) {
  WEFT_ASSERT(!children().empty() && children().back() == layer.get(),
              "a layer of a Sequential is its newest child");
  layers_.push_back(std::move(layer));
  return *layers_.back();
}

Tensor Sequential::forward(const Tensor& x) const {
  Tensor y = x;
  for (const auto& layer : layers_) y = (*layer)(y);
  return y;
}

}  // namespace weft::nn
