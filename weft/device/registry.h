// Finds this build's kernel libraries by name ("cpu", "cuda", "reference"). core.h registers them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/device/device.h"

namespace weft {

using LibraryFactory = std::function<std::unique_ptr<KernelLibrary>()>;
void register_library(std::string name, LibraryFactory make);
// A LibraryFamily makes the libraries named "NAME:WHICH" and "NAME", whose WHICH is "".
struct LibraryFamily {
  std::function<std::unique_ptr<KernelLibrary>(const std::string& which)> make;
  // Maps every WHICH that names the same device to one word, so that the device is opened once;
  // null: every WHICH is a different device.
  std::function<std::string(const std::string& which)> same_as = nullptr;
  // Returns the number of devices of this machine, named "0", "1", ...; null: devices cannot be
  // listed.
  std::function<int()> count = nullptr;
};
void register_family(std::string name, LibraryFamily family);
// `choose` returns the name behind "auto"; it is called once.
void register_automatic(std::function<std::string()> choose);
// Returns the library of a name. "auto" is the best that can run here; "null:cuda" plans as "cuda"
// does, anywhere, and runs nothing ("null": as "cpu"); "cuda:h200" plans for that GPU, present or
// not; "opencl:1" is that device; "cuda" is "cuda:0". Libraries live as long as the process. Throws
// Error(usage), which lists the known names, for an unknown one.
const KernelLibrary& library(const std::string& name);
// Throws the Error that library() throws for an unknown name, without making the library.
void check_library_name(const std::string& name);
// Returns whether a name is that of devices that have memory of their own. None of them is opened,
// but "auto" looks for one.
bool has_own_memory(const std::string& name);
// Returns the peaks of the device of a library name, as far as they are known without measuring: a
// CPU's peaks are known if an earlier run measured and cached them.
MachineSpec known_spec(const std::string& name);
void register_known_specs(std::function<MachineSpec(const std::string& name)> find);
std::vector<std::string> library_names();  // without "null:cuda", "cuda:h200", "opencl:1", ...
// Returns the names of the libraries whose device is here: "cpu", "opencl:0", "reference".
std::vector<std::string> present_libraries();

}  // namespace weft
