#include "weft/cli/models/model_source.h"

#include <filesystem>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/io/model_folder.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace weft::cli {
namespace {
namespace fs = std::filesystem;

bool has(const std::string& folder, const char* name) {
  return io::exists((fs::path(folder) / name).string(), ErrorKind::usage);
}

bool is_model(const std::string& path) {
  std::error_code none;
  return fs::is_regular_file(path, none) ||
         ((has(path, "model.safetensors") || has(path, "model.safetensors.index.json")) &&
          !has(path, "MANIFEST.json"));
}
}  // namespace

bool is_checkpoint_or_run(const std::string& path) {
  std::error_code none;
  return has(path, "MANIFEST.json") || has(path, "checkpoints") ||
         fs::is_symlink(fs::path(path) / "latest", none);
}

ModelSource find_model(const std::string& name, bool verify) {
  if (!is_model(name)) {
    if (const std::string run = train::locate_run(name); is_checkpoint_or_run(run)) {
      std::string folder = verify ? train::verified_checkpoint(run) : train::find_checkpoint(run);
      return {{train::weights_of(folder)}, std::move(folder)};
    }
  }
  return {io::weight_files(name), io::is_folder(name, ErrorKind::usage) ? name : ""};
}

}  // namespace weft::cli
