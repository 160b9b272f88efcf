// Implements chat, which talks with a published model.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/cli/models/text_flags.h"
#include "weft/cli/show/terminal.h"

namespace weft::cli {
namespace {
struct ChatArguments {
  TextModelFlags model_flags;
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

// Conversation holds the messages so far, and renders the tokens that a model reads of them.
class Conversation {
 public:
  Conversation(const TextModel& model, const std::string& system, int64_t context)
      : model_(model), context_(context) {
    if (!system.empty()) messages_.push_back({"system", system});
    first_ = std::ssize(messages_);
  }

  void add(const std::string& role, const std::string& text) { messages_.push_back({role, text}); }

  // Returns the tokens of the messages, after which the context has `room` tokens for an answer.
  // The oldest exchanges are removed if the context is too small for all.
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
  std::ptrdiff_t first_ = 0;  // the first message after the system's
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
  const std::unique_ptr<infer::TokenModel> tokens =
      model.sequences({.context = context}, arguments.model_flags.activations);
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
}  // namespace

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

}  // namespace weft::cli
