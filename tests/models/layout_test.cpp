#include <doctest/doctest.h>

#include "tests/models/training.h"
#include "weft/runtime/executable.h"

using namespace weft;
using namespace weft::testing;

TEST_CASE("activations of ResNet-20 and their gradients are channels-last") {
  constexpr int64_t batch = 5;  // no weight has this extent
  Training training("resnet20", "sgd", batch);
  int activations = 0;
  for (const Launch& launch : training.executable().plan().launches)
    for (const Access& result : launch.results) {
      const Shape& shape = result.value.shape();
      if (shape.size() < 4 || shape[0] != batch || shape[1] == 1 || shape[2] == 1) continue;
      INFO(launch.kernel << " of " << launch.module);
      CHECK(result.at.strides[1] == 1);
      ++activations;
    }
  CHECK(activations > 50);
}
