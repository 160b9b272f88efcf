// Reads from a model, none of whose weights are there, what estimates need of it.
#pragma once

#include <string>

#include "weft/estimate/job.h"
#include "weft/models/model.h"

namespace weft::cli {

// Throws Error(usage) for a model that estimates do not know: one that is neither a decoder, nor an
// encoder, nor a network of convolutions on images.
estimate::Shape shape_of(const Model& model, const TaskShape& task, const std::string& name);

}  // namespace weft::cli
