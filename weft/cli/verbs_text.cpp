// The verb that writes text with a language model: generate.
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/stopwatch.h"
#include "weft/cli/terminal.h"
#include "weft/cli/text_model.h"
#include "weft/cli/verbs.h"
#include "weft/infer/generate.h"
#include "weft/io/json.h"
#include "weft/train/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;

struct GenerateArguments {
  std::string model;
  std::vector<std::string> prompts;
  RecipeFlags flags;
  infer::GenerateOptions options;
  int64_t context = 0;
  bool log_probabilities = false, as_json = false;
};

// Returns the ids of a prompt. Of one beyond the context, a model that slides sees the end.
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

int run_generate(GenerateArguments arguments, const RecipeFlags& more) {
  for (std::string& stop : arguments.options.stop)
    if (stop == "\\n") stop = "\n";  // shells pass it so
  const TextModel model = load_text_model(arguments.model, joined(arguments.flags, more));
  const int64_t context = arguments.context > 0 ? arguments.context : model.context;
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& prompt : arguments.prompts)
    prompts.push_back(ids_of(model, prompt, context));
  const std::unique_ptr<infer::TokenModel> tokens = infer::make_token_model(
      model.model(), model.vocabulary, model.context,
      {.batch = std::ssize(prompts), .context = arguments.context, .device = model.device});
  arguments.options.slide = model.slides;

  // One sequence is shown as it is written, several when all of them are complete.
  const bool streams = prompts.size() == 1 && !arguments.as_json;
  std::optional<Stopwatch> since_first;  // excludes the compilation of kernels
  double seconds = 0;
  auto write = [&](size_t, std::string_view piece) {
    if (!since_first) {
      since_first.emplace();
      if (streams) out(arguments.prompts.front());  // not printed for a refused prompt
    } else {
      seconds = since_first->milliseconds() / 1000;
    }
    if (!streams) return;
    out(piece);
    std::fflush(stdout);
  };
  const std::vector<infer::Generated> all =
      infer::generate(*tokens, model.codec, prompts, arguments.options, write);
  int64_t count = 0;
  for (const infer::Generated& each : all) count += std::ssize(each.tokens);
  const double per_second = seconds > 0 ? static_cast<double>(count - 1) / seconds : 0;
  if (const train::DataEntry* dataset = model.experiment.dataset; dataset && dataset->note)
    remark("note", dataset->note(model.experiment));
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
    line(since_first ? "" : arguments.prompts.front());
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

void add_generate(Program& program) {
  auto arguments = std::make_shared<GenerateArguments>();
  Verb& verb = program.root.add(
      {.name = "generate",
       .group = "Runs",
       .doc = "Generates text from a language model: prompts and their continuations.",
       .examples = "weft generate runs/shakespeare --prompt 'ROMEO:'\n"
                   "weft generate addition --prompt '123+045=' --temperature 0 --stop '\\n'\n"
                   "weft generate addition --prompt '1+2=' --prompt '3+4=' --json",
       .run = [&program, arguments] { return run_generate(*arguments, program.flags); },
       .recipe_keys = true});
  infer::GenerateOptions& options = arguments->options;
  infer::SamplingOptions& sampling = options.sampling;
  verb.options = {
      {.type = "CHECKPOINT",
       .doc = "a checkpoint folder, or a run's folder or name",
       .target = &arguments->model,
       .required = true},
      {.flag = "--prompt",
       .type = "TEXT",
       .doc = "text to continue; repeated, several at once",
       .target = &arguments->prompts,
       .required = true,
       .may_be_empty = true,  // refused later with a better message
       .most = 64},
      {.flag = "--max-new-tokens",
       .type = "N",
       .doc = "tokens to generate (200)",
       .target = &options.max_new_tokens,
       .range = {{1, 0x1p40}}},
      {.flag = "--temperature",
       .type = "T",
       .doc = "sampling temperature; 0: always the most likely token (1)",
       .target = &sampling.temperature,
       .range = {{0.0, 100.0}}},
      {.flag = "--top-k",
       .type = "K",
       .doc = "sample from the K most likely tokens; 0: from all (0)",
       .target = &sampling.top_k,
       .range = {{0, 0x1p40}}},
      {.flag = "--top-p",
       .type = "P",
       .doc = "sample from the most likely tokens whose probabilities sum to P (1)",
       .target = &sampling.top_p,
       .range = {{0.0, 1.0}}},
      {.flag = "--min-p",
       .type = "P",
       .doc = "sample from tokens at least P times as likely as the likeliest (0)",
       .target = &sampling.min_p,
       .range = {{0.0, 1.0}}},
      {.flag = "--repetition-penalty",
       .type = "X",
       .doc = "divide the logits of tokens that the sequence has by X (1)",
       .target = &sampling.repetition_penalty,
       .range = {{0.01, 100.0}}},
      {.flag = "--presence-penalty",
       .type = "X",
       .doc = "subtract X from the logits of tokens that the text has (0)",
       .target = &sampling.presence_penalty,
       .range = {{-100.0, 100.0}}},
      {.flag = "--frequency-penalty",
       .type = "X",
       .doc = "subtract X for each time that the text has the token (0)",
       .target = &sampling.frequency_penalty,
       .range = {{-100.0, 100.0}}},
      {.flag = "--seed",
       .type = "N",
       .doc = "random seed of the sampling (0)",
       .target = &sampling.seed,
       .range = {{0, 0x1p53}}},
      {.flag = "--stop",
       .type = "TEXT",
       .doc = "stop where this text is generated; may be repeated",
       .target = &options.stop,
       .most = 64},
      {.flag = "--context",
       .type = "N",
       .doc = "most tokens of a sequence (as many as the model takes)",
       .target = &arguments->context,
       .range = {{1, 0x1p40}}},
      {.flag = "--log-probabilities",
       .doc = "with --json: the ids of the tokens and their log probabilities",
       .target = &arguments->log_probabilities},
      short_flag(arguments->flags, "--device"),
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
}
}  // namespace

void add_text_verbs(Program& program) { add_generate(program); }

}  // namespace weft::cli
