#include "weft/backends/cpu/machine.h"

#include <algorithm>
#include <sys/resource.h>
#include <thread>

#include <doctest/doctest.h>

#include "weft/backends/cpu/onednn_describe.h"
#include "weft/base/isa_dispatch.h"

namespace weft::testing {
namespace {

TEST_CASE("of several bodies of code, the one of the instruction set in use runs") {
  CHECK(best_of(64, 32, 16) == (isa() >= Isa::avx512 ? 64 : isa() >= Isa::avx2 ? 32 : 16));
}

TEST_CASE("the machine has a model, cores, memory, and the baseline's instructions") {
  const cpu::Machine machine = cpu::this_machine();
  CHECK(machine.model != "");
  CHECK(machine.cores >= 1);
  CHECK(machine.cores <= static_cast<int>(std::thread::hardware_concurrency()));
  CHECK(machine.memory > (size_t{1} << 28));
  CHECK(machine.available <= machine.memory);
  CHECK(machine.isa == isa());
  CHECK(machine.has_bf16() == (isa() == Isa::avx512_bf16 || isa() == Isa::amx));
}

TEST_CASE("oneDNN runs with the set of the process, and with no more") {
  onednn::host();
  const int used = dnnl_get_effective_cpu_isa();
  auto has = [&](int set) { return (used & set) == set; };
  CHECK(has(dnnl_cpu_isa_avx2) == (isa() >= Isa::avx2));
  CHECK(has(dnnl_cpu_isa_avx512_core) == (isa() >= Isa::avx512));
  CHECK(has(dnnl_cpu_isa_avx512_core_bf16) == (isa() >= Isa::avx512_bf16));
  CHECK(has(dnnl_cpu_isa_avx512_core_amx) == (isa() >= Isa::amx));
}

// How they compare is for benchmarks: another process takes what it likes of either.
TEST_CASE("every peak is measured") {
  const cpu::Machine machine = cpu::this_machine();
  const cpu::Peaks peaks = cpu::measure_peaks(0.01);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  // Three arrays that each exceed the last cache, all of them real pages, where there is room.
  const size_t arrays = 3 * std::min(machine.l3, machine.available / 8);
  CHECK(static_cast<size_t>(usage.ru_maxrss) * 1024 > arrays);
  for (double peak : {peaks.f32, peaks.f64, peaks.bf16, peaks.bandwidth}) {
    CHECK(peak > 0.01);
    CHECK(peak < 1e6);
  }
}
}  // namespace
}  // namespace weft::testing
