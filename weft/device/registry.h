// The kernel libraries of this build, by name ("cpu", "cuda", "reference"). weft.h registers them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/device/device.h"

namespace weft {

using LibraryFactory = std::function<std::unique_ptr<KernelLibrary>()>;
using LibraryFamily = std::function<std::unique_ptr<KernelLibrary>(const std::string& which)>;
void register_library(std::string name, LibraryFactory make);
// Of names such as "NAME:WHICH", whatever follows the colon.
void register_family(std::string name, LibraryFamily make);
// What "auto" stands for is asked for once.
void register_automatic(std::function<std::string()> choose);
// "auto" is the best that can run here; "null:cuda" plans as "cuda" does, anywhere, and runs
// nothing ("null": as "cpu"); "cuda:h200" plans for that GPU, here or not; "opencl:1" is that
// device. Made once, kept for the process. Throws Error(usage) for an unknown name, listing the
// known ones.
const KernelLibrary& library(const std::string& name);
std::vector<std::string> library_names();  // without "null:cuda", "cuda:h200", "opencl:1", ...

}  // namespace weft
