#include "weft/backends/cuda/shared_library.h"

#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "weft/base/env.h"
#include "weft/base/private_folder.h"

namespace weft::cuda {
namespace {
namespace fs = std::filesystem;

// Files of that name anywhere in a folder, such as one of unpacked wheels.
std::vector<fs::path> files_in(const fs::path& folder, const std::string& name) {
  std::vector<fs::path> found;
  std::error_code none;
  for (auto at = fs::recursive_directory_iterator(folder, none);
       at != fs::recursive_directory_iterator(); at.increment(none))
    if (at->path().filename() == name) found.push_back(at->path());
  return found;
}

// "": there is none.
std::string cuda_folder() {
  if (auto folder = env_folder("WEFT_CUDA_PATH")) return *folder;
  const std::string folder = cache_directory() + "/cuda";
  return is_private(cache_directory()) && is_private(folder) ? folder : "";
}

// What Python has installed: beside the interpreters on PATH.
std::vector<fs::path> wheel_folders() {
  std::vector<fs::path> folders;
  std::istringstream path(env("PATH").value_or(""));
  std::error_code none;
  for (std::string bin; std::getline(path, bin, ':');) {
    if (bin.ends_with('/')) bin.pop_back();
    // A relative folder is one of whoever wrote what lies in the current one.
    if (!bin.starts_with('/')) continue;
    for (const auto& lib : fs::directory_iterator(fs::path(bin).parent_path() / "lib", none))
      if (lib.path().filename().string().starts_with("python3"))
        for (const char* packages : {"site-packages", "dist-packages"})
          if (fs::is_directory(lib.path() / packages / "nvidia", none))
            folders.push_back(lib.path() / packages / "nvidia");
  }
  return folders;
}
}  // namespace

SharedLibrary::SharedLibrary(const std::vector<std::string>& names, const std::string& hint)
    : weft::SharedLibrary("cuda") {
  auto open_in = [&](const fs::path& folder) {
    for (const std::string& name : names)
      for (const fs::path& path : files_in(folder, name)) open(path);
  };
  open_in(cuda_folder());
  for (const std::string& name : names) open(name);
  if (!is_open()) open_in("/usr/local/cuda/lib64/");
  if (!is_open())
    for (const fs::path& folder : wheel_folders()) open_in(folder);
  if (!is_open())
    refuse(names.front(),
           fmt::format("{}among the system's libraries, in /usr/local/cuda or in Python's packages",
                       cuda_folder().empty() ? "" : fmt::format("in {}, ", cuda_folder())),
           hint);
}

}  // namespace weft::cuda
