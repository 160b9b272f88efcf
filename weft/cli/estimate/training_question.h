// Turns a recipe and the flags of `weft plan --as` into a question to estimates.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weft/cli/estimate/training_estimate.h"

namespace weft::train {
struct Experiment;
}

namespace weft::cli {

// Returns a program by its name in --as; PyTorch's on one device is another than on several. Throws
// Error(usage) for an unknown name.
const estimate::Program& find_program(const std::string& name, int64_t devices);

struct Method {
  std::string_view name;
  double frozen_bytes;  // of a weight that does not train; 0: all weights train
};
std::span<const Method> methods();
void set_method(estimate::TrainingJob& job, const Method& method);

// Throws Error(usage) for an unknown type of products or method.
estimate::TrainingQuestion question_of(const train::Experiment& experiment,
                                       const estimate::Shape& shape, const EstimateFlags& flags,
                                       const estimate::Program& program, const DevicesOn& on);

// Returns the figure without which nothing can be said of so many devices; "" if there is none.
std::string missing_figure(const DeviceModel& model, estimate::Number products, int64_t count);

// Returns the price that the recipe has, or else the least of the catalogue's.
HourPrice price_of(const DeviceModel& model, const train::Recipe& recipe);

}  // namespace weft::cli
