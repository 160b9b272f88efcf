// Tests adapters of low rank against Hugging Face's PEFT, on the same weights and batches.
#include "weft/models/adapter.h"

#include <cmath>
#include <map>

#include <doctest/doctest.h>

#include "tests/models/families.h"
#include "tests/models/shakespeare.h"
#include "tests/support/near.h"
#include "weft/data/instructions.h"
#include "weft/io/files.h"
#include "weft/models/pretrained.h"
#include "weft/optim/optim.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;
using doctest::Contains;

namespace {
const char* const cases[] = {"llama", "llama_switches", "llama_dora", "llama_biases_dora",
                             "gpt2",  "gpt2_dora"};

// Writes the folder of an adapter as PEFT has it, with the weights of the formula.
struct AdapterFolder : test::TemporaryFolder {
  explicit AdapterFolder(const Json& reference, const Json& changes = Json::object()) {
    Json config = reference.at("config");
    config.update({{"peft_type", "LORA"}, {"base_model_name_or_path", "base"}, {"bias", "none"}});
    config.update(changes);
    io::write_file_atomically(file("adapter_config.json"), config.dump());
    write_weights(reference, file("adapter_model.safetensors"));
  }
};

const auto adapters = [](const Model& model) { return models::adapter_tensors(model); };

// Writes the folder of the Llama of lora_curves.json with its weights as numbers, or in blocks of
// Q4_0; the embeddings and the head are in Q8_0 then.
std::string curve_model(const Json& reference, const std::string& weights,
                        const test::TemporaryFolder& place) {
  const std::string folder = place.file(weights);
  if (weights == "Q4_0") {
    const auto plain = load_family(reference);
    saved_in_blocks(*plain, block_format("Q4_0"), models::quantize(*plain, block_format("Q4_0")),
                    folder);
  } else {
    std::filesystem::create_directory(folder);
    io::write_file_atomically(folder + "/config.json", reference.at("config").dump());
    write_weights(reference, folder + "/model.safetensors");
  }
  return folder;
}

// Returns the losses of an adapter of a model that trains on a batch a step in the type `dtype`.
std::vector<double> curve_of(const Json& reference, const std::string& model, DType dtype,
                             const std::vector<Batch>& batches) {
  const models::Pretrained net = models::load_pretrained(model, {.dtype = dtype});
  const Json rows = {{"config", reference.at("adapter")},
                     {"tensors", reference.at("adapter_tensors")}};
  const AdapterFolder adapter(rows);
  const nn::BuildScope scope({.dtype = dtype});
  models::load_adapter(*net.model, adapter.path());
  REQUIRE(net.model->parameters().size() == reference.at("adapter_tensors").size());
  for (const Variable& variable : net.model->parameters()) REQUIRE(variable.dtype() == dtype);

  const auto optimizer = make_optimizer(*net.model, reference.at("optimizer"));
  auto step = compile([&](Tensor inputs, Tensor labels) {
    Tensor loss = cross_entropy((*net.model)(inputs), labels);
    optimizer->step(grad(loss, net.model->parameters()));
    return loss;
  });
  std::vector<double> losses;
  losses.reserve(batches.size());
  for (const Batch& batch : batches) losses.push_back(step(batch.inputs, batch.labels).item());
  return losses;
}

// Checks that the losses in float64 are PEFT's, which move by at most 4e-15 where each weight is
// off by one rounding.
void check_exact_curve(const std::vector<double>& losses, const Json& expected) {
  const auto f64 = expected.at("loss_f64").get<std::vector<double>>();
  REQUIRE(losses.size() == f64.size());
  for (size_t s = 0; s < f64.size(); ++s) {
    CAPTURE(s);
    CHECK(losses[s] == near(f64[s], 1e-12));
  }
}

void check_lora_curve(const std::string& weights) {
  const std::string text = shakespeare_text();
  if (text.empty()) return;
  const Json reference = reference_file("lora_curves.json"), &expected = reference.at(weights);
  const auto f64 = expected.at("loss_f64").get<std::vector<double>>();
  REQUIRE(characters_of(text) == reference.at("characters").get<std::string>());
  REQUIRE(f64.size() == 80);
  REQUIRE(f64.back() < f64.front() - 0.9);
  const auto shape = reference.at("batch").get<std::vector<int64_t>>();
  std::vector<Batch> batches;
  batches.reserve(f64.size());
  for (size_t s = 0; s < f64.size(); ++s)
    batches.push_back(text_batch(text, reference.at("characters"),
                                 s * static_cast<size_t>(shape[0] * shape[1]),
                                 {shape[0], shape[1]}));
  const test::TemporaryFolder place;
  const std::string model = curve_model(reference, weights, place);
  check_exact_curve(curve_of(reference, model, DType::f64, batches), expected);
  const std::vector<double> losses = curve_of(reference, model, DType::f32, batches);
  const auto theirs = expected.at("f32_distance").get<std::vector<double>>();
  const size_t window = f64.size() / theirs.size();
  for (size_t w = 0; w < theirs.size(); ++w) {
    double squares = 0;
    for (size_t s = w * window; s < (w + 1) * window; ++s)
      squares += std::pow(losses[s] - f64[s], 2);
    const double off = std::sqrt(squares / static_cast<double>(window));
    INFO("from step " << w * window);
    CHECK(off <= 2 * theirs[w]);
  }
}
}  // namespace

TEST_CASE("adapters load, train and merge as PEFT's do") {
  const Json all = reference_file("lora.json");
  for (const char* name : cases) {
    CAPTURE(name);
    const Json& reference = all.at(name);
    const Json base = family_reference(reference.at("base"));
    auto model = load_family(base);
    const size_t own = model->named_parameters().size();
    const AdapterFolder folder(reference);
    const models::AdapterConfig config = models::load_adapter(*model, folder.path());
    CHECK(config.base == "base");
    const Json& trained = reference.at("trained");
    REQUIRE(model->parameters().size() == trained.size());
    REQUIRE(model->named_parameters().size() == own + trained.size());

    check_training(*model, reference, base, adapters);
    nn::merge_lora(*model);
    CHECK(model->named_parameters().size() == own);
    auto forward = compile([&](Tensor x) { return (*model)(x); }, {.mode = Mode::eval});
    check_logits(forward(family_tokens(base, 0, 12)), reference.at("merged_logits"));
  }
}

TEST_CASE("an adapter learns Shakespeare's text as PEFT's does, in float64 and float32") {
  check_lora_curve("F32");
}
TEST_CASE("an adapter beside weights in blocks learns as PEFT's does beside their numbers") {
  check_lora_curve("Q4_0");
}

TEST_CASE("an adapter learns the answers of a conversation with tools as PEFT's does") {
  const Json all = reference_file("lora_curves.json"), &reference = all.at("tool_calls");
  const auto tokenizer = data::Tokenizer::load("tests/reference/tokenizers/llama3.json");
  const std::string written = reference.at("template");
  const data::InstructionOptions options{
      .chat = data::ChatTemplate(
          reference_file("chat.json").at("templates").at(written).get<std::string>(),
          {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|endoftext|>"}}, written)};
  std::vector<data::Instruction> samples =
      data::parse_instructions(reference.at("row").get<std::string>(), "row", tokenizer, options);
  const auto count = std::ssize(samples);
  REQUIRE(count == 4);
  const int64_t length = reference.at("config").at("max_position_embeddings");
  data::Loader loader(data::instruction_source(std::move(samples), length - 1, "row"),
                      {.batch_size = count});
  data::Batch batch;
  REQUIRE(loader.next(batch));
  const std::vector<Batch> batches(reference.at("loss_f64").size(), {batch.inputs, batch.labels});

  const test::TemporaryFolder place;
  Json curve = all;  // the optimizer and the adapter are those of all curves
  curve.update({{"config", reference.at("config")}, {"tensors", reference.at("tensors")}});
  const std::string model = curve_model(curve, "F32", place);
  const std::vector<double> losses = curve_of(curve, model, DType::f64, batches);
  REQUIRE(losses.back() < losses.front() - 1);
  check_exact_curve(losses, reference);
}

TEST_CASE("a new adapter changes nothing before it trains, and is written as it is read") {
  const Json base = family_reference("llama");
  for (bool dora : {false, true}) {
    CAPTURE(dora);
    auto model = load_family(base);
    auto forward = [&] {
      auto step = compile([&](Tensor x) { return (*model)(x); }, {.mode = Mode::eval});
      return step(family_tokens(base, 0, 12)).to_doubles();
    };
    const std::vector<double> plain = forward();
    const nn::LoraOptions options{.r = 3, .lora_alpha = 5, .use_rslora = true, .use_dora = dora};
    const std::vector<std::string> targets = {"self_attn.*_proj", "all-linear"};
    const auto paths = nn::add_lora(*model, targets, options);
    CHECK(paths.size() == 14);
    const std::vector<double> adapted = forward();
    // DoRA divides each row by its norm and multiplies by it, which rounds the terms of a logit.
    double most = 0;
    for (double logit : plain) most = std::max(most, std::abs(logit));
    for (size_t i = 0; i < plain.size(); ++i)
      REQUIRE(std::abs(adapted[i] - plain[i]) <= 2e-6 * most);

    test::TemporaryFolder folder;
    io::write_file_atomically(folder.file("adapter_config.json"),
                              models::adapter_config_text(*model, {options, "base"}));
    io::write_safetensors(folder.file("adapter_model.safetensors"),
                          models::adapter_tensors(*model));
    auto other = load_family(base);
    const models::AdapterConfig read = models::load_adapter(*other, folder.path());
    CHECK(read.lora == options);
    CHECK(read.base == "base");
    CHECK(values_of(adapters(*other)) == values_of(adapters(*model)));
  }
}

TEST_CASE("merging into narrow weights rounds the sum once") {
  const nn::BuildScope scope({.dtype = DType::bf16});
  struct Net : nn::Module {
    nn::Linear layer{*this, "layer", 40, 24};
  } net;
  const std::vector<double> weight = net.layer.weight.to_doubles();
  const std::vector<std::string> targets = {"layer"};
  {
    const nn::BuildScope wide({.dtype = DType::f32});
    nn::add_lora(net, targets, {.r = 3, .lora_alpha = 6});
  }
  std::map<std::string, std::vector<double>> parts;
  for (const nn::NamedVariable& entry : nn::lora_parameters(net)) {
    entry.variable.assign(randn(entry.variable.shape()));
    parts[entry.name] = entry.variable.to_doubles();
  }
  nn::merge_lora(net);
  const std::vector<double> merged = net.layer.weight.to_doubles();
  const auto &a = parts.at("layer.lora_A.weight"), &b = parts.at("layer.lora_B.weight");
  for (size_t row = 0; row < 24; ++row)
    for (size_t column = 0; column < 40; ++column) {
      double sum = weight[row * 40 + column];
      for (size_t i = 0; i < 3; ++i) sum += 2 * b[row * 3 + i] * a[i * 40 + column];
      // The bound is half a unit in the last place of eight bits, and the error of float32 sums.
      REQUIRE(std::abs(merged[row * 40 + column] - sum) <= std::abs(sum) * 0x1.01p-8 + 1e-5);
    }
}

TEST_CASE("adapters of another model or another kind are refused") {
  const Json reference = reference_file("lora.json").at("llama");
  auto check_refused = [&](const Json& changes, const char* message) {
    auto model = load_family(family_reference("llama"));
    const AdapterFolder folder(reference, changes);
    CHECK_THROWS_WITH_AS(models::load_adapter(*model, folder.path()), Contains(message), Error);
  };
  check_refused({{"peft_type", "IA3"}}, "peft_type must be LORA. Got \"IA3\".");
  check_refused({{"bias", "all"}}, "bias");
  check_refused({{"rank_pattern", {{"q_proj", 2}}}},
                "weft does not read adapters with rank_pattern");
  check_refused({{"modules_to_save", {"lm_head"}}}, "modules_to_save");
  check_refused({{"alora_invocation_tokens", {1, 2}}}, "alora_invocation_tokens");
  check_refused({{"init_lora_weights", "pissa"}}, "changes the weights of the base model");
  check_refused({{"lora_dropout", 1}}, "lora_dropout");
  check_refused({{"r", 0}}, "r must be");
  check_refused({{"r", 5}}, "q_proj.lora_A.weight");
  check_refused({{"target_modules", {"q_proj", "k_proj"}}},
                "has tensors of \"model.layers.0.self_attn.v_proj\", which target_modules of "
                "adapter_config.json does not name: [q_proj, k_proj].");
  auto other = load_family(family_reference("gpt2"));
  const AdapterFolder folder(reference);
  CHECK_THROWS_WITH_AS(models::load_adapter(*other, folder.path()),
                       Contains("the adapter is for another model: [lora] no linear layer"), Error);
  const std::vector<std::string> wrong = {"q_porj"};
  CHECK_THROWS_WITH_AS(nn::add_lora(*other, wrong),
                       "[lora] no linear layer of the model has a path that ends with \"q_porj\". "
                       "Did you mean 'c_proj'? Their last names are c_attn, c_proj, c_fc.",
                       Error);
}
