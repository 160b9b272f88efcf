#include "weft/train/methods/narrowed.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "weft/base/memory/buffer.h"
#include "weft/io/files.h"
#include "weft/ir/op_def.h"
#include "weft/nn/layer.h"
#include "weft/onnx/net/model_net.h"
#include "weft/onnx/net/narrow.h"
#include "weft/train/methods/pruning.h"
#include "weft/train/methods/quantization.h"
#include "weft/train/task/imported.h"

namespace weft::train {
namespace {
using Indices = std::vector<int64_t>;  // of channels that stay

// Returns the channels with an element other than zero in the weight, or in a parameter that is
// pruned with it; channel 0 if there are no such channels.
Indices remaining_channels(const ChannelGroup& group) {
  std::vector<bool> remains(static_cast<size_t>(group.channels()));
  const auto look_at = [&](const ChannelSlices& part) {
    const Tensor first = transpose(abs(part.variable.value()), part.axis, 0);
    const std::vector<double> magnitudes =
        max(reshape(first, {first.dim(0), -1}), {.axes = {1}}).to_doubles();
    for (size_t i = 0; i < remains.size(); ++i)
      for (int64_t j = 0; j < part.each; ++j) {
        const int64_t at = part.offset + static_cast<int64_t>(i) * part.each + j;
        if (magnitudes[static_cast<size_t>(at)] > 0) remains[i] = true;
      }
  };
  look_at(group.weight);
  for (const ChannelSlices& part : group.follows)
    if (is_pruned_with(part)) look_at(part);
  Indices remaining;
  for (size_t i = 0; i < remains.size(); ++i)
    if (remains[i]) remaining.push_back(static_cast<int64_t>(i));
  if (remaining.empty()) remaining.push_back(0);
  return remaining;
}

// Cuts collects the elements to remove from each axis of the variables.
class Cuts {
 public:
  void add(const ChannelGroup& group, const Indices& remaining) {
    add(group.weight, group.channels(), remaining);
    for (const auto* parts : {&group.follows, &group.readers})
      for (const ChannelSlices& part : *parts) add(part, group.channels(), remaining);
  }
  bool changes(const Variable& variable) const { return stays_.contains(variable.state().get()); }
  // Returns the elements of a variable that stay.
  Tensor taken(const Variable& variable) const {
    Tensor value = variable.value();
    const auto axes = stays_.find(variable.state().get());
    if (axes == stays_.end()) return value;
    for (const auto& [axis, stays] : axes->second) {
      Indices indices;
      for (size_t i = 0; i < stays.size(); ++i)
        if (stays[i]) indices.push_back(static_cast<int64_t>(i));
      const Tensor at = tensor(indices, {std::ssize(indices)});
      value = transpose(gather(transpose(value, axis, 0), at), axis, 0);
    }
    return value;
  }

 private:
  void add(const ChannelSlices& part, int64_t channels, const Indices& remaining) {
    std::vector<bool>& stays = stays_[part.variable.state().get()][part.axis];
    stays.resize(static_cast<size_t>(part.variable.dim(part.axis)), true);
    std::vector<bool> channel_stays(static_cast<size_t>(channels));
    for (const int64_t channel : remaining) channel_stays[static_cast<size_t>(channel)] = true;
    for (int64_t i = 0; i < channels * part.each; ++i)
      if (!channel_stays[static_cast<size_t>(i / part.each)])
        stays[static_cast<size_t>(part.offset + i)] = false;
  }

  std::map<const VariableState*, std::map<int, std::vector<bool>>> stays_;
};

// ---- imported nets

// Returns the elements in memory of their own, which a net of a file takes over. A value of its own
// is evaluated: the leaf of a variable stays one in the graph that was traced.
Tensor in_memory(const Tensor& value) {
  const Tensor computed = stop_gradient(value).eval();
  auto buffer = Buffer::allocate(computed.type().bytes());
  std::memcpy(buffer->data, computed->data(), computed.type().bytes());
  return from_buffer(std::move(buffer), computed.type());
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::usage, "channels of this net cannot be removed: {}", why);
}

// Throws unless `b`, a value of the narrow net, has the operation or constant of `a`, a value of
// the whole net, and the shape `expected`.
void check_same(const Value& a, const Value& b, const Shape& expected) {
  const std::string& module = a->module();
  const std::string where = module.empty() ? "" : " of " + io::printable(module);
  if (a->op != b->op || a->inputs.size() != b->inputs.size())
    refuse(fmt::format("a {}{} becomes a {} without them.", a->op->name, where, b->op->name));
  if (b.shape() != expected || a.dtype() != b.dtype())
    refuse(fmt::format("a {}{} has the shape {} then, instead of {}.", a->op->name, where,
                       to_string(b.shape()), to_string(expected)));
  const bool is_scalar = a->op->leaf == LeafKind::scalar;
  const bool is_data = a->op->leaf == LeafKind::data && a->has_data() && b->has_data();
  if ((is_scalar && a->attrs.number("value") != b->attrs.number("value")) ||
      (is_data && std::memcmp(a->data(), b->data(), a.type().bytes()) != 0))
    refuse(fmt::format("a constant{} follows from their number.", where));
}

// Throws unless `narrow` has the operations and constants of the traced graph, and the shapes of a
// net with channels[i] channels in each group i.
void check_same(const TracedModel& traced, const Graph& narrow,
                const std::vector<int64_t>& channels) {
  std::map<const Node*, const Node*> narrow_of;
  std::vector<std::pair<Value, Value>> open;
  open.reserve(narrow.outputs.size());
  for (size_t i = 0; i < narrow.outputs.size(); ++i)
    open.emplace_back(traced.graph.outputs[i], narrow.outputs[i]);
  while (!open.empty()) {
    const auto [a, b] = std::move(open.back());
    open.pop_back();
    const auto [known, is_new] = narrow_of.emplace(a.node(), b.node());
    if (known->second != b.node()) refuse("its file computes something else without them.");
    if (!is_new) continue;
    check_same(a, b, traced.channels.narrowed(a, channels));
    for (size_t i = 0; i < a->inputs.size(); ++i) open.emplace_back(a->inputs[i], b->inputs[i]);
  }
}

// Returns an experiment's imported net with channels[i] channels in each group i, and
// `initializers` as the elements of its variables. `file` is the ONNX file that checkpoints keep,
// which is rewritten for this net unless it is null or empty.
std::unique_ptr<Model> narrowed_net(const Experiment& experiment, const TracedModel& traced,
                                    const std::vector<int64_t>& channels,
                                    std::map<std::string, Tensor> initializers,
                                    std::string* file = nullptr) {
  onnx::Narrowing narrowing{.initializers = std::move(initializers), .values = {}};
  for (size_t i = 0; i < traced.names.size(); ++i) {
    if (!traced.results[i].defined()) continue;
    const Shape narrow = traced.channels.narrowed(traced.results[i], channels);
    if (narrow != traced.results[i].shape())
      narrowing.values[traced.names[i]] = {traced.results[i].shape(), narrow};
  }
  const onnx::Model& whole = *onnx::file_of(*experiment.model);
  std::unique_ptr<Model> net;
  try {
    net = onnx::make_model(onnx::narrowed(whole, narrowing), experiment.shape);
    check_same(traced, forward_graph(*net, experiment.shape.batch(experiment.rows)), channels);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::usage &&
        std::string_view(error.what()).starts_with("channels of this net"))
      throw;
    refuse(error.what());
  }
  if (file != nullptr && !file->empty())
    *file = onnx::narrowed_form(*file, whole, narrowing, *net, "model.safetensors");
  return net;
}

void replace_net(Experiment& experiment, const TracedModel& traced, const Cuts& cuts,
                 const std::vector<int64_t>& channels) {
  std::map<std::string, Tensor> initializers;
  for (const nn::NamedVariable& each : experiment.model->state())
    initializers[each.name] = in_memory(cuts.taken(each.variable));
  std::string none;
  std::string* file = &none;
  for (io::FolderFile& each : experiment.checkpoint_files)
    if (each.name == net_file) file = &each.contents;
  experiment.model = narrowed_net(experiment, traced, channels, std::move(initializers), file);
}

// ---- models of weft

void replace_model(Experiment& experiment, const TracedModel& traced, const Cuts& cuts,
                   const std::vector<int64_t>& channels) {
  const Model& model = *experiment.model;
  std::vector<int64_t> widths;
  for (const Variable& weight : model.inner_weights()) {
    widths.push_back(weight.dim(0));
    for (size_t i = 0; i < channels.size(); ++i)
      if (traced.channels.groups()[i].weight.variable.state() == weight.state())
        widths.back() = channels[i];
  }
  Recipe& recipe = experiment.recipe;
  const nn::Options config = model.config_with(widths);
  for (const auto& [key, value] : config.entries())
    if (const nn::Option* before = model.config().find(key); before == nullptr || *before != value)
      recipe.set("model.config." + key, nn::to_string(value), "pruning");
  const nn::BuildScope scope({.dtype = experiment.precision.parameters, .initialize = false});
  std::unique_ptr<Model> small =
      make_model(*recipe->model.name, recipe->model.config, experiment.shape);
  const std::vector<nn::NamedVariable> from = model.state(), to = small->state();
  WEFT_ASSERT(from.size() == to.size(), "a narrower model has other variables");
  for (size_t i = 0; i < from.size(); ++i) to[i].variable.assign(cuts.taken(from[i].variable));
  experiment.model = std::move(small);
}

// ---- ranges of activations

// Finds the layers of the narrower net, which are named as before, and gives their activations the
// ranges that the whole net learned: a range is one number for all channels, and zeros do not
// change it. All else of quantization follows from the weights.
void copy_ranges(Experiment& experiment) {
  const quantization::Training* const whole = quantization_of(experiment);
  if (whole == nullptr) return;
  const std::vector<double> learned = whole->ranges().to_doubles();
  std::unique_ptr<quantization::Training> narrow = make_quantization(experiment, /*say=*/false);
  const quantization::Layers &before = whole->layers(), &now = narrow->layers();
  std::vector<double> ranges(now.activations.size());
  for (const quantization::Layer& layer : now.layers) {
    const auto same = std::ranges::find(before.layers, layer.name, &quantization::Layer::name);
    WEFT_ASSERT(same != before.layers.end(), "a narrower model has a layer {} of its own",
                layer.name);
    ranges[layer.activation] = learned[same->activation];
  }
  const Variable& to = narrow->ranges();
  to.assign(tensor(ranges, to.shape(), DType::f32));
  quantize(experiment, std::move(narrow));
}
}  // namespace

TracedModel traced(const Experiment& experiment) {
  const Model& model = *experiment.model;
  const onnx::Model* const file = onnx::file_of(model);
  std::vector<std::string> names;
  if (file != nullptr) names = onnx::results_of(*file);
  const nn::OutputScope scope(names);
  Graph graph = graph_of(experiment);
  std::vector<Value> results;
  results.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) results.push_back(scope.output(i));
  Channels channels(model, graph, /*any=*/file != nullptr);
  return {std::move(graph), std::move(names), std::move(results), std::move(channels)};
}

void check_narrows(const Experiment& experiment, const TracedModel& traced,
                   const std::vector<bool>& groups) {
  Cuts cuts;
  std::vector<int64_t> counts;
  for (size_t i = 0; i < groups.size(); ++i) {
    const ChannelGroup& group = traced.channels.groups()[i];
    counts.push_back(group.channels() - (groups[i] ? 1 : 0));
    Indices remaining;
    for (int64_t channel = 0; channel < counts.back(); ++channel) remaining.push_back(channel);
    if (groups[i]) cuts.add(group, remaining);
  }
  std::map<std::string, Tensor> initializers;
  for (const nn::NamedVariable& each : experiment.model->state())
    if (cuts.changes(each.variable)) initializers[each.name] = in_memory(cuts.taken(each.variable));
  narrowed_net(experiment, traced, counts, std::move(initializers));
}

void remove_pruned_channels(Experiment& experiment) {
  const TracedModel model = traced(experiment);
  Cuts cuts;
  std::vector<int64_t> counts;
  int64_t removed = 0;
  for (const ChannelGroup& group : model.channels.groups()) {
    const Indices remaining = remaining_channels(group);
    counts.push_back(std::ssize(remaining));
    removed += group.channels() - counts.back();
    if (counts.back() < group.channels()) cuts.add(group, remaining);
  }
  if (removed == 0)
    throw Error(ErrorKind::usage, "{} Hint: pruning.pattern: channels.",
                counts.empty() ? "this model has no channels that can be removed."
                               : "no channel of this model is pruned.");
  const bool is_imported = onnx::file_of(*experiment.model) != nullptr;
  (is_imported ? replace_net : replace_model)(experiment, model, cuts, counts);
  for (const RecipeKey& key : recipe_keys())
    if (key.path.starts_with("pruning."))
      experiment.recipe.set(key.path, std::string(key.initial), "pruning");
  copy_ranges(experiment);
}

}  // namespace weft::train
