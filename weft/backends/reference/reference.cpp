#include "weft/backends/reference/reference.h"

#include <algorithm>

#include "weft/backends/reference/kernels.h"

namespace weft {
namespace reference {

Function find_function(const OpDef& def) {
  struct Named {
    std::string_view op;
    Function function;
  };
  static constexpr Named named[] = {
      {"scalar", constant},
      {"iota", iota},
      {"reshape", reshape},
      {"permute", permute},
      {"broadcast", broadcast},
      {"slice", slice},
      {"flip", flip},
      {"pad", pad},
      {"concat", concat},
      {"gather", gather},
      {"part_at", part_at},
      {"scatter_add", scatter_add},
      {"first_position", first_position},
      {"matmul", matmul},
      {"conv", conv},
      {"conv_input_gradient", conv_input_gradient},
      {"conv_weight_gradient", conv_weight_gradient},
      {"max_pool", max_pool},
      {"max_pool_gradient", max_pool_gradient},
      {"avg_pool", avg_pool},
      {"avg_pool_gradient", avg_pool_gradient},
      {"random_uniform", random_uniform},
      {"random_uniform_part", random_uniform},
  };
  if (def.kind == OpKind::elementwise) return elementwise;
  if (def.kind == OpKind::reduce) return reduce;
  for (const Named& candidate : named)
    if (candidate.op == def.name) return candidate.function;
  return nullptr;
}

namespace {
class ReferenceKernel : public Kernel {
 public:
  explicit ReferenceKernel(const Launch& launch)
      : value_(launch.body.back()),
        function_(find_function(*value_->op)),
        result_(launch.results.front()) {
    WEFT_ASSERT(launch.body.size() == 1 && launch.results.size() == 1 && function_ != nullptr,
                "the reference runs one primitive per launch, not {}", launch.kernel);
    for (const Access& operand : launch.operands) layouts_.emplace_back(operand);
    for (const Value& input : value_->inputs) {
      auto found =
          std::find_if(launch.operands.begin(), launch.operands.end(),
                       [&](const Access& operand) { return operand.value.node() == input.node(); });
      WEFT_ASSERT(found != launch.operands.end(), "{} lacks an operand", launch.kernel);
      slots_.push_back(static_cast<int>(found - launch.operands.begin()));
    }
  }
  void run(void* const* operands, void* const* results, void*) const override {
    function_(*value_.node(), Operands(layouts_, slots_, operands), View{results[0], &result_});
  }

 private:
  Value value_;
  Function function_;
  Layout result_;
  std::vector<Layout> layouts_;
  std::vector<int> slots_;
};

class ReferenceLibrary : public KernelLibrary, public KernelChooser, public KernelCompiler {
 public:
  std::string name() const override { return "reference"; }
  const KernelChooser& kernels() const override { return *this; }
  const KernelCompiler& compiler() const override { return *this; }

  std::optional<KernelChoice> choose(const Node& node, std::span<const Placement>) const override {
    if (find_function(*node.op) == nullptr) return std::nullopt;
    return KernelChoice{.kernel = "ref:" + std::string(node.op->name)};
  }
  bool generates() const override { return false; }
  std::unique_ptr<Kernel> compile(const Plan&, const Launch& launch) const override {
    return std::make_unique<ReferenceKernel>(launch);
  }
};
}  // namespace
}  // namespace reference

std::unique_ptr<KernelLibrary> reference_library() {
  return std::make_unique<reference::ReferenceLibrary>();
}
}  // namespace weft
