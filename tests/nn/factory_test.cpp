#include "weft/nn/factory.h"

#include <doctest/doctest.h>

#include "weft/base/error.h"
#include "weft/nn/layers.h"

using namespace weft;
using nn::LayerSpec;

namespace {
using List = std::vector<int64_t>;

std::string message_of(const std::vector<LayerSpec>& layers, const Type& input) {
  nn::Module root;
  nn::Sequential net(root, "");
  try {
    nn::add_layers(net, layers, input);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}
const Type image{DType::f32, {1, 3, 12, 12}};
}  // namespace

TEST_CASE("a list of layers becomes a net with inferred input features") {
  std::vector<LayerSpec> layers = {
      {"conv2d",
       {{"out_channels", int64_t{8}}, {"kernel_size", int64_t{3}}, {"padding", int64_t{1}}}},
      {"batch_norm"},
      {"relu"},
      {"max_pool2d", {{"kernel_size", int64_t{2}}}},
      {"conv2d", {{"out_channels", int64_t{4}}, {"kernel_size", List{3, 1}}, {"bias", false}}},
      {"gelu"},
      {"dropout", {{"p", 0.2}}},
      {"flatten"},
      {"linear", {{"out_features", int64_t{10}}}},
  };
  nn::Module root;
  nn::Sequential net(root, "");
  Type result = nn::add_layers(net, layers, image);
  CHECK(result.shape == Shape{1, 10});
  auto parameters = root.named_parameters();
  REQUIRE(parameters.size() == 7);
  CHECK(parameters[0].name == "0.weight");
  CHECK(parameters[0].variable.shape() == Shape{8, 3, 3, 3});
  CHECK(parameters[4].name == "4.weight");
  CHECK(parameters[4].variable.shape() == Shape{4, 8, 3, 1});
  CHECK(parameters[5].name == "8.weight");
  CHECK(parameters[5].variable.shape() == Shape{10, 4 * 4 * 6});
  CHECK(net(zeros({5, 3, 12, 12})).shape() == Shape{5, 10});
}

TEST_CASE("layers of tokens include embedding, attention and norms") {
  std::vector<LayerSpec> layers = {
      {"embedding", {{"num_embeddings", int64_t{50}}, {"embedding_dim", int64_t{8}}}},
      {"rms_norm"},
      {"attention", {{"num_heads", int64_t{2}}, {"causal", true}}},
      {"layer_norm", {{"eps", 1e-6}}},
      {"linear", {{"out_features", int64_t{50}}}},
  };
  nn::Module root;
  nn::Sequential net(root, "net");
  CHECK(nn::add_layers(net, layers, {DType::i64, {1, 16}}).shape == Shape{1, 16, 50});
}

TEST_CASE("building a net does not change running statistics") {
  nn::Module root;
  nn::Sequential net(root, "");
  std::vector<LayerSpec> layers = {{"batch_norm"}};
  nn::add_layers(net, layers, image);
  for (const auto& [name, buffer] : root.named_buffers())
    CHECK(buffer.floats()[0] == (name == "0.running_var" ? 1.0f : 0.0f));
}

TEST_CASE("errors name the layer's index, the option and the limit") {
  CHECK(message_of({{"relu"}, {"conv2d", {{"kernel_size", int64_t{3}}}}}, image) ==
        "[layers[1].conv2d] out_channels is required.");
  CHECK(message_of({{"linear", {{"out_feature", int64_t{3}}}}}, image) ==
        "[layers[0].linear] unknown option \"out_feature\". Did you mean out_features?");
  CHECK(message_of({{"conv2d", {{"out_channels", int64_t{0}}, {"kernel_size", int64_t{3}}}}},
                   image) == "[layers[0].conv2d] out_channels must be at least 1. Got 0.");
  CHECK(message_of({{"linear", {{"out_features", 2.5}}}}, image) ==
        "[layers[0].linear] out_features must be an integer. Got 2.5.");
  CHECK(message_of({{"linear", {{"out_features", int64_t{3}}, {"biass", true}}}}, image) ==
        "[layers[0].linear] unknown option \"biass\". Known: out_features, bias.");
  CHECK(message_of({{"dropout", {{"p", 2.0}}}}, image) ==
        "[layers[0].dropout] p must be between 0 and 1. Got 2.");
  CHECK(message_of({{"max_pool2d", {{"kernel_size", List{2, 2, 2}}}}}, image) ==
        "[layers[0].max_pool2d] kernel_size takes one number or 2. Got [2, 2, 2].");
  CHECK(message_of({{"group_norm", {{"num_groups", int64_t{2}}}}}, image) ==
        "[layers[0].group_norm] num_groups must divide the channels (3). Got 2.");
  CHECK(message_of(
            {{"flatten"}, {"conv2d", {{"out_channels", int64_t{1}}, {"kernel_size", int64_t{3}}}}},
            image) ==
        "[layers[1].conv2d] takes [batch, channels, height, width]. Got f32[1, 432].");
  CHECK(message_of({{"flatten"}, {"frobnicate"}}, image)
            .starts_with(
                "[layers[1]] unknown layer \"frobnicate\". Known: linear, embedding, conv1d,"));
}

TEST_CASE("an operation's error names the index of the layer") {
  std::string message = message_of(
      {{"relu"}, {"conv2d", {{"out_channels", int64_t{1}}, {"kernel_size", int64_t{30}}}}}, image);
  CHECK(message.ends_with("(layers:1)"));
}

TEST_CASE("every kind of layer has a description") {
  for (const nn::LayerKind& kind : nn::layer_kinds()) {
    CHECK_FALSE(kind.name.empty());
    CHECK_FALSE(kind.doc.empty());
  }
}
