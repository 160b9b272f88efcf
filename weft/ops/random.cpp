// Defines random numbers: one primitive, and the distributions that derive from it. No op has side
// effects: the numbers are a function of seed, stream, step and element index
// (weft/base/numbers/philox.h), so that they can be rematerialized.
#include "weft/ops/random.h"

#include <numbers>

#include "weft/base/numbers/philox.h"
#include "weft/ir/axis_map.h"
#include "weft/ops/apply.h"

namespace weft {
namespace {
Type uniform_type(std::span<const Tensor> inputs, const Attrs& attrs) {
  for (const Tensor& input : inputs)
    WEFT_CHECK(input.type() == (Type{DType::i64, {}}), "[random] {} must be i64[]. Got {}.",
               &input == inputs.data() ? "the step" : "the part", to_string(input.type()));
  return {DType::f32, attrs.dims("shape")};
}
double uniform_flops(const Node& node) { return 20.0 * static_cast<double>(node.type.elements()); }
AxisMap uniform_axes(const Node& node) {
  AxisMap map(node);
  map.shape = "shape";
  map.has_place = true;
  for (int axis = 0; axis < node.type.shape.size(); ++axis)
    map.relate(node, {.size = node.type.shape[axis], .positional = true},
               {{AxisMap::of_result, axis}});
  return map;
}

const OpDef& random_uniform_def = define({
    .name = "random_uniform",
    .kind = OpKind::random,
    .doc = "f32 in [0, 1) of attrs shape, seed, stream and the i64 scalar step; attrs offset and "
           "strides make it a part of a larger one",
    .infer = uniform_type,
    .flops = uniform_flops,
    .axes = uniform_axes,
    .test = {.no_gradient = "its input is an integer"},
});
// Which part a rank draws is an operand, so that the plan of all ranks is one.
const OpDef& random_uniform_part_def = define({
    .name = "random_uniform_part",
    .kind = OpKind::random,
    .arity = 2,
    .doc = "random_uniform of the i64 scalars step and part, whose place in the larger one begins "
           "`every` elements behind that of the part before",
    .infer = uniform_type,
    .flops = uniform_flops,
    .axes = uniform_axes,
    .test = {.no_gradient = "its inputs are integers"},
});

// Returns uniform f32 numbers in [0, 1).
Tensor unit(const Shape& shape, const RandomKey& key, int64_t stream) {
  return make_node(random_uniform_def, {key.step},
                   {{"shape", shape}, {"seed", key.seed}, {"stream", stream}});
}

void check_probability(double probability, std::string_view op) {
  WEFT_CHECK(probability >= 0 && probability <= 1,
             "[{}] the probability must be in [0, 1]. Got {}.", op, probability);
}
}  // namespace

Value uniform_part(const Value& step, const Value& part, const Attrs& attrs, int64_t every) {
  Attrs own;
  for (const Attrs::Entry& entry : attrs.entries())
    if (entry.key != "every") own = own.with(entry);
  return make_node(random_uniform_part_def, {step, part}, own.with({"every", every}));
}

Tensor uniform(const Shape& shape, const RandomKey& key, double low, double high,
               std::source_location where) {
  CallSite here(where);
  WEFT_CHECK(low <= high, "[uniform] low must not exceed high. Got {} and {}.", low, high);
  Tensor u = unit(shape, key, key.stream);
  return low == 0 && high == 1 ? u : low + (high - low) * u;
}

Tensor normal(const Shape& shape, const RandomKey& key, double mean, double deviation,
              std::source_location where) {
  CallSite here(where);
  WEFT_CHECK(deviation >= 0, "[normal] the deviation must not be negative. Got {}.", deviation);
  Tensor u = 1.0 - unit(shape, key, key.stream);  // (0, 1], whose logarithm is finite
  Tensor v = unit(shape, key, second_stream(key.stream));
  Tensor standard = sqrt(-2.0 * log(u)) * cos(2 * std::numbers::pi * v);  // Box and Muller 1958
  return mean + deviation * standard;
}

Tensor bernoulli(const Shape& shape, const RandomKey& key, double probability,
                 std::source_location where) {
  CallSite here(where);
  check_probability(probability, "bernoulli");
  return unit(shape, key, key.stream) < probability;
}

// Returns the rank of each of `count` random keys; equal keys are ranked by their index. It
// compares all pairs.
Tensor permutation(int64_t count, const RandomKey& key, std::source_location where) {
  CallSite here(where);
  Tensor keys = unit({count}, key, key.stream);
  Shape square{count, count};
  Tensor mine = broadcast_to(unsqueeze(keys, 1), square), other = broadcast_to(keys, square);
  Tensor earlier = iota(square, 1, DType::i32) < iota(square, 0, DType::i32);
  Tensor before = logical_or(other < mine, logical_and(other == mine, earlier));
  return sum(cast(before, DType::i64), {.axes = {1}});
}

Tensor dropout(Arg x, double probability, const RandomKey& key) {  // Srivastava et al. 2014
  CallSite here(x.where);
  check_probability(probability, "dropout");
  if (probability == 0) return x.value;
  if (probability == 1) return zeros_like(x);
  Tensor kept = unit(x.value.shape(), key, key.stream) >= probability;
  return select(kept, x.value * (1 / (1 - probability)), 0.0);
}
}  // namespace weft
