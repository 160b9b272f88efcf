// Tests decoders with the weights of linear layers in blocks against the same decoders with the
// numbers that the blocks decode to.
#include "weft/models/quantize.h"

#include <array>
#include <cmath>

#include <doctest/doctest.h>

#include "tests/models/families.h"
#include "tests/support/near.h"
#include "weft/base/host/isa.h"
#include "weft/infer/token_model.h"
#include "weft/io/model_folder.h"
#include "weft/models/pretrained.h"
#include "weft/nn/block_activations.h"
#include "weft/nn/lora.h"
#include "weft/nn/moe.h"
#include "weft/optim/optim.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;
using doctest::Contains;

namespace {
// BlockNet is a net in blocks, read from its folder, and one of the numbers that they stand for.
struct BlockNet {
  std::unique_ptr<models::Decoder> plain;
  test::TemporaryFolder place;
  models::Pretrained blocks;
  std::map<std::string, const BlockFormat*> formats;  // by the path of the layer
  int left = 0;

  BlockNet(const Json& reference, const BlockFormat& format) : plain(load_family(reference)) {
    const models::QuantizedDecoder quantized = models::quantize(*plain, format);
    formats = quantized.formats, left = quantized.left;
    blocks = saved_in_blocks(*plain, format, quantized, place.file("model"));
    for (nn::Linear* layer : nn::linear_layers(*plain)) {
      const auto found = formats.find(layer->path());
      if (found == formats.end()) continue;
      const Tensor matrix = decoded(layer->matrix(), *found->second);
      layer->weight.assign(layer->transposed() ? transpose(matrix) : matrix);
    }
    for (const nn::SparseMoe* mixture : nn::mixtures_of(*plain))
      for (const auto& weight : mixture->experts.weights())
        if (const auto found = formats.find(mixture->experts.path() + "." + weight.name);
            found != formats.end())
          weight.variable.assign(decoded(weight.variable.value(), *found->second));
    const nn::Embedding& tokens = plain->embeddings();
    if (const auto found = formats.find(tokens.path()); found != formats.end())
      tokens.weight.assign(decoded(tokens.weight.value(), *found->second));
  }

  // Returns the numbers that blocks of a matrix stand for.
  static Tensor decoded(const Tensor& matrix, const BlockFormat& format) {
    const std::vector<float> numbers = matrix.to_vector<float>();
    std::vector<std::byte> bytes(numbers.size() / static_cast<size_t>(format.numbers) *
                                 static_cast<size_t>(format.bytes));
    std::vector<float> values(numbers.size());
    encode_blocks(format, numbers, bytes);
    decode_blocks(format, bytes, values);
    return tensor(values, matrix.shape());
  }
};
}  // namespace

TEST_CASE("a folder in blocks computes what its numbers compute") {
  const std::pair<const char*, const char*> nets[] = {
      {"llama", "Q8_0"},          {"llama", "Q5_1"},   {"llama", "Q4_0"},
      {"llama_switches", "Q5_1"}, {"gpt2", "Q8_0"},    {"qwen3", "Q4_0"},
      {"mixtral", "Q8_0"},        {"mixtral", "Q4_0"}, {"gemma3", "Q5_1"}};
  for (const auto& [name, format] : nets) {
    CAPTURE(name);
    CAPTURE(format);
    const Json reference = family_reference(name);
    const BlockNet net(reference, block_format(format));
    CHECK(net.formats.size() > 1);
    CHECK(net.formats.contains("model.layers.1.block_sparse_moe.experts.w1") ==
          (std::string(name) == "mixtral"));
    const Tensor tokens = family_tokens(reference, 0, 12);
    const std::vector<double> got = logits_of(*net.blocks.model, tokens),
                              want = logits_of(*net.plain, tokens);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - want[i]) <= 1e-4);
    // All are views of the file, but for experts, which are stacked.
    CHECK((net.blocks.loaded.copied_bytes == 0) == (std::string(name) != "mixtral"));
  }
}

TEST_CASE("a token model rounds activations beside blocks to int8 where that is asked or usual") {
  const Json reference = family_reference("llama");
  const BlockNet net(reference, block_format("Q8_0"));
  const std::vector<int32_t> tokens = {1, 5, 9, 2, 7};
  const auto made = [&](const Model& model, std::optional<DType> activations) {
    return infer::make_token_model(model, 64, 64, {.device = "cpu", .activations = activations});
  };
  const auto logits = [&](const Model& model, std::optional<DType> activations) {
    const auto token_model = made(model, activations);
    token_model->append(std::array{infer::RowTokens{tokens}});
    const std::span<const float> all = token_model->logits(0);
    return std::vector<float>(all.begin(), all.end());
  };
  const std::vector<float> want = logits(*net.plain, {}),
                           as_they_are = logits(*net.blocks.model, DType::f32),
                           rounded = logits(*net.blocks.model, DType::i8);
  double off = 0, rounded_off = 0, most = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    off = std::max<double>(off, std::abs(as_they_are[i] - want[i]));
    rounded_off = std::max<double>(rounded_off, std::abs(rounded[i] - want[i]));
    most = std::max<double>(most, std::abs(want[i]));
  }
  CHECK(off <= 1e-4);
  CHECK(rounded_off > off);
  CHECK(rounded_off <= 0.05 * most);
  CHECK(nn::BlockActivations::current() == DType::f32);
  CHECK(made(*net.blocks.model, {})->plan(1).activations ==
        (isa() >= Isa::avx2 ? DType::i8 : DType::f32));
  CHECK(made(*net.plain, {})->plan(1).activations == DType::f32);
}

TEST_CASE("rows that are no whole blocks stay numbers") {
  const Json reference = family_reference("llama");
  const BlockNet net(reference, block_format("Q8_0"));
  CHECK(net.left == 2);  // down_proj of both layers: rows of 48 numbers
  const BlockFormat& large = block_format("Q4_K");
  const models::QuantizedDecoder outer = models::quantize(*net.plain, large);
  CHECK(outer.formats.size() == 2);  // embeddings and head, in rows of 32, have Q8_0
  for (const auto& [path, format] : outer.formats) CHECK(format->name == "Q8_0");
}

TEST_CASE("an adapter trains beside weights in blocks as beside their numbers") {
  const Json reference = family_reference("llama");
  for (bool dora : {false, true}) {
    CAPTURE(dora);
    const BlockNet net(reference, block_format("Q4_0"));
    const std::vector<std::string> targets = {"all-linear"};
    auto trained = [&](Model& model) {
      manual_seed(5);
      nn::add_lora(model, targets, {.r = 2, .use_dora = dora});
      optim::SGD optimizer(model.parameters(), {.lr = 0.05});
      auto step = compile([&](Tensor inputs, Tensor labels) {
        Tensor loss = cross_entropy(model(inputs), labels);
        optimizer.step(grad(loss, model.parameters()));
        return loss;
      });
      std::vector<double> losses(4);
      for (double& loss : losses)
        loss = step(family_tokens(reference, 0, 12), family_tokens(reference, 1, 13)).item();
      return losses;
    };
    const std::vector<double> blocks = trained(*net.blocks.model), plain = trained(*net.plain);
    CHECK(blocks.back() < blocks.front());
    for (size_t i = 0; i < plain.size(); ++i) CHECK(blocks[i] == near(plain[i], 1e-4));
    CHECK_THROWS_WITH_AS(nn::merge_lora(*net.blocks.model), Contains("is in blocks"), Error);
  }
}

TEST_CASE("numbers that no block holds are refused by their tensor") {
  for (float wrong : {NAN, INFINITY, 1e6F}) {
    auto model = load_family(family_reference("llama"));
    const nn::Linear& layer = *nn::linear_layers(*model).front();
    std::vector<float> numbers = layer.matrix().to_vector<float>();
    numbers[7] = wrong;
    layer.weight.assign(tensor(numbers, layer.weight.shape()));
    CHECK_THROWS_WITH_AS(models::quantize(*model, block_format("Q8_0")),
                         Contains("q_proj.weight\" has "), Error);
  }
}

TEST_CASE("weights in blocks are not quantized again, and an unknown format is refused") {
  const BlockNet net(family_reference("llama"), block_format("Q8_0"));
  const auto* decoder = dynamic_cast<const models::Decoder*>(net.blocks.model.get());
  REQUIRE(decoder != nullptr);
  CHECK_THROWS_WITH_AS(models::quantize(*decoder, block_format("Q8_0")),
                       Contains("is in blocks already"), Error);
  nn::Options config = decoder->config();
  config.set("quantization_config",
             nn::NestedOptions(nn::Options{{"quant_method", std::string("weft")},
                                           {"format", std::string("Q9")}}));
  CHECK_THROWS_WITH_AS(models::make_decoder(config), Contains("Q9"), Error);
}

TEST_CASE("parameters in blocks are counted as numbers") {
  const BlockNet net(family_reference("llama"), block_format("Q4_0"));
  CHECK(nn::number_count(*net.blocks.model) == net.plain->parameter_count());
  CHECK(nn::number_count(*net.plain) == net.plain->parameter_count());
}
