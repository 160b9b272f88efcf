#include "weft/train/methods/pruning.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/logging.h"
#include "weft/base/text/pattern.h"
#include "weft/base/text/suggest.h"
#include "weft/io/files.h"
#include "weft/nn/layers.h"
#include "weft/optim/pruning.h"
#include "weft/quantization/layers.h"
#include "weft/train/experiment.h"
#include "weft/train/methods/narrowed.h"
#include "weft/train/task/imported.h"

namespace weft::train {
namespace {
using optim::Prunable;
using optim::PruningOptions;
using optim::PruningPattern;

PruningOptions options_of(const Recipe& recipe, int64_t total_steps) {
  const int64_t begin = recipe->pruning.begin_step;
  PruningOptions options{.pattern = *recipe->pruning.pattern,
                         .global = recipe->pruning.scope == PruningScope::global,
                         .sparsity = recipe->pruning.sparsity,
                         .initial_sparsity = recipe->pruning.initial_sparsity,
                         .begin = begin,
                         .end = recipe->pruning.end_step.value_or(begin),
                         .frequency = recipe->pruning.frequency};
  if (options.end < begin)
    recipe.refuse(keys::pruning::end_step,
                  fmt::format("pruning.end_step is at least pruning.begin_step. Got {} and {}.",
                              options.end, begin));
  if (options.end >= total_steps)
    recipe.refuse(recipe->pruning.end_step ? keys::pruning::end_step : keys::pruning::begin_step,
                  fmt::format("pruning ends before the last of the {} steps of the run, so that "
                              "what is left trains on. Got step {}.",
                              total_steps, options.end));
  if (options.initial_sparsity > options.sparsity)
    recipe.refuse(
        keys::pruning::initial_sparsity,
        fmt::format("pruning.initial_sparsity is at most pruning.sparsity. Got {} and {}.",
                    options.initial_sparsity, options.sparsity));
  if (options.pattern == PruningPattern::two_of_four && options.sparsity != 0.5)
    recipe.refuse(keys::pruning::sparsity,
                  fmt::format("pruning.pattern 2:4 has sparsity 0.5. Got {}.", options.sparsity));
  if (options.pattern == PruningPattern::two_of_four && options.end != begin)
    recipe.refuse(keys::pruning::end_step,
                  "pruning.pattern 2:4 prunes at once, at pruning.begin_step: it has no end_step.");
  return options;
}

// Returns the weights that multiply inputs and train, by name: matrices and the kernels of
// convolutions. Embeddings, and layers that share an embedding's weight, are left out.
std::vector<std::pair<std::string, Prunable>> weights_of(const nn::Module& model) {
  std::set<const VariableState*> embedded;
  std::vector<const nn::Module*> modules = {&model};
  for (size_t i = 0; i < modules.size(); ++i) {
    modules.insert(modules.end(), modules[i]->children().begin(), modules[i]->children().end());
    if (const auto* embedding = dynamic_cast<const nn::Embedding*>(modules[i]))
      embedded.insert(embedding->weight.state().get());
  }
  std::map<std::string, const nn::Module*> by_path;
  for (const nn::Module* module : modules) by_path[module->path()] = module;
  std::vector<std::pair<std::string, Prunable>> weights;
  for (const auto& [name, variable] : model.named_parameters()) {
    const size_t dot = name.rfind('.');
    const nn::Module* const owner = by_path[name.substr(0, dot == std::string::npos ? 0 : dot)];
    const auto* const linear = dynamic_cast<const nn::Linear*>(owner);
    const bool transposed = dynamic_cast<const nn::ConvTranspose*>(owner) != nullptr ||
                            (linear != nullptr && linear->transposed());
    const bool is_kernel = dynamic_cast<const nn::ConvLayer*>(owner) != nullptr;
    const bool is_matrix = variable.rank() == 2 && name.find("weight") != std::string::npos;
    if ((!is_matrix && !(is_kernel && variable.rank() > 2)) || variable.frozen() ||
        embedded.contains(variable.state().get()))
      continue;
    weights.emplace_back(name, Prunable{variable, transposed ? 0 : 1});
  }
  return weights;
}

// Returns the weights of an imported net that convolutions and products of its graph multiply their
// inputs by, whose modules do not say so; none that tokens are looked up in.
std::vector<std::pair<std::string, Prunable>> weights_in_graph(const Experiment& experiment) {
  const Graph graph = graph_of(experiment);
  std::set<const VariableState*> embedded;
  for (const Value& value : graph.nodes())
    if (value->is("gather")) embedded.insert(value->inputs[0]->variable.get());
  std::map<const VariableState*, int> contracted;
  for (const quantization::Layer& layer : quantization::layers_of(graph).layers)
    if (layer.is_convolution || layer.weight->type.shape.size() == 2)
      contracted[layer.weight.get()] = layer.is_convolution ? 1 : 1 - layer.channel_axis;
  std::vector<std::pair<std::string, Prunable>> weights;
  for (const auto& [name, variable] : experiment.model->named_parameters())
    if (const auto found = contracted.find(variable.state().get());
        found != contracted.end() && !variable.frozen() && !embedded.contains(found->first))
      weights.emplace_back(name, Prunable{variable, found->second});
  return weights;
}

// Returns the weights whose output channels can be removed, in the order of their groups.
std::vector<std::pair<std::string, Prunable>> channels_of(const Channels& channels) {
  std::vector<std::pair<std::string, Prunable>> weights;
  for (const ChannelGroup& group : channels.groups()) {
    const ChannelSlices& weight = group.weight;
    Prunable& added =
        weights
            .emplace_back(weight.variable.name(),
                          Prunable{.weight = weight.variable, .channel_axis = weight.axis})
            .second;
    for (const ChannelSlices& part : group.follows)
      if (is_pruned_with(part)) added.follows.push_back(part);
  }
  return weights;
}

class Pruning : public Method {
 public:
  explicit Pruning(std::unique_ptr<optim::Pruner> pruner) : pruner_(std::move(pruner)) {}

  std::vector<Variable> state() const override { return pruner_->state(); }
  Tensor masked(const Variable& parameter, const Tensor& value) const override {
    return pruner_->masked(parameter, value);
  }
  void after_update(const AfterUpdate&) const override { pruner_->hold(); }

  std::vector<MethodStep> steps() const override {
    const Type counts{DType::i64, {std::ssize(pruner_->counts_at(0))}};
    std::vector<MethodStep> all;
    if (pruner_->searches())
      all.push_back({"search", {counts}, [this](std::span<const Tensor> in) {
                       pruner_->search(in[0]);
                       return std::vector<Tensor>();
                     }});
    all.push_back({"prune", {counts}, [this](std::span<const Tensor> in) {
                     return std::vector{pruner_->prune(in[0])};
                   }});
    return all;
  }
  std::optional<MethodEvent> before_update(int64_t done, const RunStep& run) const override {
    if (!pruner_->is_due(done)) return std::nullopt;
    const std::vector<int64_t> units = pruner_->counts_at(done);
    const std::array counts{tensor(units, {std::ssize(units)})};
    if (pruner_->searches())
      for (int round = 0; round < optim::Pruner::rounds; ++round) run("search", counts);
    const double pruned = run("prune", counts).front().item();
    return MethodEvent{"pruned", "sparsity", pruned / static_cast<double>(pruner_->weights())};
  }

 private:
  std::unique_ptr<optim::Pruner> pruner_;
};

// Refuses to prune channels that `weft prune` could not remove later.
void check_removable(const Experiment& experiment, const TracedModel& model,
                     const std::vector<std::pair<std::string, Prunable>>& named) {
  std::vector<bool> groups;
  for (const ChannelGroup& group : model.channels.groups())
    groups.push_back(std::ranges::any_of(named, [&](const auto& each) {
      return each.second.weight.state() == group.weight.variable.state();
    }));
  try {
    check_narrows(experiment, model, groups);
  } catch (const Error& error) {
    experiment.recipe.refuse(keys::pruning::pattern,
                             fmt::format("pruning.pattern channels: {}", error.what()));
  }
}
}  // namespace

bool is_pruned_with(const ChannelSlices& part) {
  return part.variable.category() == Category::parameter && !part.variable.frozen();
}

namespace {
// With pattern 2:4, weights whose input features are no multiple of four stay whole, which a note
// says if `say`. Throws Error(usage) for a schedule that does not end before the run, patterns that
// match nothing, a model without weights to prune, and channels that the file of an imported net
// cannot lose.
std::unique_ptr<optim::Pruner> make_pruner(const Experiment& experiment, bool say) {
  const Recipe& recipe = experiment.recipe;
  const Model& model = *experiment.model;
  const PruningOptions options = options_of(recipe, experiment.total_steps);
  const bool channels = options.pattern == PruningPattern::channels;
  std::optional<TracedModel> net;
  if (channels) net.emplace(traced(experiment));
  auto named = channels              ? channels_of(net->channels)
               : trains_onnx(recipe) ? weights_in_graph(experiment)
                                     : weights_of(model);
  if (named.empty())
    recipe.refuse(
        keys::pruning::pattern,
        !channels ? "pruning.pattern: this model has no weights to prune that train."
        : trains_onnx(recipe)
            ? "pruning.pattern channels: no channels of this net can be removed: additions, "
              "outputs or other operations need all of them." +
                  (net->channels.shared().empty()
                       ? ""
                       : fmt::format(" '{}' is part of several layers.",
                                     io::printable(net->channels.shared())))
            : "pruning.pattern channels: this model has no channels that can be removed. Those of "
              "resnet, cnn, mlp and nets of ONNX files have.");
  for (const std::string& pattern : recipe->pruning.exclude) {
    const auto removed =
        std::erase_if(named, [&](const auto& each) { return matches(each.first, pattern); });
    if (removed > 0) continue;
    std::vector<std::string> names;
    names.reserve(named.size());
    for (const auto& [name, weight] : named) names.push_back(name);
    recipe.refuse(keys::pruning::exclude,
                  fmt::format("pruning.exclude: no weight to prune has a name like '{}'.{}{}",
                              io::printable(pattern), did_you_mean(pattern, names),
                              named.empty() ? "" : " The first is " + named.front().first + "."));
  }
  if (channels && trains_onnx(recipe) && !named.empty()) check_removable(experiment, *net, named);
  std::vector<Prunable> weights;
  for (auto& [name, weight] : named) {
    if (options.pattern == PruningPattern::two_of_four &&
        weight.weight.dim(weight.contracted_axis) % 4 != 0) {
      if (say)
        logging::note("pruning 2:4 leaves {} whole: its {} input features are no multiple of 4.",
                      name, weight.weight.dim(weight.contracted_axis));
      continue;
    }
    weights.push_back(std::move(weight));
  }
  if (weights.empty())
    recipe.refuse(keys::pruning::exclude, "pruning: no weight is left to prune.");
  return std::make_unique<optim::Pruner>(std::move(weights), options);
}
}  // namespace

std::unique_ptr<Method> pruning_method(const Experiment& experiment, const MethodOptions& options) {
  if (!options.trains || !experiment.recipe->pruning.pattern) return nullptr;
  return std::make_unique<Pruning>(make_pruner(experiment, options.initialize));
}

}  // namespace weft::train
