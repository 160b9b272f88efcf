#include "weft/backends/null/null.h"

namespace weft {
namespace {
class NullKernel : public Kernel {
 public:
  void run(void* const*, void* const*, void*) const override {}
};

class NullLibrary : public KernelLibrary {
 public:
  explicit NullLibrary(const KernelLibrary& of) : of_(of) {}
  std::string name() const override { return "null"; }
  bool on_host() const override { return of_.on_host(); }
  bool stages_inputs() const override { return of_.stages_inputs(); }
  bool generates() const override { return of_.generates(); }
  std::optional<KernelChoice> choose(const Node& node,
                                     std::span<const Placement> operands) const override {
    return of_.choose(node, operands);
  }
  std::optional<KernelChoice> choose_with(std::span<const Value> body,
                                          std::span<const Value> results,
                                          std::span<const Placement> operands) const override {
    return of_.choose_with(body, results, operands);
  }
  bool stores_sums_beside(const Node& function) const override {
    return of_.stores_sums_beside(function);
  }
  std::optional<MachineSpec> spec() const override { return of_.spec(); }
  size_t workspace(const Step& fused) const override { return of_.workspace(fused); }
  Reread reread(const Step& fused) const override { return of_.reread(fused); }
  std::optional<KernelForm> form(const Step& fused) const override { return of_.form(fused); }
  std::unique_ptr<Kernel> compile(const Plan&, const Step&) const override {
    return std::make_unique<NullKernel>();
  }

 private:
  const KernelLibrary& of_;
};
}  // namespace

std::unique_ptr<KernelLibrary> null_library(const KernelLibrary& of) {
  return std::make_unique<NullLibrary>(of);
}
}  // namespace weft
