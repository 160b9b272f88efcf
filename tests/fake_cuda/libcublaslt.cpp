// Products: none is computed.
#include <cstddef>
#include <cstdint>

#include "tests/fake_cuda/fake.h"

namespace {
using Handle = void*;
int give(Handle* to) {
  static int something;
  *to = &something;
  return 0;
}
struct Found {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};
}  // namespace

extern "C" {
int cublasLtCreate(Handle* handle) { return give(handle); }
int cublasLtMatmulDescCreate(Handle* matmul, int, int) { return give(matmul); }
int cublasLtMatmulDescDestroy(Handle) { return 0; }
int cublasLtMatmulDescSetAttribute(Handle, int, const void*, size_t) { return 0; }
int cublasLtMatrixLayoutCreate(Handle* layout, int, uint64_t, uint64_t, int64_t) {
  return give(layout);
}
int cublasLtMatrixLayoutDestroy(Handle) { return 0; }
int cublasLtMatrixLayoutSetAttribute(Handle, int, const void*, size_t) { return 0; }
int cublasLtMatmulPreferenceCreate(Handle* preference) { return give(preference); }
int cublasLtMatmulPreferenceDestroy(Handle) { return 0; }
int cublasLtMatmulPreferenceSetAttribute(Handle, int, const void*, size_t) { return 0; }
int cublasLtMatmulAlgoGetHeuristic(Handle, Handle, Handle, Handle, Handle, Handle, Handle, int,
                                   Found* found, int* count) {
  *found = {};
  *count = fake::number("FAKE_CUBLASLT_REFUSES", 0) == 1 ? 0 : 1;
  return 0;
}
int cublasLtMatmulAlgoCheck(Handle, Handle, Handle, Handle, Handle, Handle, const void*,
                            Found* found) {
  *found = {};
  return 0;
}
int cublasLtMatmul(Handle, Handle, const void*, const void*, Handle, const void*, Handle,
                   const void*, const void*, Handle, void*, Handle, const void*, void*, size_t,
                   Handle) {
  return 0;
}
size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(int) { return "a status"; }
}
