// Finds, lists and removes the folders of a run's checkpoints, but for those that hold files of the
// user's. checkpoint.cpp writes and reads what is in one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::train {

// Every checkpoint has these files besides MANIFEST.json and one of weights.
inline constexpr const char* required[] = {"config.json", "state-optimizer.safetensors",
                                           "data.json", "rng.json", "recipe.yaml"};
// A checkpoint has one of these files of weights: those of the model, or of its adapter, where the
// checkpoint is a folder of PEFT's.
inline constexpr const char* weight_files[] = {"model.safetensors", "adapter_model.safetensors"};

// Returns whether checkpoints have or may have a file of this name.
bool is_checkpoint_file(std::string_view name);

std::string join(const std::string& folder, std::string_view name);
std::string checkpoints_of(const std::string& run_folder);

// Renames an existing checkpoint that holds a file of the user's, which would otherwise be removed
// when a step is saved again.
void spare_foreign(const std::string& checkpoint);
// Removes all but the `keep_last` newest checkpoints, those of links, and those with a file of the
// user's, which it names once.
void prune(const std::string& run_folder, int64_t keep_last);

}  // namespace weft::train
