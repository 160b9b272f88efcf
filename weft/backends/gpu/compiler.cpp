// Compiles with a provider's kernel, alone or, where that was measured to be faster, followed by a
// second kernel for the epilogue; everything else becomes generated loops.
#include "weft/backends/gpu/compiler.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "weft/backends/gpu/joined.h"
#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/logging.h"
#include "weft/codegen/lower.h"
#include "weft/codegen/primitives.h"
#include "weft/ir/op_def.h"

namespace weft::gpu {
namespace {
// InTwo runs a node's kernel, then a second kernel for the rest of the launch's body. Indices of
// pointers count the launch's operands, then its results.
class InTwo : public Kernel {
 public:
  InTwo(std::unique_ptr<Kernel> node, std::unique_ptr<Kernel> rest, const Launch& launch,
        size_t node_result, std::vector<size_t> rest_operands, std::vector<size_t> rest_results)
      : node_(std::move(node)),
        rest_(std::move(rest)),
        operands_(launch.operands.size()),
        node_result_(node_result),
        from_(std::move(rest_operands)),
        to_(std::move(rest_results)),
        read_(from_.size()),
        written_(to_.size()) {}
  void run(void* const* operands, void* const* results, void* workspace) const override {
    node_->run(operands, results + node_result_, workspace);
    for (size_t i = 0; i < from_.size(); ++i)
      read_[i] = from_[i] < operands_ ? operands[from_[i]] : results[from_[i] - operands_];
    for (size_t i = 0; i < to_.size(); ++i) written_[i] = results[to_[i]];
    rest_->run(read_.data(), written_.data(), workspace);
  }

 private:
  std::unique_ptr<Kernel> node_, rest_;
  size_t operands_, node_result_;
  std::vector<size_t> from_, to_;
  mutable std::vector<void*> read_, written_;  // reused, as runs do not allocate
};

// Returns whether the provider takes the launch without copies or more workspace than planned.
bool takes(const Provider& provider, const Launch& launch) {
  std::vector<Placement> operands;
  operands.reserve(launch.operands.size());
  for (const Access& operand : launch.operands) operands.push_back(operand.at);
  const auto choice = provider.choose(*launch.body.front().node(), operands);
  return choice && choice->workspace <= launch.workspace &&
         std::ranges::all_of(choice->operand_order, &Dims::empty);
}

[[noreturn]] void refuse_float64(const Device& device, std::string_view operation,
                                 const std::string& module) {
  throw Error(ErrorKind::device,
              "[{}] {} has no float64, in which {}{}{} is computed. Hint: train.precision fp32, or "
              "casts to float32, do without; --device cpu has it.",
              operation, device.name(), operation, module.empty() ? "" : " of ", module);
}
void check_has_types_of(const Device& device, const Launch& launch) {
  if (device.has_float64()) return;
  const auto is_wide = [](const Value& value) { return value.dtype() == DType::f64; };
  for (const Value& value : launch.body)
    if (is_wide(value) || std::ranges::any_of(value->inputs, is_wide))
      refuse_float64(device, value->op->name, value->module());
}
// Throws if the kernel needs a float64 that the device lacks. Casts of wide integers to 16-bit
// floats need float64, too.
void check_has_types_of(const Device& device, const Launch& launch, const loop::Kernel& kernel) {
  const auto is_wide = [](const loop::Instruction& in) { return in.type == DType::f64; };
  if (!device.has_float64() && std::ranges::any_of(kernel.code, is_wide))
    refuse_float64(device, launch.kernel, launch.module);
}

// Returns where an operand begins within the 16 bytes that a thread reads at once; ""
// at their start.
std::string begins_at(const Value& value, const Placement& at) {
  const size_t bytes = static_cast<size_t>(at.offset) * size_of(value.dtype()) % 16;
  return bytes == 0 ? "" : fmt::format("+{}", bytes);
}
}  // namespace

std::optional<size_t> provider_of(const Launch& launch) {
  if (launch.kind != Launch::Kind::library || launch.algorithm == 0) return std::nullopt;
  return static_cast<size_t>(launch.algorithm) - 1;
}

std::optional<KernelForm> Compiler::form(const Launch& fused) const {
  const bool has_addresses = language_ == loop::GpuLanguage::cuda;  // for the table of pointers
  if (!has_addresses || env_lists("WEFT_CUDA_OFF", "joins")) return std::nullopt;
  return form_of(fused, language_);
}
size_t Compiler::workspace(const Launch& fused) const {
  if (fused.parts > 1) return table_bytes(fused);
  return loop::schedule_gpu(loop::lower(fused, language_), language_).scratch;
}
Reread Compiler::reread(const Launch& fused) const {
  const loop::Kernel kernel = loop::lower(fused, language_);
  return loop::reread(kernel, loop::schedule_gpu(kernel, language_));
}

std::unique_ptr<Kernel> Compiler::record(std::function<void()> enqueue) const {
  if (auto recorded = device().record(enqueue)) return recorded;
  return KernelCompiler::record(std::move(enqueue));
}
std::unique_ptr<Kernel> Compiler::compile(const Plan& plan, const Launch& launch) const {
  return device().named(compile_one(plan, launch), launch.module);
}

std::unique_ptr<Kernel> Compiler::compile_one(const Plan& plan, const Launch& launch) const {
  check_has_types_of(device(), launch);
  const std::optional<size_t> provider = provider_of(launch);
  if (!provider) return compile_loops(launch);
  return launch.body.size() > 1 ? compile_whole(*providers_[*provider], plan, launch)
                                : providers_[*provider]->compile(device(), launch);
}

// Compiles to one kernel with an epilogue or, where that was measured to be faster, to two.
std::unique_ptr<Kernel> Compiler::compile_whole(const Provider& provider, const Plan& plan,
                                                const Launch& launch) const {
  std::unique_ptr<Kernel> whole = provider.compile(device(), launch), parts;
  if (tunes()) parts = compile_in_two(provider, launch);
  std::string signature = launch.kernel + " in one or two";
  for (const auto* accesses : {&launch.operands, &launch.results})
    for (const auto& [value, at] : *accesses)
      signature += fmt::format(", {}/{}{}", to_string(value.type()), fmt::join(at.strides, " "),
                               begins_at(value, at));
  if (launch.body.front()->annotations.tf32) signature += ", tf32";
  auto measure = [&] { return parts && is_faster(*parts, *whole, plan, launch) ? "two" : "one"; };
  if (device().select(signature, measure, "one") == "one") return whole;
  if (!parts) parts = compile_in_two(provider, launch);
  return parts ? std::move(parts) : std::move(whole);
}
// Returns whether `one` is faster than `other`, by a few runs of both on temporary memory.
bool Compiler::is_faster(const Kernel& one, const Kernel& other, const Plan& plan,
                         const Launch& launch) const {
  std::vector<std::shared_ptr<Buffer>> rooms;
  auto pointers_to = [&](const std::vector<Access>& accesses) {
    std::vector<void*> pointers;
    for (const Access& access : accesses) {
      rooms.push_back(device().allocate(plan.slots[static_cast<size_t>(access.at.slot)].bytes));
      pointers.push_back(rooms.back()->data);
    }
    return pointers;
  };
  const std::vector<void*> operands = pointers_to(launch.operands),
                           results = pointers_to(launch.results);
  const auto scratch = device().allocate(launch.workspace);
  const auto run = [&](size_t i) {
    (i == 0 ? one : other).run(operands.data(), results.data(), scratch->data);
  };
  return fastest(device(), 2, run) == 0;
}

// Compiles the node and the rest of the body separately. Where the node's value is not stored, the
// last result's memory holds it in between, as both have the same type. Returns null where the rest
// needs more workspace than planned.
std::unique_ptr<Kernel> Compiler::compile_in_two(const Provider& provider,
                                                 const Launch& launch) const {
  const Value& product = launch.body.front();
  Launch node = launch, rest = launch;
  node.body.resize(1);
  node.operands.resize(product->inputs.size());
  size_t holder = 0;
  while (holder + 1 < launch.results.size() &&
         launch.results[holder].value.node() != product.node())
    ++holder;
  node.results = {{product, launch.results[holder].at}};

  rest.kind = Launch::Kind::fused;
  rest.body.erase(rest.body.begin());
  rest.operands.clear();
  rest.results.clear();
  rest.in_place.clear();
  std::vector<size_t> from, to;
  auto read = [&](const Access& access, size_t place) {
    const bool wanted = std::ranges::any_of(rest.body, [&](const Value& value) {
      return std::ranges::find(value->inputs, access.value.node(), &Value::node) !=
             value->inputs.end();
    });
    if (!wanted) return;
    rest.operands.push_back(access);
    from.push_back(place);
  };
  read(node.results.front(), launch.operands.size() + holder);
  for (size_t i = 0; i < launch.operands.size(); ++i) read(launch.operands[i], i);
  for (size_t i = 0; i < launch.results.size(); ++i) {
    if (launch.results[i].value.node() == product.node()) continue;
    if (i == holder) rest.in_place = {{static_cast<int>(rest.results.size()), 0}};
    rest.results.push_back(launch.results[i]);
    to.push_back(i);
  }
  std::unique_ptr<Kernel> after = compile_rest(rest);
  if (after == nullptr) return nullptr;
  return std::make_unique<InTwo>(provider.compile(device(), node), std::move(after), launch, holder,
                                 std::move(from), std::move(to));
}
// Compiles what a library's epilogue would compute: a handwritten kernel, or loops.
std::unique_ptr<Kernel> Compiler::compile_rest(const Launch& rest) const {
  const Provider& own = *providers_.back();
  if (rest.body.size() == 1 && takes(own, rest)) return own.compile(device(), rest);
  if (loop::schedule_gpu(loop::lower(rest, language_), language_).scratch > rest.workspace)
    return nullptr;
  return compile_loops(rest);
}

std::unique_ptr<Kernel> Compiler::compile_loops(const Launch& launch) const {
  if (launch.parts > 1) return make_joined(device(), launch);
  const bool fused = launch.kind == Launch::Kind::fused;
  const loop::Kernel kernel =
      fused ? loop::lower(launch, language_) : loop::lower_primitive(launch);
  check_has_types_of(device(), launch, kernel);
  const loop::GpuSchedule schedule = loop::schedule_gpu(kernel, language_);
  if (debug_level() >= 5)
    logging::debug(5, "{}:\n{}{}", launch.kernel, to_text(kernel), to_text(schedule));
  return make_kernel(
      device(),
      [&](const std::string& prefix) { return emit_gpu(kernel, schedule, language_, prefix); },
      launch);
}

}  // namespace weft::gpu
