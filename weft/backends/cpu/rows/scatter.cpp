// scatter_add computes `into` with row i of `updates` added to row indices[i], in the order of i.
//
// The updates of each row are first linked in a chain. Then one thread writes each row once, from
// its sum, which is in float32 for 16-bit types. Where the result aliases `into`, rows that no
// index names are not touched.
//
// first_position returns the first position in each row's chain.
#include <algorithm>
#include <array>
#include <cstring>

#include "weft/backends/cpu/kernels.h"
#include "weft/backends/cpu/simd/elements.h"
#include "weft/base/host/parallel.h"
#include "weft/base/numbers/rounding.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")  // vectorizes the loops over a row
#endif

namespace weft::cpu {
namespace {
constexpr int64_t block = 256;  // elements of a row at a time

struct Chains {
  int32_t* first;  // per row: its first update, or -1
  int32_t* next;   // per update: the next one to the same row, or -1
};

bool is_broadcast(const Shape& shape, const Dims& strides) {
  for (int i = 0; i < shape.size(); ++i)
    if (shape[i] > 1 && strides[i] != 0) return false;
  return true;
}

Chains chain(const void* indices, DType dtype, int64_t rows, int64_t count, void* workspace) {
  Chains chains{static_cast<int32_t*>(workspace), static_cast<int32_t*>(workspace) + rows};
  std::fill_n(chains.first, rows, -1);
  for (int64_t i = count; i-- > 0;) {
    const int64_t row = load_int(indices, dtype, i);
    if (row < 0 || row >= rows) continue;  // an index out of range adds nothing
    chains.next[i] = chains.first[row];
    chains.first[row] = static_cast<int32_t>(i);
  }
  return chains;
}

struct Rows {
  int64_t count, width;
  bool same_memory, broadcast;  // `into` is the result's memory, or one broadcast element
};

// Computes elements [from, from + width) of one row: their old values plus all updates of the row's
// chain from `update` on.
template <class Element, class Lane>
void add_chain(const Element* old, bool broadcast, const Element* updates, int64_t row_width,
               const Chains& chains, int32_t update, int64_t from, int64_t width, Element* to) {
  std::array<Lane, block> sums;
  for (int64_t k = 0; k < width; ++k) sums[k] = to_lane<Lane>(old[broadcast ? 0 : k]);
  for (; update >= 0; update = chains.next[update]) {
    const Element* row = updates + update * row_width + from;
    for (int64_t k = 0; k < width; ++k) sums[k] += to_lane<Lane>(row[k]);
  }
  for (int64_t k = 0; k < width; ++k) to[k] = from_lane<Element>(sums[k]);
}

template <class Element, class Lane>
void write_rows(const Rows& rows, const Chains& chains, const Element* into, const Element* updates,
                Element* result) {
  const int64_t blocks = ceil_div(rows.width, block);
  parallel_for(rows.count * blocks, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / blocks, from = i % blocks * block;
      const int64_t width = std::min(block, rows.width - from), at = row * rows.width + from;
      const Element* old = rows.broadcast ? into : into + at;
      if (chains.first[row] >= 0)
        add_chain<Element, Lane>(old, rows.broadcast, updates, rows.width, chains,
                                 chains.first[row], from, width, result + at);
      else if (rows.same_memory)
        continue;
      else if (rows.broadcast)
        std::fill_n(result + at, width, *into);
      else
        std::copy_n(old, width, result + at);
    }
  });
}

class ScatterAdd : public Kernel {
 public:
  explicit ScatterAdd(const Launch& launch)
      : inputs_(bind_inputs(launch)), result_(bind_result(launch)) {
    const Shape& shape = result_.type.shape;
    rows_.count = shape[0];
    rows_.width = 1;
    for (int i = 1; i < shape.size(); ++i) rows_.width *= shape[i];
    rows_.broadcast = is_broadcast(shape, inputs_[0].strides);
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    if (rows_.count == 0 || rows_.width == 0) return;
    const Chains chains = chain(inputs_[1].in(operands), inputs_[1].type.dtype, rows_.count,
                                inputs_[1].type.elements(), workspace);
    Rows rows = rows_;
    rows.same_memory = !rows.broadcast && inputs_[0].in(operands) == result_.out(results);
    with_number(result_.type.dtype, [&]<class Element, class Lane>(Element, Lane) {
      write_rows<Element, Lane>(rows, chains,
                                reinterpret_cast<const Element*>(inputs_[0].in(operands)),
                                reinterpret_cast<const Element*>(inputs_[2].in(operands)),
                                reinterpret_cast<Element*>(result_.out(results)));
    });
  }

 private:
  std::vector<Bound> inputs_;  // into, indices, updates
  Bound result_;
  Rows rows_{};
};

class FirstPosition : public Kernel {
 public:
  explicit FirstPosition(const Launch& launch)
      : indices_(bind_inputs(launch).front()), result_(bind_result(launch)) {}

  void run(void* const* operands, void* const* results, void*) const override {
    auto* first = reinterpret_cast<int64_t*>(result_.out(results));
    const int64_t rows = result_.type.elements();
    std::fill_n(first, rows, -1);
    for (int64_t i = indices_.type.elements(); i-- > 0;) {
      const int64_t row = load_int(indices_.in(operands), indices_.type.dtype, i);
      if (row >= 0 && row < rows) first[row] = i;
    }
  }

 private:
  Bound indices_, result_;
};
}  // namespace

std::optional<KernelChoice> choose_scatter_add(const Node& node,
                                               std::span<const Placement> operands) {
  const int64_t rows = node.type.shape[0], updates = node.inputs[1].elements();
  if (node.type.dtype == DType::boolean || updates > INT32_MAX) return std::nullopt;
  const bool broadcast = is_broadcast(node.type.shape, operands[0].strides);
  return KernelChoice{
      .kernel = "weft:scatter_add",
      .operand_order = {broadcast ? Dims{} : Dims::iota(node.type.shape.size()),
                        Dims::iota(node.inputs[1].rank()), Dims::iota(node.inputs[2].rank())},
      .workspace = static_cast<size_t>(rows + updates) * sizeof(int32_t),
      .in_place = 0};
}

std::unique_ptr<Kernel> compile_scatter_add(const Launch& launch) {
  return std::make_unique<ScatterAdd>(launch);
}

std::optional<KernelChoice> choose_first_position(const Node& node, std::span<const Placement>) {
  return KernelChoice{.kernel = "weft:first_position",
                      .operand_order = {Dims::iota(node.inputs[0].rank())}};
}

std::unique_ptr<Kernel> compile_first_position(const Launch& launch) {
  return std::make_unique<FirstPosition>(launch);
}
}  // namespace weft::cpu
