// Defines RoBERTa: https://huggingface.co/docs/transformers/model_doc/roberta. It is BERT with
// positions that are counted after the padding token's, and other heads.
#include "weft/models/families/encoder_options.h"
#include "weft/models/families/encoders.h"

namespace weft::models {
namespace {
std::unique_ptr<Encoder> make_roberta(const nn::Options& options, std::string_view architecture) {
  EncoderConfig c{.model_type = "roberta",
                  .head = encoder_head("roberta", "Roberta", architecture),
                  .vocab_size = 50265,
                  .pad_token_id = 1,
                  .positions_after_pad = true,
                  .dropout_of_first_token = true};
  c.names.encoder = "roberta";
  c.names.head_output = "classifier";
  c.head_act = "tanh";
  if (c.head == EncoderHead::sample_label) {
    c.names.head = "classifier";
    c.names.head_dense = "dense";
    c.names.head_output = "out_proj";
  } else if (c.head == EncoderHead::masked_tokens) {
    c.names.head = "lm_head";
    c.names.head_dense = "dense";
    c.names.head_norm = "layer_norm";
    c.names.head_output = "bias";
    c.head_act = "gelu";  // whatever hidden_act is
  }
  nn::OptionReader reader(options, "roberta");
  const EncoderConfig config = read_bert_options(reader, c);
  finish_published(reader, config);
  return std::make_unique<Encoder>(config, bert_options(config).over(options));
}
}  // namespace

EncoderFamily roberta_family() {
  return {.name = "roberta",
          .doc = "BERT with positions that skip padding (RoBERTa)",
          .architectures = encoder_architectures("Roberta"),
          .make = make_roberta,
          .layout = encoder_layout("roberta", {"embeddings", "encoder", "pooler"},
                                   {"roberta.pooler.*", "lm_head.*"})};
}

}  // namespace weft::models
