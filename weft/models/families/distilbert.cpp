// Defines DistilBERT: https://huggingface.co/docs/transformers/model_doc/distilbert. It is BERT
// without segments, under other names.
#include "weft/models/families/encoder_options.h"
#include "weft/models/families/encoders.h"

namespace weft::models {
namespace {
EncoderNames names_of(EncoderHead head) {
  EncoderNames names{.encoder = "distilbert",
                     .layers = "transformer.layer",
                     .query = "attention.q_lin",
                     .key = "attention.k_lin",
                     .value = "attention.v_lin",
                     .attention_output = "attention.out_lin",
                     .attention_norm = "sa_layer_norm",
                     .intermediate = "ffn.lin1",
                     .output = "ffn.lin2",
                     .output_norm = "output_layer_norm",
                     .head_dense = "pre_classifier",
                     .head_output = "classifier"};
  if (head == EncoderHead::masked_tokens) {
    names.head_dense = "vocab_transform";
    names.head_norm = "vocab_layer_norm";
    names.head_output = "vocab_projector.bias";
  }
  return names;
}

EncoderConfig read(nn::OptionReader& reader, EncoderHead head) {
  EncoderConfig c{.model_type = "distilbert",
                  .names = names_of(head),
                  .head = head,
                  .type_vocab_size = 0,
                  .num_hidden_layers = 6,
                  .projection_dropout = 0};
  reader.text("model_type", c.model_type);
  c.vocab_size = reader.integer("vocab_size", c.vocab_size, 1, most_rows);
  read_labels(reader, c);
  c.pad_token_id = reader.integer("pad_token_id", 0, 0, c.vocab_size - 1);
  c.max_position_embeddings =
      reader.integer("max_position_embeddings", c.max_position_embeddings, 1, most_rows);
  c.hidden_size = reader.integer("dim", c.hidden_size, 1, most_columns);
  c.num_hidden_layers = reader.layers("n_layers", c.num_hidden_layers);
  c.num_attention_heads = reader.integer("n_heads", c.num_attention_heads);
  check_heads(c, "dim", "n_heads");
  c.intermediate_size = reader.integer("hidden_dim", c.intermediate_size, 1, 4 * most_columns);
  c.hidden_act = reader.text("activation", c.hidden_act);
  c.head_act = head == EncoderHead::sample_label ? "relu" : c.hidden_act;
  c.hidden_dropout = reader.number("dropout", c.hidden_dropout, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", c.attention_dropout, 0, 1);
  const double of_samples = reader.number("seq_classif_dropout", 0.2, 0, 1);
  c.classifier_dropout = head == EncoderHead::sample_label ? of_samples : c.hidden_dropout;
  c.initializer_range = reader.number("initializer_range", c.initializer_range, 0, 10);
  // These say how training began, or belong to a head that this family does not have here.
  reader.flag("sinusoidal_pos_embds", false);
  reader.flag("tie_weights_", true);
  reader.number("qa_dropout", 0.1, 0, 1);
  finish_published(reader, c);
  return c;
}

nn::Options options_of(const EncoderConfig& config) {
  nn::Options options{{"model_type", config.model_type},
                      {"vocab_size", config.vocab_size},
                      {"pad_token_id", *config.pad_token_id},
                      {"max_position_embeddings", config.max_position_embeddings},
                      {"dim", config.hidden_size},
                      {"n_layers", config.num_hidden_layers},
                      {"n_heads", config.num_attention_heads},
                      {"hidden_dim", config.intermediate_size},
                      {"activation", config.hidden_act},
                      {"dropout", config.hidden_dropout},
                      {"attention_dropout", config.attention_dropout},
                      {"initializer_range", config.initializer_range}};
  if (config.head != EncoderHead::masked_tokens) options.set("num_labels", config.num_labels);
  if (config.head == EncoderHead::sample_label)
    options.set("seq_classif_dropout", config.classifier_dropout);
  return options;
}
}  // namespace

EncoderFamily distilbert_family() {
  return {.name = "distilbert",
          .doc = "BERT without segments (DistilBERT)",
          .architectures = encoder_architectures("DistilBert"),
          .make =
              [](const nn::Options& options, std::string_view architecture) {
                nn::OptionReader reader(options, "distilbert");
                const EncoderConfig config =
                    read(reader, encoder_head("distilbert", "DistilBert", architecture));
                return std::make_unique<Encoder>(config, options_of(config).over(options));
              },
          .layout = encoder_layout("distilbert", {"embeddings", "transformer"}, {"vocab_*"})};
}

}  // namespace weft::models
