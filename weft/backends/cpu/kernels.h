// The library kernels of the CPU, one pair of functions per family of operations.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "weft/device/device.h"
#include "weft/ir/op_def.h"

namespace weft::cpu {

struct Family {
  std::string_view op;
  // As in KernelLibrary, by a rule of thumb: nullopt where the family has no kernel for this type.
  std::optional<KernelChoice> (*choose)(const Node& node, std::span<const Placement> operands);
  // All kernels that could be chosen, by different names; null where there is only one.
  std::vector<KernelChoice> (*alternatives)(const Node& node, std::span<const Placement> operands);
  // The kernel that the step names.
  std::unique_ptr<Kernel> (*compile)(const Step& step);
};
const Family* find_family(std::string_view op);

std::optional<KernelChoice> choose_matmul(const Node& node, std::span<const Placement> operands);
std::vector<KernelChoice> matmul_alternatives(const Node& node,
                                              std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_matmul(const Step& step);
std::optional<KernelChoice> choose_matmul_add(const Node& node,
                                              std::span<const Placement> operands);
std::vector<KernelChoice> matmul_add_alternatives(const Node& node,
                                                  std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_matmul_add(const Step& step);
std::optional<KernelChoice> choose_conv(const Node& node, std::span<const Placement> operands);
std::vector<KernelChoice> conv_alternatives(const Node& node, std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_conv(const Step& step);
std::optional<KernelChoice> choose_pool(const Node& node, std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_pool(const Step& step);
std::optional<KernelChoice> choose_attention(const Node& node, std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_attention(const Step& step);
std::optional<KernelChoice> choose_scatter_add(const Node& node,
                                               std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_scatter_add(const Step& step);
std::optional<KernelChoice> choose_first_position(const Node& node,
                                                  std::span<const Placement> operands);
std::unique_ptr<Kernel> compile_first_position(const Step& step);

// One matrix product, whichever operation it is for (contraction.h).
struct Contraction;
KernelChoice choose_product(const Contraction& task);
std::vector<KernelChoice> product_alternatives(const Contraction& task);
bool is_product(std::string_view kernel);  // one of their names

// One input of the node of a step, or its result: which pointer run() gets for it, and where its
// elements lie from there.
struct Bound {
  int index = 0;
  int64_t offset = 0;  // in elements
  Dims strides;        // in elements
  Type type;

  const std::byte* in(void* const* operands) const {
    return static_cast<const std::byte*>(operands[index]) + byte_offset();
  }
  std::byte* out(void* const* results) const {
    return static_cast<std::byte*>(results[index]) + byte_offset();
  }
  int64_t byte_offset() const { return offset * static_cast<int64_t>(size_of(type.dtype)); }
};
// A library step has one node and one result, and an operand for each of the node's inputs.
std::vector<Bound> bind_inputs(const Step& step);
Bound bind_result(const Step& step);

// The kernel that the step names, with a and b of the product in that order.
std::unique_ptr<Kernel> compile_product(const Contraction& task, std::vector<Bound> inputs,
                                        const Step& step);

// Strides of a dense tensor whose axes lie in `order`, outermost first.
Dims dense_strides(const Shape& shape, const Dims& order);
// The axes from the widest stride to the narrowest: the order in which a copy disturbs least. An
// axis of extent 1 says nothing: it stays where it is.
Dims order_of(const Shape& shape, const Dims& strides);

}  // namespace weft::cpu
