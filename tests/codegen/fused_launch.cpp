// This is one file because kernels of the CPU and of GPUs are evaluated by the same reference, and
// compared by the same rule.
#include "tests/codegen/fused_launch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <doctest/doctest.h>

#include "tests/support/part.h"
#include "tests/support/skip.h"
#include "tests/support/threads.h"
#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/nvrtc.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/backends/reference/kernels.h"
#include "weft/base/memory/buffer.h"
#include "weft/codegen/gpu_emit.h"
#include "weft/codegen/lower.h"
#include "weft/codegen/primitives.h"
#include "weft/ir/graph.h"
#include "weft/ir/op_def.h"

namespace weft::test {
namespace {
Graph decomposed(Graph graph) {
  while (true) {
    bool any = false;
    graph = rewrite(graph, [&](const Value& node) -> Value {
      if (node->op->decompose == nullptr) return {};
      any = true;
      return node->op->decompose(*node.node());
    });
    if (!any) return graph;
  }
}

bool in_memory(const Value& value) { return value->is("input") || value->is("data"); }

struct Place {
  Value leaf;
  int64_t offset = 0;
  Dims strides;
};

// Finds offset and strides of a view; a reshape must have a row-major operand.
bool find_place(const Value& value, Place& place) {
  if (in_memory(value)) {
    place = {value, 0, row_major_strides(value.shape())};
    return true;
  }
  bool view =
      value->is("reshape") || value->is("permute") || value->is("slice") || value->is("flip");
  if (!view || !find_place(value->inputs[0], place)) return false;
  const Value& x = value->inputs[0];
  if (value->is("permute")) {
    Dims strides;
    for (int64_t axis : value->attrs.dims("order"))
      strides.push_back(place.strides[static_cast<int>(axis)]);
    place.strides = strides;
  } else if (value->is("slice")) {
    int axis = static_cast<int>(value->attrs.integer("axis"));
    place.offset += value->attrs.integer("start") * place.strides[axis];
    place.strides[axis] *= value->attrs.integer("step");
  } else if (value->is("flip")) {
    for (int64_t axis : value->attrs.dims("axes")) {
      auto i = static_cast<int>(axis);
      place.offset += (x.shape()[i] - 1) * place.strides[i];
      place.strides[i] = -place.strides[i];
    }
  } else {
    REQUIRE(place.strides == row_major_strides(x.shape()));
    place.strides = row_major_strides(value.shape());
  }
  return true;
}

struct Memory {
  std::vector<std::byte> bytes;
  explicit Memory(const Type& type, size_t padding = 0) : bytes(type.bytes() + padding) {}
};

std::vector<double> doubles(const std::byte* data, const Type& type) {
  std::vector<double> values(static_cast<size_t>(type.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = load(data, type.dtype, static_cast<int64_t>(i));
  return values;
}

using Memories = std::unordered_map<const Node*, std::vector<std::byte>>;

void evaluate(const Value& value, Memories& memory) {
  std::vector<reference::Layout> layouts;
  std::vector<int> slots;
  std::vector<void*> pointers;
  for (const Value& input : value->inputs) {
    slots.push_back(static_cast<int>(slots.size()));
    layouts.emplace_back(Access{input, {0, 0, row_major_strides(input.shape())}});
    pointers.push_back(memory.at(input.node()).data());
  }
  auto& out = memory[value.node()];
  out.resize(value.type().bytes());
  reference::Layout layout(Access{value, {0, 0, row_major_strides(value.shape())}});
  auto function = reference::find_function(*value->op);
  bool known = function != nullptr;
  REQUIRE_MESSAGE(known, value->op->name);
  function(*value.node(), reference::Operands(layouts, slots, pointers.data()),
           {out.data(), &layout});
}
}  // namespace

FusedLaunch::FusedLaunch(std::vector<Value> outputs) {
  Graph graph;
  graph.outputs = std::move(outputs);
  graph = decomposed(std::move(graph));
  nodes = graph.nodes();
  std::unordered_map<const Node*, bool> wanted;
  for (const Value& output : graph.outputs) wanted[output.node()] = true;
  // Users come before inputs: views of memory become operands, all else is computed.
  for (size_t i = nodes.size(); i-- > 0;) {
    const Value& value = nodes[i];
    if (!wanted.contains(value.node())) continue;
    Place place;
    if (find_place(value, place)) {
      launch.operands.push_back(
          {value, {static_cast<int>(launch.operands.size()), place.offset, place.strides}});
      operand_leaf.push_back(place.leaf);
      continue;
    }
    launch.body.push_back(value);
    for (const Value& input : value->inputs) wanted[input.node()] = true;
  }
  std::reverse(launch.body.begin(), launch.body.end());
  if (is_primitive()) take_operands_in_order();
  for (const Value& output : graph.outputs)
    launch.results.push_back({output, {0, 0, row_major_strides(output.shape())}});
}

bool FusedLaunch::is_primitive() const {
  return launch.body.size() == 1 && loop::has_loops(*launch.body.front().node());
}

// Orders the operands like the node's inputs, as the loops of primitives expect.
void FusedLaunch::take_operands_in_order() {
  const std::vector<Access> known = std::move(launch.operands);
  const std::vector<Value> leaves = std::move(operand_leaf);
  for (const Value& input : launch.body.front()->inputs) {
    const auto at = std::ranges::find_if(
        known, [&](const Access& access) { return access.value.node() == input.node(); });
    launch.operands.push_back(*at);
    launch.operands.back().at.slot = static_cast<int>(operand_leaf.size());
    operand_leaf.push_back(leaves[static_cast<size_t>(at - known.begin())]);
  }
}

loop::Kernel FusedLaunch::loops(loop::GpuLanguage language) const {
  return is_primitive() ? loop::lower_primitive(launch) : loop::lower(launch, language);
}

std::vector<Value> functions_of(const Value& x) {
  std::vector<Value> all;
  for (const OpDef* def : registered_ops())
    if (def->function != nullptr) all.push_back(make_node(*def, {x}));
  return all;
}

double spread(const Value& leaf, int64_t index) {
  // The seed is the input's index and size, not its node id, which depends on the test cases that
  // ran before.
  const int64_t input = leaf->attrs.has("index") ? leaf->attrs.integer("index") : -1;
  const auto seed = static_cast<uint64_t>(1000 * input + leaf.elements());
  auto x = static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15 + seed * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 31)) * 0x94D049BB133111EB;
  double unit = static_cast<double>((x ^ (x >> 29)) >> 11) * 0x1p-53;
  if (leaf.dtype() == DType::boolean) return unit < 0.5 ? 1 : 0;
  if (!has_sign(leaf.dtype())) return std::floor(unit * 200);
  if (is_integer(leaf.dtype())) return std::floor(unit * 21) - 10;
  return unit * 4 - 2;
}

namespace {
constexpr size_t guard = 64;  // bytes after each result that must not change

// Returns the bytes of the filled leaves and of all values that the reference computes from them.
Memories evaluate_all(const FusedLaunch& fused, const Fill& fill) {
  Memories memory;
  for (const Value& value : fused.nodes) {
    if (in_memory(value)) {
      auto& bytes = memory[value.node()];
      bytes.resize(value.type().bytes());
      if (value->has_data())
        std::memcpy(bytes.data(), value->data(), bytes.size());
      else
        for (int64_t i = 0; i < value.elements(); ++i)
          store(bytes.data(), value.dtype(), i, fill(value, i));
    } else {
      evaluate(value, memory);
    }
  }
  return memory;
}

// Collects the results; `bytes` holds each result and its guard.
Run finish(const FusedLaunch& fused, const Memories& memory,
           std::vector<std::vector<std::byte>> bytes) {
  Run run;
  run.bytes = std::move(bytes);
  for (size_t i = 0; i < run.bytes.size(); ++i) {
    const Value& value = fused.launch.results[i].value;
    for (size_t k = 0; k < guard; ++k)
      REQUIRE(run.bytes[i][value.type().bytes() + k] == std::byte{0x5a});
    run.results.push_back(doubles(run.bytes[i].data(), value.type()));
    run.expected.push_back(doubles(memory.at(value.node()).data(), value.type()));
  }
  return run;
}
}  // namespace

Run run(const FusedLaunch& fused, const Fill& fill, const CpuTarget& target) {
  Memories memory = evaluate_all(fused, fill);
  CompiledKernel kernel = compile_cpu(fused.launch, target);
  kernel.work = worth_a_team;
  std::vector<void*> operands, results;
  for (const Value& leaf : fused.operand_leaf) operands.push_back(memory.at(leaf.node()).data());
  std::vector<std::shared_ptr<Buffer>> memory_of_results;  // aligned as kernels require
  for (const Access& result : fused.launch.results) {
    auto& buffer =
        memory_of_results.emplace_back(Buffer::allocate(result.value.type().bytes() + guard));
    results.push_back(buffer->data);
  }
  auto workspace = Buffer::allocate(workspace_bytes(fused.launch, 8, target) + 64);
  std::vector<std::vector<std::byte>> bytes;  // results of one thread
  for (int threads : testing::thread_counts) {
    const testing::Threads team(threads);
    // A position that no part computes must not keep a result of an earlier run.
    for (const auto& buffer : memory_of_results) std::memset(buffer->data, 0x5a, buffer->bytes);
    std::memset(workspace->data, 0x5a, workspace->bytes);
    run_kernel(kernel, operands.data(), results.data(), workspace->data);
    std::vector<std::vector<std::byte>> computed;
    computed.reserve(memory_of_results.size());
    for (const auto& buffer : memory_of_results)
      computed.emplace_back(buffer->data, buffer->data + buffer->bytes);
    if (threads == 1)
      bytes = std::move(computed);
    else
      CHECK_MESSAGE(computed == bytes, threads, " threads compute other bits than one\n",
                    kernel_text(fused.launch, target));
  }
  return finish(fused, memory, std::move(bytes));
}

namespace {
bool other_targets = false;

// Returns the root mean square of the finite values, at most one: much smaller values may be
// differences of numbers that large. All-zero values may be differences of numbers near one.
double usual_size(const std::vector<double>& values) {
  double sum = 0, count = 0;
  for (double value : values)
    if (std::isfinite(value)) sum += value * value, count += 1;
  return sum == 0 ? 1.0 : std::min(1.0, std::sqrt(sum / count));
}

// Compares the results of the kernel `text`.
void compare(const Run& run, double tolerance, const std::string& text) {
  for (size_t r = 0; r < run.results.size(); ++r) {
    const double usual = usual_size(run.expected[r]);
    int wrong = 0;
    for (size_t i = 0; i < run.results[r].size(); ++i) {
      double got = run.results[r][i], want = run.expected[r][i];
      bool equal = std::bit_cast<uint64_t>(got) == std::bit_cast<uint64_t>(want) ||
                   (got == want && tolerance > 0) || (std::isnan(got) && std::isnan(want));
      const double most = tolerance * std::max(usual, std::fabs(want));
      if (equal || (tolerance > 0 && std::isfinite(want) && std::fabs(got - want) <= most))
        continue;
      if (wrong++ < 3)
        MESSAGE("result " << r << " element " << i << ": " << got << " not " << want);
    }
    CHECK_MESSAGE(wrong == 0, wrong << " of " << run.results[r].size() << " elements differ\n"
                                    << text);
  }
}

FusedLaunch fused_of(std::vector<Value> outputs) {
  FusedLaunch fused(std::move(outputs));
  std::string why;
  bool fuses = fused.is_primitive() || can_fuse(fused.launch, &why);
  REQUIRE_MESSAGE(fuses, why);
  return fused;
}

const char* const backend = std::getenv("BACKEND");

// Target gpu runs every case on GPUs instead of the CPU and compiles CUDA C for each architecture;
// nvrtc compiles for sm_90 alone and runs nothing.
bool is_target(std::string_view name) {
  const char* target = std::getenv("CODEGEN_TARGET");
  return target != nullptr && name == target;
}
const bool compiled_alone = is_target("nvrtc"), gpu_alone = is_target("gpu") || compiled_alone;

// Returns the device of BACKEND, which must exist, or else all existing devices; reports missing
// ones once.
const std::vector<gpu::Device*>& gpu_devices() {
  static const std::vector<std::unique_ptr<gpu::Device>> owned = [] {
    std::vector<std::unique_ptr<gpu::Device>> found;
    using Open = std::unique_ptr<gpu::Device> (*)();
    for (const auto& [name, open] :
         {std::pair<std::string_view, Open>("opencl", [] { return opencl::open_device(); }),
          std::pair<std::string_view, Open>("cuda", [] { return cuda::open_device(); })}) {
      if (compiled_alone || (backend != nullptr && backend != name)) continue;
      try {
        found.push_back(open());
      } catch (const Error& error) {
        CHECK_MESSAGE(backend == nullptr, std::string(error.what()));
        testing::skipped(error.what());
      }
    }
    return found;
  }();
  static const std::vector<gpu::Device*> devices = [] {
    std::vector<gpu::Device*> all;
    all.reserve(owned.size());
    for (const auto& device : owned) all.push_back(device.get());
    return all;
  }();
  return devices;
}
// Returns null without NVRTC, or if BACKEND selects one device.
const cuda::Nvrtc* nvrtc() {
  if (backend != nullptr) return nullptr;
  static const std::unique_ptr<cuda::Nvrtc> compiler = []() -> std::unique_ptr<cuda::Nvrtc> {
    try {
      return std::make_unique<cuda::Nvrtc>();
    } catch (const Error& error) {
      testing::skipped(error.what());
      return nullptr;
    }
  }();
  return compiler.get();
}

struct GpuProgram {
  std::string source;
  std::vector<loop::GpuKernel> kernels;
};
GpuProgram print(const std::vector<FusedLaunch>& steps, loop::GpuLanguage language) {
  GpuProgram program;
  for (const FusedLaunch& fused : steps) {
    const loop::Kernel kernel = fused.loops(language);
    program.kernels.push_back(loop::emit_gpu(kernel, loop::schedule_gpu(kernel, language), language,
                                             "k" + std::to_string(program.kernels.size())));
    program.source += program.kernels.back().source;
  }
  return program;
}

Run run_on(gpu::Device& device, const loop::GpuKernel& kernel, const FusedLaunch& fused,
           const Fill& fill) {
  const Memories memory = evaluate_all(fused, fill);
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<void*> addresses;
  auto add = [&](const std::vector<std::byte>& bytes, size_t offset) {
    buffers.push_back(device.allocate(bytes.size() + offset));
    device.write(buffers.back()->data + offset, bytes.data(), bytes.size());
    addresses.push_back(buffers.back()->data + offset);
  };
  for (const Value& leaf : fused.operand_leaf) add(memory.at(leaf.node()), 0);
  std::vector<std::vector<std::byte>> results;
  for (const Access& result : fused.launch.results) {
    results.emplace_back(result.value.type().bytes() + guard, std::byte{0x5a});
    add(results.back(), buffer_alignment);
  }
  add(std::vector<std::byte>(kernel.scratch), 0);
  const gpu::Program program = device.compile(kernel.source);
  for (const loop::GpuLaunch& launch : kernel.launches)
    if (launch.groups > 0)
      device.launch(device.function(program, launch.function), addresses, launch.groups,
                    launch.threads);
  for (size_t i = 0; i < results.size(); ++i)
    device.read(results[i].data(),
                static_cast<std::byte*>(addresses[fused.operand_leaf.size() + i]),
                results[i].size());
  return finish(fused, memory, std::move(results));
}
}  // namespace

void check_on_gpu(const std::vector<Case>& cases) {
  std::vector<FusedLaunch> steps;
  steps.reserve(cases.size());
  for (const Case& one : cases) steps.push_back(fused_of(one.outputs));
  for (gpu::Device* device : gpu_devices()) {
    GpuProgram printed = print(steps, device->language());
    for (size_t i = 0; i < steps.size(); ++i) {
      CAPTURE(printed.kernels[i].source);
      printed.kernels[i].source = printed.source;
      compare(run_on(*device, printed.kernels[i], steps[i], cases[i].fill), cases[i].tolerance,
              device->name());
    }
  }
  static size_t next = 0;
  if (compiled_alone && !testing::in_part(next++)) return;
  if (const cuda::Nvrtc* compiler = nvrtc())
    for (int capability :
         gpu_alone && !compiled_alone ? std::vector{75, 80, 90, 100} : std::vector{90})
      CHECK(!compiler
                 ->compile(gpu_prelude(loop::GpuLanguage::cuda) +
                               print(steps, loop::GpuLanguage::cuda).source,
                           capability)
                 .empty());
}

void set_other_targets(bool also) { other_targets = also; }

void check(std::vector<Value> outputs, double tolerance, const Fill& fill) {
  if (gpu_alone) {
    check_on_gpu({{std::move(outputs), tolerance, fill}});
    return;
  }
  const FusedLaunch fused = fused_of(std::move(outputs));
  const std::string text = kernel_text(fused.launch);
  compare(run(fused, fill), tolerance, text);
  if (!other_targets) return;
  for (int bytes : {0, 16, 32})
    compare(run(fused, fill, {.vector_bytes = bytes, .stream_bytes = 1}), tolerance, text);
  for (int bytes : {16, 32}) compare(run(fused, fill, {.vector_bytes = bytes}), tolerance, text);
}

}  // namespace weft::test
