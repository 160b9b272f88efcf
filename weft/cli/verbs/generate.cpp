// Implements generate, and the group of verbs that write text with a language model; chat.cpp
// has chat.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/cli/models/text_flags.h"
#include "weft/cli/show/terminal.h"
#include "weft/io/json.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
using nlohmann::json;

struct GenerateArguments {
  std::vector<std::string> prompts;
  TextModelFlags model_flags;
  SamplingFlags sampling;
  int64_t max_new_tokens = 0;
  bool log_probabilities = false, as_json = false;
};

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
  prompts.reserve(arguments.prompts.size());
  for (const std::string& prompt : arguments.prompts)
    prompts.push_back(ids_of(model, prompt, context));
  const std::unique_ptr<infer::TokenModel> tokens = sequences_for(
      model, prompts, options.max_new_tokens, context, arguments.model_flags.activations);

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
  int64_t count = 0, timed = 0;  // tokens; tokens after the first of their sequence
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

}  // namespace

void add_text_verbs(Program& program) {
  add_generate(program);
  add_chat(program);
}

}  // namespace weft::cli
