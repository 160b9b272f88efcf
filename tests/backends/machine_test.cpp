#include "weft/backends/cpu/machine.h"

#include <thread>

#include <doctest/doctest.h>

namespace weft::testing {
namespace {

TEST_CASE("the machine has a model, cores, memory, and the baseline's instructions") {
  const cpu::Machine machine = cpu::this_machine();
  CHECK(machine.model != "");
  CHECK(machine.cores >= 1);
  CHECK(machine.cores <= static_cast<int>(std::thread::hardware_concurrency()));
  CHECK(machine.memory > (size_t{1} << 28));
  CHECK(machine.available <= machine.memory);
  CHECK_FALSE(machine.has("no such instructions"));
}

TEST_CASE("measured peaks are plausible: float32 above float64, both above the memory") {
  const cpu::Peaks peaks = cpu::measure_peaks(0.01);
  CHECK(peaks.f32 > 1);
  CHECK(peaks.f32 > 1.2 * peaks.f64);
  CHECK(peaks.bf16 > 0.5 * peaks.f32);
  CHECK(peaks.bandwidth > 0.1);
  CHECK(peaks.f32 > peaks.bandwidth);
}
}  // namespace
}  // namespace weft::testing
