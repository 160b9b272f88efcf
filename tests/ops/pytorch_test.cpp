// Compares values and gradients of ops with PyTorch in float64 (tests/reference/ops.json): in the
// interpreter, and planned on every backend.
// This is one file because a test checks that its one table reads every row of ops.json.
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/reference_file.h"
#include "tests/support/values.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;
using nlohmann::json;

namespace {
constexpr double pytorch_tolerance = 1e-12;
using Named = std::map<std::string, Value>;
using RowFunction = std::function<Value(const Named& in, const json& attributes)>;

// Returns one number or one per axis.
Dims dims(const json& value) {
  if (value.is_number()) return {value.get<int64_t>()};
  return Dims(value.get<std::vector<int64_t>>());
}
Dims pair(const json& value) {
  if (value.is_number()) return {value, value};
  return {value[0], value[1]};
}
Value optional(const Named& in, const std::string& key) {
  auto found = in.find(key);
  return found == in.end() ? Value() : found->second;
}

Value convolve(const Named& in, const json& a) {
  return conv2d(in.at("input"), in.at("weight"), optional(in, "bias"),
                {.stride = pair(a["stride"]),
                 .padding = pair(a["padding"]),
                 .dilation = pair(a["dilation"]),
                 .groups = a["groups"]});
}
Value deconvolve(const Named& in, const json& a) {
  return conv_transpose(in.at("input"), in.at("weight"), optional(in, "bias"),
                        {.stride = dims(a["stride"]),
                         .padding = dims(a["padding"]),
                         .dilation = dims(a["dilation"]),
                         .output_padding = dims(a["output_padding"]),
                         .groups = a["groups"]});
}
PoolOptions pool_options(const json& a) {
  return {.kernel = dims(a["kernel_size"]),
          .stride = dims(a["stride"]),
          .padding = dims(a["padding"]),
          .count_include_pad = a.value("count_include_pad", true)};
}
Value pool_max(const Named& in, const json& a) { return max_pool(in.at("input"), pool_options(a)); }
Value pool_avg(const Named& in, const json& a) { return avg_pool(in.at("input"), pool_options(a)); }

Reduction reduction_of(const json& a) {
  const std::string name = a.value("reduction", "mean");
  return name == "mean" ? Reduction::mean : name == "sum" ? Reduction::sum : Reduction::none;
}
using Loss = Value (*)(Arg, Arg, Reduction);
template <Loss loss>
Value loss_of(const Named& in, const json& a) {
  return loss(in.at("input"), in.at("target"), reduction_of(a));
}
Value cross_entropy_of(const Named& in, const json& a) {
  return cross_entropy(in.at("input"), in.at("target"),
                       {.ignore_index = a.value("ignore_index", -100),
                        .label_smoothing = a.value("label_smoothing", 0.0),
                        .reduction = reduction_of(a)});
}
Value cross_entropy_images(const Named& in, const json& a) {
  Named last{{"input", permute(in.at("input"), {0, 2, 3, 1})}, {"target", in.at("target")}};
  return cross_entropy_of(last, a);
}

Value attend(const Named& in, const json& a) {
  AttentionOptions options{.causal = a.value("is_causal", false), .mask = optional(in, "mask")};
  if (options.mask.defined() && options.mask.dtype() == DType::i64)
    options.mask = options.mask != 0;
  if (a.contains("scale")) options.scale = a["scale"].get<double>();
  return attention(in.at("query"), in.at("key"), in.at("value"), options);
}

Value batch_norm(const Named& in, const json& a) {
  if (a["training"])
    return batch_norm_train(in.at("input"), in.at("weight"), in.at("bias"), a["eps"]).y;
  return batch_norm_eval(in.at("input"), in.at("running_mean"), in.at("running_var"),
                         in.at("weight"), in.at("bias"), a["eps"]);
}

template <Value (*f)(Arg)>
Value unary(const Named& in, const json&) {
  return f(in.at("input"));
}
template <int order>
Value norm_of(const Named& in, const json& a) {
  return norm(in.at("input"), {.axes = {a["dim"].get<int64_t>()}}, order);
}
Value einsum_of(const Named& in, const json& a) {
  std::vector<Value> operands;
  operands.reserve(in.size());
  for (size_t i = 0; i < in.size(); ++i) operands.push_back(in.at(fmt::format("operand{}", i)));
  return einsum(a["equation"].get<std::string>(), operands);
}
Value interpolate_of(const Named& in, const json& a) {
  return interpolate(in.at("input"), {.size = dims(a["size"]),
                                      .mode = a["mode"] == "nearest" ? Interpolation::nearest
                                                                     : Interpolation::linear,
                                      .align_corners = a.value("align_corners", false)});
}
// PyTorch lists the padding from the last axis backwards, low and high for each.
Value reflect_pad_of(const Named& in, const json& a) {
  const Value& x = in.at("input");
  Dims low = Dims::filled(x.rank(), 0), high = low;
  const Dims amounts = dims(a["pad"]);
  for (int i = 0; i < amounts.size(); ++i)
    (i % 2 == 0 ? low : high)[x.rank() - 1 - i / 2] = amounts[i];
  return reflect_pad(x, low, high);
}
Value sort_of(const Named& in, const json& a) {
  return sort(in.at("input"), a["dim"], a["descending"]);
}
Value topk_of(const Named& in, const json& a) {
  return topk(in.at("input"), a["k"], a["dim"], a["largest"]).values;
}
ReduceOptions along(const json& a) {
  return {.axes = {a["dim"].get<int64_t>()}, .keepdim = a.value("keepdim", false)};
}

// Runs one time step from given states, with the input's product computed as the layer computes it.
Value lstm_cell(const Named& in, const json&, const char* which) {
  const Value gates =
      matmul(in.at("input"), transpose(in.at("weight_ih"))) + in.at("bias_ih") + in.at("bias_hh");
  const LstmStates states = lstm(unsqueeze(gates, 0), in.at("weight_hh"), in.at("h"), in.at("c"));
  return squeeze(which == std::string("c_new") ? states.c : states.h, 0);
}
Value gru_cell(const Named& in, const json&) {
  const Value gates = matmul(in.at("input"), transpose(in.at("weight_ih"))) + in.at("bias_ih");
  return squeeze(gru(unsqueeze(gates, 0), in.at("weight_hh"), in.at("bias_hh"), in.at("h")), 0);
}

const std::map<std::string, RowFunction> functions = {
    {"conv2d", convolve},
    {"conv2d_stride_dilation", convolve},
    {"conv2d_groups", convolve},
    {"conv2d_depthwise", convolve},
    {"conv2d_unread_edge", convolve},
    {"conv_transpose2d", deconvolve},
    {"conv_transpose1d", deconvolve},
    {"conv_transpose3d", deconvolve},
    {"conv_transpose3d_dilated", deconvolve},
    {"max_pool2d", pool_max},
    {"avg_pool2d_count_pad", pool_avg},
    {"avg_pool2d_skip_pad", pool_avg},
    {"max_pool3d", pool_max},
    {"avg_pool3d_count_pad", pool_avg},
    {"avg_pool3d_skip_pad", pool_avg},
    {"adaptive_avg_pool2d",
     [](const Named& in, const json& a) {
       return adaptive_avg_pool(in.at("input"), Dims(a["output_size"].get<std::vector<int64_t>>()));
     }},
    {"batch_norm_train", batch_norm},
    {"batch_norm_eval", batch_norm},
    {"group_norm",
     [](const Named& in, const json& a) {
       return group_norm(in.at("input"), a["num_groups"], in.at("weight"), in.at("bias"), a["eps"]);
     }},
    {"layer_norm",
     [](const Named& in, const json& a) {
       return layer_norm(in.at("input"), in.at("weight"), in.at("bias"), a["eps"]);
     }},
    {"rms_norm", [](const Named& in,
                    const json& a) { return rms_norm(in.at("input"), in.at("weight"), a["eps"]); }},
    {"gelu", unary<gelu>},
    {"gelu_tanh", unary<gelu_tanh>},
    {"silu", unary<silu>},
    {"mish", unary<mish>},
    {"softplus", unary<softplus>},
    {"log_sigmoid", unary<log_sigmoid>},
    {"selu", unary<selu>},
    {"hardswish", unary<hardswish>},
    {"elu", [](const Named& in, const json& a) { return elu(in.at("input"), a["alpha"]); }},
    {"leaky_relu", [](const Named& in,
                      const json& a) { return leaky_relu(in.at("input"), a["negative_slope"]); }},
    {"softmax", [](const Named& in, const json& a) { return softmax(in.at("input"), a["dim"]); }},
    {"log_softmax",
     [](const Named& in, const json& a) { return log_softmax(in.at("input"), a["dim"]); }},
    {"cross_entropy", cross_entropy_of},
    {"cross_entropy_ignore_index", cross_entropy_of},
    {"cross_entropy_label_smoothing", cross_entropy_of},
    {"cross_entropy_images", cross_entropy_images},
    {"nll_loss",
     [](const Named& in, const json& a) {
       return nll_loss(in.at("input"), in.at("target"), a["ignore_index"], reduction_of(a));
     }},
    {"binary_cross_entropy_with_logits", loss_of<binary_cross_entropy_with_logits>},
    {"binary_cross_entropy", loss_of<binary_cross_entropy>},
    {"mse_loss", loss_of<mse_loss>},
    {"l1_loss", loss_of<l1_loss>},
    {"kl_div", loss_of<kl_div>},
    {"hinge_loss",
     [](const Named& in, const json& a) {
       return hinge_loss(in.at("input"), cast(in.at("target"), DType::f64), reduction_of(a));
     }},
    {"huber_loss",
     [](const Named& in, const json& a) {
       return huber_loss(in.at("input"), in.at("target"), a["delta"], reduction_of(a));
     }},
    {"smooth_l1_loss",
     [](const Named& in, const json& a) {
       return smooth_l1_loss(in.at("input"), in.at("target"), a["beta"], reduction_of(a));
     }},
    {"attention", attend},
    {"attention_causal", attend},
    {"attention_causal_rectangular", attend},
    {"attention_grouped_heads", attend},
    {"attention_scale_and_bias", attend},
    {"attention_boolean_mask", attend},
    {"var_unbiased",
     [](const Named& in, const json& a) { return variance(in.at("input"), along(a), 1); }},
    {"var_biased",
     [](const Named& in, const json& a) { return variance(in.at("input"), along(a), 0); }},
    {"logsumexp",
     [](const Named& in, const json& a) { return logsumexp(in.at("input"), along(a)); }},
    {"std_unbiased",
     [](const Named& in, const json& a) { return stddev(in.at("input"), along(a), 1); }},
    {"norm_l2", norm_of<2>},
    {"norm_0", norm_of<0>},
    {"norm_1", norm_of<1>},
    {"norm_3", norm_of<3>},
    {"norm_0.5",
     [](const Named& in, const json& a) { return norm(in.at("input"), along(a), 0.5); }},
    {"norm_greatest",
     [](const Named& in, const json& a) { return norm(in.at("input"), along(a), INFINITY); }},
    {"norm_least",
     [](const Named& in, const json& a) { return norm(in.at("input"), along(a), -INFINITY); }},
    {"cumsum", [](const Named& in, const json& a) { return cumsum(in.at("input"), a["dim"]); }},
    {"tril", [](const Named& in, const json& a) { return tril(in.at("input"), a["diagonal"]); }},
    {"triu", [](const Named& in, const json& a) { return triu(in.at("input"), a["diagonal"]); }},
    {"tile", [](const Named& in, const json& a) { return tile(in.at("input"), dims(a["sizes"])); }},
    {"repeat",
     [](const Named& in, const json& a) { return repeat(in.at("input"), a["repeats"], a["dim"]); }},
    {"reflect_pad", reflect_pad_of},
    {"take_along_axis",
     [](const Named& in, const json& a) {
       return take_along_axis(in.at("input"), in.at("index"), a["dim"]);
     }},
    {"put_along_axis",
     [](const Named& in, const json& a) {
       return put_along_axis(in.at("input"), in.at("index"), in.at("values"), a["dim"]);
     }},
    {"index_put",
     [](const Named& in, const json&) {
       return index_put(in.at("input"), in.at("index"), in.at("values"));
     }},
    {"sort", sort_of},
    {"sort_descending", sort_of},
    {"topk", topk_of},
    {"topk_least", topk_of},
    {"einsum", einsum_of},
    {"interpolate", interpolate_of},
    {"glu", [](const Named& in, const json& a) { return glu(in.at("input"), a["dim"]); }},
    {"kl_div_batchmean",
     [](const Named& in, const json&) {
       const Value log_p = log_softmax(in.at("input"), -1), q = softmax(in.at("target"), -1);
       return kl_div(log_p, q, Reduction::sum) / q.dim(0);
     }},
    {"layer_norm_two_axes",
     [](const Named& in, const json& a) {
       const Value& x = in.at("input");
       return reshape(layer_norm(flatten(x, 1, 2), {}, {}, a["eps"]), x.shape());
     }},
    {"gru_cell", gru_cell},
    {"prod", [](const Named& in, const json& a) { return prod(in.at("input"), along(a)); }},
};

// Returns the function that a row tests: "l1_loss_sum" tests "l1_loss".
std::string function_name(const std::string& row) {
  if (row.starts_with("einsum ")) return "einsum";
  for (const char* mode : {"nearest", "linear", "bilinear", "trilinear"})
    if (row.starts_with(mode)) return "interpolate";
  for (const std::string suffix : {"_mean", "_sum", "_none"})
    if (row.ends_with(suffix)) return row.substr(0, row.size() - suffix.size());
  return row;
}

void check_value(const Value& got, const json& want, const std::string& what) {
  INFO(what);
  Value expected = reference_tensor(want);
  CHECK(difference(interpret(got), expected, pytorch_tolerance) == "");
  Graph graph{.inputs = {}, .outputs = {got}, .assignments = {}};
  for (const KernelLibrary* library : backends()) {
    INFO(library->name());
    CHECK(difference(run_planned(graph, {}, *library).front(), expected, 10 * pytorch_tolerance) ==
          "");
  }
}

void run_case(const json& row, const RowFunction& function) {
  Named in;
  for (const auto& [key, recipe] : row["inputs"].items()) in[key] = reference_tensor(recipe);
  Value output = function(in, row["attributes"]);
  check_value(output, row["outputs"]["output"], "output");
  if (!row.contains("upstream")) return;
  Value loss = sum(output * reference_tensor(row["upstream"]["output"]));
  for (const auto& [key, want] : row["outputs"].items()) {
    if (key.rfind("grad_", 0) != 0) continue;
    const Value& variable = in.at(key.substr(5));
    check_value(gradients(loss, std::span(&variable, 1)).front(), want, key);
  }
}
}  // namespace

TEST_CASE("the formula of the reference files agrees with PyTorch") {
  json check_values = reference_file("ops.json")["check"];
  CHECK(fmt::format("{:#x}", formula_bits(7, 3)) == check_values["bits(7, 3)"].get<std::string>());
  for (uint64_t i = 0; i < 3; ++i)
    CHECK(formula_uniform(1000, i, 1.0) ==
          check_values["uniform(1000, 0..2, 1.0)"][i].get<double>());
  for (uint64_t i = 0; i < 8; ++i)
    CHECK(formula_integer(2000, i, 10) ==
          check_values["integer(2000, 0..7, 10)"][i].get<int64_t>());
}

TEST_CASE("values and gradients agree with PyTorch") {
  const std::set<std::string_view> elsewhere = {"lstm_cell"};  // two results, tested below
  std::set<std::string> found;
  json file = reference_file("ops.json");
  for (const json& row : file["cases"]) {
    const std::string name = row["name"];
    auto function = functions.find(function_name(name));
    if (function == functions.end()) {
      const bool optimizers = name.starts_with("optimizer_") || name.starts_with("clip_grad_norm_");
      CHECK_MESSAGE((optimizers || elsewhere.contains(name)), name << " is read by no test");
      continue;
    }
    found.insert(function->first);
    INFO(name);
    run_case(row, function->second);
  }
  CHECK(found.size() == functions.size());
}

TEST_CASE("a step of an LSTM from its previous states agrees with PyTorch") {
  json file = reference_file("ops.json");
  for (const json& row : file["cases"]) {
    if (row["name"] != "lstm_cell") continue;
    Named in;
    for (const auto& [key, recipe] : row["inputs"].items()) in[key] = reference_tensor(recipe);
    Value loss = scalar(0.0, DType::f64);
    for (const char* which : {"h_new", "c_new"}) {
      const Value state = lstm_cell(in, row["attributes"], which);
      check_value(state, row["outputs"][which], which);
      loss = loss + sum(state * reference_tensor(row["upstream"][which]));
    }
    for (const auto& [key, variable] : in)
      check_value(gradients(loss, std::span(&variable, 1)).front(), row["outputs"]["grad_" + key],
                  key);
  }
}

TEST_CASE("batch norm updates running statistics as PyTorch does") {
  json file = reference_file("ops.json");
  for (const json& row : file["cases"]) {
    if (row["name"] != "batch_norm_train") continue;
    Value x = reference_tensor(row["inputs"]["input"]);
    BatchNorm norm = batch_norm_train(x, {}, {}, 1e-5);
    double count = static_cast<double>(x.elements()) / 2, momentum = 0.1;
    Value mean =
        reference_tensor(row["inputs"]["running_mean"]) * (1 - momentum) + norm.mean * momentum;
    Value variance = reference_tensor(row["inputs"]["running_var"]) * (1 - momentum) +
                     norm.variance * (momentum * count / (count - 1));
    check_value(mean, row["outputs"]["new_running_mean"], "mean");
    check_value(variance, row["outputs"]["new_running_var"], "variance");
  }
}

TEST_CASE("a one-dimensional convolution equals a two-dimensional one of height one") {
  Random random(3);
  Value x = random_values({DType::f64, {2, 4, 9}}, -1, 1, random);
  Value weight = random_values({DType::f64, {6, 2, 3}}, -1, 1, random);
  Value bias = random_values({DType::f64, {6}}, -1, 1, random);
  Value line = conv(x, weight, bias, {.stride = {2}, .padding = {1}, .dilation = {2}, .groups = 2});
  Value image = conv(reshape(x, {2, 4, 1, 9}), reshape(weight, {6, 2, 1, 3}), bias,
                     {.stride = {1, 2}, .padding = {0, 1}, .dilation = {1, 2}, .groups = 2});
  CHECK(difference(interpret(line), interpret(reshape(image, line.shape())), 0) == "");
}

TEST_CASE("attention of a fully masked query is zero") {
  Random random(4);
  Value q = random_values({DType::f32, {1, 1, 2, 3}}, -1, 1, random);
  Value mask = constant(std::vector<double>{0, 0, 1, 1}, {2, 2}, DType::boolean);
  std::vector<double> y = elements(interpret(attention(q, q, q, {.mask = mask})));
  CHECK(y[0] == 0);
  CHECK(y[1] == 0);
  CHECK(y[3] != 0);
}
