#include "weft/backends/cuda/shared_library.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "weft/base/host/env.h"
#include "weft/base/host/private_folder.h"

namespace weft::cuda {
namespace {
namespace fs = std::filesystem;

// Returns the files with a wanted name anywhere below a folder, such as that of unpacked wheels.
template <class Wanted>
std::vector<fs::path> files_in(const fs::path& folder, const Wanted& wanted) {
  std::vector<fs::path> found;
  std::error_code none;
  for (auto at = fs::recursive_directory_iterator(folder, none);
       at != fs::recursive_directory_iterator(); at.increment(none))
    if (wanted(at->path().filename().string())) found.push_back(at->path());
  return found;
}

// Returns the folder of CUDA libraries; "": there is none.
std::string cuda_folder() {
  if (auto folder = env_folder("WEFT_CUDA_PATH")) return *folder;
  const std::string folder = cache_directory() + "/cuda";
  return is_private(cache_directory()) && is_private(folder) ? folder : "";
}

// Returns the folders of NVIDIA's Python packages, next to the interpreters on PATH.
std::vector<fs::path> wheel_folders() {
  std::vector<fs::path> folders;
  std::istringstream path(env("PATH").value_or(""));
  std::error_code none;
  for (std::string bin; std::getline(path, bin, ':');) {
    if (bin.ends_with('/')) bin.pop_back();
    // A relative folder depends on the current folder, where anyone may have put code.
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

SharedLibrary::SharedLibrary(const std::vector<std::string>& names, const std::string& hint,
                             std::optional<LeastVersion> least)
    : weft::SharedLibrary("cuda") {
  std::vector<fs::path> folders{cuda_folder()};
  auto found_in = [&](const fs::path& folder) {
    std::vector<std::string> found;
    for (const std::string& name : names)
      for (const fs::path& path :
           files_in(folder, [&](const std::string& file) { return file == name; }))
        found.push_back(path);
    return found;
  };
  for (const std::string& path : found_in(folders.front())) open(path);
  if (!least)
    for (const std::string& name : names) open(name);
  if (is_open()) return;
  folders.emplace_back("/usr/local/cuda/lib64/");
  for (fs::path& folder : wheel_folders()) folders.push_back(std::move(folder));
  std::vector<std::string> candidates = names;  // the system's loader finds a bare name
  for (const fs::path& folder : std::span(folders).subspan(1))
    for (std::string& path : found_in(folder)) candidates.push_back(std::move(path));
  if (least) {
    // The last candidate is opened whatever its version, as a query takes as long as loading it.
    const auto good =
        std::find_if(candidates.begin(), candidates.end() - 1, [&](const std::string& candidate) {
          const fs::path part = fs::path(candidate).parent_path() / least->part;
          return asked_apart(part, least->function).value_or(0) >= least->version;
        });
    open(*good);
  }
  for (const std::string& candidate : candidates) open(candidate);
  if (is_open()) return;
  // The stem ("libcublasLt.so.") matches any version.
  const std::string stem = names.front().substr(0, names.front().rfind('.') + 1);
  std::string others;
  for (const fs::path& folder : folders)
    for (const fs::path& path :
         files_in(folder, [&](const std::string& file) { return file.starts_with(stem); }))
      others += fmt::format(", {} {}", others.empty() ? "only" : "and", path.string());
  refuse(
      names.front(),
      fmt::format("{}among the system's libraries, in /usr/local/cuda or in Python's packages{}",
                  folders.front().empty() ? "" : fmt::format("in {}, ", folders.front().string()),
                  others),
      hint);
}

SharedLibrary::SharedLibrary(const SharedLibrary& whole, const std::string& name,
                             const std::string& hint)
    : weft::SharedLibrary("cuda") {
  const fs::path folder = fs::path(whole.path()).parent_path();  // "": the system's loader knows it
  open(folder / name);
  if (!is_open())
    refuse(name, folder.empty() ? "among the system's libraries" : "in " + folder.string(), hint);
}

}  // namespace weft::cuda
