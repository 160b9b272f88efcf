// Finds, lists and removes the checkpoint folders of a run. A folder that holds files of the user's
// is not removed. checkpoint.cpp writes and reads the files in a folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::train {

inline constexpr const char* weights_file = "model.safetensors";  // of a model, not of an adapter

// Returns whether checkpoints have or may have a file of this name.
bool is_checkpoint_file(std::string_view name);

std::string join(const std::string& folder, std::string_view name);
std::string checkpoints_of(const std::string& run_folder);

// Renames an existing checkpoint that holds a file of the user's, which would otherwise be removed
// when a step is saved again.
void spare_foreign(const std::string& checkpoint);
// Removes all checkpoints but the `keep_last` newest, the targets of the links `latest` and `best`,
// and folders with a file of the user's, of which it warns once.
void prune(const std::string& run_folder, int64_t keep_last);

}  // namespace weft::train
