#include "weft/cli/models/inference.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/numbers/quantity.h"
#include "weft/cli/models/text_flags.h"
#include "weft/infer/token_model.h"
#include "weft/io/files.h"
#include "weft/models/pretrained.h"
#include "weft/onnx/net/runner.h"

namespace weft::cli {
namespace {
constexpr int64_t usual_prompt = 512;  // tokens

// Returns ids that neither repeat nor depend on a tokenizer: their values do not change times.
template <class Id>
std::vector<Id> some_ids(int64_t count, int64_t vocabulary) {
  std::vector<Id> ids;
  ids.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<Id>((i * i + 7 * i) % vocabulary));
  return ids;
}

// Published is a model in a folder or a GGUF file.
class Published : public Inference {
 public:
  Published(models::Pretrained model, int64_t batch) : Inference(batch), model_(std::move(model)) {}

  const nn::Module& module() const override { return *model_.model; }
  DType dtype() const override { return model_.dtype; }
  std::pair<std::string, std::string> inputs_text() const override {
    return {"sequences", fmt::format("{} of at most {} tokens", batch_, context_)};
  }

 protected:
  models::Pretrained model_;
};

// Generation is what a decoder does: it reads a prompt, and then one token at a time.
class Generation : public Published {
 public:
  Generation(models::Pretrained model, const InferenceOptions& options)
      : Published(std::move(model), options.batch.value_or(1)),
        tokens_(infer::make_token_model(
            *model_.model, model_.vocabulary, model_.context,
            {.batch = batch_,
             .context = options.context,
             .device = options.device,
             .activations = activations_of(options.activations, *model_.model, options.folder)})) {
    context_ = tokens_->context();
    prompt_ = std::min(usual_prompt, context_);
    steps_ = {{"prefill", fmt::format("prompt of {} tokens", prompt_), batch_ * prompt_},
              {"decode", "each next token", batch_}};
  }

  PlannedInference plan() override {
    const infer::TokenModelPlan plan = tokens_->plan(prompt_);
    return {.weight_bytes = plan.weight_bytes,
            .cache_bytes = plan.cache_bytes,
            .activations = plan.activations,
            .steps = {plan.prefill, plan.decode}};
  }
  Executable& executable(size_t step) override { return tokens_->step(step == 0 ? prompt_ : 1); }

  // A prompt replaces what the sequences had. The token is always the last one of the context, so
  // that it attends to as many tokens as its plan counts.
  void run(size_t step) override {
    if (step == 0) return append(0, prompt_);
    const int64_t before = context_ - 1;
    if (std::ssize(tokens_->history(0)) < before) append(0, before);
    append(before, 1);
  }

 private:
  void append(int64_t keep, int64_t count) {
    const std::vector<int32_t> ids = some_ids<int32_t>(count, model_.vocabulary);
    tokens_->append(std::vector(static_cast<size_t>(batch_), infer::RowTokens{ids, keep}));
  }

  std::unique_ptr<infer::TokenModel> tokens_;
  int64_t prompt_ = 0;
};

// Encoding is what an encoder does: it reads all tokens of its sequences at once, and hides
// padding.
class Encoding : public Published {
 public:
  Encoding(models::Pretrained model, const InferenceOptions& options)
      : Published(std::move(model), options.batch.value_or(1)),
        step_(
            [this](std::span<const Tensor> in) -> std::vector<Tensor> {
              return {(*model_.model)(in[0])};
            },
            {.mode = Mode::eval, .device = options.device}) {
    activations_of(options.activations, *model_.model, options.folder);  // refuses them
    context_ = options.context > 0 ? options.context : model_.context;
    if (context_ > model_.context)
      throw Error(ErrorKind::usage, "the context is at most {} tokens, as the model says. Got {}.",
                  model_.context, context_);
    steps_ = {
        {"forward", fmt::format("forward pass of {} x {}", batch_, context_), batch_ * context_}};
  }

  PlannedInference plan() override {
    const PlanSummary plan = step_.plan(types());
    return {.weight_bytes = static_cast<int64_t>(plan.state_bytes), .steps = {plan}};
  }
  Executable& executable(size_t) override { return step_.prepare(types()); }
  void run(size_t) override {
    const Tensor tokens =
        tensor(some_ids<int64_t>(batch_ * context_, model_.vocabulary), {batch_, context_});
    const Tensor result = step_.run(std::array{tokens})[0];
    eval(std::array{result});
  }

 private:
  std::array<Type, 1> types() const { return {Type{DType::i64, {batch_, context_}}}; }

  CompiledStep step_;
};
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

// Returns the first of the flags given that only published models take; null: none was given.
const char* published_flag(const InferenceFlags& own) {
  return own.context > 0            ? "--context"
         : !own.dtype.empty()       ? "--dtype"
         : !own.activations.empty() ? "--activations"
                                    : nullptr;
}

}  // namespace

onnx::Net::Extents extents_of(const std::vector<std::string>& dims) {
  onnx::Net::Extents extents;
  for (const std::string& dim : dims) {
    const size_t equals = dim.find('=');
    const auto extent =
        equals == std::string::npos ? std::nullopt : parse_count(dim.substr(equals + 1));
    if (equals == 0 || !extent || *extent < 1)
      throw Error(ErrorKind::usage,
                  "--dim binds an extent of at least 1 by name, as in batch=4. Got '{}'.", dim);
    if (!extents.emplace(dim.substr(0, equals), *extent).second)
      throw Error(ErrorKind::usage, "--dim binds {} twice.", dim.substr(0, equals));
  }
  return extents;
}

bool is_inference_model(const std::string& path) {
  onnx::check_there(path);
  return models::is_model(path) || onnx::is_model_file(path);
}

std::vector<Option> model_options(InferenceFlags& flags) {
  return {{.flag = "--context",
           .type = "N",
           .doc = "published models: most tokens of a sequence (plan: as many as the model takes; "
                  "profile: 768)",
           .target = &flags.context,
           .range = {{1, 0x1p40}}},
          {.flag = "--dtype",
           .type = "TYPE",
           .doc = "published models: f32, bf16 or f16 (that of its files)",
           .target = &flags.dtype,
           .choices = {"f32", "bf16", "f16"}},
          activations_option(flags.activations),
          {.flag = "--dim",
           .type = "NAME=N",
           .doc = "ONNX files: bind a symbolic extent; --batch binds the first of the first input",
           .target = &flags.dims,
           .most = 64}};
}

InferenceOptions inference_options(const std::string& verb, const std::string& model,
                                   const RecipeFlags& flags, const InferenceFlags& own) {
  const bool is_onnx = onnx::is_model_file(model);
  if (const char* flag = published_flag(own); is_onnx && flag != nullptr)
    throw Error(ErrorKind::usage, "{} is for published models. {} is an ONNX file. Hint: --dim.",
                flag, model);
  if (!is_onnx && !own.dims.empty())
    throw Error(ErrorKind::usage, "--dim is for ONNX files. {} is a published model.", model);
  for (const RecipeFlag& flag : flags)
    if (flag.path != keys::train::device && flag.path != keys::train::global_batch_size)
      throw Error(ErrorKind::usage,
                  "{0} is for recipes. {1} is a model. Hint: --model.pretrained {1} {2}s its "
                  "training.",
                  flag.flag, model, verb);
  train::Recipe recipe;
  recipe.set(keys::train::global_batch_size, "1", "weft " + verb);
  recipe.apply_environment();
  apply_flags(recipe, flags);
  InferenceOptions options{.folder = model,
                           .context = own.context,
                           .activations = own.activations,
                           .extents = extents_of(own.dims),
                           .device = recipe->train.device};
  const int64_t batch = recipe->train.global_batch_size;
  if (batch != 1 ||
      std::ranges::find(flags, keys::train::global_batch_size, &RecipeFlag::path) != flags.end())
    options.batch = batch;
  if (!own.dtype.empty()) options.dtype = parse_dtype(own.dtype);
  return options;
}

void refuse_model_flags(const InferenceFlags& own) {
  if (!own.dims.empty()) throw Error(ErrorKind::usage, "--dim is for ONNX files.");
  if (const char* flag = published_flag(own))
    throw Error(ErrorKind::usage, "{} is for published models, by their folder.", flag);
}

std::unique_ptr<Inference> make_inference(const InferenceOptions& options, bool weights) {
  if (onnx::is_model_file(options.folder)) return std::make_unique<Passes>(options);
  models::Pretrained model = models::load_pretrained(
      options.folder, {.dtype = options.dtype, .weights = weights, .hide_padding = true});
  if (dynamic_cast<const models::Encoder*>(model.model.get()) != nullptr)
    return std::make_unique<Encoding>(std::move(model), options);
  return std::make_unique<Generation>(std::move(model), options);
}

}  // namespace weft::cli
