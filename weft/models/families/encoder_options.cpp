#include "weft/models/families/encoder_options.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/models/families/encoders.h"

namespace weft::models {
namespace {
constexpr std::pair<std::string_view, EncoderHead> heads[] = {
    {"ForMaskedLM", EncoderHead::masked_tokens},
    {"ForTokenClassification", EncoderHead::token_labels},
    {"ForSequenceClassification", EncoderHead::sample_label}};

// These keys of published files say nothing about the equations of an encoder.
constexpr std::string_view ignored[] = {"_name_or_path",
                                        "_num_labels",
                                        "architectures",
                                        "bos_token_id",
                                        "chunk_size_feed_forward",
                                        "cls_token_id",
                                        "directionality",
                                        "dtype",
                                        "eos_token_id",
                                        "finetuning_task",
                                        "gradient_checkpointing",
                                        "id2label",
                                        "label2id",
                                        "language",
                                        "mask_token_id",
                                        "name",
                                        "output_attentions",
                                        "output_hidden_states",
                                        "output_past",
                                        "pooler_fc_size",
                                        "pooler_num_attention_heads",
                                        "pooler_num_fc_layers",
                                        "pooler_size_per_head",
                                        "pooler_type",
                                        "problem_type",
                                        "return_dict",
                                        "sep_token_id",
                                        "task_specific_params",
                                        "tokenizer_class",
                                        "torch_dtype",
                                        "torchscript",
                                        "transformers_version",
                                        "use_cache"};
}  // namespace

std::vector<std::string> encoder_architectures(std::string_view prefix) {
  std::vector<std::string> all;
  for (const auto& [suffix, head] : heads) all.push_back(fmt::format("{}{}", prefix, suffix));
  return all;
}

EncoderHead encoder_head(const std::string& model_type, std::string_view prefix,
                         std::string_view architecture) {
  for (const auto& [suffix, head] : heads)
    if (architecture == fmt::format("{}{}", prefix, suffix)) return head;
  throw Error(ErrorKind::usage, "[{}] the architecture must be one of {}. Got \"{}\".", model_type,
              fmt::join(encoder_architectures(prefix), ", "), architecture);
}

void read_labels(nn::OptionReader& reader, EncoderConfig& config, int64_t least) {
  if (config.head != EncoderHead::masked_tokens)
    config.num_labels = reader.integer("num_labels", config.num_labels, least, most_columns);
  else
    reader.integer("num_labels", 0, 0);
}

void check_heads(const EncoderConfig& config, std::string_view width, std::string_view heads) {
  if (config.hidden_size % config.num_attention_heads != 0)
    throw Error(ErrorKind::usage, "[{}] {} must divide {} ({}). Got {}.", config.model_type, heads,
                width, config.hidden_size, config.num_attention_heads);
}

EncoderConfig read_bert_options(nn::OptionReader& reader, const EncoderConfig& defaults,
                                const EncoderLimits& limits) {
  EncoderConfig c = defaults;
  reader.text("model_type", c.model_type);
  c.vocab_size = reader.integer("vocab_size", c.vocab_size, limits.vocab_size, most_rows);
  read_labels(reader, c, limits.num_labels);
  const int64_t pad = reader.integer("pad_token_id", c.pad_token_id.value_or(-1),
                                     c.pad_token_id ? 0 : -1, c.vocab_size - 1);
  c.pad_token_id = pad < 0 ? std::nullopt : std::optional(pad);
  c.max_position_embeddings = reader.integer(
      "max_position_embeddings", c.max_position_embeddings,
      limits.max_position_embeddings + (c.positions_after_pad ? pad + 1 : 0), most_rows);
  c.type_vocab_size = reader.integer("type_vocab_size", c.type_vocab_size, 1, most_rows);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size, 1, most_columns);
  c.num_hidden_layers = reader.layers("num_hidden_layers", c.num_hidden_layers);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  check_heads(c, "hidden_size", "num_attention_heads");
  c.intermediate_size = reader.integer(
      "intermediate_size", c.intermediate_size > 0 ? c.intermediate_size : 4 * c.hidden_size, 1,
      4 * most_columns);
  c.hidden_act = reader.text("hidden_act", c.hidden_act);
  c.hidden_dropout = reader.number("hidden_dropout_prob", c.hidden_dropout, 0, 1);
  c.projection_dropout = c.hidden_dropout;
  c.attention_dropout = reader.number("attention_probs_dropout_prob", c.attention_dropout, 0, 1);
  c.classifier_dropout = reader.number("classifier_dropout", c.hidden_dropout, 0, 1);
  c.layer_norm_eps = reader.number("layer_norm_eps", c.layer_norm_eps, 0, 1);
  c.initializer_range = reader.number("initializer_range", c.initializer_range, 0, 10);
  return c;
}

nn::Options bert_options(const EncoderConfig& config) {
  nn::Options options{{"model_type", config.model_type},
                      {"vocab_size", config.vocab_size},
                      {"max_position_embeddings", config.max_position_embeddings},
                      {"type_vocab_size", config.type_vocab_size},
                      {"hidden_size", config.hidden_size},
                      {"num_hidden_layers", config.num_hidden_layers},
                      {"num_attention_heads", config.num_attention_heads},
                      {"intermediate_size", config.intermediate_size},
                      {"hidden_act", config.hidden_act},
                      {"hidden_dropout_prob", config.hidden_dropout},
                      {"attention_probs_dropout_prob", config.attention_dropout},
                      {"layer_norm_eps", config.layer_norm_eps},
                      {"initializer_range", config.initializer_range}};
  if (config.pad_token_id) options.set("pad_token_id", *config.pad_token_id);
  if (config.head == EncoderHead::masked_tokens) return options;
  options.set("num_labels", config.num_labels);
  options.set("classifier_dropout", config.classifier_dropout);
  return options;
}

void finish_published(nn::OptionReader& reader, const EncoderConfig& config) {
  for (const std::string_view key : {"is_decoder", "add_cross_attention", "is_encoder_decoder"})
    if (reader.flag(key, false))
      throw Error(ErrorKind::usage, "[{}] {} must be false: only encoders are read. Got true.",
                  config.model_type, key);
  if (!reader.flag("tie_word_embeddings", true) && config.head == EncoderHead::masked_tokens)
    throw Error(ErrorKind::usage,
                "[{}] tie_word_embeddings must be true: masked tokens are predicted by the "
                "embedding. Got false.",
                config.model_type);
  constexpr std::string_view absolute[] = {"absolute"};
  reader.choice("position_embedding_type", absolute[0], absolute);
  std::vector<std::string> unknown;
  for (const std::string& key : reader.unread())
    if (std::ranges::find(ignored, key) == std::end(ignored)) unknown.push_back(key);
  if (!unknown.empty())
    logging::warn("[{}] config.json: {} {} not known and ignored.", config.model_type,
                  fmt::join(unknown, ", "), unknown.size() == 1 ? "is" : "are");
}

io::LoadOptions encoder_layout(const std::string& base, const std::vector<std::string>& modules,
                               std::vector<std::string> extra) {
  // Files of 2018 name the parameters of norms as TensorFlow did.
  io::LoadOptions layout{.aliases = {{"*.gamma", "*.weight"}, {"*.beta", "*.bias"}},
                         .extra = std::move(extra),
                         .cast = true};
  for (const std::string& module : modules)
    layout.aliases.emplace_back(module + ".*", fmt::format("{}.{}.*", base, module));
  return layout;
}

std::vector<EncoderFamily> encoder_families() {
  return {bert_family(), distilbert_family(), roberta_family()};
}

}  // namespace weft::models
