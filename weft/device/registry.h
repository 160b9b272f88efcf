// The kernel libraries of this build, by name ("cpu", "reference", "null"). weft.h registers them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/device/device.h"

namespace weft {

using LibraryFactory = std::function<std::unique_ptr<KernelLibrary>()>;
void register_library(std::string name, LibraryFactory make);
// "auto" is the best that was built. Made once, kept for the process. Throws Error(usage) for an
// unknown name, listing the known ones.
const KernelLibrary& library(const std::string& name);
std::vector<std::string> library_names();

}  // namespace weft
