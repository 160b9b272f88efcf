// Wraps cuDNN's graph API (https://docs.nvidia.com/deeplearning/cudnn): a graph describes
// operations on tensors, heuristics rank the engines that support it, and an engine configured for
// a kind of GPU is an execution plan. The library is loaded on first use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/backends/gpu/device.h"
#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/shape.h"

namespace weft::cuda {
struct Stream;
}

namespace weft::cuda::cudnn {

using Descriptor = std::shared_ptr<void>;

bool is_installed();  // in a supported version

// Returns the properties of the current GPU, which execution plans depend on. Throws Error(device)
// if cuDNN is missing, too old, or does not support the GPU.
Descriptor properties_of_current_device();
// Returns the properties of a GPU, present or not, from cuDNN's serialization.
Descriptor properties_from(const std::string& json);

struct Tensor {
  int64_t id = 0;
  Descriptor descriptor;
  Shape shape;
};

// The values are those of cudnn_graph.h.
enum class Pointwise : int {
  add = 0,
  multiply = 1,
  divide = 6,
  subtract = 9,
  exponential = 13,
  logarithm = 15,
  index = 501,          // index of each element along an axis
  greater_equal = 303,  // result is boolean
  select = 601,         // third tensor ? first : second
};
enum class Reduction : int { sum = 0, maximum = 3 };
enum class Direction { forward, input_gradient, weight_gradient };

struct ConvAttributes {
  Dims stride, padding, dilation;  // one element for each spatial axis
  DType sums = DType::f32;
};

// EngineRules restricts the engines for a graph.
struct EngineRules {
  size_t workspace = 0;  // bytes at most
  bool exact = false;    // no tensor cores
};

// An Engine is a candidate that supports a graph.
struct Engine {
  Descriptor config;     // from heuristics, or the engine's default
  int64_t number = 0;    // cuDNN's index of the engine
  std::string notes;     // numerical and behaviour notes as text
  size_t workspace = 0;  // bytes
  std::string offence;   // why the rules forbid it; "": they allow it
  bool only_nondeterministic = false;
};

// An ExecutionPlan is an engine compiled for a graph. Copies share it but have their own addresses.
class ExecutionPlan {
 public:
  size_t workspace() const { return workspace_; }        // bytes
  const std::string& engine() const { return engine_; }  // number, notes and workspace as text
  std::string json() const;                              // cuDNN's serialization; "": not supported
  size_t rank() const { return rank_; }                  // among the allowed engines, best first
  // Returns the extent in bytes of each tensor in memory, in order.
  const std::vector<size_t>& bytes() const { return bytes_; }
  // Runs the plan on `stream`. `addresses` has the address of each tensor in memory, in order of
  // creation. Allocates only if the addresses differ from the last run's.
  void run(const Stream& stream, std::span<void* const> addresses, void* workspace) const;

 private:
  friend class Graph;
  Descriptor plan_;
  std::vector<Descriptor> made_of_;
  std::vector<size_t> bytes_;
  std::string engine_;
  std::vector<int64_t> ids_;  // ids of tensors in memory, then of constants
  std::shared_ptr<const std::vector<float>> constants_;  // host memory
  size_t workspace_ = 0, rank_ = 0;
  mutable Descriptor bound_;             // the variant pack
  mutable std::vector<void*> bound_to_;  // its addresses, then the workspace
};

class Graph {
 public:
  // Adds a tensor in memory, aligned to `alignment` bytes; strides are in elements.
  Tensor tensor(DType dtype, const Shape& shape, const Dims& strides, int64_t alignment);
  // Adds a virtual tensor, which exists only within a kernel; empty strides: row-major.
  Tensor between(DType dtype, const Shape& shape, const Dims& strides = {});
  Tensor constant(float value, int rank);

  // Adds a convolution, which computes one of the three tensors from the others, by `direction`:
  // x[N, C, H, W], weight[O, C / groups, KH, KW], y[N, O, OH, OW].
  void conv(Direction direction, const Tensor& x, const Tensor& weight, const Tensor& y,
            const ConvAttributes& attributes);
  void matmul(const Tensor& a, const Tensor& b, const Tensor& result);
  // Adds an elementwise operation of one to three inputs, which broadcast to the result.
  void pointwise(Pointwise mode, const std::vector<Tensor>& inputs, const Tensor& result,
                 int axis = -1);
  void reduce(Reduction mode, const Tensor& x, const Tensor& result);
  void reshape(const Tensor& x, const Tensor& result);  // same elements, other strides

  // Returns up to `most` plans in the order of cuDNN's heuristics, from `first_rank` on. Their
  // engines obey the rules, are deterministic (unless WEFT_CUDA_ALLOW=nondeterministic) and round
  // nothing before the float32 sums. Starts at the first plan if no engine has rank `first_rank`;
  // throws Error(device) with `what` if there is no such engine at all.
  std::vector<ExecutionPlan> plans(const Descriptor& properties, const EngineRules& rules,
                                   const std::string& what, size_t most,
                                   size_t first_rank = 0) const;

  // Returns all engines that heuristics name, best first, including those that the rules forbid.
  std::vector<Engine> engines(const Descriptor& properties, const EngineRules& rules) const;
  // Returns cuDNN's other engines for the graph, by number.
  std::vector<Engine> unnamed_engines(const Descriptor& properties, const EngineRules& rules) const;
  // Builds a plan. Throws Error(device) where the engine does not support it.
  ExecutionPlan plan(const Descriptor& properties, const Engine& engine) const;

  // Deserializes a plan for this graph from ExecutionPlan::json(); nullopt: cuDNN refuses it.
  std::optional<ExecutionPlan> plan_from(const Descriptor& properties,
                                         const std::string& json) const;

  // Returns the fastest plan by measurement on the device (WEFT_TUNE) for this graph and these
  // rules, else the first. It is built once for all launches of a device with the same graph and
  // rules, and cached on disk. The device's selection records its engine.
  ExecutionPlan select(gpu::Device& device, const EngineRules& rules,
                       const std::string& what) const;

 private:
  int64_t next_id();
  Descriptor finished() const;
  ExecutionPlan empty_plan() const;
  std::string key_of(size_t rank, const EngineRules& rules, const std::string& machine) const;
  ExecutionPlan read_or_build(const Descriptor& properties, const EngineRules& rules,
                              const std::string& what, size_t rank,
                              const std::string& machine) const;

  std::string text_;  // text of the graph, the key of its plans
  std::vector<Descriptor> operations_;
  std::vector<int64_t> in_memory_, constant_ids_;
  std::vector<size_t> bytes_;
  std::vector<float> constants_;
  int64_t count_ = 0;
};

}  // namespace weft::cuda::cudnn
