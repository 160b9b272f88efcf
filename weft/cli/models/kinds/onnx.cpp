// An ONNX file as MODEL.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/cli/models/array_model.h"
#include "weft/cli/models/inference.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/onnx_output.h"
#include "weft/cli/models/tensor_list.h"
#include "weft/io/files.h"
#include "weft/onnx/net/runner.h"
#include "weft/runtime/executable.h"

namespace weft::cli {
namespace {
using onnx::ValueInfo;

// Returns whether a net reads f32 [N, C, H, W] of gray or coloured pictures.
bool takes_pictures(const onnx::Net& net) {
  if (net.inputs().size() != 1) return false;
  const ValueInfo& input = net.inputs()[0];
  if (input.dtype != DType::f32 || !input.shape || input.shape->size() != 4) return false;
  const int64_t channels = (*input.shape)[1].extent;
  return channels == 1 || channels == 3;
}

ArrayModel onnx_arrays(const std::string& name, const ArrayModelOptions& options) {
  constexpr std::string_view allowed[] = {keys::train::device, keys::data::transforms,
                                          keys::data::mean, keys::data::std, keys::data::dataset};
  const train::Recipe recipe = settings_of(name, options.flags, allowed);
  struct Loaded {
    Loaded(onnx::Model file, const std::string& device)
        : net(std::move(file)), runner(net, {.mode = Mode::eval, .device = device}) {}
    onnx::Net net;
    onnx::Runner runner;
  };
  onnx::Model file = onnx::read(name);
  onnx::override_defaults(file, options.given);
  const auto loaded = std::make_shared<Loaded>(std::move(file), recipe->train.device);
  ArrayModel model{.name = name,
                   .inputs = loaded->net.inputs(),
                   .device = recipe->train.device,
                   .weights = loaded->net.variables()};
  for (const ValueInfo& each : loaded->net.outputs()) model.outputs.push_back(each.name);
  model.check = [loaded](std::span<const Type> types) {
    onnx::check_inputs("[onnx] " + io::printable(loaded->net.model().file), loaded->net.inputs(),
                       types);
  };
  model.output_types = [loaded](std::span<const Tensor> in) {
    return output_types_of(loaded->runner.prepare(in));
  };
  model.executable = [loaded](std::span<const Type> types) -> Executable& {
    return loaded->runner.prepare(types);
  };
  model.run = [loaded](std::span<const Tensor> in) {
    const std::span<const Tensor> results = loaded->runner.run(in);
    return std::vector<Tensor>(results.begin(), results.end());
  };
  if (takes_pictures(loaded->net)) model.pictures = recipe;
  model.says_normalization = false;
  return model;
}

// ---- tensors

// Counts operators by name, also in the graphs that attributes hold.
void count_operators(const std::vector<onnx::Node>& nodes, std::map<std::string, int64_t>& counts) {
  for (const onnx::Node& node : nodes) {
    ++counts[io::printable(node.domain.empty() ? node.op : node.domain + "." + node.op)];
    for (const auto& [name, attribute] : node.attributes)
      if (const auto* graph = std::get_if<std::shared_ptr<const onnx::Graph>>(&attribute))
        count_operators((*graph)->nodes, counts);
  }
}
// Returns "Conv 20, Relu 19": the operators of an ONNX file, the most frequent first.
std::string operators_text(const onnx::Model& model) {
  std::map<std::string, int64_t> counts;
  count_operators(model.graph.nodes, counts);
  for (const onnx::Function& function : model.functions) count_operators(function.nodes, counts);
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted, std::greater(), &std::pair<std::string, int64_t>::second);
  std::vector<std::string> texts;
  texts.reserve(sorted.size());
  for (const auto& [op, count] : sorted) texts.push_back(fmt::format("{} {}", op, count));
  return fmt::format("{}", fmt::join(texts, ", "));
}
// Returns "images f32[batch, 3, 32, 32]", for each input or output.
std::string values_text(const std::vector<onnx::ValueInfo>& values) {
  std::vector<std::string> texts;
  texts.reserve(values.size());
  for (const onnx::ValueInfo& value : values)
    texts.push_back(fmt::format("{} {}", io::printable(value.name), to_string(value)));
  return fmt::format("{}", fmt::join(texts, "; "));
}

ListedModel onnx_tensors(const std::string& name, bool zeros) {
  const onnx::Model model = onnx::read(name);
  std::vector<std::string> opsets;
  opsets.reserve(model.opsets.size());
  for (const auto& [domain, version] : model.opsets)
    opsets.push_back(domain.empty() ? std::to_string(version)
                                    : fmt::format("{} {}", io::printable(domain), version));
  const std::pair<const char*, std::string> known[] = {
      {"producer", io::printable(model.producer)},
      {"opset", fmt::format("{}", fmt::join(opsets, ", "))},
      {"inputs", values_text(model.graph.inputs)},
      {"outputs", values_text(model.graph.outputs)},
      {"operators", operators_text(model)}};
  ListedFile file{.name = model.file};
  for (const auto& [key, text] : known) file.metadata.push_back({key, text, text});
  for (const onnx::Initializer& each : model.graph.initializers) {
    const Type type = each.value.type();
    file.tensors.push_back(
        {each.name, weft::name(type.dtype), type.shape, type.bytes(),
         zeros ? zeros_of(type, {each.value->data(), type.bytes()}) : std::nullopt});
  }
  return {.name = name, .files = {std::move(file)}};
}

// ---- inference

// Passes is the forward pass of an ONNX file.
class Passes : public Inference {
 public:
  explicit Passes(const InferenceOptions& options)
      : Inference(options.batch.value_or(1)),
        net_(onnx::read(options.folder)),
        runner_(net_, {.mode = Mode::eval, .device = options.device}) {
    const std::vector<onnx::ValueInfo>& inputs = net_.inputs();
    onnx::Net::Extents extents = options.extents;
    if (!inputs.empty() && inputs[0].shape && !inputs[0].shape->empty()) {
      const onnx::Dim& first = inputs[0].shape->front();
      if (first.extent < 0) extents.emplace(onnx::symbol_of(inputs[0], 0), batch_);
    }
    types_ = net_.input_types(extents);
    if (options.batch &&
        (types_.empty() || types_[0].shape.empty() || types_[0].shape[0] != *options.batch))
      throw Error(ErrorKind::usage, "[onnx] {}: --batch {} does not bind its first input, {}.",
                  io::printable(options.folder), *options.batch,
                  types_.empty() ? "of which it has none" : to_string(types_[0]));
    if (!types_.empty() && !types_[0].shape.empty()) batch_ = types_[0].shape[0];
    steps_ = {{"forward", "forward pass", batch_}};
  }

  const nn::Module& module() const override { return net_; }
  DType dtype() const override {
    const std::vector<Variable> weights = net_.variables();
    return weights.empty() ? DType::f32 : weights.front().dtype();
  }
  std::pair<std::string, std::string> inputs_text() const override {
    std::vector<std::string> texts;
    texts.reserve(types_.size());
    for (size_t i = 0; i < types_.size(); ++i)
      texts.push_back(fmt::format("{} {}", net_.inputs()[i].name, to_string(types_[i])));
    return {"inputs", fmt::format("{}", fmt::join(texts, ", "))};
  }
  // Extents that the file itself has are bound by no flag.
  std::string_view less_text() const override {
    const auto is_open = [](const onnx::ValueInfo& input) {
      return std::ranges::any_of(*input.shape, [](const onnx::Dim& dim) { return dim.extent < 0; });
    };
    return std::ranges::any_of(net_.inputs(), is_open) ? " Hint: --batch, --dim." : "";
  }
  std::string_view item() const override { return "row"; }

  PlannedInference plan() override {
    const PlanSummary plan = runner_.plan(types_);
    return {.weight_bytes = static_cast<int64_t>(plan.state_bytes), .steps = {plan}};
  }
  Executable& executable(size_t) override { return runner_.prepare(types_); }
  // Floats are in [0, 1); integers are 0 and 1, which are both tokens and masks.
  void run(size_t) override {
    if (inputs_.empty())
      for (const Type& type : types_) {
        const std::vector<int64_t> ids = some_ids<int64_t>(type.elements(), 97);
        const Tensor numbers = tensor(ids, {type.elements()});
        const Tensor value = is_float(type.dtype) ? cast(numbers, type.dtype) / 97
                                                  : cast(remainder(numbers, 2), type.dtype);
        inputs_.push_back(reshape(value, type.shape).eval());
      }
    eval(runner_.run(inputs_));
  }

 private:
  onnx::Net net_;
  onnx::Runner runner_;
  std::vector<Type> types_;
  std::vector<Tensor> inputs_;
};

std::unique_ptr<Inference> onnx_inference(const InferenceOptions& options, bool) {
  return std::make_unique<Passes>(options);
}

// The first input's first axis, and any axis with its symbol, has the rows of a batch.
ExportSubject onnx_subject(const OnnxOutput& output) {
  refuse_flag(output.dtype.has_value(), "--dtype with --to onnx", "published models", output.model);
  refuse_flag(output.context > 0, "--context", "models of tokens; ONNX files take --dim",
              output.model);
  auto net = std::make_shared<onnx::Net>(onnx::read(output.model));
  ExportSubject subject{
      .owner = net, .module = net.get(), .build = {}, .inputs = {}, .outputs = {}};
  for (size_t i = 0; i < net->inputs().size(); ++i) {
    if (net->static_inputs()[i])
      throw Error(ErrorKind::usage,
                  "[onnx] {}: the elements of input '{}' decide shapes, so that the model cannot "
                  "be exported without them.",
                  output.model, net->inputs()[i].name);
    subject.inputs.push_back(net->inputs()[i].name);
  }
  for (const onnx::ValueInfo& each : net->outputs()) subject.outputs.push_back(each.name);
  subject.build = [net, extents = extents_of(output.dims),
                   samples = output.samples](int64_t batch) {
    onnx::Net::Extents bound = extents;
    const std::vector<onnx::ValueInfo>& inputs = net->inputs();
    const auto bind = [&](const onnx::ValueInfo& info, size_t axis, int64_t extent) {
      if ((*info.shape)[axis].extent < 0)
        bound.emplace(onnx::symbol_of(info, axis), extent < 0 ? batch : extent);
    };
    const auto rank_of = [&](const onnx::ValueInfo& info) {
      return info.shape ? info.shape->size() : 0;
    };
    if (!inputs.empty() && rank_of(inputs[0]) > 0) bind(inputs[0], 0, batch);
    for (size_t i = 0; i < inputs.size() && i < samples.size(); ++i)
      for (size_t axis = 0; axis < rank_of(inputs[i]); ++axis)
        if (std::ssize(*inputs[i].shape) == samples[i].size())
          bind(inputs[i], axis, samples[i][static_cast<int>(axis)]);
    const ModeScope inference(Mode::eval);
    Graph graph;
    for (const Type& type : net->input_types(bound))
      graph.inputs.push_back(input(type, static_cast<int>(graph.inputs.size())));
    graph.outputs = (*net)(graph.inputs);
    return graph;
  };
  return subject;
}

train::Experiment onnx_evaluation(const std::string& file, const RecipeFlags& flags,
                                  const EvaluationWords& words) {
  for (const RecipeFlag& flag : flags)
    if (flag.path.starts_with("model."))
      throw Error(ErrorKind::usage, "{} is for recipes. {} is an ONNX file.", flag.flag, file);
  train::Recipe recipe;
  apply_flags(recipe, {{"", std::string(keys::model::pretrained), file},
                       {"", std::string(keys::train::steps), "1"}});
  recipe.apply_environment();
  apply_flags(recipe, flags);
  if (!recipe->data.dataset && !recipe->data.format)
    throw Error(ErrorKind::usage,
                "{} {} needs data. Hint: {}--data.dataset cifar10, or --data.format and "
                "--data.path.",
                words.doing, file, words.also);
  return train::make_experiment(recipe, {.evaluate_only = true});
}
}  // namespace

constinit const ModelKind onnx_kind{.format = train::onnx_format,
                                    .has_symbolic_extents = true,
                                    .tensors = onnx_tensors,
                                    .arrays = onnx_arrays,
                                    .inference = onnx_inference,
                                    .subject = onnx_subject,
                                    .evaluation = onnx_evaluation};

}  // namespace weft::cli
