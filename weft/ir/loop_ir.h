// The loop IR is one fused kernel as scalar code over one iteration space. It says what is computed
// for each position; a schedule (schedule.h) says how loops are ordered, split and vectorized, and
// emitters print both. Nothing here depends on LLVM, CUDA or OpenCL.
//
// Semantics. Positions run over the product of `axes`. An instruction has one value per position,
// and the same value at positions that differ only on axes outside its `axes` mask. A `reduce` has
// one value per position of the kept axes: it combines its argument over all reduced axes. So the
// code runs in phases: loop 0 over the reduced axes computes reductions whose arguments need no
// other reduction (phase 0), then loop 1 those that need them (phase 1), and so on; a store happens
// in the loop of its phase or, where its result does not span reduced axes, once after the loops. A
// store may also reduce *across*: its result spans reduced axes only, and reduces the values of all
// positions of the kept axes. A sum may be one of *exponentials*: of exp(args[0] - s), where s is
// the `largest` args[0], or 0 where that is not finite. The loop that finds the largest also
// computes the sum: relative to the largest so far, and rescaled when a larger one comes (online
// softmax, Milakov and Gimelshein 2018). Only GPUs use it.
//
// Values are boolean, integers, f32 or f64. f16 and bf16 exist in memory only; their arithmetic is
// f32 followed by `round_f16` or `round_bf16`. Other narrow floats are integers in memory, which
// formulas decode (float_formats.h). Integer arithmetic wraps. A product and its sum are contracted
// into fma only where a schedule says so (gpu_schedule.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/shape.h"

namespace weft::loop {

struct Axis {
  int64_t extent = 1;
  bool reduced = false;
};

// Affine is offset + sum over axes of strides[axis] * position[axis].
struct Affine {
  int64_t offset = 0;
  Dims strides;
};

enum class Op : uint8_t {
  constant,  // `number` or, for integers and booleans, `integer`
  index,     // `at`, as i64
  in_range,  // low <= `at` < high
  load,  // operand[at + args[0] * scale]; args[0] may be absent. Where args[1] is false: 0, without
         // a read
  reduce,  // `reduction` of args[0] over the reduced axes
  add,
  sub,
  mul,
  div,
  remainder,  // div and remainder of integers truncate; by zero they give 0
  fma,        // one rounding; floats
  scale,      // args[0] * 2^args[1], args[1] a whole number in [-252, 252]; f32
  intrinsic,  // `function` of C, which processors have as one instruction; floats
  neg,
  abs,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,  // comparisons; false on nan, except not_equal
  logic_and,
  logic_or,
  logic_xor,  // booleans and integers, bit by bit
  shift_left,
  shift_right,  // integers; shift_right is logical; args[1] < width
  select,       // args[0] ? args[1] : args[2]
  convert,      // by value; float to integer truncates and saturates; to boolean: != 0
  bitcast,      // f32 <-> i32, f64 <-> i64
  round_f16,
  round_bf16,  // to a representable value, from f32 or f64, half to even; f32
  philox,      // the top 24 bits of random word `at` + `scale` * args[1] for seed `integer`, stream
               // `low`, step args[0]; i32. Philox 4x32-10 (Salmon et al. 2011), laid out as in
               // weft/base/numbers/philox.h
  call,        // `function` of C, of f64 or f32 (Maths)
};

const char* name(Op op);

enum class Reduction : uint8_t { sum, prod, max, min, argmax, argmin };

struct Instruction {
  Op op = Op::constant;
  DType type = DType::f32;              // never f16 or bf16
  std::array<int, 3> args{-1, -1, -1};  // earlier instructions; -1: absent
  double number = 0;                    // constant
  int64_t integer = 0;                  // constant, philox
  Affine at;                            // index, in_range, load, philox
  int64_t low = 0, high = 0;            // in_range
  int operand = -1;                     // load
  DType storage = DType::f32;           // load: type in memory
  int64_t scale = 0;                    // load: elements per unit of args[0]; philox: of args[1]
  Reduction reduction = Reduction::sum;
  int largest = -1;  // reduce: for a sum of exponentials, the `max` of args[0], an instruction
  std::string_view function;  // intrinsic, call: C name, of a literal or an OpDef
  uint32_t axes = 0;          // bit per axis that the value varies over
  int phase = 0;              // length of the chain of reductions that it depends on
};

struct Store {
  int result = 0;
  int value = -1;
  DType storage = DType::f32;
  Affine at;
  uint32_t axes = 0;      // axes that the result spans
  int phase = 0;          // the loop that stores, for results that span a reduced axis
  bool in_place = false;  // aliases an operand
  bool across = false;    // `reduction` of the values over the kept axes
  Reduction reduction = Reduction::sum;
};

// Maths says how functions of f32 are computed: by formulas (vector_math.h), some of which use f64,
// or by calls of a maths library.
enum class Maths : uint8_t {
  own,     // formulas; for functions that have none, calls in f64
  called,  // calls in f32 in place of formulas in f32, else as `own`
  single   // formulas in f32, else calls in f32: nothing of f32 passes through f64
};

struct Kernel {
  Maths maths = Maths::own;
  std::vector<Axis> axes;  // at least one
  std::vector<Instruction> code;
  std::vector<Store> stores;
  int operands = 0, results = 0;

  int loops() const;                    // passes over the reduced axes; 1 where there are none
  uint32_t reduced_axes() const;        // mask
  int64_t extent(uint32_t mask) const;  // positions in the product of these axes
};

std::string to_text(const Kernel& kernel);

}  // namespace weft::loop
