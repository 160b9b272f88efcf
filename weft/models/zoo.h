// Declares the models that come with weft.
#pragma once

#include <vector>

#include "weft/models/model.h"

namespace weft::models {

std::vector<ModelEntry> zoo();  // sorted by name

enum class Labels { of_tokens, any };  // labels that a model of tokens can predict
// Throws Error(usage) unless the task has inputs of this kind and at least one class. `name` is the
// model's.
void check_task(std::string_view name, InputKind kind, const TaskShape& task,
                Labels labels = Labels::of_tokens);

}  // namespace weft::models
