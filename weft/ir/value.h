// Includes the types that operations work on: tensors, their nodes and arguments.
#pragma once

#include "weft/ir/arg.h"
#include "weft/ir/node.h"
#include "weft/ir/tensor.h"
