// Includes all of weft/nn.
#pragma once

#include "weft/nn/containers.h"
#include "weft/nn/factory.h"
#include "weft/nn/init.h"
#include "weft/nn/layers.h"
#include "weft/nn/module.h"
#include "weft/nn/moe.h"
#include "weft/nn/options.h"
#include "weft/nn/transformer.h"
