#include "weft/cli/estimate/model_shape.h"

#include <cmath>
#include <map>
#include <tuple>

#include "weft/base/error.h"
#include "weft/ir/graph.h"
#include "weft/ir/op_def.h"
#include "weft/models/decoder.h"
#include "weft/nn/options.h"
#include "weft/train/experiment.h"

namespace weft::cli {
namespace {
estimate::Shape decoder_shape(const models::DecoderConfig& config) {
  estimate::Shape shape{.layers = std::ssize(config.layers),
                        .hidden = config.hidden_size,
                        .heads = config.num_attention_heads,
                        .kv_heads = config.num_key_value_heads,
                        .head_width = config.head_dim,
                        .ffn = config.intermediate_size,
                        .gated = !config.names.gate.empty() || !config.names.gate_up.empty(),
                        .vocabulary = config.vocab_size,
                        .tied = config.tie_word_embeddings};
  if (!config.names.positions.empty()) shape.positions = config.max_position_embeddings;
  if (config.num_experts > 0) {
    shape.experts = config.num_experts;
    shape.experts_per_token = config.num_experts_per_tok;
    shape.expert_ffn = config.intermediate_size;
  }
  return shape;
}

// Encoders keep the keys of Hugging Face's config.json, DistilBERT's among them.
bool is_encoder(const nn::Options& config) {
  const bool is_distilled = config.find("dim") != nullptr && config.find("n_heads") != nullptr;
  return is_distilled || (config.find("num_attention_heads") != nullptr &&
                          config.find("intermediate_size") != nullptr);
}

estimate::Shape encoder_shape(const nn::Options& config) {
  nn::OptionReader keys(config, "encoder");
  const bool is_distilled = keys.has("dim");
  const auto size = [&](std::string_view key, std::string_view distilled) {
    return keys.integer(is_distilled ? distilled : key, std::nullopt);
  };
  estimate::Shape shape{.layers = size("num_hidden_layers", "n_layers"),
                        .hidden = size("hidden_size", "dim"),
                        .heads = size("num_attention_heads", "n_heads"),
                        .ffn = size("intermediate_size", "hidden_dim"),
                        .vocabulary = keys.integer("vocab_size", std::nullopt),
                        .positions = keys.integer("max_position_embeddings", 512),
                        .tied = true,
                        .causal = false};
  shape.kv_heads = shape.heads;
  shape.head_width = shape.hidden / shape.heads;
  return shape;
}

// Counts the equal convolutions of a forward pass; a product of features is one on a single pixel.
estimate::Shape convolutional_shape(const Model& model, const TaskShape& task) {
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, int64_t> counts;
  for (const Value& node : train::forward_graph(model, task.batch(1)).nodes()) {
    if (node->op->family == OpFamily::convolution && node->type.shape.size() == 4) {
      const Shape &of = node->type.shape, &weight = node->inputs[1].shape();
      ++counts[{std::llround(std::sqrt(static_cast<double>(of[2] * of[3]))), weight[1], of[1],
                weight[2]}];
    } else if (node->op->family == OpFamily::product && node->type.shape.size() == 2) {
      ++counts[{1, node->inputs[0].shape()[1], node->type.shape[1], 1}];
    }
  }
  estimate::Shape shape;
  for (const auto& [each, count] : counts)
    shape.convolutions.push_back({.size = std::get<0>(each),
                                  .inputs = std::get<1>(each),
                                  .outputs = std::get<2>(each),
                                  .kernel = std::get<3>(each),
                                  .count = count});
  return shape;
}
}  // namespace

estimate::Shape shape_of(const Model& model, const TaskShape& task, const std::string& name) {
  estimate::Shape shape;
  if (const models::DecoderConfig* const decoder = models::decoder_config_of(model))
    shape = decoder_shape(*decoder);
  else if (task.kind == InputKind::tokens && is_encoder(model.config()))
    shape = encoder_shape(model.config());
  else if (task.kind == InputKind::images)
    shape = convolutional_shape(model, task);
  if (shape.layers == 0 && shape.convolutions.empty())
    throw Error(
        ErrorKind::usage,
        "--as: {} is neither a transformer nor a network of convolutions, of which estimates "
        "know. Hint: weft plan without --as compiles it.",
        name);
  shape.name = name;
  return shape;
}

}  // namespace weft::cli
