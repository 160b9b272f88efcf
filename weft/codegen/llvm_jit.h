// Compiles LLVM modules to object files and links them into this process with ORC.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/IR/Module.h>

namespace weft::loop {

struct HostTarget {
  std::string cpu, features;
  int vector_bytes = 16;    // bytes of the widest registers worth using
  size_t stream_bytes = 0;  // see CpuTarget
};
const HostTarget& host_target();

// Returns a text of all that the machine code of a module depends on besides the module: the CPU,
// the version of LLVM and a hash of the source that sets LLVM's passes and options.
std::string compiler_text();

// Optimizes the module and compiles it to an object file in memory.
std::string compile_object(llvm::Module& module);

// LoadedCode is a linked object: the addresses of `functions` stay valid while `owner` lives.
struct LoadedCode {
  std::vector<void*> functions;
  std::shared_ptr<void> owner;
};
LoadedCode load_object(const std::string& object, const std::vector<std::string>& functions);

}  // namespace weft::loop
