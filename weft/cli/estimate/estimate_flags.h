// Declares the flags of `weft plan` that are for estimates.
#pragma once

#include <string>

namespace weft::cli {

struct EstimateFlags {
  std::string as;              // the program: "pytorch"
  std::string products;        // "f8"; "": by train.precision
  std::string method;          // "lora"; "": all weights train
  std::string deadline;        // of the run: "7d"; "": none
  std::string budget;          // USD of the run; "": none
  bool largest_batch = false;  // without accumulation, instead of the recipe's
};

}  // namespace weft::cli
