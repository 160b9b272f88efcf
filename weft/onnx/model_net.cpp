#include "weft/onnx/model_net.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/onnx/net.h"

namespace weft::onnx {
namespace {
class NetModel : public weft::Model {
 public:
  NetModel(onnx::Model file, InputKind kind)
      : weft::Model(kind, {{"model_type", std::string("onnx")}}), net_(*this, std::move(file)) {}

  const Net& net() const { return net_; }

 protected:
  Tensor forward(const Tensor& x) const override { return net_(std::array{x})[0]; }

 private:
  Net net_;
};

// Throws unless the net takes a batch of samples and gives the classes of each.
void check_samples(const Net& net, const std::string& file, const TaskShape& task) {
  const std::string name = io::printable(file);
  if (net.inputs().size() != 1 || net.outputs().size() != 1)
    throw Error(ErrorKind::usage,
                "{} has {} inputs and {} outputs; a net that is trained has one of "
                "each.",
                name, net.inputs().size(), net.outputs().size());
  const Type sample = task.batch(1);
  const ValueInfo& input = net.inputs()[0];
  bool fits = !input.dtype || *input.dtype == sample.dtype;
  if (input.shape) {
    fits = fits && std::ssize(*input.shape) == sample.shape.size();
    for (int axis = 1; fits && axis < sample.shape.size(); ++axis) {
      const int64_t extent = (*input.shape)[static_cast<size_t>(axis)].extent;
      fits = extent < 0 || extent == sample.shape[axis];
    }
  }
  if (!fits)
    throw Error(ErrorKind::usage,
                "{} does not take the samples of these data: its input '{}' is {}, "
                "and they are {}.",
                name, io::printable(input.name), to_string(input), to_string(sample));
}
}  // namespace

std::unique_ptr<weft::Model> load_model(const std::string& file, const TaskShape& task) {
  auto model = std::make_unique<NetModel>(read(file), task.kind);
  check_samples(model->net(), file, task);
  return model;
}

}  // namespace weft::onnx
