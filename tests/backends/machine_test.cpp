#include "weft/backends/cpu/machine.h"

#include <algorithm>
#include <sys/resource.h>
#include <thread>

#include <doctest/doctest.h>

#include "weft/backends/cpu/onednn/describe.h"
#include "weft/base/host/isa_dispatch.h"

namespace weft::testing {
namespace {

// Described has the vector width in bytes, and whether there are bfloat16 dot-product instructions,
// for each instruction set. WEFT_ISA limits this process to one of them.
struct Described {
  Isa set;
  int vector_bytes;
  bool bf16;
};
constexpr Described machines[] = {{Isa::baseline, 16, false},
                                  {Isa::avx2, 32, false},
                                  {Isa::avx512, 64, false},
                                  {Isa::avx512_bf16, 64, true},
                                  {Isa::amx, 64, true}};

TEST_CASE("dispatch selects the variant of the host's instruction set") {
  for (const Described& machine : machines) {
    CHECK(best_of(machine.set, 64, 32, 16) == machine.vector_bytes);
    CHECK(cpu::Machine{.isa = machine.set}.has_bf16() == machine.bf16);
    if (machine.set == isa()) CHECK(best_of(64, 32, 16) == machine.vector_bytes);
  }
}

TEST_CASE("the machine reports its model, cores, memory and baseline instruction set") {
  const cpu::Machine machine = cpu::this_machine();
  CHECK(machine.model != "");
  CHECK(machine.cores >= 1);
  CHECK(machine.cores <= static_cast<int>(std::thread::hardware_concurrency()));
  CHECK(machine.memory > (size_t{1} << 28));
  CHECK(machine.available <= machine.memory);
  CHECK(machine.isa == isa());
}

TEST_CASE("oneDNN uses exactly the instruction set of the process") {
  onednn::host();
  const int used = dnnl_get_effective_cpu_isa();
  auto has = [&](int set) { return (used & set) == set; };
  CHECK(has(dnnl_cpu_isa_avx2) == (isa() >= Isa::avx2));
  CHECK(has(dnnl_cpu_isa_avx512_core) == (isa() >= Isa::avx512));
  CHECK(has(dnnl_cpu_isa_avx512_core_bf16) == (isa() >= Isa::avx512_bf16));
  CHECK(has(dnnl_cpu_isa_avx512_core_amx) == (isa() >= Isa::amx));
}

// The test does not compare the peaks with each other, because other processes disturb the timing.
TEST_CASE("every peak of the machine is measured") {
  const cpu::Machine machine = cpu::this_machine();
  const cpu::Peaks peaks = cpu::measure_peaks(0.01);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  // The bandwidth is measured on three arrays of resident pages, each larger than the last-level
  // cache if memory allows.
  const size_t arrays = 3 * std::min(machine.l3, machine.available / 8);
  CHECK(static_cast<size_t>(usage.ru_maxrss) * 1024 > arrays);
  for (double peak : {peaks.f32, peaks.f64, peaks.bf16, peaks.bandwidth}) {
    CHECK(peak > 0.01);
    CHECK(peak < 1e6);
  }
}
}  // namespace
}  // namespace weft::testing
