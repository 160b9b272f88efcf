// The models that come with weft.
#pragma once

#include <vector>

#include "weft/models/model.h"

namespace weft::models {

std::vector<ModelEntry> zoo();

// Throws Error(usage) unless the task has inputs of this kind and at least one class. `name` is the
// model's.
void check_task(std::string_view name, InputKind kind, const TaskShape& task);

}  // namespace weft::models
