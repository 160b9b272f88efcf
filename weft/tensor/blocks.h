// Declares the operations on numbers in blocks of few bits, for modules and programs; tensor.h has
// those that every program needs.
#pragma once

#include "weft/ops/blocks.h"
#include "weft/tensor/tensor.h"
