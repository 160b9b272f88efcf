// Simulates the compiler: its code is a few bytes, or a shared library for the CPU after its size.
// It has versions that no real NVRTC has, so that neither is found in the kernel cache by others.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <regex>
#include <string>

#include "tests/fake_cuda/cuda_c.h"
#include "tests/fake_cuda/fake.h"
#include "tests/support/temporary_folder.h"

namespace {
constexpr int compilation_failed = 6;

struct Program {
  std::string source, log, code = "fake";
};
Program& program_of(void* handle) { return *static_cast<Program*>(handle); }

std::string as_cpp(std::string source) {
  for (const auto& [instruction, by] : fake::instructions)
    for (size_t at = source.find(instruction); at != std::string::npos;
         at = source.find(instruction, at))
      source.replace(at, std::strlen(instruction), by);
  static const std::regex cast(R"(\(GLOBAL ((const )?\w+)\*\))");
  source = std::regex_replace(source, cast, "+(Aligned<$1>)");
  static const std::regex kernel(R"(\nKERNEL(_BY)?\([^)]*\)\s+(\w+)\()");
  std::string names;
  for (std::sregex_iterator found(source.begin(), source.end(), kernel), end; found != end; ++found)
    names += "KERNEL_OF_MODULE(" + (*found)[2].str() + ")\n";
  return fake::cuda_c + source + names;
}

void compile(Program& program) {
  const weft::test::TemporaryFolder folder;
  const std::string from = folder.file("weft.cpp", as_cpp(program.source));
  const std::string to = folder.file("weft.so"), log = folder.file("log");
  const std::string command =
      std::string(fake::compiler()) +
      " -std=c++17 -O1 -ffp-contract=off -fno-math-errno -fPIC -shared -w -o " + to + " " + from +
      " -lm 2>" + log;
  if (std::system(command.c_str()) != 0) {  // test code
    program.log = weft::test::contents_of(log);
  } else {
    const std::string library = weft::test::contents_of(to);
    const uint64_t size = library.size();
    program.code.assign(reinterpret_cast<const char*>(&size), sizeof size);
    program.code += library;
  }
}
}  // namespace

extern "C" {
int nvrtcVersion(int* major, int* minor) {
  const long version =
      fake::number("FAKE_NVRTC_VERSION", *fake::compiler() == '\0' ? 12990 : 12980);
  *major = static_cast<int>(version / 1000);
  *minor = static_cast<int>(version % 1000 / 10);
  return 0;
}
int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program{source};
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  return 0;
}
int nvrtcCompileProgram(void* handle, int, const char* const*) {
  Program& program = program_of(handle);
  const long fails = fake::number("FAKE_NVRTC_FAILS", 0);
  if (fails == 1)
    program.log = "weft.cu(2): error: expected a ';'";
  else if (fails == 2)
    program.log = "nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n  Make sure that ...";
  else if (*fake::compiler() != '\0')
    compile(program);
  return program.log.empty() ? 0 : compilation_failed;
}
int nvrtcGetProgramLogSize(void* program, size_t* bytes) {
  *bytes = program_of(program).log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* log) {
  std::strcpy(log, program_of(program).log.c_str());
  return 0;
}
int nvrtcGetCUBINSize(void* program, size_t* bytes) {
  *bytes = program_of(program).code.size();
  return 0;
}
int nvrtcGetCUBIN(void* handle, char* code) {
  std::ranges::copy(program_of(handle).code, code);
  return 0;
}
const char* nvrtcGetErrorString(int) { return "an error"; }
}
