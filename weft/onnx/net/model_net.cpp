#include "weft/onnx/net/model_net.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/onnx/net/narrow.h"
#include "weft/onnx/net/net.h"

namespace weft::onnx {
namespace {
// Companions are inputs that follow from the tokens of a batch, under the names that exporters of
// Hugging Face's models give them.
Tensor attention_mask(const Tensor& tokens, int64_t padding) { return tokens != padding; }
Tensor token_types(const Tensor& tokens, int64_t) { return zeros_like(tokens); }
Tensor positions(const Tensor& tokens, int64_t) { return iota(tokens.shape(), 1); }
struct Companion {
  std::string_view name;
  Tensor (*of)(const Tensor& tokens, int64_t padding);
};
constexpr Companion companions[] = {{"attention_mask", attention_mask},
                                    {"token_type_ids", token_types},
                                    {"position_ids", positions}};
const Companion* companion_of(const ValueInfo& input) {
  const auto found = std::ranges::find(companions, input.name, &Companion::name);
  return found == std::end(companions) ? nullptr : found;
}

std::vector<std::string_view> companion_names() {
  std::vector<std::string_view> names;
  for (const Companion& each : companions) names.push_back(each.name);
  return names;
}

// Returns the index of the input that takes the samples: the one input that is no companion.
size_t samples_input(const Net& net, const std::string& name, InputKind kind) {
  std::optional<size_t> found;
  for (size_t i = 0; i < net.inputs().size(); ++i) {
    if (kind == InputKind::tokens && companion_of(net.inputs()[i]) != nullptr) continue;
    if (found)
      throw Error(ErrorKind::usage,
                  "{} has the inputs '{}' and '{}', and the data fill one of them. Inputs besides "
                  "tokens may be {}.",
                  name, io::printable(net.inputs()[*found].name),
                  io::printable(net.inputs()[i].name), fmt::join(companion_names(), ", "));
    found = i;
  }
  if (!found) throw Error(ErrorKind::usage, "{} has no input for the samples.", name);
  return *found;
}

// Returns the index of the output that is the logits.
size_t logits_output(const std::vector<ValueInfo>& outputs, const std::string& name) {
  if (outputs.size() == 1) return 0;
  const auto found = std::ranges::find(outputs, "logits", &ValueInfo::name);
  if (found == outputs.end())
    throw Error(ErrorKind::usage,
                "{} has {} outputs, of which none is called logits; a net that is trained has one.",
                name, outputs.size());
  return static_cast<size_t>(found - outputs.begin());
}

class NetModel : public weft::Model {
 public:
  NetModel(onnx::Model file, const TaskShape& task)
      : weft::Model(task.kind, {{"model_type", std::string("onnx")}}),
        net_(*this, std::move(file)),
        name_(io::printable(net_.model().file)),
        samples_(samples_input(net_, name_, task.kind)),
        logits_(logits_output(net_.outputs(), name_)),
        padding_(task.padding) {
    check_samples(task);
  }

  const onnx::Model& file() const { return net_.model(); }
  Ends ends() const { return {net_.inputs()[samples_].name, net_.outputs()[logits_].name}; }

 protected:
  Tensor forward(const Tensor& x) const override {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < net_.inputs().size(); ++i) {
      const ValueInfo& input = net_.inputs()[i];
      inputs.push_back(i == samples_ ? x
                                     : cast(companion_of(input)->of(x, padding_),
                                            input.dtype.value_or(x.dtype())));
    }
    return net_(inputs)[logits_];
  }

 private:
  // Throws unless the net takes a batch of samples.
  void check_samples(const TaskShape& task) const {
    const Type sample = task.batch(1);
    const ValueInfo& input = net_.inputs()[samples_];
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
                  name_, io::printable(input.name), to_string(input), to_string(sample));
  }

  Net net_;
  std::string name_;
  size_t samples_, logits_;
  int64_t padding_;
};
}  // namespace

std::unique_ptr<weft::Model> make_model(Model file, const TaskShape& task) {
  return std::make_unique<NetModel>(std::move(file), task);
}

const Model* file_of(const weft::Model& net) {
  const auto* imported = dynamic_cast<const NetModel*>(&net);
  return imported == nullptr ? nullptr : &imported->file();
}
std::optional<Ends> ends_of(const weft::Model& net) {
  const auto* model = dynamic_cast<const NetModel*>(&net);
  return model == nullptr ? std::nullopt : std::optional(model->ends());
}

bool has_labels(const Model& file, int64_t tokens) {
  const std::vector<ValueInfo>& outputs = file.graph.outputs;
  const ValueInfo& logits = outputs[logits_output(outputs, io::printable(file.file))];
  if (!logits.shape || logits.shape->empty()) return false;
  const int64_t classes = logits.shape->back().extent;
  return logits.shape->size() == 2 || (classes >= 0 && classes < tokens);
}

}  // namespace weft::onnx
