#include "weft/codegen/gpu_prelude.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/env.h"

namespace weft::loop {
namespace {

constexpr const char* opencl_names = R"(#pragma OPENCL FP_CONTRACT OFF
#ifdef HAS_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#define KERNEL(threads) __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) void
#define KERNEL_BY(threads, groups) KERNEL(threads)
#define DEVICE static inline
#define GLOBAL __global
#define SHARED __local
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define GROUP get_group_id(0)
#define GROUPS get_num_groups(0)
#define THREAD get_local_id(0)
#define READ_ONLY(at) (*(at))
typedef char i8;
typedef short i16;
typedef int i32;
typedef long i64;
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef float f32;
#define f32_of_i32(x) as_float(x)
#define i32_of_f32(x) as_int(x)
#define f64_of_i64(x) as_double(x)
#define i64_of_f64(x) as_long(x)
#define fabsf fabs
#define fmaf fma
)";

// Both languages have functions by these names: of f64 in CUDA C, and of f32 with an f appended.
constexpr const char* device_functions[] = {
    "exp",    "exp2", "expm1", "log",  "log2",  "log10", "log1p", "sin",    "cos",
    "tan",    "asin", "acos",  "atan", "sinh",  "cosh",  "tanh",  "asinh",  "acosh",
    "atanh",  "erf",  "erfc",  "pow",  "atan2", "fmod",  "cbrt",  "lgamma", "logb",
    "tgamma", "sqrt", "floor", "ceil", "trunc", "rint"};
std::string opencl_functions() {
  std::string text;
  for (const char* function : device_functions) text += fmt::format("#define {0}f {0}\n", function);
  return text;
}

// One resident group per multiprocessor is enough: for more, registers would be spilled.
constexpr const char* cuda_names =
    R"(#define KERNEL(threads) KERNEL_BY(threads, 1)
#define KERNEL_BY(threads, groups) extern "C" __global__ void __launch_bounds__(threads, groups)
#define DEVICE static __device__ __forceinline__
#define GLOBAL
#define SHARED __shared__
#define BARRIER __syncthreads()
#define GROUP blockIdx.x
#define GROUPS gridDim.x
#define THREAD threadIdx.x
#define SHUFFLE_DOWN(x, distance, width) __shfl_down_sync(0xffffffffu, x, distance, width)
#define SHUFFLE_FIRST(x, width) __shfl_sync(0xffffffffu, x, 0, width)
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
#define f32_of_i32(x) __int_as_float(x)
#define i32_of_f32(x) __float_as_int(x)
#define f64_of_i64(x) __longlong_as_double(x)
#define i64_of_f64(x) __double_as_longlong(x)
template <class T>
DEVICE T read_only(const T* at) {
  if constexpr (sizeof(T) == 16) {
    const uint4 bits = __ldg((const uint4*)at);
    return *(const T*)&bits;
  } else if constexpr (sizeof(T) == 8) {
    const uint2 bits = __ldg((const uint2*)at);
    return *(const T*)&bits;
  } else if constexpr (sizeof(T) == 4) {
    const u32 bits = __ldg((const u32*)at);
    return *(const T*)&bits;
  } else if constexpr (sizeof(T) == 2) {
    const u16 bits = __ldg((const u16*)at);
    return *(const T*)&bits;
  } else {
    const u8 bits = __ldg((const u8*)at);
    return *(const T*)&bits;
  }
}
#define READ_ONLY(at) read_only(at)
)";

// Each conversion is one instruction and handles subnormal halves. A single bfloat16 is converted
// as a pair with zero, as the instruction for one is slow.
constexpr const char* cuda_half = R"(
DEVICE f32 f16_to_f32(u16 x) {
  f32 y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
DEVICE f32 f16_high(u32 pair) {
  f32 y;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high; }"
      : "=f"(y) : "r"(pair));
  return y;
}
DEVICE u16 f32_to_f16(f32 x) {
  u16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
#if __CUDA_ARCH__ >= 800
#define HAS_PAIRS
DEVICE u32 f16_pair(f32 low, f32 high) {
  u32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
DEVICE u32 bf16_pair(f32 low, f32 high) {
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
DEVICE u16 f32_to_bf16(f32 x) { return (u16)bf16_pair(x, 0.0f); }
#endif
)";

// Not every device has a half type, so integer arithmetic converts its bits.
constexpr const char* opencl_half = R"(
DEVICE f32 f16_to_f32(u16 x) {
  const u32 sign = (u32)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 1023;
  u32 bits = (exponent + 112) << 23 | fraction << 13;
  if (exponent == 31) bits = 0x7f800000 | fraction << 13;
  if (exponent == 0) bits = (u32)i32_of_f32((f32)fraction * 0x1p-24f);
  return f32_of_i32((i32)(sign | bits));
}
DEVICE f32 f16_high(u32 pair) { return f16_to_f32((u16)(pair >> 16)); }
DEVICE u16 f32_to_f16(f32 x) {
  const u32 bits = (u32)i32_of_f32(x), size = bits & 0x7fffffff;
  const u32 sign = bits >> 16 & 0x8000;
  if (size > 0x7f800000) return (u16)(sign | 0x7e00);
  if (size >= 0x477ff000) return (u16)(sign | 0x7c00);
  if (size < 0x38800000) return (u16)(sign | (u32)rintf(f32_of_i32((i32)size) * 0x1p24f));
  return (u16)(sign | (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13);
}
)";

constexpr const char* helpers = R"(
#define F32_INFINITY f32_of_i32(0x7f800000)
#define F32_NAN f32_of_i32(0x7fc00000)

DEVICE f32 finite_or_zero(f32 x) { return fabsf(x) < F32_INFINITY ? x : 0.0f; }

DEVICE f32 bf16_to_f32(u16 x) { return f32_of_i32((i32)((u32)x << 16)); }

// Two neighbours of 16 bits are one word, whose lower half is the first.
DEVICE f32 f16_low(u32 pair) { return f16_to_f32((u16)pair); }
DEVICE f32 bf16_low(u32 pair) { return f32_of_i32((i32)(pair << 16)); }
DEVICE f32 bf16_high(u32 pair) { return f32_of_i32((i32)(pair & 0xffff0000)); }
DEVICE u16 u16_low(u32 pair) { return (u16)pair; }
DEVICE u16 u16_high(u32 pair) { return (u16)(pair >> 16); }
DEVICE u32 u16_pair(u16 low, u16 high) { return low | (u32)high << 16; }
#ifndef HAS_PAIRS
DEVICE u16 f32_to_bf16(f32 x) {
  const u32 bits = (u32)i32_of_f32(x);
  return (u16)((x != x ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
DEVICE u32 f16_pair(f32 low, f32 high) { return f32_to_f16(low) | (u32)f32_to_f16(high) << 16; }
DEVICE u32 bf16_pair(f32 low, f32 high) { return f32_to_bf16(low) | (u32)f32_to_bf16(high) << 16; }
#endif
DEVICE f32 round_f16(f32 x) { return f16_to_f32(f32_to_f16(x)); }
DEVICE f32 round_bf16(f32 x) { return f32_of_i32((i32)bf16_pair(0.0f, x)); }

// Integer division never traps: x / 0 is 0, and the least integer divided by -1 wraps.
#define DIVISION(type, wrap) \
  DEVICE type divide_##type(type a, type b) { \
    return b == 0 ? 0 : b == (type)-1 ? (type)(0 - (wrap)a) : a / b; \
  } \
  DEVICE type remainder_##type(type a, type b) { \
    return b == 0 || b == (type)-1 ? 0 : a % b; \
  }
DIVISION(i8, u8)
DIVISION(i16, u16)
DIVISION(i32, u32)
DIVISION(i64, u64)
#define DIVISION_WITHOUT_SIGN(type) \
  DEVICE type divide_##type(type a, type b) { return b == 0 ? 0 : a / b; } \
  DEVICE type remainder_##type(type a, type b) { return b == 0 ? 0 : a % b; }
DIVISION_WITHOUT_SIGN(u8)
DIVISION_WITHOUT_SIGN(u16)
DIVISION_WITHOUT_SIGN(u32)

// Truncates and saturates; nan gives 0. `limit` is the first number at or above `most`.
#define TO_INTEGER(from, to, least, most, limit) \
  DEVICE to from##_to_##to(from x) { \
    if (x != x) return 0; \
    if (x <= (from)least) return least; \
    return x >= (from)limit ? most : (to)x; \
  }
#define TO_INTEGERS(from) \
  TO_INTEGER(from, u8, 0, 255, 255) \
  TO_INTEGER(from, i8, (-128), 127, 127) \
  TO_INTEGER(from, u16, 0, 65535, 65535) \
  TO_INTEGER(from, i16, (-32768), 32767, 32767) \
  TO_INTEGER(from, u32, 0, 0xffffffff, 0x1p32f) \
  TO_INTEGER(from, i32, (-2147483647 - 1), 2147483647, 0x1p31f) \
  TO_INTEGER(from, i64, (-0x7fffffffffffffff - 1), 0x7fffffffffffffff, 0x1p63f)
TO_INTEGERS(f32)

// x * 2^exponent is computed by two factors, so that neither factor overflows and subnormal results
// round once.
DEVICE f32 power_of_two(i32 exponent) { return f32_of_i32((i32)((u32)(exponent + 127) << 23)); }
DEVICE f32 scale_f32(f32 x, f32 exponent) {
  const i32 all = f32_to_i32(exponent), first = all >> 1;
  return x * power_of_two(first) * power_of_two(all - first);
}

// The four words of Philox 4x32-10 (weft/base/numbers/philox.h).
typedef struct { u32 at[4]; } Words;
DEVICE Words philox(u64 block, u32 step, u32 stream, u64 seed) {
  u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = step, c3 = stream;
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
  for (i32 round = 0; round < 10; ++round) {
    const u64 a = (u64)0xD2511F53 * c0, b = (u64)0xCD9E8D57 * c2;
    c0 = (u32)(b >> 32) ^ c1 ^ k0;
    c1 = (u32)b;
    c2 = (u32)(a >> 32) ^ c3 ^ k1;
    c3 = (u32)a;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  const Words words = {{c0, c1, c2, c3}};
  return words;
}
DEVICE u32 philox_word(u64 element, u32 step, u32 stream, u64 seed) {
  const Words words = philox(element >> 2, step, stream, seed);
  const u32 low = (element & 1) != 0 ? words.at[1] : words.at[0];
  const u32 high = (element & 1) != 0 ? words.at[3] : words.at[2];
  return (element & 2) != 0 ? high : low;
}

// Neighbours in memory, loaded and stored by one access.
#define PACK(type, count, bytes) \
  typedef struct __attribute__((aligned(bytes))) { type at[count]; } type##x##count;
#define PAIRS(pairs, count, bytes) \
  typedef union __attribute__((aligned(bytes))) { u32 pair[pairs]; u16 at[count]; } u16x##count;
PAIRS(1, 2, 4) PAIRS(2, 4, 8) PAIRS(4, 8, 16)
PACK(u8, 2, 2) PACK(u8, 4, 4) PACK(u8, 8, 8)
PACK(i8, 2, 2) PACK(i8, 4, 4) PACK(i8, 8, 8)
PACK(i16, 2, 4) PACK(i16, 4, 8) PACK(i16, 8, 16)
PACK(u32, 2, 8) PACK(u32, 4, 16)
PACK(i32, 2, 8) PACK(i32, 4, 16)
PACK(f32, 2, 8) PACK(f32, 4, 16)
PACK(i64, 2, 16)
)";

constexpr const char* float64 = R"(
typedef double f64;
#define F64_INFINITY f64_of_i64(0x7ff0000000000000)
#define F64_NAN f64_of_i64(0x7ff8000000000000)
TO_INTEGERS(f64)

// Rounds to odd: truncates, and sets the last bit if anything was lost, so that a second rounding
// to fewer bits gives what one rounding would.
DEVICE f32 f64_to_odd_f32(f64 x) {
  const f32 nearest = (f32)x;
  const f64 back = nearest;
  const i32 toward_zero = i32_of_f32(nearest) - (fabs(back) > fabs(x));
  return f32_of_i32(toward_zero | (back < x || back > x));
}
PACK(f64, 2, 16)
)";

constexpr const char* no_read_only = "#undef READ_ONLY\n#define READ_ONLY(at) (*(at))\n";

}  // namespace

std::string gpu_prelude(GpuLanguage language) {
  if (language == GpuLanguage::cuda)
    return std::string(cuda_names) + (env_lists("WEFT_CUDA_OFF", "read-only") ? no_read_only : "") +
           cuda_half + helpers + float64;
  return opencl_names + opencl_functions() + opencl_half + helpers + "\n#ifdef HAS_F64\n" +
         float64 + "#endif\n";
}

void check_device_has(std::string_view function) {
  WEFT_CHECK(std::ranges::find(device_functions, function) != std::end(device_functions),
             "[{0}] GPU kernels call a function by its name in C, and this operation has none. "
             "Hint: define "
             "{0} by `decompose`, as an expression of other operations.",
             function);
}

}  // namespace weft::loop
