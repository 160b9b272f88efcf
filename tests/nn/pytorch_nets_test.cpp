// Compares attention, Transformers, recurrent nets with lengths, embeddings with a padding row,
// ResNet shortcuts and 3D convolutions with PyTorch: parameter names, values and gradients
// (tests/reference/nets.json).
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/models/reference.h"
#include "weft/models/resnet.h"
#include "weft/nn/nn.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
using Named = std::map<std::string, Tensor>;

// Returns [B, longest], true past the end of a sequence.
Tensor beyond(const std::vector<int64_t>& lengths, int64_t longest) {
  return unsqueeze(tensor(lengths, {static_cast<int64_t>(lengths.size())}), 1) <= arange(longest);
}
// Returns [queries, keys], true above the diagonal.
Tensor future(int64_t queries, int64_t keys) {
  return iota({queries, keys}, 0) < iota({queries, keys}, 1);
}

Json case_of(const std::string& name) {
  static const Json file = reference_file("nets.json");
  for (const Json& row : file.at("cases"))
    if (row.at("name") == name) return row;
  FAIL("no case " << name);
  return {};
}

// Returns the sum of the elements weighted by the reference formula.
Tensor weighed(const Tensor& x, uint64_t stream) {
  return sum(x * uniform_tensor(stream, x.shape(), x.dtype()));
}
double weighed(const std::vector<double>& x, uint64_t stream) {
  double total = 0;
  for (size_t i = 0; i < x.size(); ++i) total += x[i] * formula_uniform(stream, i, 1);
  return total;
}

// Builds a net as child of a root, and compares the results of `run` on the inputs.
template <class Net, class Make, class Run>
void check(const std::string& name, Make make, Run run) {
  CAPTURE(name);
  const Json row = case_of(name);
  nn::BuildScope scope({.dtype = DType::f64});
  nn::Module root;
  const std::unique_ptr<Net> net = make(root);
  const std::vector<nn::NamedVariable> parameters = net->named_parameters();
  REQUIRE(parameters.size() == row.at("parameters").size());
  std::map<std::string, Variable> known;
  for (const Json& parameter : row.at("parameters"))
    for (const nn::NamedVariable& own : parameters)
      if (own.name == parameter.at("name").get<std::string>()) {
        write(own.variable, elements_of(parameter));
        REQUIRE(own.variable.shape() == shape_of(parameter));
        known.emplace(own.name, own.variable);
      }
  REQUIRE(known.size() == parameters.size());  // names match those of a file

  Named inputs;
  for (const auto& [key, recipe] : row.at("inputs").items()) inputs[key] = reference_tensor(recipe);
  const Named results = run(*net, inputs);
  REQUIRE(results.size() == row.at("outputs").size());
  // The outputs have PyTorch's order: "y" before the states.
  std::vector<Tensor> losses;
  const Json& outputs = row.at("outputs");
  const std::vector<std::string> order =
      results.size() == 1 ? std::vector<std::string>{"y"} : std::vector<std::string>{"y", "h", "c"};
  for (const std::string& key : order) {
    if (!outputs.contains(key)) continue;
    losses.push_back(weighed(results.at(key), 2000 + losses.size()));
  }
  Tensor loss = losses[0];
  for (size_t i = 1; i < losses.size(); ++i) loss += losses[i];

  std::vector<std::string> names;
  std::vector<Tensor> wanted;
  for (const auto& [key, x] : inputs) names.push_back(key), wanted.push_back(x);
  for (const auto& [key, variable] : known)
    names.push_back(key), wanted.push_back(variable.value());
  const std::vector<Tensor> gradients = grad(loss, wanted);
  std::vector<Tensor> all = gradients;  // is computed at once, by kernels that are compiled once
  for (const auto& [key, result] : results) all.push_back(result);
  eval(all);
  for (const auto& [key, result] : results)
    check_close(result.to_doubles(), elements_of(outputs.at(key)), 1e-12, key);
  // Streams number inputs and parameters in the order of the file.
  std::map<std::string, uint64_t> stream;
  uint64_t next = 3000;
  for (const Json& key : row.at("gradient_names")) stream[key.get<std::string>()] = next++;
  for (size_t i = 0; i < names.size(); ++i) {
    CAPTURE(names[i]);
    const Json& expected = row.at("gradients").at(names[i]);
    const double length = expected[0], product = expected[1];
    const std::vector<double> got = gradients[i].to_doubles();
    CHECK(std::abs(std::sqrt(std::inner_product(got.begin(), got.end(), got.begin(), 0.0)) -
                   length) <= 1e-10 * (1 + length));
    CHECK(std::abs(weighed(got, stream.at(names[i])) - product) <= 1e-10 * (1 + length));
  }
}

template <class Net, class... Args>
auto maker(Args... args) {
  return [=](nn::Module& root) { return std::make_unique<Net>(root, "net", args...); };
}
Named only(Tensor y) { return {{"y", std::move(y)}}; }
}  // namespace

TEST_CASE("MultiheadAttention agrees with PyTorch: masks, cross-attention, other widths") {
  using Net = nn::MultiheadAttention;
  using Options = nn::MultiheadAttentionOptions;
  check<Net>("attention_self", maker<Net>(8, 2),
             [](const Net& net, Named& in) { return only(net(in["x"], in["x"], in["x"])); });
  check<Net>("attention_causal", maker<Net>(8, 2, Options{.bias = false}),
             [](const Net& net, Named& in) {
               return only(net(in["x"], in["x"], in["x"], {.is_causal = true}));
             });
  check<Net>("attention_memory", maker<Net>(8, 2), [](const Net& net, Named& in) {
    return only(net(in["x"], in["memory"], in["memory"], {.key_padding_mask = beyond({2, 4}, 4)}));
  });
  check<Net>("attention_bool_masks", maker<Net>(8, 2), [](const Net& net, Named& in) {
    return only(net(in["x"], in["key"], in["value"],
                    {.attn_mask = future(5, 4), .key_padding_mask = beyond({2, 4}, 4)}));
  });
  check<Net>("attention_float_masks", maker<Net>(8, 2), [](const Net& net, Named& in) {
    return only(net(in["x"], in["memory"], in["memory"],
                    {.attn_mask = in["added"], .key_padding_mask = in["padding"]}));
  });
  check<Net>(
      "attention_widths", maker<Net>(8, 2, Options{.kdim = 6, .vdim = 3}),
      [](const Net& net, Named& in) { return only(net(in["query"], in["key"], in["value"])); });
}

TEST_CASE("Transformer layers and Transformers agree with PyTorch with pre-norm and post-norm") {
  for (const bool first : {false, true}) {
    const std::string end = first ? "_norm_first" : "_norm_last";
    const nn::TransformerOptions options{.dim_feedforward = 12,
                                         .dropout = 0,
                                         .activation = first ? "gelu" : "relu",
                                         .norm_first = first};
    using Encoder = nn::TransformerEncoderLayer;
    check<Encoder>("encoder_layer" + end, maker<Encoder>(8, 2, options),
                   [](const Encoder& net, Named& in) {
                     return only(net(in["x"], {.key_padding_mask = beyond({3, 5}, 5)}));
                   });
    using Decoder = nn::TransformerDecoderLayer;
    check<Decoder>("decoder_layer" + end, maker<Decoder>(8, 2, options),
                   [](const Decoder& net, Named& in) {
                     return only(net(in["x"], in["memory"], {.is_causal = true},
                                     {.key_padding_mask = beyond({2, 4}, 4)}));
                   });
    using Whole = nn::Transformer;
    check<Whole>(
        "transformer" + end, maker<Whole>(8, 2, 2, 2, options), [](const Whole& net, Named& in) {
          const nn::AttentionMasks padding{.key_padding_mask = beyond({2, 4}, 4)};
          return only(net(in["src"], in["tgt"],
                          {.src = padding, .tgt = {.is_causal = true}, .memory = padding}));
        });
  }
}

TEST_CASE("LSTM and GRU with lengths agree with PyTorch on packed sequences") {
  const Tensor lengths = tensor({3, 5}, {2});
  const auto options = nn::RecurrentOptions{.num_layers = 2, .bidirectional = true};
  check<nn::LSTM>("lstm_lengths", maker<nn::LSTM>(3, 4, options),
                  [&](const nn::LSTM& net, Named& in) -> Named {
                    auto all = net.run(in["x"], {.h = in["h"], .c = in["c"], .lengths = lengths});
                    return {{"y", all.y}, {"h", all.h}, {"c", all.c}};
                  });
  check<nn::GRU>("gru_lengths", maker<nn::GRU>(3, 4, options),
                 [&](const nn::GRU& net, Named& in) -> Named {
                   auto all = net.run(in["x"], {.h = in["h"], .lengths = lengths});
                   return {{"y", all.y}, {"h", all.h}};
                 });
}

TEST_CASE("ResNets for small images support each published shortcut") {
  for (const std::string shortcut : {"zeros_behind", "zeros_around", "projection"}) {
    const models::ResNetConfig config{
        .shortcut = shortcut, .depth = 8, .num_labels = 5, .hidden_size = 4};
    check<models::ResNet>(
        "resnet_" + shortcut, [&](nn::Module&) { return std::make_unique<models::ResNet>(config); },
        [](const models::ResNet& net, Named& in) { return only(net(in["x"])); });
  }
}

TEST_CASE("convolutions of volumes agree with PyTorch in every geometry option") {
  using Net = nn::Conv3d;
  const auto run = [](const Net& net, Named& in) { return only(net(in["x"])); };
  check<Net>("conv3d", maker<Net>(4, 6, Dims{2, 3, 1}), run);
  check<Net>("conv3d_options",
             maker<Net>(4, 6, 3,
                        nn::ConvLayerOptions{.stride = {2, 1, 3},
                                             .padding = {1, 2, 0},
                                             .dilation = {2, 1, 2},
                                             .groups = 2,
                                             .bias = false}),
             run);
}

TEST_CASE("an embedding's padding row starts at zero, is read as stored and gets no gradient") {
  const nn::EmbeddingOptions options{.padding_idx = 1};
  const Tensor tokens = tensor({3, 1, 1, 0, 2, 1}, {2, 3});
  check<nn::Embedding>("embedding_padding", maker<nn::Embedding>(4, 3, options),
                       [&](const nn::Embedding& net, Named&) { return only(net(tokens)); });
  nn::Module root;
  const nn::Embedding fresh(root, "fresh", 4, 3, options);
  CHECK(fresh.weight[1].to_doubles() == std::vector<double>(3, 0.0));
  CHECK(norm(fresh.weight[2]).item() > 0);
}

TEST_CASE("grouped-query attention equals attention with repeated key and value heads") {
  nn::BuildScope scope({.dtype = DType::f64});
  nn::Module root;
  const nn::MultiheadAttention grouped(root, "grouped", 12, 6, {.num_kv_heads = 2});
  const nn::MultiheadAttention equal(root, "equal", 12, 6);
  CHECK(grouped.in_proj_weight.shape() == Shape{12 + 2 * 4, 12});
  // Repeats the rows of keys and values for the three heads that share them.
  const auto repeated = [](const Variable& of, int64_t columns) {
    const Tensor all = reshape(of.value(), {20, columns});
    std::vector<Tensor> rows{all[range(0, 12)]};
    for (const int64_t begin : {12, 16})
      rows.push_back(reshape(
          repeat(reshape(all[range(begin, begin + 4)], {2, 1, 2, columns}), 3, 1), {12, columns}));
    return reshape(concat(rows, 0), columns == 1 ? Shape{36} : Shape{36, columns});
  };
  equal.in_proj_weight.assign(repeated(grouped.in_proj_weight, 12));
  write(grouped.in_proj_bias, uniform_tensor(1, {20}, DType::f64).to_doubles());
  equal.in_proj_bias.assign(repeated(grouped.in_proj_bias, 1));
  equal.out_proj.weight.assign(grouped.out_proj.weight.value());
  const Tensor x = uniform_tensor(2, {2, 4, 12}, DType::f64);
  const Tensor memory = uniform_tensor(3, {2, 3, 12}, DType::f64);
  check_close(grouped(x, x, x).to_doubles(), equal(x, x, x).to_doubles(), 1e-12, "self");
  check_close(grouped(x, memory, memory).to_doubles(), equal(x, memory, memory).to_doubles(), 1e-12,
              "memory");
}

TEST_CASE("attention dropout applies in train mode only and keeps the mean") {
  nn::Module root;
  const nn::MultiheadAttention plain(root, "plain", 4, 1, {.bias = false});
  const nn::MultiheadAttention drops(root, "drops", 4, 1, {.dropout = 0.25, .bias = false});
  // With identity values and zero queries, the result is the attention weights, 1 / 4 each.
  for (const nn::MultiheadAttention* each : {&plain, &drops}) {
    each->in_proj_weight.assign(concat({zeros({8, 4}), tril(triu(ones({4, 4})))}, 0));
    each->out_proj.weight.assign(tril(triu(ones({4, 4}))));
  }
  const Tensor x = broadcast_to(tril(triu(ones({4, 4}))), {2000, 4, 4});
  auto train = compile([&](Tensor v) { return drops(v, v, v); });
  auto evaluate = compile([&](Tensor v) { return drops(v, v, v); }, {.mode = Mode::eval});
  CHECK(evaluate(x).to_doubles() == plain(x, x, x).to_doubles());
  double total = 0;
  const std::vector<double> weights = train(x).to_doubles();
  for (const double weight : weights) {
    REQUIRE((weight == 0 || std::abs(weight - 0.25 / 0.75) < 1e-6));
    total += weight;
  }
  CHECK(std::abs(total / static_cast<double>(weights.size()) - 0.25) < 0.005);
  CHECK(train(x).to_doubles() != weights);
}

TEST_CASE("recurrent layers skip padding, and an empty sequence keeps its state") {
  nn::BuildScope scope({.dtype = DType::f64});
  nn::Module root;
  const nn::LSTM net(root, "net", 3, 4, {.bidirectional = true});
  const Tensor x = uniform_tensor(1, {3, 4, 3}, DType::f64);
  const Tensor h = uniform_tensor(2, {2, 3, 4}, DType::f64),
               c = uniform_tensor(3, {2, 3, 4}, DType::f64);
  const Tensor lengths = tensor({2, 0, 9}, {3});  // 9 is clamped to 4
  const Tensor nan = where(unsqueeze(beyond({2, 0, 4}, 4), 2), scalar(NAN, DType::f64), x);
  const nn::RecurrentResult all = net.run(nan, {.h = h, .c = c, .lengths = lengths});
  const std::vector<Variable> parameters = net.parameters();
  for (const Tensor& gradient : grad(sum(all.y) + sum(all.h) + sum(all.c), parameters))
    CHECK(is_finite(gradient).all().item() == 1);
  const std::vector<double> kept = all.c[{range(), 1}].to_doubles();
  CHECK(kept == c[{range(), 1}].to_doubles());
  const nn::RecurrentResult whole = net.run(x, {.h = h, .c = c});
  check_close(all.y[2].to_doubles(), whole.y[2].to_doubles(), 1e-14, "y");
  check_close(all.h[{range(), 2}].to_doubles(), whole.h[{range(), 2}].to_doubles(), 1e-14, "h");
}

TEST_CASE("mismatched arguments of attention, embeddings and recurrent nets are refused") {
  nn::Module root;
  using doctest::Contains;
  const nn::MultiheadAttention net(root, "net", 8, 2);
  const Tensor x = zeros({2, 5, 8});
  CHECK_THROWS_WITH_AS(net(x, zeros({2, 4, 6}), zeros({2, 4, 6})),
                       Contains("[attention] \"net\" takes query[B, T, 8], key[B, S, 8], value[B, "
                                "S, 8]. Got f32[2, 5, 8], f32[2, 4, 6] and f32[2, 4, 6]."),
                       Error);
  CHECK_THROWS_WITH_AS(net(x, x, x, {.attn_mask = zeros({4, 5})}),
                       Contains("[attention] \"net\" takes attn_mask as bool or floating point "
                                "[5, 5] or [4, 5, 5]. Got f32[4, 5]."),
                       Error);
  CHECK_THROWS_WITH_AS(net(x, x, x, {.key_padding_mask = zeros({2, 5}, DType::i64)}),
                       Contains("[attention] \"net\" takes key_padding_mask as bool or floating "
                                "point [2, 5]. Got i64[2, 5]."),
                       Error);
  CHECK_THROWS_WITH_AS(nn::MultiheadAttention(root, "a", 8, 3),
                       "[attention] \"a\" needs heads that divide the width. Got 3 heads, width 8.",
                       Error);
  CHECK_THROWS_WITH_AS(nn::MultiheadAttention(root, "a", 8, 4, {.num_kv_heads = 3}),
                       "[attention] \"a\" needs num_kv_heads that divide the 4 heads. Got 3.",
                       Error);
  CHECK_THROWS_WITH_AS(nn::Embedding(root, "a", 8, 3, {.padding_idx = 8}),
                       "[embedding] \"a\" needs a padding_idx from 0 to 7. Got 8.", Error);
  CHECK_THROWS_WITH_AS(nn::TransformerEncoderLayer(root, "a", 8, 2, {.activation = "swosh"}),
                       Contains("[transformer] unknown activation \"swosh\". Known: relu, "),
                       Error);
  const nn::GRU gru(root, "gru", 3, 4);
  CHECK_THROWS_WITH_AS(gru.run(zeros({2, 5, 3}), {.lengths = tensor({1, 2, 3}, {3})}),
                       Contains("[recurrent] \"gru\" takes lengths as integers [2]. Got i64[3]."),
                       Error);
}
