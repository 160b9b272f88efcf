// Declares what kernels of convolutions share: the node in numbers, and oneDNN's primitive for it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "weft/backends/cpu/conv/im2col.h"
#include "weft/backends/cpu/onednn/onednn.h"
#include "weft/device/choice.h"
#include "weft/device/compiler.h"

namespace weft::cpu {

extern const Dims channels_last;  // the order of activations, outermost first
extern const Dims row_major;      // the order of weights

Convolution convolution_of(const Node& node);
// Returns nullopt where oneDNN does not compute with the types, or nothing is to be computed. A
// fixed weight is packed once.
std::optional<onednn::Problem> library_problem(const Node& node, const Convolution& conv);

// Fuses a chain of convolutions, each with its elementwise epilogue, to one kernel if the
// activations between them would leave the cache. A single convolution of integers is fused with
// its epilogue, too. Only the last value is stored.
std::optional<KernelChoice> choose_conv_chain(std::span<const Value> body,
                                              std::span<const Value> results);
std::unique_ptr<Kernel> compile_conv_chain(const Launch& launch);

}  // namespace weft::cpu
