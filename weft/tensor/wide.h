// Declares what modules with sums on 16-bit floats compute by: in float32 inside, rounded once.
#pragma once

#include "weft/ops/wide.h"
#include "weft/tensor/tensor.h"
