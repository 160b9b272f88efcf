// Defines BERT: https://huggingface.co/docs/transformers/model_doc/bert
#include "weft/models/families/encoder_options.h"
#include "weft/models/families/encoders.h"
#include "weft/models/zoo.h"

namespace weft::models {
namespace {
// Returns the config whose fields no key sets, and the defaults of the others.
EncoderConfig bert_defaults(EncoderHead head) {
  EncoderConfig c{.head = head};
  c.names.head_dense = "bert.pooler.dense";
  c.names.head_output = "classifier";
  if (head == EncoderHead::masked_tokens) {
    c.names.head = "cls.predictions";
    c.names.head_dense = "transform.dense";
    c.names.head_norm = "transform.LayerNorm";
    c.names.head_output = "bias";
  }
  return c;
}
std::unique_ptr<Encoder> bert_encoder(EncoderConfig config, const nn::Options& given) {
  config.head_act = config.head == EncoderHead::sample_label ? "tanh" : config.hidden_act;
  return std::make_unique<Encoder>(config, bert_options(config).over(given));
}
}  // namespace

EncoderFamily bert_family() {
  return {.name = "bert",
          .doc = "encoder, post-norm, learnt positions (BERT)",
          .architectures = encoder_architectures("Bert"),
          .make =
              [](const nn::Options& options, std::string_view architecture) {
                EncoderConfig defaults = bert_defaults(encoder_head("bert", "Bert", architecture));
                defaults.pad_token_id = 0;
                nn::OptionReader reader(options, "bert");
                const EncoderConfig config = read_bert_options(reader, defaults);
                finish_published(reader, config);
                return bert_encoder(config, options);
              },
          .layout = encoder_layout("bert", {"embeddings", "encoder", "pooler"},
                                   {"bert.pooler.*", "cls.*"})};
}

std::unique_ptr<Model> make_bert(const nn::Options& options, const TaskShape& task) {
  check_task("bert", InputKind::tokens, task, Labels::any);
  const bool masked = task.labels_tokens();
  EncoderConfig defaults =
      bert_defaults(masked ? EncoderHead::masked_tokens : EncoderHead::sample_label);
  defaults.vocab_size = masked ? task.classes : task.vocabulary;
  defaults.num_labels = task.classes;
  defaults.max_position_embeddings = task.input[0];
  defaults.intermediate_size = 0;
  defaults.attention_dropout = 0;
  nn::OptionReader reader(options, "bert");
  const EncoderConfig config =
      read_bert_options(reader, defaults,
                        {.vocab_size = defaults.vocab_size,
                         .num_labels = defaults.num_labels,
                         .max_position_embeddings = defaults.max_position_embeddings});
  reader.finish();
  return bert_encoder(config, {});
}

}  // namespace weft::models
