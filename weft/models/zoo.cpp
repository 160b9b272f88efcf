#include "weft/models/zoo.h"

#include <algorithm>

#include "weft/models/alexnet.h"
#include "weft/models/convnet.h"
#include "weft/models/families/encoders.h"
#include "weft/models/gpt.h"
#include "weft/models/llama.h"
#include "weft/models/mlp.h"
#include "weft/models/recurrent.h"
#include "weft/models/resnet.h"

namespace weft::models {
namespace {
// Returns the entry of a model with a config struct that has `read`; `preset` has the values of
// options that the user does not set.
template <class M, class Config>
ModelEntry entry(std::string name, std::string doc, const nn::Options& preset = {}) {
  return {std::move(name), std::move(doc),
          [preset](const nn::Options& config, const TaskShape& task) -> std::unique_ptr<Model> {
            return std::make_unique<M>(Config::read(config.over(preset), task));
          }};
}

void add_resnets(std::vector<ModelEntry>& zoo) {
  auto add = [&](const std::string& form, const std::string& title, int64_t depth) {
    std::string digits = std::to_string(depth);
    zoo.push_back(entry<ResNet, ResNetConfig>("resnet" + digits,
                                              "ResNet-" + digits + ", " + title + " form",
                                              {{"form", form}, {"depth", depth}}));
  };
  for (int64_t depth : {20, 32, 44, 56}) add("cifar", "CIFAR", depth);
  for (int64_t depth : {18, 34, 50, 101, 152}) add("imagenet", "ImageNet", depth);
}

void add_gpts(std::vector<ModelEntry>& zoo) {
  auto add = [&](const char* name, const char* count, int64_t width, int64_t layers) {
    zoo.push_back(entry<Gpt, GptConfig>(name, fmt::format("GPT-2, {} million parameters", count),
                                        {{"vocab_size", int64_t{50257}},
                                         {"max_position_embeddings", int64_t{1024}},
                                         {"hidden_size", width},
                                         {"num_hidden_layers", layers},
                                         {"num_attention_heads", width / 64}}));
  };
  add("gpt2", "124", 768, 12);
  add("gpt2-medium", "355", 1024, 24);
  add("gpt2-large", "774", 1280, 36);
  add("gpt2-xl", "1558", 1600, 48);
}

void add_llamas(std::vector<ModelEntry>& zoo) {
  struct Size {
    const char *name, *description;
    int64_t width, hidden, layers, heads;
    bool tied;
    int64_t key_heads = 8, vocabulary = 128256, positions = 131072;
    double theta = 500000;
  };
  // The sizes are from the config.json of Llama 2 (7B), 3.2 (1B) and 3.1.
  constexpr Size sizes[] = {
      {"llama-1b", "Llama form, 1.2 billion parameters", 2048, 8192, 16, 32, true},
      {"llama-7b", "Llama form, 6.7 billion parameters", 4096, 11008, 32, 32, false, 32, 32000,
       4096, 10000},
      {"llama-8b", "Llama form, 8.0 billion parameters", 4096, 14336, 32, 32, false},
      {"llama-70b", "Llama form, 70.6 billion parameters", 8192, 28672, 80, 64, false},
      {"llama-405b", "Llama form, 405.9 billion parameters", 16384, 53248, 126, 128, false},
  };
  for (const Size& size : sizes)
    zoo.push_back(entry<Llama, LlamaConfig>(size.name, size.description,
                                            {{"vocab_size", size.vocabulary},
                                             {"max_position_embeddings", size.positions},
                                             {"hidden_size", size.width},
                                             {"intermediate_size", size.hidden},
                                             {"num_hidden_layers", size.layers},
                                             {"num_attention_heads", size.heads},
                                             {"num_key_value_heads", size.key_heads},
                                             {"rope_theta", size.theta},
                                             {"rms_norm_eps", 1e-5},
                                             {"tie_word_embeddings", size.tied}}));
}
}  // namespace

void check_task(std::string_view name, InputKind kind, const TaskShape& task, Labels labels) {
  int rank = kind == InputKind::images ? 3 : 1;
  bool fits = task.kind == kind && task.input.size() == rank;
  if (!fits)
    throw Error(ErrorKind::usage, "[{}] takes {}. Got {} of shape {}.", name, weft::name(kind),
                weft::name(task.kind), to_string(task.input));
  if (kind == InputKind::tokens && labels == Labels::of_tokens && !task.labels_tokens())
    throw Error(ErrorKind::usage,
                "[{}] predicts a label for each token. Got one for each sample. Hint: bert.", name);
  if (task.classes < 1)
    throw Error(ErrorKind::usage, "[{}] needs at least one class. Got {}.", name, task.classes);
}

std::vector<ModelEntry> zoo() {
  std::vector<ModelEntry> all = {
      entry<Mlp, MlpConfig>("mlp", "fully connected layers with an activation between"),
      entry<Cnn, CnnConfig>("cnn", "two 3x3 convolutions with pooling, two linear layers"),
      entry<LeNet5, LeNet5Config>("lenet5", "LeNet-5 (LeCun et al. 1998)"),
      entry<Gpt, GptConfig>("gpt", "decoder-only transformer, pre-norm, tied head (GPT-2)"),
      entry<Llama, LlamaConfig>("llama",
                                "decoder-only transformer: RMS norm, rotary positions, "
                                "SwiGLU, grouped heads"),
      {"bert", "encoder transformer, post-norm: masked tokens, or samples", make_bert},
      entry<RecurrentLm, RecurrentConfig>("lstm", "language model of LSTM layers",
                                          {{"cell", std::string("lstm")}}),
      entry<RecurrentLm, RecurrentConfig>("gru", "language model of GRU layers",
                                          {{"cell", std::string("gru")}}),
      entry<AlexNet, AlexNetConfig>("alexnet", "AlexNet in one tower (Krizhevsky 2014)"),
      entry<ResNet, ResNetConfig>("resnet",
                                  "residual net (He et al. 2015), form cifar or imagenet"),
  };
  add_resnets(all);
  add_gpts(all);
  add_llamas(all);
  std::ranges::sort(all, {}, &ModelEntry::name);
  return all;
}

}  // namespace weft::models
