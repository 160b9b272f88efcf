#include "weft/codegen/codegen.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/IR/LLVMContext.h>

#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/numbers/hash.h"
#include "weft/codegen/code_store.h"
#include "weft/codegen/llvm_emit.h"
#include "weft/codegen/llvm_jit.h"
#include "weft/codegen/lower.h"
#include "weft/codegen/object_cache.h"
#include "weft/codegen/schedule.h"

namespace weft {
namespace {
constexpr double worth_a_team = 10000;  // nanoseconds of work below which the caller runs alone

loop::CpuSchedule schedule_of(const loop::Kernel& kernel, const CpuTarget& target) {
  const loop::HostTarget& host = loop::host_target();
  return loop::schedule_cpu(kernel,
                            target.vector_bytes != 0 ? target.vector_bytes : host.vector_bytes,
                            target.stream_bytes != 0 ? target.stream_bytes : host.stream_bytes);
}

// Returns the object of `module` from the disk cache, or compiles it. `text`, the key of the cache,
// has everything that the machine code depends on.
std::string object_of(llvm::Module& module) {
  std::string text = loop::compiler_text();
  llvm::raw_string_ostream stream(text);
  llvm::WriteBitcodeToFile(module, stream);
  if (auto known = loop::read_object(text)) return *known;
  std::string object = loop::compile_object(module);
  loop::write_object(text, object);
  return object;
}

KernelCode compile(const loop::Kernel& kernel, const loop::CpuSchedule& schedule) {
  llvm::LLVMContext context;
  context.setDiscardValueNames(true);
  loop::EmittedKernel emitted = loop::emit_llvm(kernel, schedule, context, "kernel");
  KernelCode code{.object = object_of(*emitted.module),
                  .shared_scratch = aligned(schedule.shared_scratch),
                  .scratch_per_thread = aligned(schedule.thread_scratch),
                  .work = schedule.work};
  for (loop::EmittedStage& stage : emitted.stages) {
    code.functions.push_back(std::move(stage.function));
    code.extents.push_back(stage.extent);
  }
  return code;
}

CompiledKernel linked(const KernelCode& code) {
  loop::LoadedCode loaded = loop::load_object(code.object, code.functions);
  CompiledKernel result{.shared_scratch = code.shared_scratch,
                        .scratch_per_thread = code.scratch_per_thread,
                        .work = code.work,
                        .code = loaded.owner};
  for (size_t i = 0; i < code.functions.size(); ++i)
    result.stages.push_back(
        {reinterpret_cast<KernelStage::Function>(loaded.functions[i]), code.extents[i]});
  return result;
}

// Links the kernel from code that a file brought, or compiles it.
CompiledKernel made(const loop::Kernel& kernel, const loop::CpuSchedule& schedule,
                    const std::string& text) {
  loop::CodeStore& store = loop::CodeStore::instance();
  std::optional<KernelCode> code = store.find(text);
  if (!code) code = compile(kernel, schedule);
  CompiledKernel result = linked(*code);
  store.note(text, *std::move(code));
  return result;
}
}  // namespace

CompiledKernel compile_cpu(const Launch& launch, const CpuTarget& target) {
  struct Entry {
    std::once_flag once;  // other callers wait while the first one compiles
    CompiledKernel kernel;
  };
  constexpr size_t many = 4096;  // kernels; each uses some of a process's limited memory mappings
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Entry>> entries;
  static size_t limit = many;
  loop::Kernel kernel = loop::lower(launch);
  loop::CpuSchedule schedule = schedule_of(kernel, target);
  std::string text = to_text(kernel) + to_text(schedule) + std::to_string(schedule.vector_bytes);
  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(mutex);
    if (entries.size() >= limit) {  // evict kernels that nobody holds
      std::erase_if(entries, [](const auto& item) {
        return item.second.use_count() == 1 && item.second->kernel.code.use_count() == 1;
      });
      limit = std::max(many, 2 * entries.size());
    }
    std::shared_ptr<Entry>& known = entries[text];
    if (known == nullptr) known = std::make_shared<Entry>();
    entry = known;
  }
  std::call_once(entry->once, [&] { entry->kernel = made(kernel, schedule, text); });
  return entry->kernel;
}

std::string cpu_code_identity() { return to_hex(hash_text(loop::compiler_text())); }
void collect_cpu_code() { loop::CodeStore::instance().collect(); }
std::vector<KernelCode> cpu_code() { return loop::CodeStore::instance().collected(); }
void add_cpu_code(const std::vector<KernelCode>& codes) { loop::CodeStore::instance().add(codes); }

bool can_fuse(const Launch& launch, std::string* why) {
  try {
    loop::lower(launch);
    return true;
  } catch (const InternalError& error) {
    if (why != nullptr) *why = error.what();
    return false;
  }
}

size_t workspace_bytes(const Launch& launch, int threads, const CpuTarget& target) {
  loop::CpuSchedule schedule = schedule_of(loop::lower(launch), target);
  return aligned(schedule.shared_scratch) +
         static_cast<size_t>(threads) * aligned(schedule.thread_scratch);
}

int64_t stage_extent(const Launch& launch, const CpuTarget& target) {
  const loop::CpuSchedule schedule = schedule_of(loop::lower(launch), target);
  return schedule.split_axis < 0 ? schedule.items : 0;
}

void run_kernel(const CompiledKernel& kernel, void* const* operands, void* const* results,
                void* workspace) {
  auto* shared = static_cast<std::byte*>(workspace);
  std::byte* scratch = shared + kernel.shared_scratch;
  int64_t threads = kernel.work < worth_a_team ? 1 : thread_count();
  for (const KernelStage& stage : kernel.stages) {
    int64_t parts = std::min(threads, stage.extent);
    parallel_for(parts, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        stage.fn(operands, results, scratch + static_cast<size_t>(part) * kernel.scratch_per_thread,
                 shared, stage.extent * part / parts, stage.extent * (part + 1) / parts);
    });
  }
}

std::string kernel_text(const Launch& launch, const CpuTarget& target) {
  loop::Kernel kernel = loop::lower(launch);
  return to_text(kernel) + to_text(schedule_of(kernel, target));
}

}  // namespace weft
