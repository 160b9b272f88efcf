// Declares the flags, and the functions, that the verbs which write text share: generate and chat.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/cli/models/text_model.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/infer/generate.h"

namespace weft::cli {

// SamplingFlags are the sampling options of the command line; NaN or a negative number is an option
// that was not given.
struct SamplingFlags {
  double temperature = NAN, top_p = NAN, min_p = NAN, repetition_penalty = NAN;
  int64_t top_k = -1;
  infer::SamplingOptions others = {};  // which no model has a default of
  std::vector<std::string> stop = {};
};

// TextModelFlags are the flags that name a model, and say how it is run.
struct TextModelFlags {
  std::string name, dtype, adapter, activations;
  RecipeFlags recipe;  // --device
  int64_t context = 0;
  artifact::ReadOptions compiled = {};
};

void add_model_flags(Verb& verb, TextModelFlags& flags);
void add_sampling_flags(Verb& verb, SamplingFlags& flags);

// Returns the options of a generation: values of flags, or else the model's defaults, or else
// transformers' defaults.
infer::GenerateOptions options_of(const SamplingFlags& flags, const TextModel& model);
// Returns the type of activations beside weights in blocks that --activations names; absent: the
// usual one. Throws Error(usage) where the model has no such weights.
std::optional<DType> activations_of(const std::string& flag, const nn::Module& model,
                                    const std::string& model_name);
Option activations_option(std::string& flag);
TextModel load(const TextModelFlags& flags, const RecipeFlags& more);

// Returns the ids of a prompt. A model whose context slides gets the last tokens of a prompt that
// is longer than the context. Throws Error(usage) for a prompt without tokens.
std::vector<int32_t> ids_of(const TextModel& model, const std::string& prompt, int64_t context);
// Makes sequences with room for the longest prompt and its new tokens.
std::unique_ptr<infer::TokenModel> sequences_for(const TextModel& model,
                                                 std::span<const std::vector<int32_t>> prompts,
                                                 int64_t new_tokens, int64_t context,
                                                 const std::string& activations);

// Generates as infer::generate() does. Where logits are NaN, the folder's weights may say why.
std::vector<infer::Generated> generated(const TextModel& model, infer::TokenModel& tokens,
                                        std::span<const std::vector<int32_t>> prompts,
                                        const infer::GenerateOptions& options,
                                        const infer::OnText& on_text);

void add_chat(Program& program);

}  // namespace weft::cli
