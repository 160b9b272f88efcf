// Implements `weft plan MODEL`: plans the memory and the time that a published model takes to
// generate text, or an encoder for the forward pass of a batch.
#pragma once

#include <string>
#include <vector>

#include "weft/cli/models/inference.h"

namespace weft::cli {

// Returns a table, or JSON. Allocates neither weights nor cache. Throws Error(does_not_fit) where
// the device has less memory than the plan takes; Error(usage) and Error(data) as
// models::load_pretrained() does.
std::string plan_inference(const InferenceOptions& options, bool as_json);

struct InferencePlans {
  std::string text;  // a table and the refusals, or JSON
  bool any_fits = false;
};
// Plans for each of `devices`, whatever options.device is. The fastest devices come first; devices
// on which the model does not fit come last, with the reason.
InferencePlans plan_inference_on(const InferenceOptions& options,
                                 const std::vector<std::string>& devices, bool as_json);

}  // namespace weft::cli
