// Defines settings that offload to files everything that may be offloaded.
#pragma once

#include <filesystem>

#include "weft/ir/offload.h"

namespace weft::testing {

inline Offload in_files(std::vector<Category> categories, size_t least = 1) {
  return {.categories = std::move(categories),
          .folder = std::filesystem::temp_directory_path().string(),
          .least = least};
}
inline Offload all_in_files() {
  return in_files({Category::parameter, Category::optimizer_state, Category::gradient,
                   Category::activation, Category::buffer_state});
}

}  // namespace weft::testing
