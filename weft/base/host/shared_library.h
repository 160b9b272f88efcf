// A SharedLibrary is loaded on first use, so that one program serves machines with and without it.
// Functions are found by name: weft needs no header to build and no library to start.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace weft {

class SharedLibrary {
 public:
  // Loads the first of `names` ("libclblast.so.1") that the system's loader finds. Throws
  // Error(device), whose message begins with [owner] and ends with `hint`.
  SharedLibrary(std::string owner, const std::vector<std::string>& names, const std::string& hint);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  // Throws Error(device) where the library lacks the function.
  template <class F>
  void find(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(address(name));
  }
  const std::string& path() const { return path_; }
  // Loads the libraries in the same folder whose names begin with `prefix`: parts that this library
  // would look for only in the system's folders.
  void load_beside(const std::string& prefix) const;

 protected:
  explicit SharedLibrary(std::string owner) : owner_(std::move(owner)) {}
  bool is_open() const { return handle_ != nullptr; }
  // Returns the result of `function` of the library at `path`, which it loads into a separate
  // linker namespace, so that later searches by name find neither the library nor its dependencies;
  // nullopt if the library does not load or lacks the function.
  static std::optional<size_t> asked_apart(const std::string& path, const char* function);
  // Loads a path, or a name that the system's loader searches for, unless a library is open.
  void open(const std::string& path);
  // Throws that nothing was found `where`, or why the library that was found does not load.
  [[noreturn]] void refuse(const std::string& name, const std::string& where,
                           const std::string& hint) const;

 private:
  void* address(const char* name) const;

  std::string owner_, path_;
  std::string refused_;  // the loader's message for a library that exists
  void* handle_ = nullptr;
};

}  // namespace weft
