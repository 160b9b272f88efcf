// Loads BERT, RoBERTa and DistilBERT from files as Hugging Face's transformers saves them, and
// compares names, logits, dropouts and two steps of training with transformers
// (tests/reference/encoders).
#include "weft/models/families/encoders.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/models/reference.h"
#include "tests/support/captured.h"
#include "tests/support/near.h"
#include "tests/support/temporary_folder.h"
#include "weft/io/load.h"
#include "weft/models/encoder.h"
#include "weft/models/pretrained.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;
using doctest::Contains;
using models::Encoder;
using models::EncoderFamily;
using test::TemporaryFolder;

namespace {
const char* const encoder_nets[] = {
    "bert_sequenceclassification",       "bert_tokenclassification",       "bert_maskedlm",
    "roberta_sequenceclassification",    "roberta_tokenclassification",    "roberta_maskedlm",
    "distilbert_sequenceclassification", "distilbert_tokenclassification", "distilbert_maskedlm"};

EncoderFamily family_of(const std::string& model_type) {
  for (EncoderFamily family :
       {models::bert_family(), models::roberta_family(), models::distilbert_family()})
    if (family.name == model_type) return family;
  FAIL("no family " << model_type);
  return {};
}

// Returns what nn::Options can hold of a config.json, and the number of its labels.
nn::Options config_options(const Json& config) {
  nn::Options options;
  for (const auto& [key, value] : config.items()) {
    if (value.is_boolean()) options.set(key, value.get<bool>());
    if (value.is_number_integer()) options.set(key, value.get<int64_t>());
    if (value.is_number_float()) options.set(key, value.get<double>());
    if (value.is_string()) options.set(key, value.get<std::string>());
  }
  if (config.contains("id2label"))
    options.set("num_labels", static_cast<int64_t>(config.at("id2label").size()));
  return options;
}

Tensor tensor_of(const Json& row, const std::string& key) {
  return row.at("inputs").contains(key) ? reference_tensor(row.at("inputs").at(key)) : Tensor();
}

// Published is one net of tests/reference/encoders as transformers publishes it: its config and a
// file of its weights in float32.
struct Published {
  explicit Published(const std::string& name) : row(reference_file("encoders/" + name + ".json")) {
    std::vector<Variable> variables;
    for (const Json& recipe : row.at("tensors")) {
      variables.emplace_back(recipe.at("name").get<std::string>(),
                             Type{DType::f32, shape_of(recipe)});
      write(variables.back(), elements_of(recipe));
    }
    io::save_safetensors(folder.file("model.safetensors"), variables);
    architecture = row.at("architecture");
    options = config_options(row.at("config"));
    family = family_of(row.at("config").at("model_type"));
  }

  std::unique_ptr<Encoder> make(DType dtype) const {
    nn::BuildScope scope({.dtype = dtype, .initialize = false});
    return family.make(options, architecture);
  }
  std::unique_ptr<Encoder> load(DType dtype) const {
    std::unique_ptr<Encoder> model = make(dtype);
    io::load(*model, folder.file("model.safetensors"), family.layout);
    return model;
  }

  Tensor tokens() const { return tensor_of(row, "input_ids"); }
  models::EncoderInputs others() const {
    return {.attention_mask = tensor_of(row, "attention_mask"),
            .token_type_ids = tensor_of(row, "token_type_ids")};
  }
  void check_logits(const Tensor& logits, const Json& expected, double tolerance) const {
    CHECK(logits.shape() == shape_of(expected));
    check_close(logits.to_doubles(), elements_of(expected), tolerance, "logits");
  }

  Json row;
  TemporaryFolder folder;
  std::string architecture;
  nn::Options options;
  EncoderFamily family;
};
}  // namespace

TEST_CASE("encoders have the parameters that transformers saves, so that each reads the other's") {
  for (const std::string name : encoder_nets) {
    CAPTURE(name);
    const Published published(name);
    std::map<std::string, Shape> expected, found;
    for (const Json& recipe : published.row.at("tensors"))
      expected.emplace(recipe.at("name"), shape_of(recipe));
    for (const auto& [own, variable] : published.make(DType::f32)->state())
      found.emplace(own, variable.shape());
    CHECK(found == expected);
  }
}

TEST_CASE("encoders compute the logits of transformers, with and without masks and segments") {
  const ModeScope eval(Mode::eval);
  for (const std::string name : encoder_nets) {
    CAPTURE(name);
    const Published published(name);
    for (const auto& [dtype, tolerance] : {std::pair(DType::f32, 1e-5), {DType::f64, 1e-9}}) {
      const auto model = published.load(dtype);
      models::EncoderInputs others = published.others();
      for (const DType masked : {DType::i64, DType::boolean}) {
        others.attention_mask = cast(others.attention_mask, masked);
        published.check_logits((*model)(published.tokens(), others), published.row.at("logits"),
                               tolerance);
      }
      published.check_logits((*model)(published.tokens()),
                             published.row.at("logits_of_tokens_alone"), tolerance);
    }
  }
}

TEST_CASE("encoders train as in transformers: losses and all parameters after two steps") {
  for (const std::string name : encoder_nets) {
    CAPTURE(name);
    const Published published(name);
    const auto model = published.load(DType::f64);
    const Json& training = published.row.at("training");
    optim::SGD optimizer(model->parameters(), {.lr = training.at("lr").get<double>()});
    const Tensor labels = reference_tensor(published.row.at("labels"));
    auto step = compile(
        [&](const Tensor& tokens, const Tensor& its_labels) {
          Tensor loss = cross_entropy((*model)(tokens, published.others()), its_labels);
          optimizer.step(grad(loss, model->parameters()));
          return loss;
        },
        {.mode = Mode::eval});  // without dropouts
    for (const Json& loss : training.at("losses"))
      CHECK(step(published.tokens(), labels).item() == near(loss.get<double>(), 1e-12));
    std::map<std::string, Variable> known;
    for (const auto& [own, variable] : model->state()) known.emplace(own, variable);
    uint64_t stream = 3000;
    for (const Json& recipe : published.row.at("tensors")) {
      CAPTURE(recipe.at("name").get<std::string>());
      const Tensor value = known.at(recipe.at("name")).value();
      const Json& after = training.at("after").at(recipe.at("name").get<std::string>());
      const double length = after[0], product = after[1];
      CHECK(norm(value).item() == near(length, 1e-12));
      const Tensor weights = uniform_tensor(stream++, value.shape(), DType::f64);
      CHECK(std::abs(sum(value * weights).item() - product) <= 1e-11 * (1 + length));
    }
  }
}

TEST_CASE("each dropout of an encoder stands where that of transformers does") {
  for (const std::string name : encoder_nets) {
    Published published(name);
    const nn::Options given = published.options;
    for (const auto& [key, logits] : published.row.at("dropped").items()) {
      CAPTURE(name + ": " + key);
      published.options = given;
      for (const auto& [other, unused] : published.row.at("dropped").items())
        published.options.set(other, other == key ? 1.0 : 0.0);
      const auto model = published.load(DType::f64);
      auto forward =
          compile([&](const Tensor& tokens) { return (*model)(tokens, published.others()); },
                  {.mode = Mode::train});
      published.check_logits(forward(published.tokens()), logits, 1e-9);
    }
  }
}

TEST_CASE("encoders know the activations of transformers by their names") {
  const ModeScope eval(Mode::eval);
  for (const std::string family : {"bert", "distilbert"}) {
    Published published(family + "_sequenceclassification");
    for (const auto& [activation, logits] : published.row.at("activations").items()) {
      CAPTURE(family + ": " + activation);
      published.options.set(family == "bert" ? "hidden_act" : "activation", activation);
      published.check_logits((*published.load(DType::f64))(published.tokens(), published.others()),
                             logits, 1e-9);
    }
  }
}

TEST_CASE(
    "encoders read older files: other names of norms, no prefix, 16 bits, parts of other heads") {
  const ModeScope eval(Mode::eval);
  for (const std::string name :
       {"bert_maskedlm", "bert_tokenclassification", "roberta_maskedlm", "distilbert_maskedlm"}) {
    CAPTURE(name);
    const Published published(name);
    const auto expected = published.load(DType::f32), loaded = published.make(DType::f32);
    const std::string base = published.family.name + ".";
    std::vector<Variable> older;
    for (const auto& [own, variable] : expected->state()) {
      // Elements that bfloat16 holds are the same in both files.
      const Tensor value = cast(variable.value(), DType::bf16);
      variable.assign(cast(value, DType::f32));
      std::string its_name = own.starts_with(base) ? own.substr(base.size()) : own;
      if (name.starts_with("bert") && its_name.ends_with("LayerNorm.weight"))
        its_name.replace(its_name.size() - 6, 6, "gamma");
      if (name.starts_with("bert") && its_name.ends_with("LayerNorm.bias"))
        its_name.replace(its_name.size() - 4, 4, "beta");
      older.emplace_back(its_name, value.type());
      older.back().assign(value);
    }
    const auto also = [&](const std::string& other, const Shape& shape) {
      older.emplace_back(other, Type{DType::f32, shape});
    };
    also("embeddings.position_ids", {1, 12});
    if (name.starts_with("distilbert")) {
      also("vocab_projector.weight", {30, 16});
    } else {
      also("pooler.dense.weight", {16, 16});
      also(name.starts_with("bert") ? "cls.seq_relationship.weight" : "lm_head.decoder.bias", {2});
    }
    const std::string file = published.folder.file("older.safetensors");
    io::save_safetensors(file, older);
    const io::Loaded found = io::load(*loaded, file, published.family.layout);
    CHECK(found.loaded.size() == expected->state().size());
    CHECK((*loaded)(published.tokens()).to_doubles() ==
          (*expected)(published.tokens()).to_doubles());
  }
}

TEST_CASE("a published encoder gives its weights to a net with a new head") {
  const Published masked("bert_maskedlm");
  nn::Options options = masked.options;
  options.set("num_labels", int64_t{3});
  const auto model = masked.family.make(options, "BertForTokenClassification");
  io::LoadOptions layout = masked.family.layout;
  const std::string file = masked.folder.file("model.safetensors");
  CHECK_THROWS_WITH_AS(io::load(*model, file, layout),
                       Contains("2 missing ('classifier.weight', 'classifier.bias')"), Error);
  layout.strict = false;
  const io::Loaded found = io::load(*model, file, layout);
  CHECK(found.missing == std::vector<std::string>{"classifier.weight", "classifier.bias"});
  CHECK(found.unexpected.empty());
}

TEST_CASE("an encoder's config makes it again and keeps what weft does not read") {
  for (const std::string name : encoder_nets) {
    CAPTURE(name);
    const Published published(name);
    const auto model = published.make(DType::f32);
    const nn::Options& config = model->config();
    for (const auto& [key, value] : published.options.entries())
      CHECK_MESSAGE(*config.find(key) == value, key);
    const auto again = published.family.make(config, published.architecture);
    CHECK(again->config().entries() == config.entries());
  }
}

TEST_CASE("the defaults of encoders are those of transformers' base models") {
  nn::BuildScope scope({.initialize = false});
  const auto count = [](const EncoderFamily& family, const std::string& architecture) {
    return family.make({}, architecture)->parameter_count();
  };
  // transformers 5.24: sum(p.numel() for p in BertForMaskedLM(BertConfig()).parameters()), ...
  CHECK(count(models::bert_family(), "BertForMaskedLM") == 109'514'298);
  CHECK(count(models::bert_family(), "BertForSequenceClassification") == 109'483'778);
  CHECK(count(models::bert_family(), "BertForTokenClassification") == 108'893'186);
  CHECK(count(models::roberta_family(), "RobertaForMaskedLM") == 124'696'665);
  CHECK(count(models::roberta_family(), "RobertaForSequenceClassification") == 124'646'402);
  CHECK(count(models::distilbert_family(), "DistilBertForMaskedLM") == 66'985'530);
  CHECK(count(models::distilbert_family(), "DistilBertForSequenceClassification") == 66'955'010);
}

TEST_CASE("configs of encoders that weft does not have are refused by key and limit") {
  const auto refused = [](const std::string& model_type, const nn::Options& options,
                          const std::string& architecture, const std::string& message) {
    CAPTURE(message);
    CHECK_THROWS_WITH_AS(family_of(model_type).make(options, architecture),
                         Contains(message.c_str()), Error);
  };
  const std::string masked = "BertForMaskedLM", sample = "BertForSequenceClassification";
  refused("bert", {}, "BertModel",
          "[bert] the architecture must be one of BertForMaskedLM, BertForTokenClassification, "
          "BertForSequenceClassification. Got \"BertModel\".");
  refused("roberta", {}, masked, "RobertaForMaskedLM");
  refused("bert", {{"position_embedding_type", std::string("relative_key")}}, masked,
          "[bert] position_embedding_type must be one of absolute. Got \"relative_key\".");
  for (const std::string key : {"is_decoder", "add_cross_attention", "is_encoder_decoder"})
    refused("bert", {{key, true}}, masked, "[bert] " + key + " must be false");
  refused("bert", {{"tie_word_embeddings", false}}, masked, "tie_word_embeddings must be true");
  CHECK_NOTHROW(models::bert_family().make({{"hidden_size", int64_t{12}},
                                            {"num_hidden_layers", int64_t{1}},
                                            {"tie_word_embeddings", false}},
                                           sample));
  refused("bert", {{"hidden_size", int64_t{16}}, {"num_attention_heads", int64_t{3}}}, masked,
          "[bert] num_attention_heads must divide hidden_size (16). Got 3.");
  refused("distilbert", {{"dim", int64_t{16}}, {"n_heads", int64_t{3}}}, "DistilBertForMaskedLM",
          "[distilbert] n_heads must divide dim (16). Got 3.");
  refused("bert", {{"hidden_act", std::string("gelu_10")}, {"hidden_size", int64_t{12}}}, masked,
          "[bert] unknown activation \"gelu_10\"");
  refused("bert", {{"num_labels", int64_t{0}}}, sample,
          "[bert] num_labels must be between 1 and 1048576");
  refused("bert", {{"vocab_size", int64_t{9}}, {"pad_token_id", int64_t{9}}}, masked,
          "[bert] pad_token_id must be between 0 and 8. Got 9.");
  refused("roberta", {{"max_position_embeddings", int64_t{2}}}, "RobertaForMaskedLM",
          "[roberta] max_position_embeddings must be between 3 and 268435456. Got 2.");
  refused("bert", {{"hidden_size", int64_t{1} << 40}}, masked,
          "[bert] hidden_size must be between 1 and 1048576. Got 1099511627776.");
  refused("distilbert", {{"hidden_dim", std::string("x")}}, "DistilBertForMaskedLM",
          "[distilbert] hidden_dim must be an integer. Got \"x\".");
}

TEST_CASE("keys that an encoder does not know are named in one warning, and known ones in none") {
  Published published("bert_maskedlm");
  published.options.set("transformers_version", std::string("4.6.0"));
  published.options.set("pooler_num_fc_layers", int64_t{3});
  {
    const test::Captured errors(2);
    published.make(DType::f32);
    CHECK(errors.text() == "");
  }
  published.options.set("quantum", int64_t{1});
  published.options.set("spin", true);
  const test::Captured errors(2);
  published.make(DType::f32);
  CHECK(errors.text().find("[bert] config.json: quantum, spin are not known and ignored.") !=
        std::string::npos);
}

TEST_CASE("inputs that do not fit an encoder are refused with its limits") {
  const auto bert = Published("bert_maskedlm").make(DType::f32);
  const auto roberta = Published("roberta_maskedlm").make(DType::f32);
  const auto distilbert = Published("distilbert_maskedlm").make(DType::f32);
  const auto tokens = [](int64_t length) { return zeros({1, length}, DType::i64); };
  CHECK_NOTHROW((*bert)(tokens(12)));
  CHECK_THROWS_WITH_AS((*bert)(tokens(13)),
                       Contains("[bert] takes tokens [batch, length], length "
                                "at most 12. Got i64[1, 13]."),
                       Error);
  CHECK_NOTHROW((*roberta)(tokens(10)));  // positions begin after the padding's
  CHECK_THROWS_WITH_AS((*roberta)(tokens(11)), Contains("length at most 10"), Error);
  CHECK_THROWS_WITH_AS((*distilbert)(tokens(3), {.token_type_ids = tokens(3)}),
                       Contains("[distilbert] takes no token_type_ids."), Error);
  CHECK_THROWS_WITH_AS((*bert)(tokens(3), {.token_type_ids = tokens(4)}),
                       Contains("[bert] takes token_type_ids as integers [1, 3]"), Error);
  CHECK_THROWS_WITH_AS((*bert)(tokens(3), {.attention_mask = ones({1, 3})}),
                       Contains("[bert] takes an attention_mask of bool or integers [1, 3]"),
                       Error);
}

TEST_CASE("the context of a published encoder is what it takes: RoBERTa's skips the padding id") {
  const ModeScope eval(Mode::eval);
  for (const auto& [name, context] :
       {std::pair("bert_maskedlm", 12), {"roberta_maskedlm", 10}, {"distilbert_maskedlm", 9}}) {
    CAPTURE(name);
    const Published published(name);
    Json config = published.row.at("config");
    config["architectures"] = Json::array({published.architecture});
    published.folder.file("config.json", config.dump());
    const models::Pretrained loaded = models::load_pretrained(published.folder.path());
    CHECK(loaded.context == context);
    CHECK_NOTHROW((*loaded.model)(zeros({1, loaded.context}, DType::i64)).eval());
    CHECK_THROWS_WITH_AS((*loaded.model)(zeros({1, loaded.context + 1}, DType::i64)),
                         Contains("length at most"), Error);
  }
}
