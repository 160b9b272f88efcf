// Masks tokens (Devlin et al. 2019, "BERT", section 3.1, task 1).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/data/loader.h"

namespace weft::data {

struct MaskOptions {
  int64_t vocabulary = 0;           // random tokens are drawn from it
  int64_t mask = 0;                 // the token that stands for a hidden one
  double probability = 0.15;        // fraction of the tokens to predict, at least one
  std::optional<int64_t> pad = {};  // a token that no other is replaced by
};
// Returns the tokens of `source` (i64 [T]) with some to predict: 80 % of those read `mask`, 10 % a
// random token, 10 % themselves. Labels i64 [T] are the token where it is to be predicted, else
// ignored_label; tokens that `source` ignores are never chosen. Each epoch chooses others.
std::shared_ptr<const Source> masked(std::shared_ptr<const Source> source,
                                     const MaskOptions& options);

}  // namespace weft::data
