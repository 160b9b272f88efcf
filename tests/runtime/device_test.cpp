// Tests devices by name: those of this machine, and GPUs that are somewhere else.
#include <algorithm>

#include <doctest/doctest.h>

#include "weft/device/catalogue.h"
#include "weft/weft.h"

using namespace weft;

TEST_CASE("every listed device computes") {
  const std::vector<Device> all = devices();
  for (const char* name : {"cpu", "opencl:0", "reference"}) {
    CAPTURE(name);
    CHECK(std::ranges::find(all, Device(name)) != all.end());
  }
  for (const Device& device : all) {
    CAPTURE(device.name());
    CHECK(device.is_present());
    CHECK(device.memory_bytes() > 0);
    CHECK(!device.model().empty());
    auto step = compile([](Tensor x) { return x * 2.0 + 1.0; }, {.device = device});
    CHECK(step(tensor({20.5}, {1})).item() == 42);
    const DeviceScope on(device);
    CHECK((tensor({20.5}, {1}) * 2.0 + 1.0).item() == 42);
  }
}

TEST_CASE("a GPU of the catalogue is a device that steps can be planned for") {
  const Device gpu = "h100";
  CHECK(gpu.name() == "cuda:h100");
  CHECK(gpu == Device("cuda:h100"));
  CHECK(gpu.model() == find_gpu("h100")->name);
  CHECK(gpu.memory_bytes() == spec_of(*find_gpu("h100")).memory_bytes);
  auto step = compile([](Tensor x) { return x * 2.0 + 1.0; });
  CHECK(step.plan_on(gpu, Type{DType::f32, {4}}).device == gpu.model());
}

TEST_CASE("a planning-only device is not present") {
  CHECK(!Device("null").is_present());
  CHECK(!Device("null:cuda").is_present());
}

TEST_CASE("an unknown device is refused where it is named") {
  CHECK_THROWS_WITH_AS(Device("nowhere"),
                       doctest::Contains("unknown device 'nowhere'. Known: auto, cpu, cuda"),
                       Error);
  CHECK_THROWS_WITH_AS(Device("cuda:h1000"), doctest::Contains("no GPU 'h1000'"), Error);
}
