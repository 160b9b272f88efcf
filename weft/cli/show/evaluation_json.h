// Converts an evaluation to the JSON fields that `weft train --json` and `weft eval --json` print.
#pragma once

#include <nlohmann/json.hpp>

#include "weft/train/task/evaluation.h"

namespace weft::cli {

// Returns nulls where there was no evaluation (the run was stopped, or had ended before).
inline nlohmann::json to_json(const train::Evaluation& evaluation) {
  if (evaluation.count == 0)
    return {{"loss", nullptr}, {evaluation.score_name, nullptr}, {"count", 0}};
  nlohmann::json result = {{"loss", evaluation.loss},
                           {evaluation.score_name, evaluation.score},
                           {"count", evaluation.count}};
  for (const auto& [name, value] : evaluation.others) result[name] = value;
  return result;
}

}  // namespace weft::cli
