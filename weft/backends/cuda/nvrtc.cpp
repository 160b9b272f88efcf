#include "weft/backends/cuda/nvrtc.h"

#include <dlfcn.h>
#include <filesystem>
#include <iterator>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "weft/base/env.h"
#include "weft/base/error.h"
#include "weft/codegen/gpu_emit.h"

namespace weft::cuda {
namespace {
namespace fs = std::filesystem;

// A file named NAME, NAME.13, ... anywhere in a folder, such as an unpacked wheel.
std::optional<fs::path> find_library(const fs::path& folder, const std::string& name) {
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with(name)) return entry.path();
  return std::nullopt;
}

fs::path cuda_folder() {
  if (auto folder = env("WEFT_CUDA_PATH")) return *folder;
  return fs::path(cache_directory()) / "cuda";
}

void* load_nvrtc() {
  if (auto path = find_library(cuda_folder(), "libnvrtc.so"))
    if (void* handle = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
  throw Error(ErrorKind::device,
              "[cuda] no libnvrtc.so in {} nor among the system's libraries. Hint: "
              "tools/setup.sh --cuda brings it; WEFT_CUDA_PATH names another folder.",
              cuda_folder().string());
}
}  // namespace

// The functions of nvrtc.h that are used; a result of 0 is success.
struct Nvrtc::Library {
  using Handle = void*;
  void* library = load_nvrtc();
  int (*create)(Handle*, const char* source, const char* name, int headers,
                const char* const* header_sources, const char* const* header_names) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*build)(Handle, int options, const char* const* option) = nullptr;
  int (*log_bytes)(Handle, size_t*) = nullptr;
  int (*log)(Handle, char*) = nullptr;
  int (*cubin_bytes)(Handle, size_t*) = nullptr;
  int (*cubin)(Handle, char*) = nullptr;
  const char* (*error_text)(int) = nullptr;

  Library() {
    find(create, "nvrtcCreateProgram");
    find(destroy, "nvrtcDestroyProgram");
    find(build, "nvrtcCompileProgram");
    find(log_bytes, "nvrtcGetProgramLogSize");
    find(log, "nvrtcGetProgramLog");
    find(cubin_bytes, "nvrtcGetCUBINSize");
    find(cubin, "nvrtcGetCUBIN");
    find(error_text, "nvrtcGetErrorString");
  }
  ~Library() { dlclose(library); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <class F>
  void find(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(dlsym(library, name));
    if (function == nullptr)
      throw Error(ErrorKind::device, "[cuda] libnvrtc.so has no {}: it is too old.", name);
  }
  void check(int status, const char* call) const {
    if (status != 0) throw Error(ErrorKind::device, "[cuda] {}: {}.", call, error_text(status));
  }
};

Nvrtc::Nvrtc() : library_(std::make_unique<Library>()) {}
Nvrtc::~Nvrtc() = default;

std::string Nvrtc::compile(const std::string& source, int capability) const {
  const Library& nvrtc = *library_;
  struct Program {
    const Library& nvrtc;
    Library::Handle handle = nullptr;
    ~Program() { nvrtc.destroy(&handle); }
  } program{nvrtc};
  nvrtc.check(nvrtc.create(&program.handle, source.c_str(), "weft.cu", 0, nullptr, nullptr),
              "nvrtcCreateProgram");
  const std::string architecture = fmt::format("--gpu-architecture=sm_{}", capability);
  const char* options[] = {architecture.c_str(), "--fmad=false", "--disable-warnings"};
  const int status = nvrtc.build(program.handle, static_cast<int>(std::size(options)), options);
  size_t bytes = 0;
  nvrtc.check(nvrtc.log_bytes(program.handle, &bytes), "nvrtcGetProgramLogSize");
  std::string log(bytes, '\0');
  nvrtc.check(nvrtc.log(program.handle, log.data()), "nvrtcGetProgramLog");
  WEFT_ASSERT(status == 0, "CUDA C of a generated kernel for sm_{}: {}", capability,
              loop::with_source_lines(log.substr(0, log.find('\0')), source));
  nvrtc.check(nvrtc.cubin_bytes(program.handle, &bytes), "nvrtcGetCUBINSize");
  std::string code(bytes, '\0');
  nvrtc.check(nvrtc.cubin(program.handle, code.data()), "nvrtcGetCUBIN");
  return code;
}

}  // namespace weft::cuda
