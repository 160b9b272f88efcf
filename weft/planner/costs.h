// Says where the memory and the work of a plan go: by category, and by module.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "weft/ir/plan.h"

namespace weft {

// Returns the bytes of the arena by category at the launch where most are live, then the
// fragmentation between them ("unused"). The sum is arena_bytes.
std::vector<std::pair<std::string, size_t>> memory_by_category(const Plan& plan);

// Returns the live bytes of the arena by category, during each launch.
std::map<Category, std::vector<double>> live_by_category(const Plan& plan);

struct ModuleCost {
  std::string module;  // "" for kernels that belong to no module
  double flops = 0, bytes = 0;
  size_t memory = 0;  // live in the arena at the peak
  int kernels = 0;
};
std::string module_prefix(const std::string& module, int depth);  // the first `depth` names
// Returns the cost of modules of at most `depth` names, in order of first appearance.
std::vector<ModuleCost> cost_by_module(const Plan& plan, int depth = 2);

}  // namespace weft
