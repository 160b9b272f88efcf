// Masks tokens (Devlin et al. 2019, "BERT", section 3.1, task 1).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/data/loader.h"

namespace weft::data {

struct MaskOptions {
  int64_t vocabulary = 0;           // random tokens are drawn from it
  int64_t mask = 0;                 // id of the [MASK] token
  double probability = 0.15;        // fraction of tokens to predict; at least one token is
  std::optional<int64_t> pad = {};  // never drawn as a random token
};
// Returns the tokens of `source` (i64 [T]) with a fraction chosen for prediction: 80 % of the
// chosen tokens become `mask`, 10 % a random token, 10 % stay. Labels i64 [T] are the original
// token if it is chosen, else ignored_label; tokens that `source` ignores are never chosen. Each
// epoch chooses anew.
std::shared_ptr<const Source> masked(std::shared_ptr<const Source> source,
                                     const MaskOptions& options);

}  // namespace weft::data
