// Defines the parts of CUDA C beyond C++ that weft's kernels use, for one of many threads on a CPU.
#pragma once

namespace fake {

inline constexpr const char* cuda_c = R"(
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __CUDA_ARCH__ 900
using Bits = unsigned long long;
struct Position { unsigned x, y, z; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
extern "C" {
Position threadIdx, blockIdx, blockDim, gridDim;
void (*await_group)();
void (*await_warp)();
void (*trap)();
#define OF_BOTH(name) float name##f(float); double name(double);
OF_BOTH(exp) OF_BOTH(exp2) OF_BOTH(expm1) OF_BOTH(log) OF_BOTH(log2) OF_BOTH(log10) OF_BOTH(log1p)
OF_BOTH(sin) OF_BOTH(cos) OF_BOTH(tan) OF_BOTH(asin) OF_BOTH(acos) OF_BOTH(atan) OF_BOTH(sinh)
OF_BOTH(cosh) OF_BOTH(tanh) OF_BOTH(asinh) OF_BOTH(acosh) OF_BOTH(atanh) OF_BOTH(erf) OF_BOTH(erfc)
OF_BOTH(cbrt) OF_BOTH(lgamma) OF_BOTH(logb) OF_BOTH(tgamma)
OF_BOTH(sqrt) OF_BOTH(floor) OF_BOTH(ceil) OF_BOTH(trunc) OF_BOTH(rint) OF_BOTH(fabs)
#define OF_TWO(name) float name##f(float, float); double name(double, double);
OF_TWO(pow) OF_TWO(atan2) OF_TWO(fmod) OF_TWO(copysign) OF_TWO(fmin) OF_TWO(fmax)
float fmaf(float, float, float);
double fma(double, double, double);
}
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
template <class T> static inline T __ldg(const T* at) { return *at; }

template <class To, class From> static inline To bits_of(From x) {
  To y{};
  __builtin_memcpy(&y, &x, sizeof x < sizeof y ? sizeof x : sizeof y);
  return y;
}
static inline float __int_as_float(int x) { return bits_of<float>(x); }
static inline int __float_as_int(float x) { return bits_of<int>(x); }
static inline double __longlong_as_double(long long x) { return bits_of<double>(x); }
static inline long long __double_as_longlong(double x) { return bits_of<long long>(x); }
static inline float half_to_float(unsigned short x) { return (float)bits_of<_Float16>(x); }
static inline unsigned float_to_half(float x) {
  return x != x ? 0x7fff : bits_of<unsigned short>((_Float16)x);
}
static inline unsigned float_to_bfloat(float x) {
  const unsigned bits = bits_of<unsigned>(x);
  return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// Aligned converts an address to a T*, and traps unless it is a multiple of the alignment of T, as
// a GPU does.
template <class T> struct Aligned {
  template <class From> Aligned(From address) : at((T*)address) {
    if ((Bits)at % alignof(T) != 0) trap();
  }
  operator T*() const { return at; }
  T* at;
};

static inline void __syncthreads() { await_group(); }
static Bits shuffled[1024];
template <class T> static inline T shuffle(T x, unsigned from) {
  shuffled[threadIdx.x] = bits_of<Bits>(x);
  await_warp();
  const Bits bits = shuffled[from];
  await_warp();
  return bits_of<T>(bits);
}
template <class T> static inline T __shfl_sync(unsigned, T x, int lane, int width) {
  return shuffle(x, threadIdx.x / width * width + lane % width);
}
template <class T> static inline T __shfl_down_sync(unsigned, T x, unsigned by, int width) {
  return shuffle(x, threadIdx.x % width + by < width ? threadIdx.x + by : threadIdx.x);
}

// Call calls a kernel with the arguments of a launch: addresses or numbers, 8 bytes for each
// parameter.
template <class... P> struct Call {
  Call(void (*kernel)(P...), P... parameters) { kernel(parameters...); }
};
template <class... P> static inline void call(void (*kernel)(P...), const Bits* next) {
  Call<P...>{kernel, bits_of<P>(*next++)...};
}
template <class... P> constexpr int parameters_of(void (*)(P...)) { return sizeof...(P); }
#define KERNEL_OF_MODULE(name) \
  extern "C" void name##_call(const Bits* from) { call(name, from); } \
  extern "C" const int name##_parameters = parameters_of(name);
)";

// Replaced is a GPU instruction that kernels contain, and its C++ replacement.
struct Replaced {
  const char *instruction, *by;
};
inline constexpr Replaced instructions[] = {
    {R"(asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));)", "y = half_to_float(x);"},
    {"asm(\"{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high; }\"\n      : "
     "\"=f\"(y) : \"r\"(pair));",
     "y = half_to_float(pair >> 16);"},
    {R"(asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));)", "y = float_to_half(x);"},
    {R"(asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));)",
     "y = float_to_half(high) << 16 | float_to_half(low);"},
    {R"(asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));)",
     "y = float_to_bfloat(high) << 16 | float_to_bfloat(low);"},
};

}  // namespace fake
