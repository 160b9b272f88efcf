// Defines recurrent layers over time: LSTM (Hochreiter and Schmidhuber 1997; Gers et al. 2000) and
// GRU (Cho et al. 2014), in PyTorch's form. Their value packs all results of the time steps into
// slots: [slots, T, B, H]. They decompose into products and elementwise operations per time step,
// and slots that nothing reads are never stored. Their gradients have a closed form, so that the
// weight's gradient is one product over all time steps instead of one for each.
#include "weft/ops/apply.h"
#include "weft/ops/wide.h"

namespace weft {
namespace {
// Returns a + b, where either may be empty.
Tensor plus(const Tensor& a, const Tensor& b) {
  return !a.defined() ? b : !b.defined() ? a : a + b;
}

// Returns one slot [T, B, H] of a packed gradient, or an empty value if the gradient is known to
// come from other slots only; most uses read one slot.
Tensor slot_of(const Tensor& packed, int64_t slot) {
  if (packed->is("add"))
    return plus(slot_of(packed->inputs[0], slot), slot_of(packed->inputs[1], slot));
  if (packed->is("pad")) {
    int64_t low = packed->attrs.dims("low")[0], count = packed->inputs[0].dim(0);
    if (slot < low || slot >= low + count) return {};
  }
  return squeeze(slice(packed, 0, slot, slot + 1), 0);
}

// Returns time step t of [T, B, X] in float32 at least; an empty value stays empty.
Tensor at_step(const Tensor& x, int64_t t) {
  return x.defined() ? widen(squeeze(slice(x, 0, t, t + 1), 0)) : Tensor();
}
// Returns gate k of [B, gates * H].
Tensor gate(const Tensor& x, int64_t k, int64_t hidden) {
  return slice(x, 1, k * hidden, (k + 1) * hidden);
}

// Packs steps[slot][t] of [B, H] into [slots, T, B, H].
Tensor pack(const std::vector<std::vector<Tensor>>& steps) {
  std::vector<Tensor> slots;
  slots.reserve(steps.size());
  for (const std::vector<Tensor>& slot : steps) slots.push_back(stack(slot, 0));
  return stack(slots, 0);
}

// Returns the states before each time step: `first`, then all of h but its last.
Tensor before_each(const Tensor& first, const Tensor& h) {
  int64_t steps = h.dim(0);
  return steps == 1 ? unsqueeze(first, 0)
                    : concat({unsqueeze(first, 0), slice(h, 0, 0, steps - 1)}, 0);
}

// Maps [T, B, X] to [T * B, X].
Tensor rows(const Tensor& x) { return flatten(x, 0, 1); }

template <int slots>
Type infer(std::span<const Tensor> inputs, const Attrs&) {
  const Shape& gates = inputs[0].shape();
  return {inputs[0].dtype(), {slots, gates[0], gates[1], inputs[1].dim(1)}};
}

// ---- LSTM. i, f, g, o = gates; c = f c + i g; h = o tanh(c)
enum LstmSlot : int64_t { input_slot, forget_slot, cell_slot, output_slot, c_slot, h_slot };
constexpr int lstm_slots = 6;

Tensor unrolled_lstm(const Node& node) {
  const Tensor &gates = node.inputs[0], &weight = node.inputs[1];
  int64_t hidden = weight.dim(1);
  DType dtype = gates.dtype();
  Tensor h = node.inputs[2], c = node.inputs[3];
  std::vector<std::vector<Tensor>> steps(lstm_slots);
  for (int64_t t = 0; t < gates.dim(0); ++t) {
    Tensor x = at_step(gates, t), s = widen(linear(h, weight));
    // It adds slices instead of slicing the sum, so that one kernel over [B, H] fuses all gates.
    auto both = [&](int64_t k) { return gate(x, k, hidden) + gate(s, k, hidden); };
    Tensor i = sigmoid(both(0)), f = sigmoid(both(1)), g = tanh(both(2)), o = sigmoid(both(3));
    Tensor wide_c = f * widen(c) + i * g;
    c = narrow_to(wide_c, dtype);
    h = narrow_to(o * tanh(wide_c), dtype);
    Tensor made[lstm_slots] = {i, f, g, o, c, h};
    for (size_t k = 0; k < lstm_slots; ++k) steps[k].push_back(narrow_to(made[k], dtype));
  }
  return pack(steps);
}

Gradients lstm_gradient(const Tensor& y, const Tensor& dy) {
  const std::vector<Tensor>& inputs = y->inputs;
  const Tensor& weight = inputs[1];
  DType dtype = y.dtype();
  Tensor made[lstm_slots], given[lstm_slots];
  for (int64_t k = 0; k < lstm_slots; ++k) made[k] = slot_of(y, k), given[k] = slot_of(dy, k);
  Tensor c_before = before_each(inputs[3], made[c_slot]), dh, dc;
  int64_t steps = y.dim(1);
  std::vector<Tensor> dgates(static_cast<size_t>(steps));
  Tensor none = zeros(widen(inputs[3]).shape(), widen(inputs[3]).dtype());
  for (int64_t t = steps; t-- > 0;) {
    auto of = [&](int64_t k) { return at_step(made[k], t); };
    auto more = [&](int64_t k) { return at_step(given[k], t); };
    Tensor i = of(input_slot), f = of(forget_slot), g = of(cell_slot), o = of(output_slot);
    Tensor tanh_c = tanh(of(c_slot));
    dh = plus(plus(more(h_slot), dh), t + 1 == steps ? none : Tensor());
    dc = plus(plus(more(c_slot), dc), dh * o * (1 - square(tanh_c)));
    Tensor di = plus(dc * g, more(input_slot));
    Tensor df = plus(dc * at_step(c_before, t), more(forget_slot));
    Tensor dg = plus(dc * i, more(cell_slot));
    Tensor dout = plus(dh * tanh_c, more(output_slot));
    Tensor d = narrow_to(
        concat({di * i * (1 - i), df * f * (1 - f), dg * (1 - square(g)), dout * o * (1 - o)}, 1),
        dtype);
    dgates[static_cast<size_t>(t)] = d;
    dh = widen(matmul(d, weight));
    dc = dc * f;
  }
  Tensor all = stack(dgates, 0), h_before = before_each(inputs[2], made[h_slot]);
  return {all, matmul(transpose(rows(all)), rows(h_before)), narrow_to(dh, dtype),
          narrow_to(dc, dtype)};
}

const OpDef& lstm_def = define({
    .name = "lstm",
    .arity = 4,
    .doc = "i, f, g, o, c and h of every step, from gates, weight, h and c",
    .infer = infer<lstm_slots>,
    .gradient = lstm_gradient,
    .decompose = unrolled_lstm,
});

// ---- GRU. r, z of gates and states; n = tanh(gates + r m), m of the states; h = n + z (h - n)
enum GruSlot : int64_t { reset_slot, update_slot, new_slot, state_slot, gru_h_slot };
constexpr int gru_slots = 5;

Tensor unrolled_gru(const Node& node) {
  const Tensor &gates = node.inputs[0], &weight = node.inputs[1];
  int64_t hidden = weight.dim(1);
  Tensor bias = widen(unsqueeze(node.inputs[2], 0));
  DType dtype = gates.dtype();
  Tensor h = node.inputs[3];
  std::vector<std::vector<Tensor>> steps(gru_slots);
  for (int64_t t = 0; t < gates.dim(0); ++t) {
    Tensor x = at_step(gates, t), s = widen(linear(h, weight));
    auto of_states = [&](int64_t k) { return gate(s, k, hidden) + gate(bias, k, hidden); };
    Tensor r = sigmoid(gate(x, 0, hidden) + of_states(0));
    Tensor z = sigmoid(gate(x, 1, hidden) + of_states(1));
    Tensor m = of_states(2), n = tanh(gate(x, 2, hidden) + r * m);
    h = narrow_to(n + z * (widen(h) - n), dtype);
    Tensor made[gru_slots] = {r, z, n, m, h};
    for (size_t k = 0; k < gru_slots; ++k) steps[k].push_back(narrow_to(made[k], dtype));
  }
  return pack(steps);
}

Gradients gru_gradient(const Tensor& y, const Tensor& dy) {
  const std::vector<Tensor>& inputs = y->inputs;
  DType dtype = y.dtype();
  Tensor made[gru_slots], given[gru_slots];
  for (int64_t k = 0; k < gru_slots; ++k) made[k] = slot_of(y, k), given[k] = slot_of(dy, k);
  Tensor h_before = before_each(inputs[3], made[gru_h_slot]), dh;
  int64_t steps = y.dim(1);
  std::vector<Tensor> dgates(static_cast<size_t>(steps)), dstates(static_cast<size_t>(steps));
  Tensor none = zeros(widen(inputs[3]).shape(), widen(inputs[3]).dtype());
  for (int64_t t = steps; t-- > 0;) {
    auto of = [&](int64_t k) { return at_step(made[k], t); };
    auto more = [&](int64_t k) { return at_step(given[k], t); };
    Tensor r = of(reset_slot), z = of(update_slot), n = of(new_slot), m = of(state_slot);
    dh = plus(plus(more(gru_h_slot), dh), t + 1 == steps ? none : Tensor());
    Tensor dn = plus(dh * (1 - z), more(new_slot)) * (1 - square(n));
    Tensor dz = plus(dh * (at_step(h_before, t) - n), more(update_slot)) * z * (1 - z);
    Tensor dr = plus(dn * m, more(reset_slot)) * r * (1 - r);
    Tensor dm = plus(dn * r, more(state_slot));
    dgates[static_cast<size_t>(t)] = narrow_to(concat({dr, dz, dn}, 1), dtype);
    Tensor states = narrow_to(concat({dr, dz, dm}, 1), dtype);
    dstates[static_cast<size_t>(t)] = states;
    dh = dh * z + widen(matmul(states, inputs[1]));
  }
  Tensor all = rows(stack(dstates, 0));
  return {stack(dgates, 0), matmul(transpose(all), rows(h_before)),
          narrow_to(sum(widen(all), {.axes = {0}}), dtype), narrow_to(dh, dtype)};
}

const OpDef& gru_def = define({
    .name = "gru",
    .arity = 4,
    .doc = "r, z, n, the states' part of n, and h of every step, from gates, weight, bias and h",
    .infer = infer<gru_slots>,
    .gradient = gru_gradient,
    .decompose = unrolled_gru,
});

void check(std::string_view op, int64_t gate_count, const Tensor& gates, const Tensor& weight,
           const Tensor& h) {
  bool fits = gates.rank() == 3 && weight.rank() == 2 && h.rank() == 2 && gates.dim(0) > 0 &&
              gates.dim(2) == weight.dim(0) && weight.dim(0) == gate_count * weight.dim(1) &&
              h.dim(0) == gates.dim(1) && h.dim(1) == weight.dim(1);
  WEFT_CHECK(fits, "[{0}] needs gates[T, B, {1} H], weight[{1} H, H], h[B, H]. Got {2}, {3}, {4}.",
             op, gate_count, to_string(gates.shape()), to_string(weight.shape()),
             to_string(h.shape()));
  WEFT_CHECK(
      is_float(gates.dtype()) && gates.dtype() == weight.dtype() && gates.dtype() == h.dtype(),
      "[{}] gates, weight and states must share a floating point type. Got {}, {}, {}.", op,
      name(gates.dtype()), name(weight.dtype()), name(h.dtype()));
}
}  // namespace

LstmStates lstm(Arg gates, Arg weight, Arg h, Arg c) {
  CallSite here(gates.where);
  check("lstm", 4, gates.value, weight.value, h.value);
  WEFT_CHECK(c.value.type() == h.value.type(), "[lstm] c must be shaped as h, {}. Got {}.",
             to_string(h.value.type()), to_string(c.value.type()));
  Tensor all = make_node(lstm_def, {gates.value, weight.value, h.value, c.value});
  return {slot_of(all, h_slot), slot_of(all, c_slot)};
}

Tensor gru(Arg gates, Arg weight, Arg bias, Arg h) {
  CallSite here(gates.where);
  check("gru", 3, gates.value, weight.value, h.value);
  Type expected{weight.value.dtype(), {weight.value.dim(0)}};
  WEFT_CHECK(bias.value.type() == expected, "[gru] bias must be {}. Got {}.", to_string(expected),
             to_string(bias.value.type()));
  Tensor all = make_node(gru_def, {gates.value, weight.value, bias.value, h.value});
  return slot_of(all, gru_h_slot);
}
}  // namespace weft
