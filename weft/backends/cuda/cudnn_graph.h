// cuDNN's graph API (https://docs.nvidia.com/deeplearning/cudnn): operations on tensors are
// described as a graph, heuristics rank the engines that can run it, and an engine on one kind of
// GPU is an execution plan. The library is loaded when it is first needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/backends/gpu/device.h"
#include "weft/base/dtype.h"
#include "weft/base/shape.h"

namespace weft::cuda {
struct Stream;
}

namespace weft::cuda::cudnn {

using Descriptor = std::shared_ptr<void>;

bool is_installed();  // one that is not too old

// Of a GPU: all that plans are made from. Throws Error(device) where there is no cuDNN, or one that
// is too old, or that does not know such a GPU.
Descriptor properties_of_current_device();
// In cuDNN's words, of a GPU that need not be here.
Descriptor properties_from(const std::string& json);

struct Tensor {
  int64_t id = 0;
  Descriptor descriptor;
  Shape shape;
};

// Numbers of cudnn_graph.h.
enum class Pointwise : int {
  add = 0,
  multiply = 1,
  divide = 6,
  subtract = 9,
  exponential = 13,
  logarithm = 15,
  index = 501,          // of each element along an axis
  greater_equal = 303,  // yields truths
  select = 601,         // where the third tensor holds: the first, else the second
};
enum class Reduction : int { sum = 0, maximum = 3 };
enum class Direction { forward, input_gradient, weight_gradient };

struct ConvAttributes {
  Dims stride, padding, dilation;  // one number for each spatial axis
  DType sums = DType::f32;
};

// What engines for a graph may do.
struct EngineRules {
  size_t workspace = 0;  // bytes at most
  bool exact = false;    // without tensor cores
};

// One that can run a graph.
struct Engine {
  Descriptor config;     // as heuristics set it, or as it is by itself
  int64_t number = 0;    // cuDNN's of it
  std::string notes;     // what it does, in words
  size_t workspace = 0;  // bytes
  std::string offence;   // against the rules; "": it keeps them
  bool only_nondeterministic = false;
};

// An engine for a graph on one kind of GPU. Copies share it; each keeps its own addresses.
class ExecutionPlan {
 public:
  size_t workspace() const { return workspace_; }        // bytes
  const std::string& engine() const { return engine_; }  // number, notes and workspace, in words
  std::string json() const;                              // as cuDNN writes it down; "": it cannot
  size_t rank() const { return rank_; }  // among the engines that keep the rules, the best first
  // That each tensor in memory takes from its address on, in order.
  const std::vector<size_t>& bytes() const { return bytes_; }
  // On `stream`, with the addresses of the graph's tensors in memory in the order in which they
  // were made. Allocates only where addresses differ from those of the last run.
  void run(const Stream& stream, std::span<void* const> addresses, void* workspace) const;

 private:
  friend class Graph;
  Descriptor plan_;
  std::vector<Descriptor> made_of_;
  std::vector<size_t> bytes_;
  std::string engine_;
  std::vector<int64_t> ids_;                             // of tensors in memory, then of constants
  std::shared_ptr<const std::vector<float>> constants_;  // in memory of the host
  size_t workspace_ = 0, rank_ = 0;
  mutable Descriptor bound_;             // addresses as cuDNN takes them
  mutable std::vector<void*> bound_to_;  // addresses, then the workspace
};

class Graph {
 public:
  // In memory, from an address that is a multiple of `alignment` bytes; strides in elements.
  Tensor tensor(DType dtype, const Shape& shape, const Dims& strides, int64_t alignment);
  // Only within a kernel; empty strides: row-major.
  Tensor between(DType dtype, const Shape& shape, const Dims& strides = {});
  Tensor constant(float value, int rank);

  // What `direction` does not yield it reads: x[N, C, H, W], weight[O, C / groups, KH, KW],
  // y[N, O, OH, OW].
  void conv(Direction direction, const Tensor& x, const Tensor& weight, const Tensor& y,
            const ConvAttributes& attributes);
  void matmul(const Tensor& a, const Tensor& b, const Tensor& result);
  // `inputs`: one to three, that broadcast to the result.
  void pointwise(Pointwise mode, const std::vector<Tensor>& inputs, const Tensor& result,
                 int axis = -1);
  void reduce(Reduction mode, const Tensor& x, const Tensor& result);
  void reshape(const Tensor& x, const Tensor& result);  // same elements, otherwise strided

  // Plans of engines, the best first by the library's heuristics, at most `most`, from that rank
  // on: that yield the same bits in every run, round nothing on the way to float32 sums, and keep
  // the rules. With WEFT_CUDA_ALLOW=nondeterministic also those that may yield other bits. Where
  // none has such a rank, from the best on; throws Error(device) with `what` where there is none at
  // all.
  std::vector<ExecutionPlan> plans(const Descriptor& properties, const EngineRules& rules,
                                   const std::string& what, size_t most,
                                   size_t first_rank = 0) const;

  // All that heuristics name, the best first, those that break the rules among them.
  std::vector<Engine> engines(const Descriptor& properties, const EngineRules& rules) const;
  // The others that cuDNN has for the graph, by number.
  std::vector<Engine> unnamed_engines(const Descriptor& properties, const EngineRules& rules) const;
  // Throws Error(device) where that engine cannot be built.
  ExecutionPlan plan(const Descriptor& properties, const Engine& engine) const;

  // Reads a plan for this graph from what ExecutionPlan::json() wrote; nullopt: cuDNN refuses it.
  std::optional<ExecutionPlan> plan_from(const Descriptor& properties,
                                         const std::string& json) const;

  // The plan that a measurement on the device found to be the fastest of those for this graph and
  // these rules (WEFT_TUNE), else the first.
  // It is built once for all steps of a device that compute such a graph, by such rules, and kept
  // on disk. The device's selection names its engine.
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

  std::string text_;  // all that plans depend on
  std::vector<Descriptor> operations_;
  std::vector<int64_t> in_memory_, constant_ids_;
  std::vector<size_t> bytes_;
  std::vector<float> constants_;
  int64_t count_ = 0;
};

}  // namespace weft::cuda::cudnn
