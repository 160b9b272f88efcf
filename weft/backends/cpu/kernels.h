// Declares the library kernels of the CPU, one group of functions per family of operations.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "weft/device/bound.h"
#include "weft/device/choice.h"
#include "weft/device/compiler.h"
#include "weft/device/contraction.h"
#include "weft/ir/op_def.h"

namespace weft::cpu {

// These are the kernels of families that have several (KernelChoice::algorithm).
enum class Algorithm : int {
  only,
  product_unpacked,
  product_packed,
  product_contraction,
  product_skinny,
  conv_windows,
  conv_winograd,
  attention_cached,
};
inline bool is_by(const Launch& launch, Algorithm algorithm) {
  return launch.algorithm == static_cast<int>(algorithm);
}

struct Family {
  std::string_view op;
  // Chooses as KernelChooser does, by a heuristic; nullopt where the family has no kernel for this
  // type.
  std::optional<KernelChoice> (*choose)(const Node& node, std::span<const Placement> operands);
  // Returns all kernels that could be chosen, each with a name and an algorithm of its own. A null
  // pointer: the family has a single kernel.
  std::vector<KernelChoice> (*alternatives)(const Node& node, std::span<const Placement> operands);
  // Compiles the kernel that `launch` names.
  std::unique_ptr<Kernel> (*compile)(const Launch& launch);
};
const Family* find_family(std::string_view op);

std::optional<KernelChoice> choose_matmul(const Node& node, std::span<const Placement> operands);
std::vector<KernelChoice> matmul_alternatives(const Node& node,
                                              std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_matmul(const Launch& launch);
// A product with packed panels adds a fixed bias, which the step does not assign, as its epilogue.
std::optional<KernelChoice> choose_biased_matmul(std::span<const Value> body,
                                                 std::span<const Value> results,
                                                 std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_biased_matmul(const Launch& launch);
std::optional<KernelChoice> choose_matmul_mixed(const Node& node,
                                                std::span<const Placement> operands);
std::optional<KernelChoice> choose_matmul_add(const Node& node,
                                              std::span<const Placement> operands);
std::vector<KernelChoice> matmul_add_alternatives(const Node& node,
                                                  std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_matmul_add(const Launch& launch);
std::optional<KernelChoice> choose_matmul_blocks(const Node& node,
                                                 std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_matmul_blocks(const Launch& launch);
std::optional<KernelChoice> choose_matmul_blocks_int8(const Node& node,
                                                      std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_matmul_blocks_int8(const Launch& launch);
std::optional<KernelChoice> choose_grouped_matmul(const Node& node,
                                                  std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_grouped_matmul(const Launch& launch);
std::optional<KernelChoice> choose_grouped_weight_gradient(const Node& node,
                                                           std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_grouped_weight_gradient(const Launch& launch);
std::optional<KernelChoice> choose_conv(const Node& node, std::span<const Placement> operands);
std::optional<KernelChoice> choose_conv_mixed(const Node& node,
                                              std::span<const Placement> operands);
std::vector<KernelChoice> conv_alternatives(const Node& node, std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_conv(const Launch& launch);
std::optional<KernelChoice> choose_pool(const Node& node, std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_pool(const Launch& launch);
std::optional<KernelChoice> choose_attention(const Node& node, std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_attention(const Launch& launch);
// This kernel computes causal attention with a start, a window or capped scores, without a mask,
// and has no gradient.
std::optional<KernelChoice> choose_cached_attention(const Node& node,
                                                    std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_cached_attention(const Launch& launch);
std::optional<KernelChoice> choose_scatter_add(const Node& node,
                                               std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_scatter_add(const Launch& launch);
std::optional<KernelChoice> choose_first_position(const Node& node,
                                                  std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_first_position(const Launch& launch);
std::optional<KernelChoice> choose_update_at(const Node& node, std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_update_at(const Launch& launch);
std::optional<KernelChoice> choose_argsort(const Node& node, std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_argsort(const Launch& launch);

// These choose the kernel of a matrix product for any operation, such as `matmul` or a 1 x 1
// `conv`.
KernelChoice choose_product(const Contraction& task);
std::vector<KernelChoice> product_alternatives(const Contraction& task);
bool is_product(const Launch& launch);  // whether choose_product() chose its kernel

// Compiles the kernel that `launch` names; `inputs` are a and b of the product, in that order.
std::unique_ptr<Kernel> compile_product(const Contraction& task, std::vector<Bound> inputs,
                                        const Launch& launch);

// Copies on all threads.
void copy_bytes(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace weft::cpu
