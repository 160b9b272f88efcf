#include "weft/backends/cpu/machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <immintrin.h>
#include <sched.h>
#include <sstream>
#include <sys/syscall.h>
#include <unistd.h>

#include "weft/base/host/parallel.h"
#include "weft/base/logging.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/memory.h"

// A multiply-add counts as one operation of the peak, so it may be contracted to one instruction.
#if defined(__clang__)
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("O3", "fp-contract=fast")
#endif

#include "weft/base/host/isa_dispatch.h"
#include "weft/base/host/stopwatch.h"

namespace weft::cpu {
namespace {

// ---- description of the host
// -----------------------------------------------------------------------------------

// Returns the text after the colon of the first line of /proc/cpuinfo that begins with `key`.
std::string cpuinfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key))
      if (size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "";
}

size_t cache_bytes(int name) {
  const long bytes = sysconf(name);
  return bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// ---- peaks of the host
// -------------------------------------------------------------------------------

// Ten independent chains of multiply-adds hide their latency: 4 or 5 cycles, at two per cycle.
constexpr int chains = 10;
constexpr int64_t rounds = 20000;

template <class Lane, int vector_bytes>
[[gnu::always_inline]] inline double multiply_add_loop() {
  using Vector [[gnu::vector_size(vector_bytes)]] = Lane;
  Vector sums[chains];
  auto one_factor = static_cast<Lane>(0.999), one_term = static_cast<Lane>(0.001);
  asm volatile("" : "+x"(one_factor), "+x"(one_term));  // unknown to the optimizer
  const Vector factor = Vector{} + one_factor, term = Vector{} + one_term;
#pragma GCC unroll 16
  for (int i = 0; i < chains; ++i) sums[i] = Vector{} + static_cast<Lane>(i);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) sums[i] = sums[i] * factor + term;
  }
  Vector total{};
#pragma GCC unroll 16
  for (int i = 0; i < chains; ++i) total += sums[i];
  asm volatile(
      ""
      :
      : "m"(total));  // in memory, as Clang rejects a register that this function's target lacks
  return 2.0 * chains * rounds * vector_bytes / static_cast<double>(sizeof(Lane));
}

template <class Lane>
[[gnu::target("avx512f")]] double multiply_adds_avx512() {
  return multiply_add_loop<Lane, 64>();
}
template <class Lane>
[[gnu::target("avx2,fma")]] double multiply_adds_avx2() {
  return multiply_add_loop<Lane, 32>();
}
template <class Lane>
double multiply_adds_baseline() {
  return multiply_add_loop<Lane, 16>();
}

[[gnu::target("avx512f,avx512bf16")]] double dot_products_bf16() {
  __m512 sums[chains];
  const __m512bh ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
#pragma GCC unroll 16
  for (int i = 0; i < chains; ++i) sums[i] = _mm512_setzero_ps();
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) {
      sums[i] = _mm512_dpbf16_ps(sums[i], ones, ones);
      asm volatile("" : "+v"(sums[i]));
    }
  }
  return 2.0 * chains * rounds * 32;
}

// Tiles have 16 rows of 64 bytes; one tile product is 16 x 16 x 32 multiply-adds.
[[gnu::target("amx-tile,amx-bf16")]] double tile_products_bf16() {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  constexpr int64_t products = rounds / 8;
  asm volatile("" : : "r"(&config) : "memory");  // GCC 12 thinks that only 8 bytes of it are read
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t round = 0; round < products; ++round) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
  return 2.0 * 4 * products * 16 * 16 * 32;
}
// Linux grants the AMX tile registers on request.
bool may_use_tiles() {
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

using Loop = double (*)();  // returns how many operations it did

template <class Lane>
Loop best_loop() {
  return best_of<Loop>(multiply_adds_avx512<Lane>, multiply_adds_avx2<Lane>,
                       multiply_adds_baseline<Lane>);
}
Loop best_bf16_loop() {
  if (isa() >= Isa::amx && may_use_tiles()) return &tile_products_bf16;
  if (isa() >= Isa::avx512_bf16) return &dot_products_bf16;
  return best_loop<float>();
}

// Returns the best rate of `work` (operations or bytes, all threads together) in several runs, per
// nanosecond.
template <class F>
double best_rate(double seconds, F&& work) {
  work();  // touches memory for the first time
  double best = 0;
  const double end = now() + seconds;
  for (int run = 0; run < 3 || now() < end; ++run) {
    const double start = now();
    const double done = work();
    best = std::max(best, done / (now() - start));
  }
  return best / 1e9;
}

double peak(Loop loop, double seconds) {
  const int64_t threads = thread_count();
  return best_rate(seconds, [&] {
    std::atomic<int64_t> operations{0};
    parallel_for(threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) operations += static_cast<int64_t>(loop());
    });
    return static_cast<double>(operations);
  });
}

// Computes a[i] = b[i] + 3 c[i] with non-temporal stores, which need not read the line that they
// replace.
void triad(float* a, const float* b, const float* c, int64_t begin, int64_t end) {
  int64_t i = begin;
  for (; i < end && reinterpret_cast<uintptr_t>(a + i) % sizeof(__m128) != 0; ++i)
    a[i] = b[i] + 3.0f * c[i];
  for (; i + 4 <= end; i += 4)
    _mm_stream_ps(a + i, _mm_loadu_ps(b + i) + 3.0f * _mm_loadu_ps(c + i));
  for (; i < end; ++i) a[i] = b[i] + 3.0f * c[i];
  _mm_sfence();
}

// Each array is as large as the last-level cache, so that none of it is cached when it is next
// used.
double bandwidth(double seconds, const Machine& machine) {
  const size_t wanted = std::max(size_t{64} << 20, machine.l3), most = machine.available / 6;
  if (most < machine.l3)
    logging::warn(
        "the measured bandwidth is partly that of the L3 cache: too little memory is free for "
        "larger arrays.");
  const auto count = static_cast<int64_t>(std::min(wanted, most) / sizeof(float));
  const auto memory = Buffer::allocate(3 * static_cast<size_t>(count) * sizeof(float));
  auto* a = reinterpret_cast<float*>(memory->data);
  const float *b = a + count, *c = b + count;
  // Pages that were never written map to one page of zeros, which would be read from L1.
  parallel_for(3 * count, [&](int64_t begin, int64_t end) { std::fill(a + begin, a + end, 1.0f); });
  const double apart = best_rate(seconds, [&] {
    parallel_for(count, [&](int64_t begin, int64_t end) { triad(a, b, c, begin, end); });
    return 12.0 * static_cast<double>(count);
  });
  const double in_place = best_rate(seconds, [&] {
    parallel_for(3 * count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) a[i] *= 1.0f + 1e-6f;
    });
    return 24.0 * static_cast<double>(count);
  });
  return std::max(apart, in_place);
}
}  // namespace

Machine this_machine() {
  Machine machine{.isa = isa()};
  machine.model = cpuinfo("model name");
  if (machine.model.empty()) machine.model = "unknown";
  machine.cores = usable_cores();
  machine.l1_data = cache_bytes(_SC_LEVEL1_DCACHE_SIZE);
  machine.l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
  machine.l3 = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
  machine.memory = machine_memory();
  machine.available = available_memory();
  static const std::vector<std::string> known = {
      "sse4_2",      "avx",      "avx2",     "fma",      "f16c",        "avx_vnni",
      "avx512f",     "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16",
      "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"};
  std::istringstream flags(cpuinfo("flags"));
  for (std::string flag; flags >> flag;)
    if (std::find(known.begin(), known.end(), flag) != known.end())
      machine.features.push_back(flag);
  return machine;
}

Peaks measure_peaks(double seconds) {
  return {peak(best_loop<float>(), seconds), peak(best_loop<double>(), seconds),
          peak(best_bf16_loop(), seconds), bandwidth(seconds, this_machine())};
}
}  // namespace weft::cpu
