// Declares what kernels of convolutions share: the node in numbers, and oneDNN's primitive for it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "weft/backends/cpu/im2col.h"
#include "weft/backends/cpu/onednn.h"
#include "weft/device/choice.h"
#include "weft/device/compiler.h"

namespace weft::cpu {

extern const Dims channels_last;  // the order of activations, outermost first

Convolution convolution_of(const Node& node);
// Returns nullopt where oneDNN has no implementation. A fixed weight is packed once. With
// `tile_bytes` the result is computed in tiles (onednn::Problem).
std::optional<onednn::Primitive> library_primitive(const Node& node, const Convolution& conv,
                                                   size_t tile_bytes = 0);

// A convolution of integers and what is computed of its sums, element by element, are one kernel:
// the sums of a tile stay in the cache, and only the last value is stored.
std::optional<KernelChoice> choose_conv_epilogue(std::span<const Value> body,
                                                 std::span<const Value> results);
std::unique_ptr<Kernel> compile_conv_epilogue(const Launch& launch);

}  // namespace weft::cpu
