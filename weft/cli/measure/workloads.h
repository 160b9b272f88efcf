// Declares the workloads of `weft bench`: models, sizes and optimizers as in bench/peers/README.md,
// so that figures are comparable with other systems.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/memory/device_memory.h"
#include "weft/models/model.h"
#include "weft/optim/optimizer.h"
#include "weft/tensor/compile.h"

namespace weft::cli {

struct WorkloadOptions {
  int64_t batch = 0, length = 0;  // rows; tokens or columns of a row
  StepOptions compile = {};
};

// A Workload runs steps on one batch, which is reused and stays in the memory of the device; its
// numbers and labels follow the formula of tests/reference/README.md, streams 1000 and 2000.
class Workload {
 public:
  virtual ~Workload() = default;
  double step();  // runs to completion; returns the loss, 0 if the workload has none
  Executable& executable();
  double items() const { return items_; }
  virtual Model* model() { return nullptr; }  // null: trains no model

 protected:
  void compile(CompiledStep::Function function, const StepOptions& options);

  double items_ = 0;  // per step

 private:
  std::unique_ptr<CompiledStep> compiled_;
  DeviceMemory* memory_ = nullptr;
};

struct WorkloadKind {
  std::string_view name, doc, item;
  WorkloadOptions initial;  // defaults; a length of 0: the workload has none
  std::unique_ptr<Workload> (*make)(const WorkloadOptions& options);
};
std::span<const WorkloadKind> workload_kinds();
bool is_workload(std::string_view name);
// Throws Error(usage) for an unknown name.
const WorkloadKind& find_workload(std::string_view name);

// Resolves options; 0 selects the workload's default. Throws Error(usage) for options that the
// workload does not have.
WorkloadOptions workload_options(const WorkloadKind& kind, int64_t batch, int64_t length,
                                 Precision precision);
std::unique_ptr<Workload> make_workload(const WorkloadKind& kind, const WorkloadOptions& options);

}  // namespace weft::cli
