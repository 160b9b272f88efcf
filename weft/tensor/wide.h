// Declares helpers for modules that sum 16-bit floats: they compute in float32 and round once.
#pragma once

#include "weft/ops/wide.h"
#include "weft/tensor/tensor.h"
