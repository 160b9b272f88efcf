// Writes plans as JSON, and reads them. A plan in JSON is complete: read back, it has the same
// text (to_text), and its kernels compute the same.
#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "weft/ir/plan.h"

namespace weft::artifact {

// Writes a detached plan. Its variables become indices of `table`, which plans of one file share;
// those that the table lacks are added.
nlohmann::json to_json(const Plan& plan, std::vector<PlanVariable>& table);
// Reads a plan and verifies it: every index and every access is within its bounds, and the plan
// holds what verify() asks for. Throws io::JsonError with what is wrong.
Plan plan_of(const nlohmann::json& text, const std::vector<PlanVariable>& table);

nlohmann::json to_json(const std::vector<PlanVariable>& table);
std::vector<PlanVariable> variables_of(const nlohmann::json& text);

}  // namespace weft::artifact
