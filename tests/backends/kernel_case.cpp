#include "tests/backends/kernel_case.h"

#include <algorithm>
#include <cstring>

#include "tests/support/rounding.h"
#include "tests/support/values.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/backends/reference/reference.h"
#include "weft/base/buffer.h"
#include "weft/ops/ops.h"

namespace weft::testing {

struct KernelCase::Memory {
  std::vector<std::shared_ptr<Buffer>> operands;
  std::shared_ptr<Buffer> result, expected, workspace;
  std::vector<void*> pointers;  // to the operands
  std::vector<Value> inputs;    // the operands as they were before the first run
  std::unique_ptr<Kernel> kernel, reference;
};

namespace {
Placement placement(const Shape& shape, const Lie& lie) {
  Placement at{.slot = 0, .offset = lie.offset, .strides = Dims::filled(shape.size(), 0)};
  int64_t stride = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    const int axis = lie.order.empty() ? i : static_cast<int>(lie.order[i]);
    if (std::count(lie.broadcast.begin(), lie.broadcast.end(), axis) > 0) continue;
    at.strides[axis] = stride;
    stride *= shape[axis];
    if (i == shape.size() - 1) stride += lie.gap;
  }
  for (int axis : lie.flipped) {
    at.offset += (shape[axis] - 1) * at.strides[axis];
    at.strides[axis] = -at.strides[axis];
  }
  return at;
}

// Elements from the start of the memory to one past the last.
int64_t extent(const Shape& shape, const Placement& at) {
  int64_t last = at.offset;
  for (int i = 0; i < shape.size(); ++i)
    last += std::max<int64_t>(0, shape[i] - 1) * std::max<int64_t>(0, at.strides[i]);
  return last + 1;
}

// What lies there, as a row-major data leaf.
Value dense(const Buffer& buffer, const Type& type, const Placement& at) {
  auto result = Buffer::allocate(type.bytes());
  Dims index = Dims::filled(type.shape.size(), 0);
  for (int64_t i = 0; i < type.elements(); ++i) {
    int64_t from = at.offset;
    for (int axis = 0; axis < index.size(); ++axis) from += index[axis] * at.strides[axis];
    std::memcpy(result->data + static_cast<size_t>(i) * size_of(type.dtype),
                buffer.data + static_cast<size_t>(from) * size_of(type.dtype), size_of(type.dtype));
    for (int axis = index.size() - 1; axis >= 0 && ++index[axis] == type.shape[axis]; --axis)
      index[axis] = 0;
  }
  return from_buffer(std::move(result), type);
}

std::shared_ptr<Buffer> filled(const Type& type, int64_t count, bool whole, int64_t rows,
                               Random& random) {
  auto buffer = Buffer::allocate(static_cast<size_t>(count) * size_of(type.dtype));
  for (int64_t i = 0; i < count; ++i) {
    if (is_float(type.dtype) && !whole)
      store(buffer->data, type.dtype, i, 2 * random.unit() - 1);
    else if (is_float(type.dtype))
      store(buffer->data, type.dtype, i, static_cast<double>(random.between(-3, 3)));
    else
      store_int(buffer->data, type.dtype, i,
                rows > 0 ? random.between(-1, rows) : random.between(-3, 3));
  }
  return buffer;
}
}  // namespace

std::vector<std::string> kernels_of(const Value& node) {
  std::vector<Placement> at;
  for (const Value& input : node->inputs) at.push_back(placement(input.shape(), {}));
  std::vector<std::string> names;
  for (const KernelChoice& choice :
       cpu::find_family(node->op->name)->alternatives(*node.node(), at))
    names.push_back(choice.kernel);
  return names;
}

KernelCase::KernelCase(const Value& node, std::vector<Lie> lies, bool whole, uint64_t seed,
                       const std::string& kernel)
    : memory_(std::make_unique<Memory>()) {
  lies.resize(node->inputs.size());
  std::vector<Placement> at;
  at.reserve(lies.size());
  for (size_t i = 0; i < lies.size(); ++i)
    at.push_back(placement(node->inputs[i].shape(), lies[i]));
  const cpu::Family* family = cpu::find_family(node->op->name);
  choice_ = family->choose(*node.node(), at).value();
  if (!kernel.empty())
    for (const KernelChoice& other : family->alternatives(*node.node(), at))
      if (other.kernel == kernel) choice_ = other;
  for (size_t i = 0; i < choice_.operand_order.size(); ++i)
    if (!choice_.operand_order[i].empty())
      at[i] = placement(node->inputs[i].shape(), {choice_.operand_order[i]});
  step_.kind = Step::Kind::library;
  step_.kernel = choice_.kernel;
  step_.body = {node};
  step_.workspace = choice_.workspace;
  Random random(seed);
  for (size_t i = 0; i < at.size(); ++i) {
    const Value& input = node->inputs[i];
    step_.operands.push_back({input, at[i]});
    const bool is_index = node->is("first_position") || (node->is("scatter_add") && i == 1);
    memory_->operands.push_back(filled(input.type(), extent(input.shape(), at[i]), whole,
                                       is_index ? node.shape()[0] : 0, random));
    memory_->inputs.push_back(dense(*memory_->operands.back(), input.type(), at[i]));
  }
  for (const auto& buffer : memory_->operands) memory_->pointers.push_back(buffer->data);
  const Placement to = placement(node.shape(), {choice_.result_order});
  step_.results = {{node, to}};
  const Type& type = node.type();
  memory_->result = filled(type, extent(node.shape(), to), true, 0, random);
  memory_->expected = Buffer::allocate(memory_->result->bytes);
  memory_->workspace = Buffer::allocate(choice_.workspace + 64);
  std::memset(memory_->workspace->data, 0x7b, memory_->workspace->bytes);
  memory_->kernel = family->compile(step_);
  memory_->reference = reference_library()->compile(plan_, step_);
}
KernelCase::~KernelCase() = default;

void KernelCase::in_place() {
  void* expected = memory_->expected->data;
  memory_->reference->run(memory_->pointers.data(), &expected, nullptr);
  memory_->result = memory_->operands[0];
}

void KernelCase::run() {
  void* result = memory_->result->data;
  memory_->kernel->run(memory_->pointers.data(), &result, memory_->workspace->data);
}

std::string KernelCase::disagreement() {
  const Access& result = step_.results[0];
  if (memory_->result != memory_->operands[0]) {
    void* expected = memory_->expected->data;
    memory_->reference->run(memory_->pointers.data(), &expected, nullptr);
  }
  for (size_t i = choice_.workspace; i < memory_->workspace->bytes; ++i)
    if (memory_->workspace->data[i] != std::byte{0x7b}) return "wrote beyond its workspace";
  const Type& type = result.value.type();
  const Value want = dense(*memory_->expected, type, result.at),
              got = dense(*memory_->result, type, result.at);
  std::vector<Errors> exact;
  for (const Value& input : memory_->inputs)
    exact.emplace_back(static_cast<size_t>(input.elements()), 0.0);
  Errors allowed = allowed_errors(*step_.body[0].node(), want, memory_->inputs, exact);
  // Transforms mix the elements of a tile, so each result may be off by what the largest of its
  // channel of its image may be, times what the transforms amplify.
  if (step_.kernel == "weft:winograd") {
    const auto plane = static_cast<size_t>(type.shape[2] * type.shape[3]);
    for (size_t at = 0; at < allowed.size(); at += plane) {
      const std::span<double> here(allowed.data() + at, plane);
      std::ranges::fill(here, 4 * *std::ranges::max_element(here));
    }
  }
  const std::string text = difference(got, want, allowed);
  return text.empty() ? "" : fmt::format("{}: {}", step_.kernel, text);
}

std::vector<std::byte> KernelCase::result_bytes() const {
  return {memory_->result->data, memory_->result->data + memory_->result->bytes};
}
}  // namespace weft::testing
