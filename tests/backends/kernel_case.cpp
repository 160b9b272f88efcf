#include "tests/backends/kernel_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/values.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/backends/reference/reference.h"
#include "weft/base/buffer.h"

namespace weft::testing {

struct KernelCase::Memory {
  std::vector<std::shared_ptr<Buffer>> operands;
  std::shared_ptr<Buffer> result, expected, workspace;
  std::vector<void*> pointers;  // to the operands
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

KernelCase::KernelCase(const Value& node, std::vector<Lie> lies, bool whole, uint64_t seed)
    : memory_(std::make_unique<Memory>()) {
  lies.resize(node->inputs.size());
  std::vector<Placement> at;
  for (size_t i = 0; i < lies.size(); ++i)
    at.push_back(placement(node->inputs[i].shape(), lies[i]));
  const cpu::Family* family = cpu::find_family(node->op->name);
  choice_ = family->choose(*node.node(), at).value();
  for (size_t i = 0; i < choice_.operand_order.size(); ++i)
    if (!choice_.operand_order[i].empty())
      at[i] = placement(node->inputs[i].shape(), {choice_.operand_order[i]});
  choice_ = family->choose(*node.node(), at).value();
  step_.kind = Step::Kind::library;
  step_.kernel = choice_.kernel;
  step_.body = {node};
  step_.workspace = choice_.workspace;
  Random random(seed);
  for (size_t i = 0; i < at.size(); ++i) {
    const Value& input = node->inputs[i];
    step_.operands.push_back({input, at[i]});
    const bool is_index = node->op->name == "scatter_add" && i == 1;
    memory_->operands.push_back(filled(input.type(), extent(input.shape(), at[i]), whole,
                                       is_index ? node.shape()[0] : 0, random));
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

std::string KernelCase::disagreement(double tolerance) {
  const Access& result = step_.results[0];
  if (memory_->result != memory_->operands[0]) {
    void* expected = memory_->expected->data;
    memory_->reference->run(memory_->pointers.data(), &expected, nullptr);
  }
  for (size_t i = choice_.workspace; i < memory_->workspace->bytes; ++i)
    if (memory_->workspace->data[i] != std::byte{0x7b}) return "wrote beyond its workspace";
  const DType dtype = result.value.dtype();
  const Value& node = step_.body[0];
  double largest = 1, worst = 0;
  int64_t where = -1;
  for (int64_t i = 0; i < extent(node.shape(), result.at) && node.elements() > 0; ++i) {
    const double want = load(memory_->expected->data, dtype, i),
                 got = load(memory_->result->data, dtype, i);
    largest = std::max(largest, std::abs(want));
    const double off =
        want == got || (std::isnan(want) && std::isnan(got)) ? 0 : std::abs(want - got);
    if (!(off <= worst)) worst = off, where = i;
  }
  if (worst <= tolerance * largest) return "";
  return fmt::format("{}: element {} is {}, not {}", step_.kernel, where,
                     load(memory_->result->data, dtype, where),
                     load(memory_->expected->data, dtype, where));
}

std::vector<std::byte> KernelCase::result_bytes() const {
  return {memory_->result->data, memory_->result->data + memory_->result->bytes};
}
}  // namespace weft::testing
