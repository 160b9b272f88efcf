// Tests what arithmetic, products, movement and random numbers refuse.
#include "tests/ops/refusals.h"
#include "weft/ops/autodiff.h"

using namespace weft;
using namespace weft::testing;
using enum DType;

TEST_CASE("activations refuse unsupported types and options") {
  const Value x = zeros({2, 4}), counts = zeros({2, 4}, i64);
  const std::string floats = " needs a floating point tensor. Got i64. Hint: cast it first.";
  check_calls({
      {"[sigmoid]" + floats, [&] { sigmoid(counts); }},
      {accepted, [&] { sigmoid(x); }},
      {"[relu6]" + floats, [&] { relu6(counts); }},
      {accepted, [&] { relu6(x); }},
      {"[relu] needs numbers. Got bool.", [] { relu(zeros({2}, boolean)); }},
      {accepted, [&] { relu(counts); }},
      {"[celu] alpha must not be 0.", [&] { celu(x, 0); }},
      {accepted, [&] { celu(x, 1); }},
      {accepted, [&] { celu(x, -1); }},
      {"[glu]" + floats, [&] { glu(counts); }},
      {"[glu] halves axis 1, whose extent must be even. Got 3.", [] { glu(zeros({2, 3})); }},
      {accepted, [&] { glu(x); }},
  });
}

TEST_CASE("operands that neither broadcast nor share a type are refused") {
  const Value two = zeros({2}), three = zeros({3}), doubles = zeros({2}, f64);
  check_calls({
      {"[add] shapes do not broadcast. Got [2] and [3]: axis 0 has 2 and 3.",
       [&] { return two + three; }},
      {"[add] shapes do not broadcast. Got [4, 1, 2] and [3]: axis 2 has 2 and 3.",
       [&] { return zeros({4, 1, 2}) + three; }},
      {"[add] shapes do not broadcast. Got [3] and [4, 1, 2]: axis 2 has 3 and 2.",
       [&] { return three + zeros({4, 1, 2}); }},
      {accepted, [&] { return three + three; }},
      {accepted, [&] { return three + zeros({1}); }},
      {accepted, [&] { return zeros({1}) + three; }},
      {"[add] dtypes differ. Got f32 and f64. Hint: cast(x, DType::f64).",
       [&] { return two + doubles; }},
      {"[add] dtypes differ. Got f64 and f32. Hint: cast(x, DType::f64).",
       [&] { return doubles + two; }},
      {"[sum] an axis is named twice. Got [1, 0, -1].",
       [] { sum(zeros({2, 3}), {.axes = {1, 0, -1}}); }},
      {accepted, [] { sum(zeros({2, 3}), {.axes = {1, 0}}); }},
      {"[clamp] low must not exceed high. Got 2 and 1.", [&] { clamp(two, 2, 1); }},
      {accepted, [&] { clamp(two, 1, 1); }},
  });
}

TEST_CASE("select and stochastic rounding refuse operands of other types") {
  const Value x = zeros({2}), longer = zeros({3}), doubles = zeros({2}, f64);
  const Value flags = zeros({2}, boolean);
  check_calls({
      {"[select] the condition must be bool. Got i32.", [&] { select(zeros({2}, i32), x, x); }},
      {accepted, [&] { select(flags, x, 0); }},
      {"[round_stochastic] takes f32 values and as much f32 noise. Got f64[2] and f64[2].",
       [&] { round_stochastic(doubles, doubles); }},
      {accepted, [&] { round_stochastic(x, x); }},
  });
  const std::string rounds =
      "[round_stochastic] takes f32 values and as much f32 noise. Got f32[2]";
  const std::string differ = "[select] operands differ in type. Got ";
  check_nodes({
      {differ + "bool[2], f32[2] and f64[2].", [&] { node("select", {flags, x, doubles}); }},
      {differ + "bool[2], f32[2] and f32[3].", [&] { node("select", {flags, x, longer}); }},
      {differ + "bool[2], f32[3] and f32[3].", [&] { node("select", {flags, longer, longer}); }},
      {rounds + " and f32[3].", [&] { node("round_stochastic", {x, longer}); }},
      {rounds + " and f64[2].", [&] { node("round_stochastic", {x, doubles}); }},
  });
}

TEST_CASE("a gradient without a seed requires one floating-point element") {
  auto grad = [](const Value& y, const Value& seed) { gradients(y, std::vector{y}, seed); };
  check_nodes({
      {"[grad] only floating point values have gradients. Got i64[].",
       [&] { grad(scalar(0, i64), {}); }},
      {"[grad] the loss must have one element. Got f32[2]. Hint: mean(loss).",
       [&] { grad(zeros({2}), {}); }},
      {"[grad] the loss must have one element. Got f32[0]. Hint: mean(loss).",
       [&] { grad(zeros({0}), {}); }},
      {accepted, [&] { grad(zeros({1}), {}); }},
      {accepted, [&] { grad(zeros({2}), ones({2})); }},
  });
}

TEST_CASE("gathers and scatters refuse mismatched indices and updates") {
  const Value x = zeros({5, 4}), deep = zeros(Dims::filled(max_rank, 1));
  const Value indices = zeros({2, 3}, i32), fractions = zeros({2, 3});
  const std::string integers = " indices must be integers. Got f32. Hint: cast them.";
  check_calls({
      {"[gather] rank is at most 8. Got [1, 1, 1, 1, 1, 1, 1, 1] at indices [2, 3].",
       [&] { gather(deep, indices); }},
      {accepted, [&] { gather(deep, arange(2)); }},
      {"[gather]" + integers, [&] { gather(x, fractions); }},
      {"[scatter_add]" + integers, [&] { scatter_add(x, fractions, zeros({2, 3, 4})); }},
      {"[first_position]" + integers, [&] { first_position(fractions, 5); }},
      {"[one_hot]" + integers, [&] { one_hot(fractions, 5); }},
      {accepted, [&] { one_hot(indices, 5); }},
      {"[scatter_add] needs an axis to add along. Got a scalar.",
       [&] { scatter_add(scalar(0), indices, fractions); }},
      {accepted, [&] { scatter_add(zeros({5}), indices, fractions); }},
      {"[scatter_add] types differ. Got f64 into f32.",
       [&] { scatter_add(x, indices, zeros({2, 3, 4}, f64)); }},
      {"[scatter_add] updates must have shape [2, 3, 4]. Got [2, 3, 5].",
       [&] { scatter_add(x, indices, zeros({2, 3, 5})); }},
      {accepted, [&] { scatter_add(x, indices, zeros({2, 3, 4})); }},
      {"[first_position] rows must be at least 0. Got -1.", [&] { first_position(indices, -1); }},
      {accepted, [&] { first_position(indices, 0); }},
      {"[embedding] the weight is [vocabulary, width]. Got [5].",
       [&] { embedding(indices, zeros({5})); }},
      {"[embedding] the weight is [vocabulary, width]. Got [5, 4, 3].",
       [&] { embedding(indices, zeros({5, 4, 3})); }},
      {accepted, [&] { embedding(indices, x); }},
  });
}

TEST_CASE("constants require as many elements and bytes as their type") {
  auto list = [](size_t count) { constant(std::vector<double>(count), {2}, f32); };
  auto bytes = [](size_t count) { from_buffer(Buffer::allocate(count), {f32, {2}}); };
  check_calls({
      {"[constant] f32[2] has 2 elements. Got 1.", [&] { list(1); }},
      {"[constant] f32[2] has 2 elements. Got 3.", [&] { list(3); }},
      {accepted, [&] { list(2); }},
  });
  check_nodes({
      {"[from_buffer] f32[2] needs 8 bytes. Got 7.", [&] { bytes(7); }},
      {accepted, [&] { bytes(8); }},
      {accepted, [&] { bytes(9); }},
  });
}

TEST_CASE("products refuse mismatched operands") {
  const Value a = zeros({2, 3}), b = zeros({3, 4}), vector = zeros({3}), number = scalar(0);
  const std::string axes = "[matmul] operands must have at least one axis. Got ";
  const std::string inner = "[matmul] inner extents must match. Got ";
  const std::string unlike = " do not match. Hint: x is [.., in], weight [out, in].";
  check_calls({
      {axes + "f32[] and f32[3].", [&] { matmul(number, vector); }},
      {axes + "f32[3] and f32[].", [&] { matmul(vector, number); }},
      {accepted, [&] { matmul(vector, vector); }},
      {"[matmul] a float's other factor is a float or an integer of 8 bits. Got f32 and i32. Hint: "
       "cast(x, DType::f32).",
       [&] { matmul(a, zeros({3, 4}, DType::i32)); }},
      {inner + "[2, 3] and [2, 3]: 3 and 2.", [&] { matmul(a, a); }},
      {inner + "[3] and [4]: 3 and 4.", [&] { matmul(vector, zeros({4})); }},
      {accepted, [&] { matmul(a, b); }},
      {"[matmul] shapes do not broadcast. Got [2] and [5]: axis 0 has 2 and 5.",
       [&] { matmul(zeros({2, 1, 3}), zeros({5, 3, 1})); }},
      {accepted, [&] { matmul(zeros({2, 1, 3}), zeros({1, 3, 1})); }},
      {"[linear] x[2, 3] and weight[3]" + unlike, [&] { linear(a, vector); }},
      {"[linear] x[2, 3] and weight[1, 3, 2]" + unlike, [&] { linear(a, zeros({1, 3, 2})); }},
      {"[linear] x[] and weight[2, 3]" + unlike, [&] { linear(number, a); }},
      {"[linear] x[2, 3] and weight[3, 4]" + unlike, [&] { linear(a, b); }},
      {accepted, [&] { linear(vector, a); }},
  });
  auto add = [](const Type& sums, DType dtype) {
    node("matmul_add", {zeros(sums.shape, sums.dtype), zeros({2, 3}, dtype), zeros({3, 4}, dtype)});
  };
  const std::string sums = "[matmul_add] sums must be ";
  check_nodes({
      {sums + "f32[2, 4]. Got f32[2, 3].", [&] { add({f32, {2, 3}}, f32); }},
      {sums + "f32[2, 4]. Got f16[2, 4].", [&] { add({f16, {2, 4}}, f16); }},
      {accepted, [&] { add({f32, {2, 4}}, f16); }},
      {accepted, [&] { add({i32, {2, 4}}, i32); }},
      {"[matmul] needs numbers. Got bool.", [&] { add({f32, {2, 4}}, boolean); }},
  });
}

TEST_CASE("movement operations refuse invalid shapes, orders and ranges") {
  const Value six = zeros({6}), x = zeros({2, 3});
  const std::string order = "[permute] the order must name every axis once. Got ";
  const std::string range = " is out of range for axis 0 of extent 6.";
  check_calls({
      {"[reshape] only one extent may be -1. Got [-1, -1].", [&] { reshape(six, {-1, -1}); }},
      {"[reshape] [6] does not divide into [-1, 0].", [&] { reshape(six, {-1, 0}); }},
      {"[reshape] [6] does not divide into [-1, -2].", [&] { reshape(six, {-1, -2}); }},
      {"[reshape] [6] does not divide into [-1, 4].", [&] { reshape(six, {-1, 4}); }},
      {accepted, [&] { reshape(six, {-1, 1}); }},
      {"[reshape] element counts differ. Got [6] (6) to [2, 2] (4).",
       [&] { reshape(six, {2, 2}); }},
      {accepted, [&] { reshape(six, {2, 3}); }},
      {order + "[0, 0] for rank 2.", [&] { permute(x, {0, 0}); }},
      {order + "[0] for rank 2.", [&] { permute(x, {0}); }},
      {accepted, [&] { permute(x, {-1, 0}); }},
      {"[broadcast_to] [2, 3] has a higher rank than [3].", [&] { broadcast_to(x, {3}); }},
      {"[broadcast_to] [6] does not broadcast to [2, 3]: axis 1.",
       [&] { broadcast_to(six, {2, 3}); }},
      {accepted, [&] { broadcast_to(x, {4, 2, 3}); }},
      {accepted, [&] { broadcast_to(zeros({1, 3}), {2, 3}); }},
      {"[slice] step must be positive. Got 0. Hint: flip reverses.",
       [&] { slice(six, 0, 0, 6, 0); }},
      {accepted, [&] { slice(six, 0, 0, 6, 1); }},
      {"[slice] -7:6" + range, [&] { slice(six, 0, -7, 6); }},
      {accepted, [&] { slice(six, 0, -6, 6); }},
      {"[slice] 3:2" + range, [&] { slice(six, 0, 3, 2); }},
      {accepted, [&] { slice(six, 0, 3, 3); }},
      {"[slice] 0:7" + range, [&] { slice(six, 0, 0, 7); }},
      {accepted, [&] { slice(six, 0, 6, 6); }},
  });
}

TEST_CASE("padding, joining and splitting refuse mismatched arguments") {
  const Value six = zeros({6}), x = zeros({2, 3});
  auto joined = [](const Value& a, const Value& b, int axis) {
    return Refusal{fmt::format("[concat] tensors differ outside axis {}. Got {} and {}.", axis,
                               to_string(a.type()), to_string(b.type())),
                   [=] { concat({a, b}, axis); }};
  };
  const std::string sizes = "[split] sizes must be at least 0 and sum to 6, the extent of axis 0. ";
  check_calls({
      {"[pad] one pair per axis. Got 1 and 2 for rank 2.", [&] { pad(x, {1}, {1, 1}); }},
      {"[pad] one pair per axis. Got 2 and 1 for rank 2.", [&] { pad(x, {1, 1}, {1}); }},
      {"[pad] amounts must not be negative. Got [0, -1] and [1, 1].",
       [&] { pad(x, {0, -1}, {1, 1}); }},
      {"[pad] amounts must not be negative. Got [1, 1] and [-1, 0].",
       [&] { pad(x, {1, 1}, {-1, 0}); }},
      {accepted, [&] { pad(x, {0, 1}, {1, 0}); }},
      {"[concat] needs at least one tensor.", [] { concat(std::vector<Value>(), 0); }},
      joined(x, zeros({2, 3}, f64), 0),
      joined(x, zeros({2}), 0),
      joined(x, zeros({2, 4}), 0),
      joined(x, zeros({4, 3}), 1),
      {accepted, [&] { concat({x, zeros({4, 3})}, 0); }},
      {accepted, [&] { concat({x}, 0); }},
      {"[stack] needs at least one tensor.", [] { stack(std::vector<Value>(), 0); }},
      {"[stack] tensors differ. Got f32[2, 3] and f32[6].", [&] { stack({x, six}, 0); }},
      {"[stack] tensors differ. Got f32[6] and f64[6].", [&] { stack({six, zeros({6}, f64)}, 0); }},
      {accepted, [&] { stack({x, x}, 2); }},
      {"[split] size must be positive. Got 0.", [&] { split(six, 0, 0); }},
      {accepted, [&] { split(six, 1, 0); }},
      {sizes + "Got [3, 2].", [&] { split(six, {3, 2}, 0); }},
      {sizes + "Got [7, -1].", [&] { split(six, {7, -1}, 0); }},
      {accepted, [&] { split(six, {6, 0}, 0); }},
      {"[squeeze] axis 1 has extent 3, not 1.", [&] { squeeze(x, 1); }},
      {"[squeeze] axis 0 has extent 0, not 1.", [] { squeeze(zeros({0}), 0); }},
      {accepted, [] { squeeze(zeros({1, 3}), 0); }},
  });
}

TEST_CASE("random functions refuse invalid keys, ranges and probabilities") {
  const Value x = zeros({2});
  const RandomKey key{.step = scalar(0, i64)};
  const std::string step = "[random] the step must be i64[]. Got ";
  const std::string probability = " the probability must be in [0, 1]. Got ";
  check_calls({
      {step + "f32[].", [] { uniform({2}, {.step = scalar(0)}); }},
      {step + "i64[1].", [] { uniform({2}, {.step = zeros({1}, i64)}); }},
      {"[uniform] low must not exceed high. Got 3 and 1.", [&] { uniform({2}, key, 3, 1); }},
      {accepted, [&] { uniform({2}, key, 2, 2); }},
      {"[normal] the deviation must not be negative. Got -1.", [&] { normal({2}, key, 0, -1); }},
      {accepted, [&] { normal({2}, key, 0, 0); }},
      {"[bernoulli]" + probability + "-0.5.", [&] { bernoulli({2}, key, -0.5); }},
      {"[bernoulli]" + probability + "1.5.", [&] { bernoulli({2}, key, 1.5); }},
      {accepted, [&] { bernoulli({2}, key, 0); }},
      {accepted, [&] { bernoulli({2}, key, 1); }},
      {"[dropout]" + probability + "1.5.", [&] { dropout(x, 1.5, key); }},
      {accepted, [&] { dropout(x, 1, key); }},
  });
}

TEST_CASE("reductions refuse too few elements") {
  const Value none = zeros({0, 2}), two = zeros({2});
  check_calls({
      {"[max] axis 0 is empty. Got shape [0, 2].", [&] { max(none); }},
      {"[argmin] axis 0 is empty. Got shape [0, 2].", [&] { argmin(none, 0); }},
      {"[argmin] axis 2 is out of range for rank 2.", [&] { argmin(none, 2); }},
      {accepted, [&] { max(none, {.axes = {1}}); }},
      {accepted, [] { max(zeros({1})); }},
      {accepted, [&] { sum(none); }},
      {accepted, [&] { prod(none); }},
      {"[variance] needs more elements than its correction, 2. Got shape [2].",
       [&] { variance(two, {}, 2); }},
      {accepted, [&] { variance(two, {}, 1); }},
  });
}
