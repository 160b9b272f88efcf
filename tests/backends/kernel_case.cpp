#include "tests/backends/kernel_case.h"

#include <algorithm>
#include <cstring>

#include "tests/support/interpreter.h"
#include "tests/support/values.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/base/memory/buffer.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"

namespace weft::testing {

struct KernelCase::Memory {
  std::vector<std::shared_ptr<Buffer>> operands;
  std::shared_ptr<Buffer> result, workspace;
  std::vector<void*> pointers;  // one for each operand
  std::vector<Value> inputs;    // copies of the operands before the first run, row-major
  std::unique_ptr<Kernel> kernel;
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

// Returns the number of elements from the start of the memory to one past the last element.
int64_t extent(const Shape& shape, const Placement& at) {
  int64_t last = at.offset;
  for (int i = 0; i < shape.size(); ++i)
    last += std::max<int64_t>(0, shape[i] - 1) * std::max<int64_t>(0, at.strides[i]);
  return last + 1;
}

// Calls visit(row-major index, offset in elements) for each element.
template <class Visit>
void for_each_element(const Shape& shape, const Placement& at, const Visit& visit) {
  Dims index = Dims::filled(shape.size(), 0);
  for (int64_t i = 0, count = element_count(shape); i < count; ++i) {
    int64_t place = at.offset;
    for (int axis = 0; axis < index.size(); ++axis) place += index[axis] * at.strides[axis];
    visit(i, place);
    for (int axis = index.size() - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis)
      index[axis] = 0;
  }
}

// Copies a strided tensor into a row-major data leaf.
Value dense(const Buffer& buffer, const Type& type, const Placement& at) {
  auto result = Buffer::allocate(type.bytes());
  const size_t size = size_of(type.dtype);
  for_each_element(type.shape, at, [&](int64_t index, int64_t place) {
    std::memcpy(result->data + static_cast<size_t>(index) * size,
                buffer.data + static_cast<size_t>(place) * size, size);
  });
  return from_buffer(std::move(result), type);
}

double drawn(DType dtype, bool whole, int64_t rows, Random& random) {
  if (is_float(dtype) && !whole) return 2 * random.unit() - 1;
  const bool is_index = !is_float(dtype) && rows > 0;
  return static_cast<double>(is_index ? random.between(-1, rows) : random.between(-3, 3));
}

// Allocates a tensor with random elements. They are drawn in row-major order, so that strides do
// not change their values; where elements alias (stride 0), the last one drawn remains. The gaps
// between elements hold 1 or 2, so that a kernel that reads them gives a wrong result.
std::shared_ptr<Buffer> filled(const Type& type, const Placement& at, bool whole, int64_t rows,
                               Random& random) {
  const int64_t count = extent(type.shape, at);
  auto buffer = Buffer::allocate(static_cast<size_t>(count) * size_of(type.dtype));
  for (int64_t i = 0; i < count; ++i) store(buffer->data, type.dtype, i, 1 + i % 2);
  for_each_element(type.shape, at, [&](int64_t /*index*/, int64_t place) {
    store(buffer->data, type.dtype, place, drawn(type.dtype, whole, rows, random));
  });
  return buffer;
}

bool same_bytes(const Value& a, const Value& b) {
  return a.type() == b.type() && std::memcmp(a->data(), b->data(), a.type().bytes()) == 0;
}

// Returns the memory layout of each operand of the node: that of `lies`, by default row-major.
std::vector<Placement> placements(const Value& node, const std::vector<Lie>& lies) {
  std::vector<Placement> at;
  at.reserve(node->inputs.size());
  for (size_t i = 0; i < node->inputs.size(); ++i)
    at.push_back(placement(node->inputs[i].shape(), i < lies.size() ? lies[i] : Lie{}));
  return at;
}

// Returns the largest number that operand `i` is drawn with where it is indices, or counts of
// groups, which then share about all rows; else 0.
int64_t largest_index(const Value& node, size_t i) {
  const bool is_index = node->is("first_position") || (node->is("scatter_add") && i == 1);
  if (is_index) return node.shape()[0];
  const bool is_counts = node->op->family == OpFamily::grouped_product && i == 2;
  return is_counts ? 2 * node->inputs[0].dim(0) / std::max<int64_t>(1, node->inputs[2].dim(0)) : 0;
}

// Returns the reference result for these inputs. It caches the last one, which serves all kernels
// and thread counts of a node, because the reference takes most of a test's time.
const Interpreted& reference_of(const Value& node, const std::vector<Value>& inputs) {
  static Value last;
  static std::vector<Value> last_inputs;
  static Interpreted result;
  if (!last.defined() || last.node() != node.node() ||
      !std::ranges::equal(inputs, last_inputs, same_bytes)) {
    const Value on_data = make_node(*node->op, inputs, node->attrs);
    result = interpret_with_errors(Graph{.outputs = {on_data}})[0];
    last = node, last_inputs = inputs;
  }
  return result;
}
}  // namespace

std::vector<std::string> kernels_of(const Value& node, const std::vector<Lie>& lies) {
  std::vector<std::string> names;
  for (const KernelChoice& choice :
       cpu::find_family(node->op->name)->alternatives(*node.node(), placements(node, lies)))
    names.push_back(choice.kernel);
  return names;
}

KernelCase::KernelCase(const Value& node, const std::vector<Lie>& lies, bool whole, uint64_t seed,
                       const std::string& kernel)
    : memory_(std::make_unique<Memory>()) {
  std::vector<Placement> at = placements(node, lies);
  const cpu::Family* family = cpu::find_family(node->op->name);
  choice_ = family->choose(*node.node(), at).value();
  if (!kernel.empty()) {
    const std::vector<KernelChoice> all = family->alternatives(*node.node(), at);
    const auto found = std::ranges::find(all, kernel, &KernelChoice::kernel);
    if (found == all.end()) throw std::runtime_error("no kernel " + kernel + " for this node");
    choice_ = *found;
  }
  for (size_t i = 0; i < choice_.operand_order.size(); ++i)
    if (!choice_.operand_order[i].empty())
      at[i] = placement(node->inputs[i].shape(), {choice_.operand_order[i]});
  step_.kind = Launch::Kind::library;
  step_.kernel = choice_.kernel;
  step_.algorithm = choice_.algorithm;
  step_.body = {node};
  step_.workspace = choice_.workspace;
  Random random(seed);
  for (size_t i = 0; i < at.size(); ++i) {
    const Value& input = node->inputs[i];
    step_.operands.push_back({input, at[i]});
    memory_->operands.push_back(filled(input.type(), at[i], whole, largest_index(node, i), random));
    memory_->inputs.push_back(dense(*memory_->operands.back(), input.type(), at[i]));
  }
  for (const auto& buffer : memory_->operands) memory_->pointers.push_back(buffer->data);
  const Placement to = placement(node.shape(), {choice_.result_order});
  step_.results = {{node, to}};
  const Type& type = node.type();
  memory_->result = filled(type, to, true, 0, random);
  memory_->workspace = Buffer::allocate(choice_.workspace + 64);
  std::memset(memory_->workspace->data, 0x7b, memory_->workspace->bytes);
  memory_->kernel = family->compile(step_);
}
KernelCase::~KernelCase() = default;

void KernelCase::in_place() { memory_->result = memory_->operands[0]; }

void KernelCase::run() {
  void* result = memory_->result->data;
  memory_->kernel->run(memory_->pointers.data(), &result, memory_->workspace->data);
}

std::string KernelCase::disagreement() {
  const Access& result = step_.results[0];
  for (size_t i = choice_.workspace; i < memory_->workspace->bytes; ++i)
    if (memory_->workspace->data[i] != std::byte{0x7b}) return "wrote beyond its workspace";
  for (size_t i = 0; i < memory_->operands.size(); ++i) {
    const Access& operand = step_.operands[i];
    if (memory_->operands[i] != memory_->result &&
        !same_bytes(dense(*memory_->operands[i], operand.value.type(), operand.at),
                    memory_->inputs[i]))
      return fmt::format("{}: changed operand {}", step_.kernel, i);
  }
  const Type& type = result.value.type();
  const auto& [want, errors] = reference_of(result.value, memory_->inputs);
  const Value got = dense(*memory_->result, type, result.at);
  Errors allowed = errors;
  // Winograd transforms mix the elements of a tile, so each result may have the largest error of
  // its image and channel, times the amplification of the transforms.
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
