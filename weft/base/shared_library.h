// A library that is loaded when it is first needed, so that one program serves machines with and
// without. Functions are found by name and called through pointers: no header is needed to build
// weft, and no library to run it.
#pragma once

#include <string>
#include <vector>

namespace weft {

class SharedLibrary {
 public:
  // The first of `names` ("libclblast.so.1") that is among the system's. Throws Error(device),
  // which begins with [owner] and ends with `hint`.
  SharedLibrary(std::string owner, const std::vector<std::string>& names, const std::string& hint);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  // Throws Error(device) where the library has no such function.
  template <class F>
  void find(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(address(name));
  }
  const std::string& path() const { return path_; }
  // Loads what lies in the same folder and begins with `prefix`: a part that the library would look
  // for among the system's only.
  void load_beside(const std::string& prefix) const;

 protected:
  explicit SharedLibrary(std::string owner) : owner_(std::move(owner)) {}
  bool is_open() const { return handle_ != nullptr; }
  // A path, or a name to be looked for among the system's; nothing where one is open.
  void open(const std::string& path);
  // That nothing was found `where`, or why what was does not load.
  [[noreturn]] void refuse(const std::string& name, const std::string& where,
                           const std::string& hint) const;

 private:
  void* address(const char* name) const;

  std::string owner_, path_;
  std::string refused_;  // what the loader says of one that is there
  void* handle_ = nullptr;
};

}  // namespace weft
