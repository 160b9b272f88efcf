#include "weft/models/zoo.h"

#include "weft/models/convnet.h"
#include "weft/models/gpt.h"
#include "weft/models/mlp.h"
#include "weft/models/resnet.h"

namespace weft::models {
namespace {
// Entry of a model that has a config struct with `read` and a constructor from it.
template <class M, class Config>
ModelEntry entry(std::string name, std::string description) {
  return {std::move(name), std::move(description),
          [](const nn::Options& config, const TaskShape& task) -> std::unique_ptr<Model> {
            return std::make_unique<M>(Config::read(config, task));
          }};
}
}  // namespace

void check_task(std::string_view name, InputKind kind, const TaskShape& task) {
  int rank = kind == InputKind::images ? 3 : 1;
  bool fits = task.kind == kind && task.input.size() == rank;
  if (!fits)
    throw Error(ErrorKind::usage, "[{}] takes {}. Got {} of shape {}.", name, weft::name(kind),
                weft::name(task.kind), to_string(task.input));
  if (task.classes < 1)
    throw Error(ErrorKind::usage, "[{}] needs at least one class. Got {}.", name, task.classes);
}

std::vector<ModelEntry> zoo() {
  std::vector<ModelEntry> all = {
      entry<Mlp, MlpConfig>("mlp", "fully connected layers with an activation between"),
      entry<Cnn, CnnConfig>("cnn", "two 3x3 convolutions with pooling, two linear layers"),
      entry<LeNet5, LeNet5Config>("lenet5", "LeNet-5 (LeCun et al. 1998)"),
      entry<Gpt, GptConfig>("gpt", "decoder-only transformer, pre-norm, tied head (GPT-2)"),
      entry<ResNet, ResNetConfig>("resnet", "residual net for small images; depth 20, 32, 44, ..."),
  };
  for (int64_t depth : {20, 32, 44, 56}) {
    std::string digits = std::to_string(depth);
    all.push_back({"resnet" + digits, "ResNet-" + digits + ", CIFAR form (He et al. 2015)",
                   [depth](const nn::Options& config, const TaskShape& task) {
                     nn::Options with_depth = config;
                     if (with_depth.find("depth") == nullptr) with_depth.set("depth", depth);
                     return std::make_unique<ResNet>(ResNetConfig::read(with_depth, task));
                   }});
  }
  return all;
}

}  // namespace weft::models
