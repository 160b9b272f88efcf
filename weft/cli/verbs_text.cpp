// Verbs that write text with a language model: generate, chat.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>
#include <span>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/rounding.h"
#include "weft/cli/terminal.h"
#include "weft/cli/text_model.h"
#include "weft/cli/verbs.h"
#include "weft/infer/generate.h"
#include "weft/io/json.h"
#include "weft/io/model_folder.h"
#include "weft/train/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;

// Sampling options that the command line sets: NaN, or a negative number: not given.
struct SamplingFlags {
  double temperature = NAN, top_p = NAN, min_p = NAN, repetition_penalty = NAN;
  int64_t top_k = -1;
  infer::SamplingOptions others = {};  // which no model has a default of
  std::vector<std::string> stop = {};
};

// Returns a flag, or else what the model says, or else `otherwise`.
double chosen(double flag, std::optional<double> model, double otherwise) {
  return std::isnan(flag) ? model.value_or(otherwise) : flag;
}

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
  const bool samples = asked || !model.pretrained || defaults.do_sample.value_or(false);
  const int64_t top_k = model.pretrained && !asked ? 50 : 0;
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

// ModelFlags are those of a model and of how it is run.
struct ModelFlags {
  std::string name, dtype, adapter;
  RecipeFlags recipe;  // --device
  int64_t context = 0;
};

TextModel load(const ModelFlags& flags, const RecipeFlags& more) {
  TextModelOptions options{.flags = joined(flags.recipe, more), .adapter = flags.adapter};
  if (!flags.dtype.empty()) options.dtype = parse_dtype(flags.dtype);
  return load_text_model(flags.name, options);
}

// Generates as infer::generate() does. Where logits are NaN, the folder's weights may say why.
std::vector<infer::Generated> generated(const TextModel& model, infer::TokenModel& tokens,
                                        std::span<const std::vector<int32_t>> prompts,
                                        const infer::GenerateOptions& options,
                                        const infer::OnText& on_text) try {
  return infer::generate(tokens, model.codec, prompts, options, on_text);
} catch (const Error& error) {
  if (error.kind() == ErrorKind::non_finite && model.pretrained)
    models::refuse_non_finite(io::weight_files(model.folder));
  throw;
}

struct GenerateArguments {
  std::vector<std::string> prompts;
  ModelFlags model_flags;
  SamplingFlags sampling;
  int64_t max_new_tokens = 0;
  bool log_probabilities = false, as_json = false;
};

// Returns the ids of a prompt. A model whose context slides gets the last tokens of a prompt that
// is longer than the context.
std::vector<int32_t> ids_of(const TextModel& model, const std::string& prompt, int64_t context) {
  if (prompt.empty()) throw Error(ErrorKind::usage, "a prompt has at least one character.");
  std::vector<int32_t> ids = model.codec.encode(prompt);
  const int64_t over = std::ssize(ids) - context;
  if (over <= 0 || !model.slides) return ids;
  remark("warning", fmt::format("the prompt has {} tokens. The model sees the last {} of them.",
                                ids.size(), context));
  ids.erase(ids.begin(), ids.begin() + over);
  return ids;
}

json to_json(const infer::Generated& generated, const std::string& prompt,
             const GenerateArguments& arguments) {
  json result{{"prompt", prompt},
              {"text", generated.text},
              {"tokens", generated.tokens.size()},
              {"finish", infer::name(generated.finish)}};
  if (arguments.log_probabilities) {
    result["token_ids"] = generated.tokens;
    result["log_probabilities"] = generated.log_probabilities;
  }
  return result;
}

int run_generate(const GenerateArguments& arguments, const RecipeFlags& more) {
  const TextModel model = load(arguments.model_flags, more);
  infer::GenerateOptions options = options_of(arguments.sampling, model);
  options.max_new_tokens = arguments.max_new_tokens > 0
                               ? arguments.max_new_tokens
                               : model.defaults.max_new_tokens.value_or(200);
  const int64_t context =
      arguments.model_flags.context > 0 ? arguments.model_flags.context : model.context;
  std::vector<std::vector<int32_t>> prompts;
  int64_t longest = 0;
  for (const std::string& prompt : arguments.prompts) {
    prompts.push_back(ids_of(model, prompt, context));
    longest = std::max<int64_t>(longest, std::ssize(prompts.back()));
  }
  // A cache has room for what can be generated, not for all that the model could read.
  const int64_t length = std::min(context, longest + options.max_new_tokens);
  // Texts of like lengths have caches of one size, so that kernels compiled for one serve another.
  constexpr int64_t unit = 256;
  const int64_t room = std::min(context, round_up(length, unit));
  const std::unique_ptr<infer::TokenModel> tokens =
      infer::make_token_model(model.model(), model.vocabulary, model.context,
                              {.batch = std::ssize(prompts),
                               .context = model.slides || longest > context ? context : room,
                               .length = length,
                               .device = model.device});

  // One sequence is shown as it is written, several when all of them are complete.
  const bool streams = prompts.size() == 1 && !arguments.as_json;
  bool begun = false;
  auto write = [&](size_t, std::string_view piece) {
    if (!streams) return;
    if (!begun) out(arguments.prompts.front());  // not printed for a refused prompt
    begun = true;
    out(piece);
    std::fflush(stdout);
  };
  const std::vector<infer::Generated> all = generated(model, *tokens, prompts, options, write);
  int64_t count = 0, timed = 0;  // tokens; those behind the first of their sequence
  double seconds = 0;
  for (const infer::Generated& each : all) {
    count += std::ssize(each.tokens);
    timed += std::max<int64_t>(std::ssize(each.tokens) - 1, 0);
    seconds = std::max(seconds, each.seconds);
  }
  const double per_second = seconds > 0 ? static_cast<double>(timed) / seconds : 0;
  if (model.experiment && model.experiment->dataset->note)
    remark("note", model.experiment->dataset->note(*model.experiment));
  if (arguments.as_json) {
    json results = json::array();
    for (size_t i = 0; i < all.size(); ++i)
      results.push_back(to_json(all[i], arguments.prompts[i], arguments));
    json result = all.size() == 1 ? results.front() : json{{"results", results}};
    result["tokens_per_second"] = per_second;
    line(io::json_text(result));
    return 0;
  }
  if (streams) {
    line(begun ? "" : arguments.prompts.front());
  } else {
    for (size_t i = 0; i < all.size(); ++i) {
      if (i > 0) line("");
      line(arguments.prompts[i] + all[i].text);
    }
  }
  constexpr int64_t enough = 10;  // tokens; fewer give no meaningful rate
  if (count >= enough && per_second > 0)
    remark("note", fmt::format("{} tokens, {} tok/s", count, train::count_text(per_second)));
  return 0;
}

// ---- chat

struct ChatArguments {
  ModelFlags model_flags;
  SamplingFlags sampling;
  std::string system;
  int64_t max_new_tokens = 0;
};

// Reads a line of the conversation; false at the end of the input.
bool read_line(std::string& text) {
  if (isatty(STDIN_FILENO) != 0) {
    out("> ");
    std::fflush(stdout);
  }
  return static_cast<bool>(std::getline(std::cin, text));
}

// Conversation is what was said, and the tokens that a model reads of it.
class Conversation {
 public:
  Conversation(const TextModel& model, const std::string& system, int64_t context)
      : model_(model), context_(context) {
    if (!system.empty()) messages_.push_back({"system", system});
    first_ = std::ssize(messages_);
  }

  void add(const std::string& role, const std::string& text) { messages_.push_back({role, text}); }

  // Returns the tokens with `room` behind them for an answer. The oldest exchanges are left out
  // where the context is too small for all.
  std::vector<int32_t> tokens(int64_t room) {
    std::vector<int32_t> ids = rendered();
    while (std::ssize(ids) + room > context_ && std::ssize(messages_) > first_ + 1) {
      const auto oldest = messages_.begin() + first_;
      messages_.erase(oldest, oldest + 2);  // a question and its answer
      if (!std::exchange(warned_, true))
        remark("warning", fmt::format("the conversation is longer than the context of {} tokens. "
                                      "The model no longer sees its beginning. Hint: --context.",
                                      context_));
      ids = rendered();
    }
    if (std::ssize(ids) >= context_)
      throw Error(ErrorKind::usage,
                  "the message has {} tokens, and the context is {}. Hint: --context.", ids.size(),
                  context_);
    return ids;
  }

 private:
  std::vector<int32_t> rendered() const {
    return model_.codec.encode(model_.chat->render(messages_, {.add_generation_prompt = true}),
                               false);
  }

  const TextModel& model_;
  int64_t context_;
  std::vector<data::ChatMessage> messages_;
  std::ptrdiff_t first_ = 0;  // the first message behind that of the system
  bool warned_ = false;
};

int run_chat(const ChatArguments& arguments, const RecipeFlags& more) {
  const TextModel model = load(arguments.model_flags, more);
  if (!model.chat)
    throw Error(ErrorKind::usage,
                "{} has no chat template (tokenizer_config.json, chat_template.jinja). Hint: weft "
                "generate continues a text.",
                arguments.model_flags.name);
  infer::GenerateOptions options = options_of(arguments.sampling, model);
  options.reuse = true;
  const int64_t context = arguments.model_flags.context > 0
                              ? arguments.model_flags.context
                              : std::min<int64_t>(model.context, 4096);
  const std::unique_ptr<infer::TokenModel> tokens = infer::make_token_model(
      model.model(), model.vocabulary, model.context, {.context = context, .device = model.device});
  Conversation conversation(model, arguments.system, context);
  const int64_t most = arguments.max_new_tokens > 0 ? arguments.max_new_tokens : context;
  for (std::string text; read_line(text);) {
    if (text.empty()) continue;
    conversation.add("user", text);
    const std::vector<int32_t> prompt = conversation.tokens(std::min(most, context / 4));
    options.max_new_tokens = std::min(most, context - std::ssize(prompt));
    const std::vector<infer::Generated> answer = generated(
        model, *tokens, std::span(&prompt, 1), options, [](size_t, std::string_view piece) {
          out(piece);
          std::fflush(stdout);
        });
    line("");
    conversation.add("assistant", answer.front().text);
  }
  return 0;
}

// ---- flags

void add_model_flags(Verb& verb, ModelFlags& flags) {
  verb.options.push_back(
      {.type = "MODEL",
       .doc = "a folder of a published model, a checkpoint folder, or a run's folder or name",
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
                          .doc = "a PEFT adapter of a published model: adapter_config.json and "
                                 "adapter_model.safetensors",
                          .target = &flags.adapter});
  verb.options.push_back(short_flag(flags.recipe, "--device"));
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

void add_generate(Program& program) {
  auto arguments = std::make_shared<GenerateArguments>();
  Verb& verb = program.root.add(
      {.name = "generate",
       .group = "Runs",
       .doc = "Generates text from a language model: prompts and their continuations.",
       .examples = "weft generate runs/shakespeare --prompt 'ROMEO:'\n"
                   "weft generate addition --prompt '123+045=' --temperature 0 --stop '\\n'\n"
                   "weft generate models/gpt2 --prompt 'The meaning of life is'\n"
                   "weft generate addition --prompt '1+2=' --prompt '3+4=' --json",
       .run = [&program, arguments] { return run_generate(*arguments, program.flags); },
       .recipe_keys = true});
  add_model_flags(verb, arguments->model_flags);
  verb.options.insert(verb.options.begin() + 1,
                      {{.flag = "--prompt",
                        .type = "TEXT",
                        .doc = "text to continue; repeated, several at once",
                        .target = &arguments->prompts,
                        .required = true,
                        .may_be_empty = true,  // refused later with a better message
                        .most = 64},
                       {.flag = "--max-new-tokens",
                        .type = "N",
                        .doc = "tokens to generate (200, or as the model says)",
                        .target = &arguments->max_new_tokens,
                        .range = {{1, 0x1p40}}}});
  add_sampling_flags(verb, arguments->sampling);
  verb.options.push_back({.flag = "--log-probabilities",
                          .doc = "with --json: the ids of the tokens and their log probabilities",
                          .target = &arguments->log_probabilities});
  verb.options.push_back(
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json});
}

void add_chat(Program& program) {
  auto arguments = std::make_shared<ChatArguments>();
  Verb& verb = program.root.add(
      {.name = "chat",
       .group = "Runs",
       .doc = "Talks with a published model by its chat template: each line of input is a message.",
       .examples = "weft chat models/Llama-3.2-1B-Instruct\n"
                   "echo 'Why is the sky blue?' | weft chat models/Qwen3-0.6B --temperature 0.7",
       .run = [&program, arguments] { return run_chat(*arguments, program.flags); },
       .recipe_keys = true});
  add_model_flags(verb, arguments->model_flags);
  verb.options.insert(verb.options.begin() + 1,
                      {{.flag = "--system",
                        .type = "TEXT",
                        .doc = "the message of the system that the conversation begins with",
                        .target = &arguments->system},
                       {.flag = "--max-new-tokens",
                        .type = "N",
                        .doc = "most tokens of an answer (as many as the context has room for)",
                        .target = &arguments->max_new_tokens,
                        .range = {{1, 0x1p40}}}});
  add_sampling_flags(verb, arguments->sampling);
}
}  // namespace

void add_text_verbs(Program& program) {
  add_generate(program);
  add_chat(program);
}

}  // namespace weft::cli
