// Implements `weft plan MODEL`: plans the memory and the time that a published model takes to
// generate text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/dtype.h"

namespace weft::cli {

struct InferencePlanOptions {
  std::string folder;               // folder of the model; files of weights need not be there
  std::optional<DType> dtype = {};  // type of weights and activations; absent: as config.json says
  int64_t batch = 1;                // sequences
  int64_t context = 0;              // most tokens of each; 0: as many as the model takes
  std::string device = "auto";      // as train.device; a GPU of the catalogue need not be here
};

// Returns a table, or JSON. Allocates neither weights nor cache. Throws Error(does_not_fit) where
// the device has less memory than the plan takes; Error(usage) and Error(data) as
// models::load_pretrained() does.
std::string plan_inference(const InferencePlanOptions& options, bool as_json);

struct InferencePlans {
  std::string text;  // a table and the refusals, or JSON
  bool any_fits = false;
};
// Plans for each of `devices`, whatever options.device is. The fastest come first; those on which
// the model does not fit come last, with the reason.
InferencePlans plan_inference_on(const InferencePlanOptions& options,
                                 const std::vector<std::string>& devices, bool as_json);

}  // namespace weft::cli
