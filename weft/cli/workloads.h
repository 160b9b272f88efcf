// The workloads of `weft bench`: models, sizes and optimisers as bench/peers/README.md lists them,
// so that a figure stands beside those of other systems.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/models/model.h"
#include "weft/optim/optimizer.h"
#include "weft/tensor/compile.h"

namespace weft::cli {

struct WorkloadOptions {
  int64_t batch = 0, length = 0;  // rows; tokens or columns of a row
  CompileOptions compile = {};
};

// A step on one batch, which is used again and again: numbers and labels by the formula of
// tests/reference/README.md, streams 1000 and 2000.
class Workload {
 public:
  virtual ~Workload() = default;
  double step();  // one step; its loss, 0 where there is none
  Executable& executable();
  double items() const { return items_; }
  virtual const Model* model() const { return nullptr; }  // null: it trains none

 protected:
  std::vector<Tensor> inputs_;
  std::unique_ptr<CompiledStep> compiled_;
  double items_ = 0;      // of a step
  bool has_loss_ = true;  // the first result
};

struct WorkloadKind {
  std::string_view name, doc, item;
  WorkloadOptions initial;  // what is not asked for; a length of 0 means that there is none
  std::unique_ptr<Workload> (*make)(const WorkloadOptions& options);
};
std::span<const WorkloadKind> workload_kinds();

}  // namespace weft::cli
