#include <llvm/Config/llvm-config.h>

#include "weft/backends/cpu/machine.h"
#include "weft/backends/cpu/onednn/onednn.h"

namespace weft::cpu {

std::vector<std::pair<std::string, std::string>> library_versions() {
  return {{"oneDNN", onednn::version()}, {"LLVM", LLVM_VERSION_STRING}};
}

}  // namespace weft::cpu
