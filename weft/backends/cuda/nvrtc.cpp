#include "weft/backends/cuda/nvrtc.h"

#include <iterator>

#include <fmt/format.h>

#include "weft/backends/cuda/nvrtc_api.h"
#include "weft/backends/cuda/shared_library.h"
#include "weft/base/error.h"
#include "weft/codegen/gpu_emit.h"
#include "weft/codegen/object_cache.h"

namespace weft::cuda {
struct Nvrtc::Library : nvrtc::Functions {
  SharedLibrary library{
      {"libnvrtc.so.13", "libnvrtc.so.12"},
      "tools/setup.sh --cuda installs it; WEFT_CUDA_PATH selects another folder."};

  Library() {
    library.load_beside("libnvrtc-builtins.so.");
    library.find(create, "nvrtcCreateProgram");
    library.find(destroy, "nvrtcDestroyProgram");
    library.find(build, "nvrtcCompileProgram");
    library.find(log_bytes, "nvrtcGetProgramLogSize");
    library.find(log, "nvrtcGetProgramLog");
    library.find(cubin_bytes, "nvrtcGetCUBINSize");
    library.find(cubin, "nvrtcGetCUBIN");
    library.find(error_text, "nvrtcGetErrorString");
    library.find(version, "nvrtcVersion");
  }
  void check(int status, const char* call) const {
    if (status != 0) throw Error(ErrorKind::device, "[cuda] {}: {}.", call, error_text(status));
  }
};

Nvrtc::Nvrtc() : library_(std::make_unique<Library>()) {}
Nvrtc::~Nvrtc() = default;

int Nvrtc::version() const {
  int major = 0, minor = 0;
  library_->check(library_->version(&major, &minor), "nvrtcVersion");
  return 1000 * major + 10 * minor;
}

std::vector<std::string> Nvrtc::options(int capability) {
  return {fmt::format("--gpu-architecture=sm_{}", capability), "--fmad=false",
          "--disable-warnings"};
}

std::string Nvrtc::compile(const std::string& source, int capability) const {
  const Library& library = *library_;
  struct Program {
    const Library& library;
    nvrtc::Handle handle = nullptr;
    ~Program() { library.destroy(&handle); }
  } program{library};
  library.check(library.create(&program.handle, source.c_str(), "weft.cu", 0, nullptr, nullptr),
                "nvrtcCreateProgram");
  const std::vector<std::string> texts = options(capability);
  std::vector<const char*> told;
  told.reserve(texts.size());
  for (const std::string& text : texts) told.push_back(text.c_str());
  const int status = library.build(program.handle, static_cast<int>(told.size()), told.data());
  size_t bytes = 0;
  library.check(library.log_bytes(program.handle, &bytes), "nvrtcGetProgramLogSize");
  std::string log(bytes, '\0');
  library.check(library.log(program.handle, log.data()), "nvrtcGetProgramLog");
  if (log.find("--gpu-architecture") != std::string::npos)
    throw Error(ErrorKind::device,
                "[cuda] NVRTC {}.{} cannot compile for GPUs of compute capability {}.{}. Hint: "
                "WEFT_CUDA_PATH selects the folder of another one.",
                version() / 1000, version() % 1000 / 10, capability / 10, capability % 10);
  if (log.find("libnvrtc-builtins") != std::string::npos)
    throw Error(ErrorKind::device,
                "[cuda] {} is incomplete: {} Hint: tools/setup.sh --cuda installs it; "
                "WEFT_CUDA_PATH selects another folder.",
                library.library.path(), log.substr(0, log.find_first_of(std::string("\n\0", 2))));
  WEFT_ASSERT(status == 0, "a kernel does not compile for sm_{} (report its source, too: {}): {}",
              capability, loop::save_refused(source, "cu"),
              loop::with_source_lines(log.substr(0, log.find('\0')), source));
  library.check(library.cubin_bytes(program.handle, &bytes), "nvrtcGetCUBINSize");
  std::string code(bytes, '\0');
  library.check(library.cubin(program.handle, code.data()), "nvrtcGetCUBIN");
  return code;
}

}  // namespace weft::cuda
