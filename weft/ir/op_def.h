// OpDef: everything weft knows of one operation, in one place.
//
// Primitives (elementwise, cast, reduce, movement, gather/scatter, matmul, conv, window, random)
// have no decomposition; backends and the code generator know them. Everything else is a composite:
// one expression of other ops. A backend's kernel for a composite is an override of that
// expression.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "weft/ir/value.h"

namespace weft {

enum class OpKind : uint8_t {
  leaf,         // input, variable, data, scalar, iota
  elementwise,  // one scalar operation per element (`scalar`), casts included
  reduce,       // over attr "axes", kept with extent 1 (argmax, argmin too)
  movement,     // reshape, permute, broadcast, slice, flip, pad, concat: no arithmetic
  gather,       // loads at indices from another value; scatter_add
  contraction,  // matmul, convolutions
  window,       // pooling
  random,       // a function of seed, stream, step and element index
  composite,    // has `decompose`
};

enum class LeafKind : uint8_t { none, input, variable, data, scalar, iota };

// Operations that libraries have kernels for, and what of them one computes.
enum class OpFamily : uint8_t { none, product, convolution, pooling, attention };
enum class Role : uint8_t {
  forward,
  statistics,       // what the gradient reads of the forward pass
  gradient,         // of all operands, from those alone
  backward,         // of all operands, from the result and the statistics, too
  input_gradient,   // of the first
  weight_gradient,  // of the second
};

// The scalar operations that code generators have instructions or formulas for, and passes know.
// Other functions of one number are named by OpDef::function alone.
enum class ScalarOp : uint8_t {
  none,
  identity,
  neg,
  abs,
  sign,
  exp,
  sqrt,
  rsqrt,
  tanh,
  floor,
  ceil,
  round,
  trunc,
  reciprocal,
  logical_not,
  is_nan,
  is_finite,
  cast,
  add,
  sub,
  mul,
  div,
  pow,
  maximum,
  minimum,
  remainder,
  floor_divide,
  atan2,
  round_stochastic,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  logical_and,
  logical_or,
  logical_xor,
  select,
};

struct AxisMap;
struct Placement;

using Gradients = std::vector<Value>;  // one per input; empty where there is none

// One row of the op tester. Inputs are drawn from [low, high] per input (the last pair repeats).
struct TestRow {
  double low = -2, high = 2;
  double second_low = 0, second_high = 0;  // used where they differ
  bool floats = true;                      // accepts floating point types
  bool integers = false;
  bool booleans = false;
  bool stored = false;  // accepts types that only store numbers (DTypeInfo::stored_only)
  bool differentiable = true;
  std::string_view no_gradient = {};  // the stated reason where there is none
};

struct OpDef {
  std::string_view name;
  OpKind kind = OpKind::composite;
  int arity = 1;              // -1: any number
  std::string_view doc = {};  // one line, for the reference page

  // Type rule. Null for elementwise ops: the first input's type, or `result_dtype` where set.
  Type (*infer)(std::span<const Value> inputs, const Attrs& attrs) = nullptr;
  // Gradient of each input, given this value and the gradient of it. Null: decompose and
  // differentiate that, or none at all (`test.no_gradient` says why).
  Gradients (*gradient)(const Value& y, const Value& dy) = nullptr;
  Value (*decompose)(const Node& node) = nullptr;

  LeafKind leaf = LeafKind::none;
  OpFamily family = OpFamily::none;
  Role role = Role::forward;
  ScalarOp scalar = ScalarOp::none;
  // An elementwise function of one float that the C library has by the op's name, or that a program
  // defines like those. It is the oracle, too. The CPU calls it and GPUs call their C's function of
  // that name, but where codegen/vector_math.cpp has a quicker formula.
  double (*function)(double x) = nullptr;
  bool predicate = false;             // yields bool
  ScalarOp combine = ScalarOp::none;  // of two elements, or sums of them, into one: reductions
  // Where a movement's elements are among those of its input, or nullopt where strides cannot say.
  // Null: it copies, from one operand and attr "value" (pad) or from several.
  std::optional<Placement> (*view)(const Node& node, const Placement& input) = nullptr;
  bool keeps_order = false;  // a view of the same elements in the same order, in another shape
  // The oracle of an elementwise op without `function`, in double; never derived from `scalar`.
  double (*oracle)(double a, double b, double c) = nullptr;

  // Null: of what it decomposes to, else one per element of the output (movement: 0).
  double (*flops)(const Node& node) = nullptr;
  // How its axes relate to those of its operands. Null: axis by axis of an elementwise operation,
  // and of a composite what its decomposition says (axis_map() in axis_map.h).
  AxisMap (*axes)(const Node& node) = nullptr;
  // Under mixed precision operands and result are of the narrow type; sums stay float32. A
  // contraction with attr "wide" yields those sums.
  bool narrows = false;
  TestRow test = {};
};

// An elementwise op, or a composite with an oracle, of these numbers.
double evaluate(const OpDef& def, double a, double b = 0, double c = 0);

// Adds a definition to the registry; the reference stays valid for the life of the process.
const OpDef& define(OpDef def);
const OpDef& op(std::string_view name);  // asserts that it exists
const OpDef* find_op(std::string_view name);
std::vector<const OpDef*> registered_ops();  // sorted by name

// Costs nothing: every kernel that wants one has its own.
inline bool is_constant(const Node& node) {
  return node.op->leaf == LeafKind::scalar || node.op->leaf == LeafKind::iota;
}
// Operands of these are read from memory, at places of the operation's own choosing.
inline bool reads_memory(const Node& node) {
  const bool copies = node.op->kind == OpKind::movement && node.op->view == nullptr;
  return copies || node.op->kind == OpKind::gather;
}
// Sums products of its operands, as matrix units do.
inline bool contracts(const OpDef& def) {
  return def.family == OpFamily::product || def.family == OpFamily::convolution;
}
// Of two operands, without sums that go on.
inline bool is_matrix_product(const Node& node) {
  return node.op->family == OpFamily::product && node.op->kind == OpKind::contraction;
}
// A view that reads elements of its input more than once.
inline bool is_broadcast(const Node& node) {
  return node.op->view != nullptr && node.inputs[0].elements() < node.type.elements();
}
// What a value is before it took another shape.
const Node* before_reshapes(const Value& value);

// The nodes that decompose() makes of a composite, without its inputs.
std::vector<Value> decomposition(const Node& composite);
double flops(const Node& node);  // of a composite: the sum over its decomposition

// The one way to make a node: checks arity, infers the type, records the origin. `apply` with Args
// takes the user's line from the first of them.
Value make_node(const OpDef& def, std::vector<Value> inputs, Attrs attrs = {},
                const Annotations& annotations = {});
// A leaf or a rebuilt node whose type is given.
Value make_leaf(const OpDef& def, Type type, Attrs attrs = {});
// The same operation on other inputs (passes); keeps attributes, annotations (but `composite`,
// whose operands are of the graph of before) and origin, infers the type anew.
Value rebuild(const Node& node, std::vector<Value> inputs);
// Notes of `now`, which stands for `before` in another graph, that it is the same composite, whose
// operands `current` gives there; where it gives an empty value, nothing.
void carry_composite(const Node& before, const Value& now,
                     const std::function<Value(const Value& operand)>& current);

}  // namespace weft
