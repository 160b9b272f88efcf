#include "tests/support/planned.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "tests/support/part.h"
#include "tests/support/values.h"
#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/base/numbers/hash.h"
#include "weft/device/registry.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"
#include "weft/runtime/executable.h"
#include "weft/weft.h"

namespace weft::testing {
namespace {
Value copy_of(const void* bytes, const Type& type) {
  auto buffer = Buffer::allocate(type.bytes());
  std::memcpy(buffer->data, bytes, type.bytes());
  return from_buffer(std::move(buffer), type);
}

// ForgetsOffsets is a faulty code generator: fused kernels read their operands from the start of
// the slot.
class ForgetsOffsets : public KernelLibrary, public KernelCompiler {
 public:
  explicit ForgetsOffsets(const KernelLibrary& right) : right_(right) {}
  std::string name() const override { return right_.name(); }
  const KernelChooser& kernels() const override { return right_.kernels(); }
  const KernelCompiler& compiler() const override { return *this; }
  bool generates() const override { return right_.compiler().generates(); }
  size_t workspace(const Launch& fused) const override {
    return right_.compiler().workspace(fused);
  }
  Reread reread(const Launch& fused) const override { return right_.compiler().reread(fused); }
  std::unique_ptr<Kernel> compile(const Plan& plan, const Launch& launch) const override {
    Launch wrong = launch;
    for (Access& operand : wrong.operands)
      if (launch.kind == Launch::Kind::fused && operand.at.offset > 0 && forward(operand.at))
        operand.at.offset = 0;
    return right_.compiler().compile(plan, wrong);
  }

 private:
  static bool forward(const Placement& at) {  // negative strides would read before the slot
    return std::all_of(at.strides.begin(), at.strides.end(), [](int64_t s) { return s >= 0; });
  }
  const KernelLibrary& right_;
};
}  // namespace

std::span<const KernelLibrary* const> backends() {
  static const auto all = [] {
    const char* other = std::getenv("BACKEND");
    return std::vector<const KernelLibrary*>{&library("reference"),
                                             &library(other != nullptr ? other : "cpu")};
  }();
  return all;
}

bool is_in_part(std::string_view name) { return in_part(hash_text(name)); }

std::vector<Value> run_planned(const Graph& graph, std::span<const Value> inputs,
                               const KernelLibrary& library, const PlanSettings& settings) {
  const bool lowers_wrongly = settings.fault == "lower-forgets-offsets";
  const PassOptions options{.library = &library,
                            .threads = thread_count(),
                            .step = settings.step,
                            .tile_anywhere = settings.anywhere,
                            .verify = true,
                            .fault = lowers_wrongly ? "" : settings.fault};
  ForgetsOffsets wrong(library);
  const KernelLibrary& compiler = lowers_wrongly ? wrong : library;
  const std::unique_ptr<Executable> executable = make_executable(
      [&] { return bound_plan(graph, options); }, compiler, std::make_shared<Workspace>());
  std::vector<Value> before;
  before.reserve(graph.assignments.size());
  for (const auto& [variable, value] : graph.assignments)
    before.push_back(copy_of(variable->variable->storage->on_host().data, variable.type()));

  std::vector<Value> results;
  for (const Value& result : executable->run(inputs))
    results.push_back(copy_of(result.eval()->data(), result.type()));
  for (size_t i = 0; i < before.size(); ++i) {
    std::byte* state = graph.assignments[i].variable->variable->storage->on_host().data;
    results.push_back(copy_of(state, before[i].type()));
    std::memcpy(state, before[i]->data(), before[i].type().bytes());
  }
  return results;
}

std::string disagreement(std::span<const Value> got, std::span<const Interpreted> want,
                         const KernelLibrary& library, bool exact) {
  if (got.size() != want.size())
    return fmt::format("{} results instead of {}", got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    std::string text = exact && &library == backends().front()
                           ? bit_difference(got[i], want[i].value)
                           : difference(got[i], want[i].value, want[i].allowed);
    if (!text.empty()) return fmt::format("result {}: {}", i, text);
  }
  return "";
}

bool is_verifiers(const InternalError& error) {
  const std::string_view text = error.what();
  return text.starts_with("internal error at graph.cpp:") ||
         text.starts_with("internal error at plan.cpp:") ||
         text.find(": fusion made a cycle: ") != std::string_view::npos;
}
}  // namespace weft::testing
