// Offload says which values a plan may keep in files instead of memory while no kernel needs them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "weft/ir/variable.h"

namespace weft {

struct Offload {
  // These are any of parameter, optimizer_state, gradient and activation. Variables of these
  // categories live in files; other values are offloaded until the peak fits the memory limit, or,
  // without a limit, as long as the peak falls.
  std::vector<Category> categories = {};
  std::string folder = ".";
  size_t least = size_t{64} << 10;  // bytes; moving smaller ones costs more than it frees

  bool covers(Category category, size_t bytes) const;
};

}  // namespace weft
