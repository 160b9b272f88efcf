// Resolves MODEL of the command line: weights in a safetensors file, in a folder of Hugging Face's,
// or in a checkpoint of weft's.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct ModelSource {
  std::vector<std::string> files;  // safetensors
  std::string folder;              // also has config.json and tokenizer files; "" for a single file
};

// Returns whether a folder is a checkpoint, a folder of checkpoints, or the folder of a run.
bool is_checkpoint_or_run(const std::string& path);

// Resolves a safetensors file, a model folder (weft/io/model_folder.h), a checkpoint folder, or a
// run's folder or name (its latest checkpoint, checked against its manifest if `verify`). Throws
// Error(usage) for anything else, Error(data) for a damaged file or folder, and Error(checkpoint)
// for a damaged checkpoint.
ModelSource find_model(const std::string& name, bool verify);

}  // namespace weft::cli
