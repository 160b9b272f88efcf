#include "weft/backends/cpu/kernels.h"

namespace weft::cpu {

const Family* find_family(std::string_view op) {
  static constexpr Family families[] = {
      {"matmul", choose_matmul, matmul_alternatives, compile_matmul},
      {"matmul_mixed", choose_matmul_mixed, nullptr, compile_matmul},
      {"matmul_add", choose_matmul_add, matmul_add_alternatives, compile_matmul_add},
      {"matmul_blocks", choose_matmul_blocks, nullptr, compile_matmul_blocks},
      {"matmul_blocks_int8", choose_matmul_blocks_int8, nullptr, compile_matmul_blocks_int8},
      {"grouped_matmul_blocks", choose_matmul_blocks, nullptr, compile_matmul_blocks},
      {"grouped_matmul_blocks_int8", choose_matmul_blocks_int8, nullptr,
       compile_matmul_blocks_int8},
      {"grouped_matmul", choose_grouped_matmul, nullptr, compile_grouped_matmul},
      {"grouped_matmul_weight_gradient", choose_grouped_weight_gradient, nullptr,
       compile_grouped_weight_gradient},
      {"conv", choose_conv, conv_alternatives, compile_conv},
      {"conv_mixed", choose_conv_mixed, nullptr, compile_conv},
      {"conv_input_gradient", choose_conv, conv_alternatives, compile_conv},
      {"conv_weight_gradient", choose_conv, conv_alternatives, compile_conv},
      {"max_pool", choose_pool, nullptr, compile_pool},
      {"max_pool_gradient", choose_pool, nullptr, compile_pool},
      {"avg_pool", choose_pool, nullptr, compile_pool},
      {"avg_pool_gradient", choose_pool, nullptr, compile_pool},
      {"attention", choose_attention, nullptr, compile_attention},
      {"attention_gradient", choose_attention, nullptr, compile_attention},
      {"scatter_add", choose_scatter_add, nullptr, compile_scatter_add},
      {"first_position", choose_first_position, nullptr, compile_first_position},
      {"update_at", choose_update_at, nullptr, compile_update_at},
      {"argsort", choose_argsort, nullptr, compile_argsort},
  };
  for (const Family& family : families)
    if (family.op == op) return &family;
  return nullptr;
}

}  // namespace weft::cpu
