// A Runner runs a Net on tensors: it compiles a step for each set of input types, and for each
// value of the inputs that decide shapes.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "weft/onnx/net/net.h"
#include "weft/tensor/compile.h"

namespace weft::onnx {

class Runner {
 public:
  // The net outlives the runner.
  Runner(const Net& net, StepOptions options);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Returns the outputs, which stay valid as those of CompiledStep::run() do. Inputs are in the
  // order of the file. Throws as Net's call does, and Error(data) for an element that is no valid
  // index of the axis that it indexes.
  std::span<const Tensor> run(std::span<const Tensor> inputs);
  // Return the plan or the executable for inputs of these types. Throw Error(usage) where the
  // elements of an input decide shapes.
  PlanSummary plan(std::span<const Type> types);
  Executable& prepare(std::span<const Type> types);
  // Returns the executable for these inputs without running it. Throws as run() does.
  Executable& prepare(std::span<const Tensor> inputs);

 private:
  struct Captured;
  Captured& captured(std::span<const Tensor> inputs);
  Captured& prepared(std::span<const Tensor> inputs);
  Captured& without_static();

  const Net& net_;
  StepOptions options_;
  std::vector<std::unique_ptr<Captured>> steps_;
};

}  // namespace weft::onnx
