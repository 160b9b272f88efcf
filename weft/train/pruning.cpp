#include "weft/train/pruning.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/logging.h"
#include "weft/base/pattern.h"
#include "weft/io/files.h"
#include "weft/nn/layers.h"
#include "weft/quantization/layers.h"
#include "weft/train/imported.h"

namespace weft::train {
namespace {
using optim::Prunable;
using optim::PruningOptions;
using optim::PruningPattern;

constexpr std::pair<std::string_view, PruningPattern> patterns[] = {
    {"unstructured", PruningPattern::unstructured},
    {"2:4", PruningPattern::two_of_four},
    {"channels", PruningPattern::channels}};

PruningOptions options_of(const Recipe& recipe, int64_t total_steps) {
  const std::string& pattern = recipe.text("pruning.pattern");
  const int64_t begin = recipe.integer("pruning.begin_step");
  PruningOptions options{
      .pattern = std::ranges::find(patterns, pattern, [](auto& p) { return p.first; })->second,
      .global = recipe.text("pruning.scope") == "global",
      .sparsity = recipe.number("pruning.sparsity"),
      .initial_sparsity = recipe.number("pruning.initial_sparsity"),
      .begin = begin,
      .end = recipe.has("pruning.end_step") ? recipe.integer("pruning.end_step") : begin,
      .frequency = recipe.integer("pruning.frequency")};
  if (options.end < begin)
    recipe.refuse("pruning.end_step",
                  fmt::format("pruning.end_step is at least pruning.begin_step. Got {} and {}.",
                              options.end, begin));
  if (options.end >= total_steps)
    recipe.refuse(recipe.has("pruning.end_step") ? "pruning.end_step" : "pruning.begin_step",
                  fmt::format("pruning ends before the last of the {} steps of the run, so that "
                              "what is left trains on. Got step {}.",
                              total_steps, options.end));
  if (options.initial_sparsity > options.sparsity)
    recipe.refuse(
        "pruning.initial_sparsity",
        fmt::format("pruning.initial_sparsity is at most pruning.sparsity. Got {} and {}.",
                    options.initial_sparsity, options.sparsity));
  if (options.pattern == PruningPattern::two_of_four && options.sparsity != 0.5)
    recipe.refuse("pruning.sparsity",
                  fmt::format("pruning.pattern 2:4 has sparsity 0.5. Got {}.", options.sparsity));
  if (options.pattern == PruningPattern::two_of_four && options.end != begin)
    recipe.refuse("pruning.end_step",
                  "pruning.pattern 2:4 prunes at once, at pruning.begin_step: it has no end_step.");
  return options;
}

// Returns the weights that multiply inputs, by their names: matrices and the kernels of
// convolutions, but no embeddings, nor what shares their weights.
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

std::vector<std::pair<std::string, Prunable>> channels_of(const Model& model) {
  std::vector<std::pair<std::string, Prunable>> weights;
  for (const ChannelGroup& group : model.channel_groups()) {
    Prunable& added = weights.emplace_back(group.weight.name(), Prunable{group.weight}).second;
    for (const Variable& variable : group.follows)
      if (variable.category() == Category::parameter) added.follows.push_back(variable);
  }
  return weights;
}

// ---- models without pruned channels

// Returns the channels with a weight other than zero.
std::vector<int64_t> kept_channels(const Variable& weight) {
  const std::vector<double> magnitudes =
      max(reshape(abs(weight.value()), {weight.dim(0), -1}), {.axes = {1}}).to_doubles();
  std::vector<int64_t> kept;
  for (size_t i = 0; i < magnitudes.size(); ++i)
    if (magnitudes[i] > 0) kept.push_back(static_cast<int64_t>(i));
  if (kept.empty()) kept.push_back(0);
  return kept;
}

// Kept is the indices along an axis that stay, in blocks of `each`.
struct Kept {
  const std::vector<int64_t>* channels;
  int axis;
  int64_t each;
};

Tensor taken(const Tensor& x, const Kept& kept) {
  std::vector<int64_t> indices;
  for (const int64_t channel : *kept.channels)
    for (int64_t i = 0; i < kept.each; ++i) indices.push_back(channel * kept.each + i);
  const Tensor at = tensor(indices, {static_cast<int64_t>(indices.size())});
  return transpose(gather(transpose(x, kept.axis, 0), at), kept.axis, 0);
}
}  // namespace

std::unique_ptr<optim::Pruner> make_pruner(const Experiment& experiment, bool say) {
  const Recipe& recipe = experiment.recipe;
  if (!recipe.has("pruning.pattern")) return nullptr;
  const Model& model = *experiment.model;
  const PruningOptions options = options_of(recipe, experiment.total_steps);
  const bool channels = options.pattern == PruningPattern::channels;
  auto named = channels              ? channels_of(model)
               : trains_onnx(recipe) ? weights_in_graph(experiment)
                                     : weights_of(model);
  if (named.empty())
    recipe.refuse("pruning.pattern",
                  channels ? "pruning.pattern channels: this model has no channels that can be "
                             "removed. Those of resnet, cnn and mlp have."
                           : "pruning.pattern: this model has no weights to prune that train.");
  for (const std::string& pattern : recipe.texts("pruning.exclude")) {
    const auto removed =
        std::erase_if(named, [&](const auto& each) { return matches(each.first, pattern); });
    if (removed == 0)
      recipe.refuse("pruning.exclude",
                    fmt::format("pruning.exclude: no weight to prune has a name like '{}'.{}",
                                io::printable(pattern),
                                named.empty() ? "" : " The first is " + named.front().first + "."));
  }
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
  if (weights.empty()) recipe.refuse("pruning.exclude", "pruning: no weight is left to prune.");
  return std::make_unique<optim::Pruner>(std::move(weights), options);
}

void remove_pruned_channels(Experiment& experiment) {
  const Model& model = *experiment.model;
  const std::vector<ChannelGroup> groups = model.channel_groups();
  std::vector<std::vector<int64_t>> kept;
  std::vector<int64_t> counts;
  std::map<const VariableState*, std::vector<Kept>> of;
  int64_t removed = 0;
  kept.reserve(groups.size());  // `of` points into it
  for (const ChannelGroup& group : groups) {
    const std::vector<int64_t>& channels = kept.emplace_back(kept_channels(group.weight));
    counts.push_back(std::ssize(channels));
    removed += group.weight.dim(0) - counts.back();
    of[group.weight.state().get()].push_back({&channels, 0, 1});
    for (const Variable& variable : group.follows)
      of[variable.state().get()].push_back({&channels, 0, 1});
    for (const ChannelGroup::Reader& reader : group.readers)
      of[reader.weight.state().get()].push_back({&channels, reader.axis, reader.each});
  }
  if (removed == 0)
    throw Error(ErrorKind::usage, "{} Hint: pruning.pattern: channels.",
                groups.empty() ? "this model has no channels that can be removed."
                               : "no channel of this model is pruned.");
  Recipe& recipe = experiment.recipe;
  const nn::Options config = model.config_with(counts);
  for (const auto& [key, value] : config.entries())
    if (const nn::Option* before = model.config().find(key); before == nullptr || *before != value)
      recipe.set("model.config." + key, nn::to_string(value), "pruning");
  for (const RecipeKey& key : recipe_keys())
    if (key.path.starts_with("pruning.")) recipe.set(key.path, std::string(key.initial), "pruning");
  const nn::BuildScope scope({.dtype = experiment.precision.parameters, .initialize = false});
  std::unique_ptr<Model> small =
      make_model(recipe.text("model.name"), recipe.options("model.config"), experiment.shape);
  const std::vector<nn::NamedVariable> from = model.state(), to = small->state();
  WEFT_ASSERT(from.size() == to.size(), "a narrower model has other variables");
  for (size_t i = 0; i < from.size(); ++i) {
    Tensor value = from[i].variable.value();
    for (const Kept& part : of[from[i].variable.state().get()]) value = taken(value, part);
    to[i].variable.assign(value);
  }
  experiment.model = std::move(small);
}

}  // namespace weft::train
