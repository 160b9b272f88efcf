// The compiler: machine code of four bytes, under a version that no real one has, so that nobody
// else takes it from the cache of kernels.
#include <cstring>

#include "tests/fake_cuda/fake.h"

namespace {
constexpr int compilation_failed = 6;
constexpr char machine_code[] = "fake";
const char* log_text() {
  return fake::number("FAKE_NVRTC_FAILS", 0) != 0 ? "weft.cu(2): error: expected a ';'" : "";
}
}  // namespace

extern "C" {
int nvrtcVersion(int* major, int* minor) {
  *major = 12;
  *minor = 99;
  return 0;
}
int nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*,
                       const char* const*) {
  static int something;
  *program = &something;
  return 0;
}
int nvrtcDestroyProgram(void**) { return 0; }
int nvrtcCompileProgram(void*, int, const char* const*) {
  return *log_text() != '\0' ? compilation_failed : 0;
}
int nvrtcGetProgramLogSize(void*, size_t* bytes) {
  *bytes = std::strlen(log_text()) + 1;
  return 0;
}
int nvrtcGetProgramLog(void*, char* log) {
  std::strcpy(log, log_text());
  return 0;
}
int nvrtcGetCUBINSize(void*, size_t* bytes) {
  *bytes = sizeof machine_code;
  return 0;
}
int nvrtcGetCUBIN(void*, char* code) {
  std::memcpy(code, machine_code, sizeof machine_code);
  return 0;
}
const char* nvrtcGetErrorString(int) { return "an error"; }
}
