// A published model as MODEL: a folder of Hugging Face's, or a GGUF file.
#include "weft/train/task/published.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/cli/models/array_model.h"
#include "weft/cli/models/inference.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/onnx_output.h"
#include "weft/cli/models/tensor_list.h"
#include "weft/cli/models/text_flags.h"
#include "weft/cli/models/text_model.h"
#include "weft/data/chat_template/tokenizer_config.h"
#include "weft/infer/sampler.h"
#include "weft/infer/token_model.h"
#include "weft/io/model_folder.h"
#include "weft/models/decoder.h"
#include "weft/models/family.h"
#include "weft/models/gguf.h"
#include "weft/models/pretrained.h"
#include "weft/train/checkpoint/adapter_base.h"

namespace weft::cli {
namespace {
constexpr int64_t usual_prompt = 512;  // tokens

ArrayModel published_arrays(const std::string& name, const ArrayModelOptions& options) {
  constexpr std::string_view allowed[] = {keys::train::device};
  const train::Recipe recipe = settings_of(name, options.flags, allowed);
  auto loaded =
      std::make_shared<models::Pretrained>(models::load_pretrained(name, {.hide_padding = true}));
  const TaskShape shape{
      .kind = InputKind::tokens, .input = {loaded->context}, .classes = loaded->vocabulary};
  return forward_model(name, {.owner = loaded,
                              .model = loaded->model.get(),
                              .shape = shape,
                              .dtype = loaded->dtype,
                              .options = {.device = recipe->train.device}});
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

// Generation is the inference of a decoder: it reads a prompt, and then one token at a time.
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

  // A prompt replaces the tokens that the sequences had. The decoded token is always the last one
  // of the context, so that it attends to as many tokens as its plan counts.
  void run(size_t step) override {
    if (step == 0) return append(0, prompt_);
    const int64_t before = context_ - 1;
    if (std::ssize(tokens_->history(0)) < before) append(0, before);
    append(before, 1);
  }

 private:
  void append(int64_t prefix, int64_t count) {
    const std::vector<int32_t> ids = some_ids<int32_t>(count, model_.vocabulary);
    tokens_->append(std::vector(static_cast<size_t>(batch_), infer::RowTokens{ids, prefix}));
  }

  std::unique_ptr<infer::TokenModel> tokens_;
  int64_t prompt_ = 0;
};

// Encoding is the inference of an encoder: it reads all tokens of its sequences at once, and hides
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

std::unique_ptr<Inference> published_inference(const InferenceOptions& options, bool weights) {
  models::Pretrained model = models::load_pretrained(
      options.folder, {.dtype = options.dtype, .weights = weights, .hide_padding = true});
  if (model.encoder != nullptr) return std::make_unique<Encoding>(std::move(model), options);
  return std::make_unique<Generation>(std::move(model), options);
}

ExportSubject published_subject(const OnnxOutput& output) {
  refuse_flag(!output.dims.empty(), "--dim", "ONNX files", output.model);
  auto loaded = std::make_shared<models::Pretrained>(
      models::load_pretrained(output.model, {.dtype = output.dtype, .hide_padding = true}));
  if (loaded->decoder != nullptr &&
      !models::blocks_of(loaded->decoder->config()).is_folder_form()) {
    auto form = models::folder_form(*loaded->decoder, output.dtype.value_or(DType::f32));
    loaded->decoder = form.get();
    loaded->model = std::move(form);
  }
  const int64_t context = checked_context(output.context, loaded->context);
  return {
      .owner = loaded,
      .module = loaded->model.get(),
      .build = forward_of(*loaded->model,
                          [context](int64_t batch) { return Type{DType::i64, {batch, context}}; }),
      .inputs = {"input_ids"},
      .outputs = {"logits"},
      .context = context};
}

train::Experiment published_evaluation(const std::string& model, const RecipeFlags& flags,
                                       const EvaluationWords&) {
  constexpr int64_t usual_length = 1024;
  for (const RecipeFlag& flag : flags)
    if (flag.path.starts_with("model."))
      throw Error(ErrorKind::usage, "{} is for recipes. {} is a published model.", flag.flag,
                  model);
  const int64_t context = models::load_pretrained(model, {.weights = false}).context;
  train::Recipe recipe;
  auto set = [&](std::string_view key, const std::string& value) {
    apply_flags(recipe, {{"", std::string(key), value}});
  };
  set(keys::model::pretrained, model);
  const auto is_jsonl = [](const RecipeFlag& flag) {
    return flag.path == keys::data::path && flag.value.ends_with(".jsonl");
  };
  set(keys::data::format, std::ranges::any_of(flags, is_jsonl) ? "jsonl" : "text");
  set(keys::data::seq_len, std::to_string(std::min(context, usual_length)));
  set(keys::train::steps, "1");  // none is taken
  set(keys::eval::batch_size, "1");
  recipe.apply_environment();
  apply_flags(recipe, flags);
  if (!recipe->data.path)
    throw Error(ErrorKind::usage, "evaluating {} needs a text. Hint: --data.path FILE.", model);
  return train::make_experiment(recipe, {.evaluate_only = true});
}

// The device is the only key of a recipe that a published model has.
std::string device_of(const RecipeFlags& flags) {
  train::Recipe recipe;
  recipe.apply_environment();
  for (const RecipeFlag& flag : flags)
    if (flag.path != keys::train::device)
      throw Error(ErrorKind::usage, "{} is for runs of weft's own. This is a published model.",
                  flag.flag);
  apply_flags(recipe, flags);
  return recipe->train.device;
}

// Refuses sampling options of a folder that no sampler can do, with the name of its file.
void check_sampling(const io::GenerationConfig& config) try {
  infer::SamplingOptions sampling;
  sampling.temperature = config.temperature.value_or(sampling.temperature);
  sampling.top_k = config.top_k.value_or(sampling.top_k);
  sampling.top_p = config.top_p.value_or(sampling.top_p);
  sampling.min_p = config.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = config.repetition_penalty.value_or(sampling.repetition_penalty);
  infer::check(sampling);
} catch (const Error& error) {
  throw Error(ErrorKind::data, "{}: {}", config.file, error.what());
}

std::string itself(const std::string& name) { return name; }

bool is_decoder(const std::string& model) {
  return models::load_pretrained(model, {.weights = false}).decoder != nullptr;
}

TextModel published_text_model(const std::string& folder, const TextModelOptions& options) {
  return published_text(folder, options, "");
}
}  // namespace

TextModel published_text(const std::string& folder, const TextModelOptions& options,
                         const std::string& checkpoint) {
  if (io::is_folder(folder))
    for (std::string_view file : train::published_files)
      io::file_of_folder(folder, std::string(file));  // refuses links that leave the folder
  const std::string adapter =
      options.adapter.empty() ? checkpoint : adapter_folder_of(options.adapter);
  const data::TokenizerConfig tokens = data::TokenizerConfig::load(folder);
  data::Tokenizer tokenizer = data::Tokenizer::load(folder);
  models::Pretrained pretrained = models::load_pretrained(folder, {.dtype = options.dtype});
  if (pretrained.decoder == nullptr)
    throw Error(ErrorKind::usage, "{} is an encoder, which generates no text.", folder);
  std::vector<std::string> adapter_files;
  if (!adapter.empty()) {
    const nn::BuildScope scope({.dtype = pretrained.dtype});
    train::load_adapter(*pretrained.model, folder, adapter);
    adapter_files.push_back(
        (std::filesystem::path(adapter) / models::adapter_weights_file).string());
  }
  tokenizer.check_fits(pretrained.vocabulary);
  TextModel model{.folder = folder,
                  .adapter_files = std::move(adapter_files),
                  .codec = std::move(tokenizer),
                  .device = device_of(options.flags),
                  .vocabulary = pretrained.vocabulary,
                  .context = pretrained.context};
  model.defaults = io::read_generation_config(folder);
  check_sampling(model.defaults);
  model.chat = tokens.chat_template();
  model.is_published = true;
  model.pretrained = std::move(pretrained);
  return model;
}

constinit const ModelKind published_kind{.format = train::published_format,
                                         .tensors = weight_tensors,
                                         .tuned = itself,
                                         .generates = is_decoder,
                                         .arrays = published_arrays,
                                         .inference = published_inference,
                                         .subject = published_subject,
                                         .evaluation = published_evaluation,
                                         .text_model = published_text_model};

}  // namespace weft::cli
