// Makes one fused step of a small graph, runs it compiled and by the reference kernels, and
// compares.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "weft/codegen/codegen.h"
#include "weft/codegen/gpu_prelude.h"
#include "weft/codegen/loop_ir.h"
#include "weft/ir/plan.h"

namespace weft::test {

// A step that computes `outputs` from the graph's input and data leaves (through views of them).
// Composites are decomposed. Results lie row-major. Or the step of one primitive that has loops
// (weft/codegen/primitives.h).
struct FusedStep {
  explicit FusedStep(std::vector<Value> outputs);
  bool is_primitive() const;
  loop::Kernel loops(loop::GpuLanguage language) const;

  Step step;
  std::vector<Value> nodes;  // everything, inputs before users, for the reference
  // The leaf whose bytes each operand of the step lies in.
  std::vector<Value> operand_leaf;

 private:
  void take_operands_in_order();
};

// Each op that is a function of one number (OpDef::function), of x.
std::vector<Value> functions_of(const Value& x);

// A kernel whose CompiledKernel::work is this runs on all threads, however small it is.
inline constexpr double worth_a_team = std::numeric_limits<double>::infinity();

// Fills of leaves: element index -> value.
using Fill = std::function<double(const Value& leaf, int64_t index)>;
double spread(const Value& leaf, int64_t index);  // in (-2, 2), different for each leaf

struct Run {
  std::vector<std::vector<double>> results;   // of the compiled kernel
  std::vector<std::vector<double>> expected;  // of the reference
  std::vector<std::vector<std::byte>> bytes;  // of the compiled kernel's results
};
// Runs the compiled kernel on 1, 2, 3 and 8 threads, however small it is, and checks that bits do
// not depend on their number.
Run run(const FusedStep& fused, const Fill& fill = spread, const CpuTarget& target = {});

// Checks every element of every result: |a - b| <= tolerance * max(|b|, the root mean square of b,
// 1 at most), nan equal to nan. Bits do not depend on the number of threads: see run().
void check(std::vector<Value> outputs, double tolerance = 0, const Fill& fill = spread);

// The same of many kernels, printed into one program for an OpenCL device; CUDA C of them compiles
// for every architecture. Says so where there is no device, or no NVRTC. With BACKEND=cuda or
// opencl in the environment, that device alone, which must be there.
struct Case {
  std::vector<Value> outputs;
  double tolerance = 0;
  Fill fill = spread;
};
void check_on_gpu(const std::vector<Case>& cases);

// What check() compiles for: this machine, or also narrower vectors and results that all go past
// the caches. With CODEGEN_TARGET=gpu or nvrtc in the environment check() is check_on_gpu().
void set_other_targets(bool also);

}  // namespace weft::test
