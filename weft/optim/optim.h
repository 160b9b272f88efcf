// Includes all of weft/optim.
#pragma once

#include "weft/optim/adam.h"
#include "weft/optim/gradients.h"
#include "weft/optim/registry.h"
#include "weft/optim/schedule.h"
#include "weft/optim/sgd.h"
