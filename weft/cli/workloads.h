// The workloads of `weft bench`: models, sizes and optimisers as bench/peers/README.md lists them,
// so that a figure stands beside those of other systems.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/device_memory.h"
#include "weft/models/model.h"
#include "weft/optim/optimizer.h"
#include "weft/tensor/compile.h"

namespace weft::cli {

struct WorkloadOptions {
  int64_t batch = 0, length = 0;  // rows; tokens or columns of a row
  StepOptions compile = {};
};

// A step on one batch, which is used again and again and lies where the step runs: numbers and
// labels by the formula of tests/reference/README.md, streams 1000 and 2000.
class Workload {
 public:
  virtual ~Workload() = default;
  double step();  // one step, to its end; its loss, 0 where there is none
  Executable& executable();
  double items() const { return items_; }
  virtual Model* model() { return nullptr; }  // null: it trains none

 protected:
  void compile(CompiledStep::Function function, const StepOptions& options);

  double items_ = 0;  // of a step

 private:
  std::unique_ptr<CompiledStep> compiled_;
  DeviceMemory* memory_ = nullptr;  // where the step runs
};

struct WorkloadKind {
  std::string_view name, doc, item;
  WorkloadOptions initial;  // what is not asked for; a length of 0 means that there is none
  std::unique_ptr<Workload> (*make)(const WorkloadOptions& options);
};
std::span<const WorkloadKind> workload_kinds();
bool is_workload(std::string_view name);
// Throws Error(usage) for a name that there is not.
const WorkloadKind& find_workload(std::string_view name);

// 0: as the workload's own. Throws Error(usage) for what it does not have.
WorkloadOptions workload_options(const WorkloadKind& kind, int64_t batch, int64_t length,
                                 Precision precision);
std::unique_ptr<Workload> make_workload(const WorkloadKind& kind, const WorkloadOptions& options);

}  // namespace weft::cli
