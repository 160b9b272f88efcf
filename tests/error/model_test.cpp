// Tests invalid models: unknown names and options, impossible values, mismatched shapes.
#include <doctest/doctest.h>

#include "tests/support/images.h"
#include "tests/support/program.h"

using namespace weft::test;

TEST_CASE("an impossible model is refused by the option and its limit") {
  struct Mistake {
    std::string model, message;
  };
  const std::vector<Mistake> mistakes = {
      {"{name: perceptron}", "unknown model \"perceptron\". Known: alexnet,"},
      {"{name: gtp}", "unknown model \"gtp\". Did you mean gpt?"},
      {"{name: gpt}", "[gpt] takes tokens. Got images of shape [1, 28, 28]."},
      {"{name: mlp, config: {hidden_size: 3}}", "[mlp]"},
      {"{name: mlp, config: {hidden_sizes: [0]}}", "hidden_sizes"},
      {"{name: mlp, config: {hidden_act: rellu}}", "rellu"},
      {"{name: mlp, config: {dropout: 2}}", "dropout"},
      {"{name: resnet, config: {depth: 21}}", "[resnet] depth must be 6 n + 2"},
      {"{name: resnet, config: {depth: 2000000}}",
       "[resnet] depth must be between 8 and 20000. Got 2000000."},
      {"{layers: [flatten, {linear: {out_features: 7}}]}",
       "[layers] the last layer must yield [1, 10] for one sample of 10 classes. Got [1, 7]."},
      {"{layers: [flatten, {linera: {out_features: 10}}]}",
       "[layers[1]] unknown layer \"linera\". Known: linear"},
      {"{layers: [flatten, {linear: {out_feature: 10}}]}", "layers[1].linear"},
      {"{layers: [flatten, linear]}", "layers[1].linear"},
      {"{layers: [flatten, {linear: {out_features: many}}]}", "layers[1].linear"},
      {"{layers: [flatten, {conv2d: {out_channels: 4, kernel_size: 3}}]}", "layers[1].conv2d"},
      {"{layers: [{conv2d: {out_channels: 4, kernel_size: 99}}, flatten, {linear: {out_features: "
       "10}}]}",
       "conv"},
      {"{layers: [{conv2d: {out_channels: 4, kernel_size: 3, groups: 3}}]}", "groups must divide"},
      {"{layers: []}", "[layers]"},
  };
  Workplace place;
  write_images(place, "images", 64, 28, 10);
  for (const Mistake& mistake : mistakes) {
    place.write("wrong.yaml", "data: {format: idx, path: images}\ntrain: {steps: 2}\nmodel: " +
                                  mistake.model + "\n");
    CHECK(fails_with(place.weft({"plan", "wrong.yaml"}), 2, mistake.message) == "");
  }
}

TEST_CASE("an impossible language model is refused") {
  Workplace place;
  place.write("wrong.yaml", "data: {dataset: addition}\ntrain: {steps: 2}\nmodel: {name: gpt}\n");
  auto plan = [&](const std::string& config) {
    return place.weft({"plan", "wrong.yaml", "--model.config", config});
  };
  CHECK(fails_with(plan("{hidden_size: 65, num_attention_heads: 4}"), 2, "gpt") == "");
  CHECK(fails_with(plan("{num_hidden_layers: 0}"), 2, "num_hidden_layers") == "");
  CHECK(fails_with(plan("{num_hidden_layers: 1000000000}"), 2,
                   "[gpt] num_hidden_layers must be between 1 and 20000. Got 1000000000.") == "");
  CHECK(fails_with(plan("{num_hidden_layers: 9e18}"), 2, "num_hidden_layers") == "");
  for (const std::string name : {"llama", "lstm", "gru", "bert"})
    CHECK(fails_with(place.weft({"plan", "wrong.yaml", "--model.name", name, "--model.config",
                                 "{num_hidden_layers: 20001}"}),
                     2, "num_hidden_layers must be between 1 and 20000") == "");
  CHECK(fails_with(plan("{max_position_embeddings: 2}"), 2, "max_position_embeddings") == "");
  CHECK(fails_with(plan("{vocab_size: 3}"), 2, "vocab_size") == "");
  CHECK(fails_with(plan("{colour: red}"), 2, "colour") == "");
}
