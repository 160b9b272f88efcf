// Builds one fused kernel launch of a small graph, runs it compiled and with the reference kernels,
// and compares the results.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "weft/codegen/codegen.h"
#include "weft/codegen/gpu_prelude.h"
#include "weft/ir/loop_ir.h"
#include "weft/ir/plan.h"

namespace weft::test {

// A FusedLaunch is a launch that computes `outputs` from the graph's input and data leaves, through
// views of them. Composites are decomposed, and results are contiguous. It may also be the launch
// of one primitive with loops (weft/codegen/primitives.h).
struct FusedLaunch {
  explicit FusedLaunch(std::vector<Value> outputs);
  bool is_primitive() const;
  loop::Kernel loops(loop::GpuLanguage language) const;

  Launch launch;
  std::vector<Value> nodes;  // all nodes, inputs before users, for the reference
  // These are the leaves whose bytes hold the operands of the launch.
  std::vector<Value> operand_leaf;

 private:
  void take_operands_in_order();
};

// Returns each op that is a function of one number (OpDef::function), applied to x.
std::vector<Value> functions_of(const Value& x);

// With this CompiledKernel::work, a kernel runs on all threads, however small it is.
inline constexpr double worth_a_team = std::numeric_limits<double>::infinity();

// Computes an element of a leaf from its index.
using Fill = std::function<double(const Value& leaf, int64_t index)>;
double spread(const Value& leaf, int64_t index);  // in (-2, 2), different for each leaf

struct Run {
  std::vector<std::vector<double>> results;   // of the compiled kernel
  std::vector<std::vector<double>> expected;  // of the reference
  std::vector<std::vector<std::byte>> bytes;  // of the compiled kernel's results
};
// Runs the compiled kernel on 1, 2, 3 and 8 threads, however small it is, and checks that bits do
// not depend on their number.
Run run(const FusedLaunch& fused, const Fill& fill = spread, const CpuTarget& target = {});

// Checks every element of every result: |a - b| <= tolerance * max(|b|, min(1, root mean square of
// b)), with nan equal to nan. run() checks that bits do not depend on the number of threads.
void check(std::vector<Value> outputs, double tolerance = 0, const Fill& fill = spread);

// Checks many kernels, emitted as one program for an OpenCL device, and compiles them as CUDA C.
// Reports a missing device or NVRTC. If BACKEND is cuda or opencl, runs on that device alone, which
// must exist.
struct Case {
  std::vector<Value> outputs;
  double tolerance = 0;
  Fill fill = spread;
};
void check_on_gpu(const std::vector<Case>& cases);

// Selects what check() compiles for: this machine, or also narrower vectors and non-temporal stores
// of all results. If CODEGEN_TARGET is gpu or nvrtc, check() is check_on_gpu().
void set_other_targets(bool also);

}  // namespace weft::test
