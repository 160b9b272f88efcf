#include "weft/models/recurrent.h"

#include "weft/models/zoo.h"

namespace weft::models {
namespace {
constexpr std::string_view cells[] = {"lstm", "gru"};

std::unique_ptr<nn::Recurrent> make_rnn(nn::Module& model, const RecurrentConfig& config,
                                        int64_t width) {
  nn::RecurrentOptions options{.num_layers = config.num_hidden_layers, .dropout = config.dropout};
  if (config.cell == "gru")
    return std::make_unique<nn::GRU>(model, "rnn", width, config.hidden_size, options);
  return std::make_unique<nn::LSTM>(model, "rnn", width, config.hidden_size, options);
}

int64_t width_of(const RecurrentConfig& config) {
  return config.embedding_size == 0 ? config.hidden_size : config.embedding_size;
}
nn::Init matrix_init(const RecurrentConfig& config) {
  return nn::Init::uniform(-config.initializer_range, config.initializer_range);
}
}  // namespace

RecurrentConfig RecurrentConfig::read(const nn::Options& config, const TaskShape& task) {
  const nn::Option* cell = config.find("cell");  // errors of the reader name the cell
  bool is_gru = cell != nullptr && *cell == nn::Option(std::string("gru"));
  nn::OptionReader reader(config, is_gru ? "gru" : "lstm");
  RecurrentConfig c;
  reader.text("model_type", c.cell);
  c.cell = reader.choice("cell", c.cell, cells);
  check_task(c.cell, InputKind::tokens, task);
  c.vocab_size = reader.integer("vocab_size", task.classes, task.classes);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.embedding_size = reader.integer("embedding_size", c.hidden_size);
  c.num_hidden_layers = reader.layers("num_hidden_layers", c.num_hidden_layers);
  c.dropout = reader.number("dropout", c.dropout, 0, 1);
  c.initializer_range = reader.number("initializer_range", c.initializer_range, 0, 10);
  reader.finish();
  return c;
}

nn::Options RecurrentConfig::options() const {
  return {{"model_type", cell},
          {"cell", cell},
          {"vocab_size", vocab_size},
          {"hidden_size", hidden_size},
          {"embedding_size", width_of(*this)},
          {"num_hidden_layers", num_hidden_layers},
          {"dropout", dropout},
          {"initializer_range", initializer_range}};
}

RecurrentLm::RecurrentLm(const RecurrentConfig& config)
    : Model(InputKind::tokens, config.options()),
      encoder_(*this, "encoder", config.vocab_size, width_of(config),
               {.init = matrix_init(config)}),
      rnn_(make_rnn(*this, config, width_of(config))),
      decoder_(*this, "decoder", config.hidden_size, config.vocab_size,
               {.init = matrix_init(config)}),
      dropout_(*this, "dropout", config.dropout) {}

Tensor RecurrentLm::forward(const Tensor& tokens) const {
  WEFT_CHECK(tokens.rank() == 2, "[lstm] takes tokens [batch, length]. Got {}.",
             to_string(tokens.type()));
  return decoder_(dropout_((*rnn_)(dropout_(encoder_(tokens)))));
}

}  // namespace weft::models
