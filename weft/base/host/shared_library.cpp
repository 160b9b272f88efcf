#include "weft/base/host/shared_library.h"

#include <algorithm>
#include <dlfcn.h>
#include <filesystem>
#include <sstream>

#include "weft/base/error.h"
#include "weft/base/host/env.h"

namespace weft {
namespace fs = std::filesystem;

namespace {
// Returns whether the dynamic loader could find a library in a relative folder of LD_LIBRARY_PATH.
// An empty entry is the current folder, where anyone may have put code. The loader (ld.so(8))
// splits the list at colons and semicolons, searches glibc-hwcaps below each folder, and expands
// tokens; $ORIGIN is the only token whose path is absolute.
bool lies_in_relative_folder(const std::string& name) {
  std::string list = env("LD_LIBRARY_PATH").value_or("/") + ":/";  // an empty end counts, too
  std::ranges::replace(list, ';', ':');
  std::istringstream folders(list);
  std::error_code none;
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.starts_with('/') || folder.starts_with("$ORIGIN") || folder.starts_with("${ORIGIN"))
      continue;
    if (folder.find('$') != std::string::npos) return true;
    if (fs::exists(fs::path(folder) / name, none) ||
        fs::exists(fs::path(folder) / "glibc-hwcaps", none))
      return true;
  }
  return false;
}
}  // namespace

SharedLibrary::SharedLibrary(std::string owner, const std::vector<std::string>& names,
                             const std::string& hint)
    : owner_(std::move(owner)) {
  for (const std::string& name : names) open(name);
  if (!is_open()) refuse(names.front(), "among the system's libraries", hint);
}

SharedLibrary::~SharedLibrary() {
  if (is_open()) dlclose(handle_);
}

std::optional<size_t> SharedLibrary::asked_apart(const std::string& path, const char* function) {
  if (path.find('/') == std::string::npos && lies_in_relative_folder(path)) return std::nullopt;
  // A library of another namespace (dlmopen(3)) satisfies no dependency in this one.
  void* handle = dlmopen(LM_ID_NEWLM, path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return std::nullopt;
  std::optional<size_t> said;
  if (auto* ask = reinterpret_cast<size_t (*)()>(dlsym(handle, function))) said = ask();
  dlclose(handle);
  return said;
}

void SharedLibrary::open(const std::string& path) {
  if (is_open()) return;
  if (path.find('/') == std::string::npos && lies_in_relative_folder(path)) {
    refused_ = "it is in a relative or empty folder of LD_LIBRARY_PATH";
    return;
  }
  // dlopen resolves a dependency to a library of that name that is already loaded. RTLD_NODELETE
  // keeps the library mapped, as it does not release what its initializers acquired.
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (is_open()) {
    path_ = path;
    return;
  }
  const char* said = dlerror();
  const std::string why = said == nullptr ? "" : said;
  if (!why.starts_with(path + ": cannot open shared object file")) refused_ = why;
}

void SharedLibrary::refuse(const std::string& name, const std::string& where,
                           const std::string& hint) const {
  if (!refused_.empty())
    throw Error(ErrorKind::device, "[{}] {} does not load: {}. Hint: {}", owner_, name, refused_,
                hint);
  throw Error(ErrorKind::device, "[{}] no {} {}. Hint: {}", owner_, name, where, hint);
}

void SharedLibrary::load_beside(const std::string& prefix) const {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(fs::path(path_).parent_path(), none))
    if (entry.path().filename().string().starts_with(prefix))
      dlopen(entry.path().c_str(), RTLD_NOW);
}

void* SharedLibrary::address(const char* name) const {
  void* found = dlsym(handle_, name);
  if (found == nullptr)
    throw Error(ErrorKind::device, "[{}] {} has no {}: it is too old.", owner_, path_, name);
  return found;
}

}  // namespace weft
