#include "weft/codegen/llvm_jit.h"

#include <atomic>
#include <cmath>
#include <mutex>
#include <set>
#include <string_view>
#include <unistd.h>

#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassManager.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include "weft/base/error.h"
#include "weft/base/host/isa_dispatch.h"
#include "weft/ir/op_def.h"

namespace weft::loop {
namespace {

template <class T>
T take(llvm::Expected<T> value, const char* what) {
  if (value) return static_cast<T&&>(*value);
  std::string reason = llvm::toString(value.takeError());
  WEFT_ASSERT(false, "{}: {}", what, reason);
}
void check(llvm::Error error, const char* what) {
  if (!error) return;
  std::string reason = llvm::toString(std::move(error));
  WEFT_ASSERT(false, "{}: {}", what, reason);
}

// Disables loop strength reduction, which takes a quarter of the compile time of a short kernel and
// three quarters of a long one and speeds up few kernels (docs/decisions/0032). Only an option of
// LLVM's command line disables it.
void skip_strength_reduction() {
  llvm::cl::Option* option = llvm::cl::getRegisteredOptions().lookup("disable-lsr");
  WEFT_ASSERT(option != nullptr, "LLVM has no option disable-lsr");
  static_cast<llvm::cl::opt<bool>*>(option)->setValue(true);
}

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    skip_strength_reduction();
  });
}

std::string host_features() {
  std::vector<std::string> names;
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    names.push_back((feature.second ? "+" : "-") + feature.first().str());
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

// Returns the instruction set that the process is limited to as LLVM names it, so that code is the
// same on every host.
HostTarget capped(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return {.cpu = "x86-64-v2", .features = ""};
    case Isa::avx2:
      return {.cpu = "x86-64-v3", .features = ""};
    case Isa::avx512:
      return {.cpu = "x86-64-v4", .features = ""};
    case Isa::avx512_bf16:
    case Isa::amx:
      break;
  }
  return {.cpu = "x86-64-v4", .features = "+avx512bf16,+avx512vnni"};
}

HostTarget find_host() {
  HostTarget host = isa_is_capped() ? capped(isa())
                                    : HostTarget{.cpu = llvm::sys::getHostCPUName().str(),
                                                 .features = host_features()};
  host.vector_bytes = best_of(64, 32, 16);
  // A result of up to a quarter of the shared last-level cache stays there until it is read. Below
  // 16 MiB, by measurement, the L2 caches keep enough of it to make normal stores faster.
  constexpr size_t least = size_t{16} << 20;
  const long last_cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  host.stream_bytes = std::max(least, static_cast<size_t>(std::max(last_cache, 0L)) / 4);
  return host;
}

std::unique_ptr<llvm::TargetMachine> make_machine() {
  initialize_llvm();
  std::string problem, triple = llvm::sys::getProcessTriple();
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, problem);
  WEFT_ASSERT(target != nullptr, "no LLVM target for {}: {}", triple, problem);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  const HostTarget& host = host_target();
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, host.cpu, host.features, options, llvm::Reloc::PIC_,
                                  llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, true));
}

void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::PreserveCFG));
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) passes.run(function, functions);
}

llvm::orc::ExecutorSymbolDef callable(auto* function) {
  return {llvm::orc::ExecutorAddr::fromPtr(function),
          llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
}

// Returns the symbols that kernels call besides the functions of operations.
llvm::orc::SymbolMap runtime_symbols(llvm::orc::LLJIT& jit) {
  using Unary = double (*)(double);
  using Single = float (*)(float);
  using Binary = double (*)(double, double);
  llvm::orc::SymbolMap symbols;
  auto add = [&](const char* name, auto* function) {
    symbols[jit.mangleAndIntern(name)] = callable(function);
  };
  add("pow", static_cast<Binary>(std::pow)), add("atan2", static_cast<Binary>(std::atan2));
  add("memcpy", &std::memcpy), add("memmove", &std::memmove), add("memset", &std::memset);
  // LLVM lowers these to calls where the CPU lacks the instruction.
  add("fma", static_cast<double (*)(double, double, double)>(std::fma));
  add("fmaf", static_cast<float (*)(float, float, float)>(std::fma));
  add("floorf", static_cast<Single>(std::floor)), add("ceilf", static_cast<Single>(std::ceil));
  add("truncf", static_cast<Single>(std::trunc));
  add("rint", static_cast<Unary>(std::rint)), add("rintf", static_cast<Single>(std::rint));
  return symbols;
}

// Defines the functions of operations, including those that a program registered since the last
// call.
void define_functions(llvm::orc::LLJIT& jit) {
  static std::mutex mutex;
  static std::set<std::string_view> defined;
  const std::scoped_lock lock(mutex);
  llvm::orc::SymbolMap fresh;
  for (const OpDef* def : registered_ops())
    if (def->function != nullptr && defined.insert(def->name).second)
      fresh[jit.mangleAndIntern(def->name)] = callable(def->function);
  if (fresh.empty()) return;
  check(jit.getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(fresh))),
        "defining functions");
}

std::shared_ptr<llvm::orc::LLJIT> jit() {
  static std::shared_ptr<llvm::orc::LLJIT> instance = [] {
    initialize_llvm();
    auto built = take(llvm::orc::LLJITBuilder().create(), "starting the LLVM JIT");
    check(built->getMainJITDylib().define(llvm::orc::absoluteSymbols(runtime_symbols(*built))),
          "defining runtime symbols");
    return built;
  }();
  return instance;
}

// Library is one linked kernel, unlinked when its last user is gone. It may outlive static objects,
// so it shares ownership of the engine.
struct Library {
  std::shared_ptr<llvm::orc::LLJIT> engine = jit();
  llvm::orc::JITDylib* dylib = nullptr;
  ~Library() {
    if (dylib != nullptr) llvm::consumeError(engine->getExecutionSession().removeJITDylib(*dylib));
  }
};
}  // namespace

const HostTarget& host_target() {
  static const HostTarget host = find_host();
  return host;
}

std::string compiler_text() {
  return host_target().cpu + "\n" + host_target().features + "\n" + std::string(name(isa())) +
         "\n" LLVM_VERSION_STRING "\n" WEFT_COMPILER_SOURCE;
}

std::string compile_object(llvm::Module& module) {
  thread_local std::unique_ptr<llvm::TargetMachine> machine = make_machine();
  module.setDataLayout(machine->createDataLayout());
  module.setTargetTriple(machine->getTargetTriple().str());
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("target-cpu", host_target().cpu);
    function.addFnAttr("target-features", host_target().features);
  }
  optimize(module, *machine);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  bool refused = machine->addPassesToEmitFile(passes, stream, nullptr,
                                              llvm::CodeGenFileType::ObjectFile, true);
  WEFT_ASSERT(!refused, "LLVM cannot write object files for this machine");
  passes.run(module);
  return {bytes.begin(), bytes.end()};
}

LoadedCode load_object(const std::string& object, const std::vector<std::string>& functions) {
  static std::atomic<int> count{0};
  auto library = std::make_shared<Library>();
  llvm::orc::LLJIT& engine = *library->engine;
  define_functions(engine);
  auto& dylib =
      take(engine.createJITDylib("kernel" + std::to_string(count++)), "making room for a kernel");
  library->dylib = &dylib;
  // The search order has the process last: in LLVM 19, two threads that look up one name in the
  // process define it twice.
  llvm::orc::JITDylibSearchOrder order =
      llvm::orc::makeJITDylibSearchOrder({&engine.getMainJITDylib()});
  for (const auto& other : engine.defaultLinkOrder()) order.push_back(other);
  dylib.setLinkOrder(std::move(order));
  check(engine.addObjectFile(dylib, llvm::MemoryBuffer::getMemBufferCopy(object)),
        "adding a kernel");
  LoadedCode code{.functions = {}, .owner = library};
  for (const std::string& function : functions)
    code.functions.push_back(
        take(engine.lookup(dylib, function), "linking a kernel").toPtr<void*>());
  return code;
}

}  // namespace weft::loop
