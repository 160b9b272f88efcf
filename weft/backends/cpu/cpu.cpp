#include "weft/backends/cpu/cpu.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include "weft/backends/cpu/conv/conv.h"
#include "weft/backends/cpu/gemm/packed.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/backends/cpu/selection.h"
#include "weft/base/host/parallel.h"
#include "weft/base/logging.h"
#include "weft/codegen/codegen.h"

namespace weft {
namespace cpu {
namespace {

class FusedKernel : public Kernel {
 public:
  explicit FusedKernel(CompiledKernel kernel) : kernel_(std::move(kernel)) {}
  void run(void* const* operands, void* const* results, void* workspace) const override {
    run_kernel(kernel_, operands, results, workspace);
  }

 private:
  CompiledKernel kernel_;
};

// Returns everything that a choice depends on, as text.
std::string signature(const Node& node, std::span<const Placement> operands) {
  std::string text(node.op->name);
  auto append = [&](const Attr& attr) {
    if (const auto* number = std::get_if<int64_t>(&attr)) text += std::to_string(*number);
    if (const auto* real = std::get_if<double>(&attr)) text += fmt::format("{}", *real);
    if (const auto* dims = std::get_if<Dims>(&attr)) text += to_string(*dims);
    if (const auto* word = std::get_if<std::string>(&attr)) text += *word;
  };
  for (const Attrs::Entry& entry : node.attrs.entries()) {
    text += ' ';
    append(entry.value);
  }
  if (node.annotations.by_algorithm) text += fmt::format(" by {}", *node.annotations.by_algorithm);
  for (size_t i = 0; i < operands.size(); ++i)
    text += ' ' + to_string(node.inputs[i].type()) + '@' + to_string(operands[i].strides) +
            (is_fixed(node.inputs[i]) ? "f" : "");
  return text + " t" + std::to_string(thread_count());
}

class CpuChooser : public KernelChooser {
 public:
  std::optional<KernelChoice> choose(const Node& node,
                                     std::span<const Placement> operands) const override {
    const Family* family = find_family(node.op->name);
    if (family == nullptr) return std::nullopt;
    std::string key = signature(node, operands);
    {
      std::lock_guard lock(mutex_);
      if (auto found = choices_.find(key); found != choices_.end()) return found->second;
    }
    const std::optional<int> given = node.annotations.by_algorithm;
    std::optional<KernelChoice> choice =
        given ? by_algorithm(*family, *given, node, operands) : family->choose(node, operands);
    std::lock_guard lock(mutex_);
    if (choice && family->alternatives != nullptr && !given)
      choice = select(*family, key, node, operands, *choice);
    return choices_.emplace(std::move(key), std::move(choice)).first->second;
  }

  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Value> results,
                                          std::span<const Placement> operands) const override {
    if (auto chain = choose_conv_chain(body, results)) return chain;
    return choose_biased_matmul(body, results, operands);
  }

  std::map<std::string, std::string> selection() const override {
    std::lock_guard lock(mutex_);
    std::map<std::string, std::string> kernels;
    for (const auto& [key, choice] : choices_)
      if (choice && find_family(key.substr(0, key.find(' ')))->alternatives != nullptr)
        kernels[key] = choice->kernel;
    return kernels;
  }
  std::string machine() const override { return machine_identity(); }
  void prefer(const std::map<std::string, std::string>& kernels) const override {
    std::lock_guard lock(mutex_);
    selection_.prefer(kernels);
    choices_.clear();
  }

 private:
  // Returns the kernel that the node asks for, so that a part of a value has the bits of the whole.
  static std::optional<KernelChoice> by_algorithm(const Family& family, int algorithm,
                                                  const Node& node,
                                                  std::span<const Placement> operands) {
    for (KernelChoice& choice : family.alternatives(node, operands))
      if (choice.algorithm == algorithm) return std::move(choice);
    return std::nullopt;
  }
  // Returns the measured kernel in place of the heuristic's.
  KernelChoice select(const Family& family, const std::string& key, const Node& node,
                      std::span<const Placement> operands, const KernelChoice& rule) const {
    std::optional<std::string> known = selection_.find(key);
    if (!known && !tunes()) return rule;
    const std::vector<KernelChoice> all = family.alternatives(node, operands);
    if (all.size() < 2) return rule;
    if (!known) {
      known = fastest(node, operands, family, all).kernel;
      selection_.record(key, *known);
    }
    auto found = std::ranges::find(all, *known, &KernelChoice::kernel);
    return found == all.end() ? rule : *found;
  }

  // Passes ask many times about the same few shapes, and a choice takes up to a millisecond, so
  // choices are cached.
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::optional<KernelChoice>> choices_;
  mutable Selection selection_{machine_identity()};
};

class CpuCompiler : public KernelCompiler {
 public:
  bool generates() const override { return true; }
  size_t workspace(const Launch& fused) const override {
    return workspace_bytes(fused, thread_count());
  }
  std::string identity() const override { return cpu_code_identity(); }
  void collect_code() const override { collect_cpu_code(); }
  std::vector<KernelCode> code() const override { return cpu_code(); }
  void add_code(const std::vector<KernelCode>& codes) const override { add_cpu_code(codes); }
  std::unique_ptr<Kernel> compile(const Plan&, const Launch& launch) const override {
    if (launch.kind == Launch::Kind::fused) {
      if (debug_level() >= 5) logging::debug(5, "{}:\n{}", launch.kernel, kernel_text(launch));
      CompiledKernel kernel = compile_cpu(launch);
      const size_t needed =
          kernel.shared_scratch + static_cast<size_t>(thread_count()) * kernel.scratch_per_thread;
      WEFT_ASSERT(needed <= launch.workspace, "{} plans {} bytes but needs {}", launch.kernel,
                  launch.workspace, needed);
      return std::make_unique<FusedKernel>(std::move(kernel));
    }
    if (launch.body.size() > 1)
      return launch.body.front()->is("matmul") ? compile_biased_matmul(launch)
                                               : compile_conv_chain(launch);
    const Family* family = find_family(launch.body.front()->op->name);
    WEFT_ASSERT(family != nullptr, "the CPU has no kernel for {}", launch.kernel);
    return family->compile(launch);
  }
};

class CpuLibrary : public KernelLibrary {
 public:
  std::string name() const override { return "cpu"; }
  const KernelChooser& kernels() const override { return chooser_; }
  const KernelCompiler& compiler() const override { return compiler_; }

 private:
  CpuChooser chooser_;
  CpuCompiler compiler_;
};
}  // namespace
}  // namespace cpu

std::unique_ptr<KernelLibrary> cpu_library() { return std::make_unique<cpu::CpuLibrary>(); }
}  // namespace weft
