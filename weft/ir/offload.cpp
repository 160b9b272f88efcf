#include "weft/ir/offload.h"

#include <algorithm>

namespace weft {

bool Offload::covers(Category category, size_t bytes) const {
  return bytes >= least && std::ranges::find(categories, category) != categories.end();
}

}  // namespace weft
