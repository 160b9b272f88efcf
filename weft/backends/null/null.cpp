#include "weft/backends/null/null.h"

namespace weft {
namespace {
class NullKernel : public Kernel {
 public:
  void run(void* const*, void* const*, void*) const override {}
};

// NullCompiler answers for fused kernels as another compiler does, and compiles kernels that do
// nothing.
class NullCompiler : public KernelCompiler {
 public:
  explicit NullCompiler(const KernelCompiler& of) : of_(of) {}
  bool generates() const override { return of_.generates(); }
  size_t workspace(const Launch& fused) const override { return of_.workspace(fused); }
  Reread reread(const Launch& fused) const override { return of_.reread(fused); }
  std::optional<KernelForm> form(const Launch& fused) const override { return of_.form(fused); }
  std::unique_ptr<Kernel> compile(const Plan&, const Launch&) const override {
    return std::make_unique<NullKernel>();
  }

 private:
  const KernelCompiler& of_;
};

class NullLibrary : public KernelLibrary {
 public:
  explicit NullLibrary(const KernelLibrary& of) : of_(of), compiler_(of.compiler()) {}
  std::string name() const override { return "null"; }
  const KernelChooser& kernels() const override { return of_.kernels(); }
  const KernelCompiler& compiler() const override { return compiler_; }
  const Meters& meters() const override { return of_.meters(); }
  bool on_host() const override { return of_.on_host(); }
  bool stages_inputs() const override { return of_.stages_inputs(); }
  bool only_plans() const override { return true; }

 private:
  const KernelLibrary& of_;
  NullCompiler compiler_;
};
}  // namespace

std::unique_ptr<KernelLibrary> null_library(const KernelLibrary& of) {
  return std::make_unique<NullLibrary>(of);
}
}  // namespace weft
