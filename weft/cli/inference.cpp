#include "weft/cli/inference.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/infer/token_model.h"

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

// Generation is what a decoder does: it reads a prompt, and then one token at a time.
class Generation : public Inference {
 public:
  Generation(models::Pretrained model, const InferenceOptions& options)
      : Inference(std::move(model), options.batch),
        tokens_(infer::make_token_model(
            *model_.model, model_.vocabulary, model_.context,
            {.batch = batch_, .context = options.context, .device = options.device})) {
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
class Encoding : public Inference {
 public:
  Encoding(models::Pretrained model, const InferenceOptions& options)
      : Inference(std::move(model), options.batch),
        step_(
            [this](std::span<const Tensor> in) -> std::vector<Tensor> {
              return {(*model_.model)(in[0])};
            },
            {.mode = Mode::eval, .device = options.device}) {
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
}  // namespace

InferenceOptions inference_options(const std::string& verb, const std::string& model,
                                   const RecipeFlags& flags, const std::string& dtype,
                                   int64_t context) {
  for (const RecipeFlag& flag : flags)
    if (flag.path != "train.device" && flag.path != "train.global_batch_size")
      throw Error(ErrorKind::usage,
                  "{0} is for recipes. {1} is a published model. Hint: --model.pretrained {1} {2}s "
                  "its training.",
                  flag.flag, model, verb);
  train::Recipe recipe;
  recipe.set("train.global_batch_size", "1", "weft " + verb);
  recipe.apply_environment();
  apply_flags(recipe, flags);
  InferenceOptions options{.folder = model,
                           .batch = recipe.integer("train.global_batch_size"),
                           .context = context,
                           .device = recipe.text("train.device")};
  if (!dtype.empty()) options.dtype = parse_dtype(dtype);
  return options;
}

void refuse_model_flags(const std::string& dtype, int64_t context) {
  if (context > 0 || !dtype.empty())
    throw Error(ErrorKind::usage, "{} is for published models, by their folder.",
                context > 0 ? "--context" : "--dtype");
}

std::unique_ptr<Inference> make_inference(const InferenceOptions& options, bool weights) {
  models::Pretrained model = models::load_pretrained(
      options.folder, {.dtype = options.dtype, .weights = weights, .hide_padding = true});
  if (dynamic_cast<const models::Encoder*>(model.model.get()) != nullptr)
    return std::make_unique<Encoding>(std::move(model), options);
  return std::make_unique<Generation>(std::move(model), options);
}

}  // namespace weft::cli
