// Matches expressions of weft that are one operator of ONNX: products and convolutions with a bias,
// means, normalization with its weights, and recurrent layers.
#include <algorithm>
#include <utility>

#include "weft/onnx/export/emitter.h"
#include "weft/tensor/tensor.h"

namespace weft::onnx {
namespace {
using Name = std::string;

// Returns the vector [extent] that a value repeats along all axes but `axis`; empty where the value
// is no such broadcast.
Value vector_along(const Value& value, int axis) {
  const int64_t extent = value.dim(axis);
  const int behind = value.rank() - 1 - axis;
  const Value* at = &value;
  while ((*at)->is("broadcast") || (*at)->is("reshape")) {
    const Value& inner = (*at)->inputs[0];
    if (inner.elements() != extent) return {};
    if (inner.rank() == 1) return inner;
    if (inner.rank() - 1 - behind < 0 || inner.dim(inner.rank() - 1 - behind) != extent) return {};
    at = &inner;
  }
  return {};
}
// Splits f(a, b) into the operand that is the node `op`, with one user, and the other operand.
std::optional<std::pair<Value, Value>> split(const Value& value, std::string_view op,
                                             const Uses& uses) {
  for (size_t i = 0; i < 2; ++i)
    if (const Value& part = value->inputs[i]; part->is(op) && uses.count(part.node()) == 1)
      return {{part, value->inputs[1 - i]}};
  return {};
}
bool is_square(const Value& x) { return x->is("permute") && x.rank() == 2; }

// ---- products

// x[M, K] weight[N, K]' + bias[N]
Match gemm(const Value& product, const Value& bias) {
  const Value &a = product->inputs[0], &b = product->inputs[1];
  const bool transposed = is_square(b);
  return {{a, transposed ? b->inputs[0] : b, bias}, [transposed](Emitter& to, Operands x) {
            return to.add("Gemm", {x[0], x[1], x[2]}, {{"transB", int64_t{transposed}}});
          }};
}
bool is_gemm(const Value& value) {
  return value->is("matmul") && value.rank() == 2 && is_float(value.dtype()) &&
         !value->attrs.has("wide");
}

std::optional<Match> with_bias(const Value& value, const Uses& uses) {
  if (const auto sum = split(value, "matmul", uses); sum && is_gemm(sum->first))
    if (const Value bias = vector_along(sum->second, 1); bias.defined())
      return gemm(sum->first, bias);
  if (const auto sum = split(value, "conv", uses))
    if (const Value bias = vector_along(sum->second, 1); bias.defined()) {
      const Value conv = sum->first;
      return Match{{conv->inputs[0], conv->inputs[1], bias}, [conv](Emitter& to, Operands x) {
                     return emit_conv(to, *conv.node(), x[0], x[1], x[2]);
                   }};
    }
  return {};
}

// ---- means

// Matches sum(x) * (1 / count). A reshape may drop the reduced axes before the product.
std::optional<Match> mean(const Value& value, const Uses& uses) {
  auto product = split(value, "sum", uses);
  if (!product) product = split(value, "reshape", uses);
  if (!product || !product->second->is("scalar")) return {};
  const Value& part = product->first;
  const Value& total = part->is("sum") ? part : part->inputs[0];
  if (!total->is("sum") || uses.count(total.node()) != 1 || total.elements() == 0) return {};
  const auto count =
      static_cast<double>(total->inputs[0].elements()) / static_cast<double>(total.elements());
  if (product->second->attrs.number("value") != 1 / count) return {};
  const Dims& dims = total->attrs.dims("axes");
  return Match{{total->inputs[0]},
               [value, keeps = part->is("sum"),
                axes = std::vector<int64_t>(dims.begin(), dims.end())](Emitter& to, Operands x) {
                 const Name y = to.add("ReduceMean", {x[0], to.integers(axes)});
                 return keeps ? y : to.reshape(y, *value.node());
               }};
}

// ---- normalization

// (x - mean) (1 / sqrt(variance + eps)) weight + bias, each of the four one number per channel.
std::optional<Match> batch_norm(const Value& value, const Uses& uses) {
  if (value.rank() < 2) return {};
  const auto sum = split(value, "mul", uses);
  const Value bias = sum ? vector_along(sum->second, 1) : Value();
  const auto scaled = bias.defined() ? split(sum->first, "sub", uses) : std::nullopt;
  if (!scaled) return {};
  const Value scale = vector_along(scaled->second, 1);
  const Value mean = vector_along(scaled->first->inputs[1], 1);
  if (!scale.defined() || !mean.defined() || !scale->is("mul")) return {};
  for (size_t i = 0; i < 2; ++i) {
    const Value &deviation = scale->inputs[i], &weight = scale->inputs[1 - i];
    if (!deviation->is("rsqrt") || !deviation->inputs[0]->is("add")) continue;
    const Value &variance = deviation->inputs[0]->inputs[0], &eps = deviation->inputs[0]->inputs[1];
    if (!eps->is("scalar")) continue;
    return Match{{scaled->first->inputs[0], weight, bias, mean, variance},
                 [number = eps->attrs.number("value")](Emitter& to, Operands x) {
                   return to.add("BatchNormalization", {x.begin(), x.end()}, {{"epsilon", number}});
                 }};
  }
  return {};
}

bool is_layer_norm(const Value& value) {
  return value->is("normalize") && value->attrs.dims("axes") == Dims{value.rank() - 1};
}
std::optional<Match> layer_norm(const Value& product, const Value& bias, const Uses& uses) {
  const auto scaled = split(product, "normalize", uses);
  if (!scaled || !is_layer_norm(scaled->first)) return {};
  const Value weight = vector_along(scaled->second, product.rank() - 1);
  if (!weight.defined()) return {};
  return Match{{scaled->first->inputs[0], weight, bias},
               [eps = scaled->first->attrs.number("eps")](Emitter& to, Operands x) {
                 return to.add("LayerNormalization", {x[0], x[1], x[2]},
                               {{"axis", int64_t{-1}}, {"epsilon", eps}});
               }};
}

// ---- recurrent layers

// Projection is x[T, B, I] weight[G, I]' + bias[G]: the share of the inputs in the gates.
struct Projection {
  Value x, weight, bias;
};
std::optional<Projection> projection_of(const Value& gates) {
  Value product = gates, bias;
  if (gates->is("add")) {
    for (size_t i = 0; i < 2 && !bias.defined(); ++i)
      if (gates->inputs[i]->is("matmul")) {
        product = gates->inputs[i];
        bias = vector_along(gates->inputs[1 - i], 2);
      }
    if (!bias.defined()) return {};
  }
  if (!product->is("matmul") || product->attrs.has("wide")) return {};
  const Value& b = product->inputs[1];
  const Value& matrix = b->is("reshape") ? b->inputs[0] : b;
  if (!is_square(matrix)) return {};
  return Projection{product->inputs[0], matrix->inputs[0], bias};
}

constexpr int64_t lstm_h = 5, gru_h = 4;  // slots of the states, in a node's value
bool is_slot(const weft::Node& node, int64_t slot) {
  return node.is("slice") && node.attrs.integer("axis") == 0 &&
         node.attrs.integer("start") == slot && node.attrs.integer("stop") == slot + 1;
}
bool is_zero(const Value& value) {
  return value->is("scalar") && value->attrs.number("value") == 0;
}

// Returns rows of gates in the order of ONNX, with a first axis for the one direction.
Name in_order(Emitter& to, const Name& rows, const std::vector<int64_t>& order, int64_t hidden) {
  std::vector<int64_t> places;
  for (int64_t gate : order)
    for (int64_t i = 0; i < hidden; ++i) places.push_back(gate * hidden + i);
  return to.add("Gather", {rows, to.integers(places)}, {{"axis", int64_t{0}}});
}

std::optional<Match> recurrent_layer(const Value& value) {
  const Value& layer = value->inputs[0];
  const bool is_lstm = layer->is("lstm");
  if (!(is_lstm && is_slot(*value.node(), lstm_h)) &&
      !(layer->is("gru") && is_slot(*value.node(), gru_h)))
    return {};
  const std::optional<Projection> projection = projection_of(layer->inputs[0]);
  if (!projection) return {};
  const Value& weight = layer->inputs[1];
  const Value state_bias = is_lstm ? Value() : layer->inputs[2];
  const Value h = is_lstm ? layer->inputs[2] : layer->inputs[3];
  const Value c = is_lstm ? layer->inputs[3] : Value();
  auto unless_zero = [](const Value& x) { return x.defined() && is_zero(x) ? Value() : x; };
  const int64_t hidden = weight.dim(1);
  const DType dtype = layer.dtype();
  return Match{
      {projection->x, projection->weight, projection->bias, weight, unless_zero(state_bias),
       unless_zero(h), unless_zero(c)},
      [=](Emitter& to, Operands x) {
        // Gates of weft are i, f, g, o and r, z, n; those of ONNX i, o, f, g and z, r, n.
        const std::vector<int64_t> order =
            is_lstm ? std::vector<int64_t>{0, 3, 1, 2} : std::vector<int64_t>{1, 0, 2};
        const auto rows = static_cast<int64_t>(order.size()) * hidden;
        auto ordered = [&](const Name& name) { return in_order(to, name, order, hidden); };
        auto raised = [&](const Name& name) { return name.empty() ? name : to.unsqueeze(name, 0); };
        Name biases;
        if (!x[2].empty() || !x[4].empty()) {
          auto part = [&](const Name& bias) {
            return bias.empty()
                       ? to.constant(tensor(std::vector<double>(static_cast<size_t>(rows), 0),
                                            {rows}, dtype))
                       : ordered(bias);
          };
          biases = to.add("Concat", {part(x[2]), part(x[4])}, {{"axis", int64_t{0}}});
        }
        std::vector<Name> inputs{x[0], raised(ordered(x[1])), raised(ordered(x[3])), raised(biases),
                                 "",   raised(x[5])};
        Emitter::Attributes attributes{{"hidden_size", hidden}};
        if (is_lstm)
          inputs.push_back(raised(x[6]));
        else
          attributes["linear_before_reset"] = int64_t{1};
        const Name y = to.add(is_lstm ? "LSTM" : "GRU", inputs, attributes);
        return to.add("Transpose", {y}, {{"perm", std::vector<int64_t>{1, 0, 2, 3}}});
      }};
}
}  // namespace

std::optional<Match> match_expression(const Value& value, const Uses& uses) {
  if (value->is("slice")) return recurrent_layer(value);
  if (std::optional<Match> match = match_quantization(value)) return match;
  if (value->is("matmul"))
    return is_gemm(value) && is_square(value->inputs[1]) ? std::optional(gemm(value, {}))
                                                         : std::nullopt;
  if (!is_float(value.dtype()) || value.rank() == 0) return {};
  if (value->is("mul")) {
    if (std::optional<Match> match = mean(value, uses)) return match;
    return layer_norm(value, {}, uses);
  }
  if (!value->is("add")) return {};
  if (std::optional<Match> match = with_bias(value, uses)) return match;
  if (std::optional<Match> match = batch_norm(value, uses)) return match;
  if (const auto sum = split(value, "mul", uses))
    if (const Value bias = vector_along(sum->second, value.rank() - 1); bias.defined())
      return layer_norm(sum->first, bias, uses);
  return {};
}

bool has_recurrent_layers_of_onnx(const weft::Graph& graph) {
  const Uses uses(graph);
  return std::ranges::all_of(uses.nodes(), [&](const Value& value) {
    const bool is_lstm = value->is("lstm");
    if (!is_lstm && !value->is("gru")) return true;
    return value.dtype() != DType::bf16 && !uses.is_root(value.node()) &&
           projection_of(value->inputs[0]).has_value() &&
           std::ranges::all_of(uses.of(value.node()), [&](const weft::Node* user) {
             return is_slot(*user, is_lstm ? lstm_h : gru_h);
           });
  });
}

}  // namespace weft::onnx
