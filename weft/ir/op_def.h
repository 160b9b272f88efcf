// An OpDef holds everything that weft knows of one operation.
//
// Primitives (elementwise, cast, reduce, movement, gather/scatter, matmul, conv, window, random)
// have no decomposition; backends and the code generator know them. Everything else is a composite:
// one expression of other ops, which a backend's kernel may override.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
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
  random,       // counter-based: a function of seed, stream, step and element index
  collective,   // depends on the operands of other ranks (ops/collective.h)
  composite,    // has `decompose`
};

enum class LeafKind : uint8_t { none, input, variable, data, scalar, iota };

// OpFamily names operations that libraries have kernels for; Role, which part a node computes.
enum class OpFamily : uint8_t {
  none,
  product,
  convolution,
  pooling,
  attention,
  grouped_product,
};
enum class Role : uint8_t {
  forward,
  statistics,       // values of the forward pass that the gradient reads
  gradient,         // gradients of all operands, computed from the operands alone
  backward,         // gradients of all operands, computed also from the result and the statistics
  input_gradient,   // gradient of the first operand
  weight_gradient,  // gradient of the second operand
};

// ScalarOp names the scalar operations whose algebra passes and kernels use: rules of arithmetic,
// epilogues of products, sums of exponentials. All other operations are known by their OpDef alone.
enum class ScalarOp : uint8_t {
  none,
  identity,
  cast,
  neg,
  exp,
  logical_not,
  add,
  sub,
  mul,
  div,
  pow,
  maximum,
  minimum,
  logical_and,
  logical_or,
  select,
};

// Exact says for which types every kernel computes an elementwise operation to the bits of its
// double result, rounded once. Operations on other types are not folded.
enum class Exact : uint8_t { never, on_integers, always };

struct AxisMap;
struct Placement;
namespace loop {
struct Expr;
}

using Gradients = std::vector<Value>;  // one per input; empty where there is none

// A TestRow configures the op tester for one op. Inputs are drawn from [low, high]; inputs after
// the first use the second pair.
struct TestRow {
  double low = -2, high = 2;
  double second_low = 0, second_high = 0;  // used where they differ
  bool floats = true;                      // accepts floating point types
  bool integers = false;
  bool booleans = false;
  bool stored = false;  // accepts types that only store numbers (DTypeInfo::stored_only)
  bool differentiable = true;
  std::string_view no_gradient = {};  // why there is no gradient
};

struct OpDef {
  std::string_view name;
  OpKind kind = OpKind::composite;
  int arity = 1;              // -1: any number
  std::string_view doc = {};  // one line, for the reference page

  // Infers the type. Null means, for elementwise ops, the type of the operands (bool where
  // `predicate`).
  Type (*infer)(std::span<const Value> inputs, const Attrs& attrs) = nullptr;
  // Computes the gradient of each input from this value and its gradient. Null means that the
  // decomposition is differentiated, or that there is no gradient (`test.no_gradient` says why).
  Gradients (*gradient)(const Value& y, const Value& dy) = nullptr;
  Value (*decompose)(const Node& node) = nullptr;

  LeafKind leaf = LeafKind::none;
  OpFamily family = OpFamily::none;
  Role role = Role::forward;
  ScalarOp scalar = ScalarOp::none;
  // Computes the elementwise function of one float, from the C library or defined by a program; it
  // is also the oracle. Kernels call it (GPUs by the op's name in their C library) unless
  // codegen/vector_math.cpp has a faster formula.
  double (*function)(double x) = nullptr;
  // Returns the scalar code of an elementwise op without `function`, in the operands' type
  // (ir/scalar_code.h). Kernels round its value to the type of the result.
  loop::Expr (*expression)(std::span<const loop::Expr> x) = nullptr;
  bool representable = false;  // the value of `expression` needs no rounding
  bool reinterprets = false;   // the result has the operand's bits; there is no oracle but them
  bool commutes = false;       // f(a, b) = f(b, a)
  Exact exact = Exact::never;
  bool predicate = false;             // yields bool
  ScalarOp combine = ScalarOp::none;  // reductions: combines two elements or two partial results
  // A reduction to an index (argmax, argmin) returns the first position of the extreme that
  // `index_of` names, maximum or minimum. It has no `combine`, as indices alone do not say which of
  // two partial results is the extreme.
  ScalarOp index_of = ScalarOp::none;
  // Returns the placement of a movement's elements in its input's memory, or nullopt where strides
  // cannot express it. Null means that the movement copies: from one operand with attr "value"
  // (pad), or from several operands (concat).
  std::optional<Placement> (*view)(const Node& node, const Placement& input) = nullptr;
  bool preserves_order =
      false;  // a view of the same elements in the same order, with another shape
  // Computes the oracle, in double, of an elementwise op without `function`; the oracle is never
  // derived from `expression`. Where a double would lose bits of integers, `integer_oracle`
  // computes them; it wraps.
  double (*oracle)(double a, double b, double c) = nullptr;
  int64_t (*integer_oracle)(int64_t a, int64_t b, int64_t c) = nullptr;

  // Counts operations. Null: the sum over the decomposition or, without one, one per element of the
  // result (movement: 0).
  double (*flops)(const Node& node) = nullptr;
  // Returns how the result's axes relate to those of the operands; axis_map() says what null means.
  AxisMap (*axes)(const Node& node) = nullptr;
  // Under mixed precision, operands and result have the narrow type while sums stay float32. A
  // contraction with attr "wide" returns the float32 sums.
  bool narrows = false;
  TestRow test = {};
};

// Evaluates an elementwise op, or a composite with an oracle, on these numbers.
double evaluate(const OpDef& def, double a, double b = 0, double c = 0);

// Adds a definition to the registry; the reference stays valid for the life of the process.
const OpDef& define(OpDef def);
const OpDef& op(std::string_view name);  // asserts that it exists
const OpDef* find_op(std::string_view name);
std::vector<const OpDef*> registered_ops();  // sorted by name

// Scalars and iotas cost nothing: every kernel that reads one computes it.
inline bool is_constant(const Node& node) {
  return node.op->leaf == LeafKind::scalar || node.op->leaf == LeafKind::iota;
}
// Returns whether the operation reads its operands from memory at indices of its own choice.
inline bool reads_memory(const Node& node) {
  const bool copies = node.op->kind == OpKind::movement && node.op->view == nullptr;
  return copies || node.op->kind == OpKind::gather;
}
// Returns whether the operation sums products of its operands, as matrix units do.
inline bool contracts(const OpDef& def) {
  return def.family == OpFamily::product || def.family == OpFamily::convolution;
}
// Returns whether the node is a product of two operands, without a third that sums are added to.
inline bool is_matrix_product(const Node& node) {
  return node.op->family == OpFamily::product && node.op->kind == OpKind::contraction;
}
// Returns whether the node is a view that reads some elements of its input more than once.
inline bool is_broadcast(const Node& node) {
  return node.op->view != nullptr && node.inputs[0].elements() < node.type.elements();
}
// Returns the node under any views that only change the shape.
const Node* before_reshapes(const Value& value);

// Returns the nodes that decompose() makes of a composite, without its inputs, by ascending id: the
// last one is the result. Empty where the result is the first input.
std::vector<Value> decomposition(const Node& composite);
double flops(const Node& node);  // for a composite: the sum over its decomposition

// Makes a node: checks the arity, infers the type and records the origin. Every node but a leaf is
// made here or by rebuild().
Value make_node(const OpDef& def, std::vector<Value> inputs, Attrs attrs = {},
                const Annotations& annotations = {});
// Makes a leaf whose type is given.
Value make_leaf(const OpDef& def, Type type, Attrs attrs = {});
// Makes the same operation on other inputs. Keeps attributes, origin and annotations except
// `composite`, whose operands belong to the old graph, and infers the type again.
Value rebuild(const Node& node, std::vector<Value> inputs);
// Returns the value's operation on now(input) for each input, or the value itself where these are
// the inputs that it has.
template <class Now>
Value with_inputs(const Value& value, Now&& now) {
  std::vector<Value> inputs;
  inputs.reserve(value->inputs.size());
  bool is_same = true;
  for (const Value& input : value->inputs) {
    inputs.push_back(now(input));
    is_same = is_same && inputs.back().node() == input.node();
  }
  return is_same ? value : rebuild(*value.node(), std::move(inputs));
}
// Sets `now`, which stands for `before` in another graph, to be the same composite there. `current`
// returns the composite's operands in that graph; where it returns an empty value, no note is made.
void carry_composite(const Node& before, const Value& now,
                     const std::function<Value(const Value& operand)>& current);

}  // namespace weft
