#include <doctest/doctest.h>

#include "tests/models/reference.h"
#include "tests/support/near.h"
#include "weft/models/gpt.h"
#include "weft/models/mlp.h"
#include "weft/models/model.h"
#include "weft/models/resnet.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
const TaskShape digits{InputKind::images, {1, 28, 28}, 10};
const TaskShape colours{InputKind::images, {3, 32, 32}, 10};
const TaskShape large_colours{InputKind::images, {3, 64, 64}, 10};
const TaskShape characters{InputKind::tokens, {64}, 65};

// Returns a task that suits the models of this name's family.
TaskShape task_for(const std::string& name) {
  for (std::string_view family : {"gpt", "llama", "lstm", "gru", "bert"})
    if (name.starts_with(family)) return characters;
  return name == "alexnet" ? large_colours : colours;
}

// Returns the configuration of tests/reference/models.py.
nn::Options small_gpt() {
  return {{"hidden_size", int64_t{128}},
          {"num_hidden_layers", int64_t{4}},
          {"num_attention_heads", int64_t{4}},
          {"bias", false},
          {"hidden_act", std::string("gelu")}};
}

void check_names(const Model& model, const std::string& reference) {
  Json expected = reference_file(reference + ".json").at("parameters");
  auto parameters = model.named_parameters();
  REQUIRE(parameters.size() == expected.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    CHECK(parameters[i].name == expected[i].at("name").get<std::string>());
    CHECK(parameters[i].variable.shape() == shape_of(expected[i]));
  }
}
double deviation(const Variable& variable) {
  double total = 0;
  for (float value : variable.floats()) total += static_cast<double>(value) * value;
  return std::sqrt(total / static_cast<double>(variable.type().elements()));
}
}  // namespace

TEST_CASE("models have PyTorch's parameter names and order") {
  check_names(*make_model("mlp", {}, {InputKind::features, {784}, 10}), "mlp");
  check_names(*make_model("resnet20", {}, colours), "resnet20");
  check_names(*make_model("gpt", small_gpt(), characters), "gpt");
}

TEST_CASE("models have the published numbers of parameters") {
  nn::BuildScope scope({.initialize = false});
  CHECK(make_model("mlp", {}, {InputKind::features, {784}, 10})->parameter_count() == 203'530);
  CHECK(make_model("lenet5", {}, digits)->parameter_count() == 61'706);
  CHECK(make_model("cnn", {}, digits)->parameter_count() == 421'642);
  CHECK(make_model("resnet20", {}, colours)->parameter_count() == 269'722);
  CHECK(make_model("resnet56", {}, colours)->parameter_count() == 853'018);
  TaskShape gpt2{InputKind::tokens, {1024}, 50257};
  CHECK(make_model("gpt", {}, gpt2)->parameter_count() == 124'439'808);
  TaskShape photographs{InputKind::images, {3, 224, 224}, 1000};
  CHECK(make_model("alexnet", {}, photographs)->parameter_count() == 61'100'840);
  CHECK(make_model("resnet18", {}, photographs)->parameter_count() == 11'689'512);
  CHECK(make_model("resnet34", {}, photographs)->parameter_count() == 21'797'672);
  CHECK(make_model("resnet50", {}, photographs)->parameter_count() == 25'557'032);
  CHECK(make_model("resnet101", {}, photographs)->parameter_count() == 44'549'160);
  CHECK(make_model("resnet152", {}, photographs)->parameter_count() == 60'192'808);
  TaskShape any_tokens{InputKind::tokens, {64}, 100};
  CHECK(make_model("gpt2", {}, any_tokens)->parameter_count() == 124'439'808);
  CHECK(make_model("gpt2-medium", {}, any_tokens)->parameter_count() == 354'823'168);
  CHECK(make_model("gpt2-large", {}, any_tokens)->parameter_count() == 774'030'080);
  CHECK(make_model("gpt2-xl", {}, any_tokens)->parameter_count() == 1'557'611'200);
  TaskShape bert_tokens{InputKind::tokens, {512}, 30522};
  CHECK(make_model("bert", {}, bert_tokens)->parameter_count() == 109'514'298);
  TaskShape sentences{InputKind::tokens, {512}, 2, 30522};
  CHECK(make_model("bert", {}, sentences)->parameter_count() == 109'483'778);
  CHECK(make_model("llama-1b", {}, any_tokens)->parameter_count() == 1'235'814'400);
  CHECK(make_model("llama-7b", {}, any_tokens)->parameter_count() == 6'738'415'616);
  CHECK(make_model("llama-8b", {}, any_tokens)->parameter_count() == 8'030'261'248);
  CHECK(make_model("llama-70b", {}, any_tokens)->parameter_count() == 70'553'706'496);
  CHECK(make_model("llama-405b", {}, any_tokens)->parameter_count() == 405'853'388'800);
}

TEST_CASE("every model of the zoo yields logits for a batch") {
  ModeScope mode(Mode::eval);
  nn::BuildScope scope({.initialize = false});
  for (const ModelEntry& entry : registry::models()) {
    CAPTURE(entry.name);
    CHECK_FALSE(entry.doc.empty());
    TaskShape task = task_for(entry.name);
    auto model = entry.make({}, task);
    Type input = task.batch(2);
    Shape logits = (*model)(zeros(input.shape, input.dtype)).shape();
    const nn::Option* vocabulary = model->config().find("vocab_size");
    Shape expected{2, 10};
    if (vocabulary != nullptr) expected = {2, 64, std::get<int64_t>(*vocabulary)};
    CHECK(logits == expected);
    CHECK(model->input_kind() == task.kind);
  }
}

TEST_CASE("a model can be rebuilt from its config") {
  nn::BuildScope scope({.initialize = false});
  for (const ModelEntry& entry : registry::models()) {
    if (entry.name == "user_model") continue;
    CAPTURE(entry.name);
    TaskShape task = task_for(entry.name);
    auto model = entry.make({}, task);
    std::string type = std::get<std::string>(*model->config().find("model_type"));
    auto again = make_model(type, model->config(), task);
    CHECK(again->config().entries() == model->config().entries());
    CHECK(again->parameter_count() == model->parameter_count());
  }
}

TEST_CASE("GPT is initialised like GPT-2: 0.02, residual projections scaled, zero biases") {
  models::Gpt model({.vocab_size = 100,
                     .max_position_embeddings = 32,
                     .hidden_size = 64,
                     .num_hidden_layers = 8,
                     .num_attention_heads = 4});
  for (const auto& [name, parameter] : model.named_parameters()) {
    CAPTURE(name);
    if (name.ends_with("bias"))
      CHECK(deviation(parameter) == 0);
    else if (parameter.shape().size() == 1)
      CHECK(deviation(parameter) == 1);
    else if (name.ends_with("c_proj.weight"))
      CHECK(deviation(parameter) == near(0.005, 0.05));
    else
      CHECK(deviation(parameter) == near(0.02, 0.05));
  }
}

TEST_CASE("embeddings and heads of recurrent models are initialised uniformly up to 0.1") {
  const auto model = make_model("lstm", {}, {InputKind::tokens, {8}, 50});
  for (const auto& [name, parameter] : model->named_parameters()) {
    if (name != "encoder.weight" && name != "decoder.weight") continue;
    CAPTURE(name);
    double least = 0, most = 0;
    for (const float element : parameter.floats()) {
      least = std::min(least, static_cast<double>(element));
      most = std::max(most, static_cast<double>(element));
    }
    CHECK(-least == near(0.1, 0.01));
    CHECK(most == near(0.1, 0.01));
  }
}

TEST_CASE("Llamas turn positions by the published base") {
  nn::BuildScope scope({.initialize = false});
  for (const auto& [name, theta] :
       {std::pair("llama-1b", 500000.0), {"llama-7b", 10000.0}, {"llama-405b", 500000.0}})
    CHECK(std::get<double>(
              *make_model(name, {}, {InputKind::tokens, {64}, 100})->config().find("rope_theta")) ==
          theta);
}

TEST_CASE("a list of layers is a model whose last layer must yield the classes") {
  std::vector<nn::LayerSpec> layers = {{"flatten"}, {"linear", {{"out_features", int64_t{10}}}}};
  auto model = make_layers_model(layers, digits);
  CHECK((*model)(zeros({4, 1, 28, 28})).shape() == Shape{4, 10});
  CHECK(model->named_parameters()[0].name == "1.weight");
  layers.back() = {"linear", {{"out_features", int64_t{7}}}};
  CHECK_THROWS_WITH_AS(
      make_layers_model(layers, digits),
      "[layers] the last layer must yield [1, 10] for one sample of 10 classes. Got [1, 7].",
      Error);
}

TEST_CASE("a user's model can be registered") {
  registry::models().add(
      {.name = "user_model", .doc = "mine", .make = [](const nn::Options&, const TaskShape& task) {
         return make_model("mlp", {}, task);
       }});
  CHECK(make_model("user_model", {}, digits)->parameter_count() == 203'530);
  CHECK_THROWS_WITH_AS(registry::models().add({.name = "user_model"}),
                       "[model] the name \"user_model\" is taken or empty.", Error);
}

TEST_CASE("invalid configs are refused by the option and its limit") {
  auto message = [](const char* model, const nn::Options& config,
                    const TaskShape& task) -> std::string {
    try {
      make_model(model, config, task);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return error.what();
    }
    return "no error";
  };
  CHECK(message("gpt", {{"num_attention_heads", int64_t{5}}}, characters) ==
        "[gpt] num_attention_heads must divide hidden_size (768). Got 5.");
  CHECK(message("gpt", {{"vocab_size", int64_t{10}}}, characters) ==
        "[gpt] vocab_size must be at least 65. Got 10.");
  CHECK(message("gpt2", {}, {InputKind::tokens, {64}, 2, 65}) ==
        "[gpt] predicts a label for each token. Got one for each sample. Hint: bert.");
  CHECK(message("gru", {{"dropuot", 0.5}}, characters).starts_with("[gru] unknown option"));
  CHECK(message("llama-8b", {{"num_key_value_heads", int64_t{5}}}, characters) ==
        "[llama] num_key_value_heads must divide num_attention_heads (32). Got 5.");
  CHECK(message("llama", {{"head_dim", int64_t{5}}}, characters) ==
        "[llama] head_dim must be even. Got 5.");
  CHECK(message("gpt", {}, digits) == "[gpt] takes tokens. Got images of shape [1, 28, 28].");
  CHECK(message("resnet", {{"depth", int64_t{21}}}, colours) ==
        "[resnet] depth must be 6 n + 2 (20, 32, 44, 56, ...). Got 21.");
  CHECK(message("resnet50", {{"depth", int64_t{20}}}, colours) ==
        "[resnet] depth must be 18, 34, 50, 101 or 152. Got 20.");
  CHECK(message("resnet", {{"form", std::string("photo")}}, colours) ==
        "[resnet] form must be one of cifar, imagenet. Got \"photo\".");
  CHECK(message("alexnet", {}, colours) ==
        "[alexnet] images must be at least 63 x 63. Got 32 x 32.");
  CHECK(message("mlp", {{"hidden_act", std::string("rely")}}, digits)
            .starts_with("[mlp] unknown activation \"rely\". Known: relu, relu6,"));
  CHECK(message("cnn", {{"width", int64_t{3}}}, digits)
            .starts_with("[cnn] unknown option \"width\"."));
  CHECK(message("perceptron", {}, digits)
            .starts_with("[model] unknown model \"perceptron\". Known: alexnet,"));
}
