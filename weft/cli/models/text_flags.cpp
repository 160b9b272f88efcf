#include "weft/cli/models/text_flags.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/numbers/rounding.h"
#include "weft/cli/models/compiled_model.h"
#include "weft/cli/show/terminal.h"
#include "weft/io/generation_config.h"
#include "weft/io/model_folder.h"
#include "weft/nn/block_activations.h"

namespace weft::cli {
namespace {
// Returns the value of a flag, or else the model's default, or else `otherwise`.
double chosen(double flag, std::optional<double> model, double otherwise) {
  return std::isnan(flag) ? model.value_or(otherwise) : flag;
}
}  // namespace

infer::GenerateOptions options_of(const SamplingFlags& flags, const TextModel& model) {
  infer::GenerateOptions options{.sampling = flags.others, .stop = flags.stop};
  for (std::string& stop : options.stop)
    if (stop == "\\n") stop = "\n";  // shells pass it so
  const io::GenerationConfig& defaults = model.defaults;
  infer::SamplingOptions& sampling = options.sampling;
  // As in transformers, a published model that does not ask for sampling takes the likeliest token,
  // and one that does samples from 50 tokens. A flag that only sampling reads asks for it, too.
  const bool asked = !std::isnan(flags.temperature) || !std::isnan(flags.top_p) ||
                     !std::isnan(flags.min_p) || flags.top_k >= 0;
  const bool samples = asked || !model.is_published || defaults.do_sample.value_or(false);
  const int64_t top_k = model.is_published && !asked ? 50 : 0;
  sampling.temperature = chosen(flags.temperature, defaults.temperature, 1);
  if (!samples) sampling.temperature = 0;
  sampling.top_k = flags.top_k >= 0 ? flags.top_k : defaults.top_k.value_or(top_k);
  sampling.top_p = chosen(flags.top_p, defaults.top_p, 1);
  sampling.min_p = chosen(flags.min_p, defaults.min_p, 0);
  sampling.repetition_penalty = chosen(flags.repetition_penalty, defaults.repetition_penalty, 1);
  for (int64_t id : defaults.eos_token_id)
    if (id >= 0 && id < model.vocabulary) options.end_tokens.push_back(static_cast<int32_t>(id));
  options.slide = model.slides;
  return options;
}

std::optional<DType> activations_of(const std::string& flag, const nn::Module& model,
                                    const std::string& model_name) {
  if (flag.empty()) return std::nullopt;
  if (!nn::has_blocks(model))
    throw Error(ErrorKind::usage,
                "--activations is for models with weights in blocks. {} has none. Hint: weft "
                "quantize.",
                model_name);
  return flag == "int8" ? DType::i8 : DType::f32;
}

Option activations_option(std::string& flag) {
  return {.flag = "--activations",
          .type = "TYPE",
          .doc =
              "activations in products with weights in blocks: rounded to int8, or float32 (int8 "
              "on CPUs with AVX2, else float32)",
          .target = &flag,
          .choices = {"int8", "float32"}};
}

TextModel load(const TextModelFlags& flags, const RecipeFlags& more) {
  check_compiled_options(flags.name, flags.compiled);
  TextModelOptions options{
      .flags = joined(flags.recipe, more), .adapter = flags.adapter, .compiled = flags.compiled};
  if (!flags.dtype.empty()) options.dtype = parse_dtype(flags.dtype);
  return load_text_model(flags.name, options);
}

std::vector<int32_t> ids_of(const TextModel& model, const std::string& prompt, int64_t context) {
  std::vector<int32_t> ids = model.codec.encode(prompt);
  if (ids.empty())  // an empty prompt may have the token that begins a text
    throw Error(ErrorKind::usage, prompt.empty() ? "a prompt has at least one character."
                                                 : "the tokenizer leaves nothing of a prompt.");
  const int64_t over = std::ssize(ids) - context;
  if (over <= 0 || !model.slides) return ids;
  remark("warning", fmt::format("the prompt has {} tokens. The model sees the last {} of them.",
                                ids.size(), context));
  ids.erase(ids.begin(), ids.begin() + over);
  return ids;
}

std::unique_ptr<infer::TokenModel> sequences_for(const TextModel& model,
                                                 std::span<const std::vector<int32_t>> prompts,
                                                 int64_t new_tokens, int64_t context,
                                                 const std::string& activations) {
  int64_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts)
    longest = std::max<int64_t>(longest, std::ssize(prompt));
  // A cache has room for the longest prompt and its new tokens, not for the model's whole context.
  const int64_t length = std::min(context, longest + new_tokens);
  // Texts of like lengths have caches of one size, so that kernels compiled for one serve another.
  constexpr int64_t unit = 256;
  const int64_t room = std::min(context, round_up(length, unit));
  return model.sequences({.batch = std::ssize(prompts),
                          .context = model.slides || longest > context ? context : room,
                          .length = length},
                         activations);
}

std::vector<infer::Generated> generated(const TextModel& model, infer::TokenModel& tokens,
                                        std::span<const std::vector<int32_t>> prompts,
                                        const infer::GenerateOptions& options,
                                        const infer::OnText& on_text) try {
  return infer::generate(tokens, model.codec, prompts, options, on_text);
} catch (const Error& error) {
  if (error.kind() == ErrorKind::non_finite && model.pretrained) {
    models::refuse_non_finite(io::weight_files(model.folder));
    models::refuse_non_finite(model.adapter_files);
  }
  throw;
}

void add_model_flags(Verb& verb, TextModelFlags& flags) {
  verb.options.push_back(
      {.type = "MODEL",
       .doc = "a folder of a published model, a compiled model, a checkpoint folder, or a run's "
              "folder or name",
       .target = &flags.name,
       .required = true});
  verb.options.push_back({.flag = "--context",
                          .type = "N",
                          .doc = "most tokens of a sequence (as many as the model takes)",
                          .target = &flags.context,
                          .range = {{1, 0x1p40}}});
  verb.options.push_back({.flag = "--dtype",
                          .type = "TYPE",
                          .doc = "type of a published model's weights and activations: f32, bf16 "
                                 "or f16 (that of its files)",
                          .target = &flags.dtype,
                          .choices = {"f32", "bf16", "f16"}});
  verb.options.push_back({.flag = "--adapter",
                          .type = "FOLDER",
                          .doc = "the adapter of a published model: PEFT's folder, or a run or its "
                                 "checkpoint",
                          .target = &flags.adapter});
  verb.options.push_back(activations_option(flags.activations));
  verb.options.push_back(short_flag(flags.recipe, "--device"));
  for (Option& option : compiled_options(flags.compiled)) verb.options.push_back(std::move(option));
}

void add_sampling_flags(Verb& verb, SamplingFlags& flags) {
  const std::vector<Option> options = {
      {.flag = "--temperature",
       .type = "T",
       .doc = "sampling temperature; 0: always the most likely token (1, or as the model says)",
       .target = &flags.temperature,
       .range = {{0.0, 100.0}}},
      {.flag = "--top-k",
       .type = "K",
       .doc = "sample from the K most likely tokens; 0: from all (0)",
       .target = &flags.top_k,
       .range = {{0, 0x1p40}}},
      {.flag = "--top-p",
       .type = "P",
       .doc = "sample from the most likely tokens whose probabilities sum to P (1)",
       .target = &flags.top_p,
       .range = {{0.0, 1.0}}},
      {.flag = "--min-p",
       .type = "P",
       .doc = "sample from tokens at least P times as likely as the likeliest (0)",
       .target = &flags.min_p,
       .range = {{0.0, 1.0}}},
      {.flag = "--repetition-penalty",
       .type = "X",
       .doc = "divide the logits of tokens that the sequence has by X (1)",
       .target = &flags.repetition_penalty,
       .range = {{0.01, 100.0}}},
      {.flag = "--presence-penalty",
       .type = "X",
       .doc = "subtract X from the logits of tokens that the text has (0)",
       .target = &flags.others.presence_penalty,
       .range = {{-100.0, 100.0}}},
      {.flag = "--frequency-penalty",
       .type = "X",
       .doc = "subtract X for each time that the text has the token (0)",
       .target = &flags.others.frequency_penalty,
       .range = {{-100.0, 100.0}}},
      {.flag = "--seed",
       .type = "N",
       .doc = "random seed of the sampling (0)",
       .target = &flags.others.seed,
       .range = {{0, 0x1p53}}},
      {.flag = "--stop",
       .type = "TEXT",
       .doc = "stop where this text is generated; may be repeated",
       .target = &flags.stop,
       .most = 64}};
  verb.options.insert(verb.options.end(), options.begin(), options.end());
}

}  // namespace weft::cli
