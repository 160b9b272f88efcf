#include "weft/codegen/merge_axes.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace weft::loop {
namespace {

bool has_position(Op op) {
  return op == Op::load || op == Op::index || op == Op::in_range || op == Op::philox;
}

class Merger {
 public:
  explicit Merger(Kernel& kernel) : kernel_(kernel) {
    for (Instruction& in : kernel.code)
      if (has_position(in.op))
        affines_.push_back(&in.at);
      else
        in.at.strides = Dims::filled(static_cast<int>(kernel.axes.size()), 0);
    for (Store& store : kernel.stores) affines_.push_back(&store.at);
  }

  void run() {
    for (int axis = count(); axis-- > 0;)
      if (kernel_.axes[static_cast<size_t>(axis)].extent == 1) remove(axis);
    while (merge_one()) {
    }
    sort();
    bool reduces = std::any_of(kernel_.code.begin(), kernel_.code.end(),
                               [](const Instruction& in) { return in.op == Op::reduce; });
    if (reduces && kernel_.reduced_axes() == 0) append_unit_axis(true);
    if (kernel_.axes.empty()) append_unit_axis(false);
    finish();
  }

 private:
  int count() const { return static_cast<int>(kernel_.axes.size()); }

  static uint32_t without_bit(uint32_t mask, int bit) {
    uint32_t low = mask & ((1u << bit) - 1);
    return low | (mask >> (bit + 1)) << bit;
  }

  void remove(int axis) {
    kernel_.axes.erase(kernel_.axes.begin() + axis);
    auto drop = [&](Dims& strides) {
      Dims rest;
      for (int i = 0; i < strides.size(); ++i)
        if (i != axis) rest.push_back(strides[i]);
      strides = rest;
    };
    for (Affine* at : affines_) drop(at->strides);
    for (Store& store : kernel_.stores) store.axes = without_bit(store.axes, axis);
  }

  // Returns whether (outer, inner) can be one axis with position outer * extent(inner) + inner.
  bool mergeable(int outer, int inner) const {
    const Axis &a = kernel_.axes[static_cast<size_t>(outer)],
               &b = kernel_.axes[static_cast<size_t>(inner)];
    if (outer == inner || a.reduced != b.reduced) return false;
    bool fits = std::all_of(affines_.begin(), affines_.end(), [&](const Affine* at) {
      return at->strides[outer] == at->strides[inner] * b.extent;
    });
    return fits &&
           std::all_of(kernel_.stores.begin(), kernel_.stores.end(), [&](const Store& store) {
             return (store.axes >> outer & 1) == (store.axes >> inner & 1);
           });
  }

  bool merge_one() {
    for (int outer = 0; outer < count(); ++outer)
      for (int inner = 0; inner < count(); ++inner)
        if (mergeable(outer, inner)) {
          kernel_.axes[static_cast<size_t>(inner)].extent *=
              kernel_.axes[static_cast<size_t>(outer)].extent;
          remove(outer);
          return true;
        }
    return false;
  }

  // Returns the largest stride along an axis, in elements: of the stores or, if no store varies
  // along the axis, of the loads.
  int64_t distance(int axis) const {
    int64_t widest = 0;
    for (const Store& store : kernel_.stores)
      widest = std::max(widest, std::abs(store.at.strides[axis]));
    if (widest > 0) return widest;
    for (const Instruction& in : kernel_.code)
      if (in.op == Op::load) widest = std::max(widest, std::abs(in.at.strides[axis]));
    return widest;
  }

  void sort() {
    std::vector<int> order(kernel_.axes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return distance(a) > distance(b); });
    auto permute = [&](const Dims& strides) {
      Dims result;
      for (int axis : order) result.push_back(strides[axis]);
      return result;
    };
    std::vector<Axis> axes;
    axes.reserve(order.size());
    for (int axis : order) axes.push_back(kernel_.axes[static_cast<size_t>(axis)]);
    kernel_.axes = axes;
    for (Affine* at : affines_) at->strides = permute(at->strides);
    for (Store& store : kernel_.stores) {
      uint32_t mask = 0;
      for (size_t i = 0; i < order.size(); ++i) mask |= (store.axes >> order[i] & 1) << i;
      store.axes = mask;
    }
  }

  void append_unit_axis(bool reduced) {
    kernel_.axes.push_back({1, reduced});
    for (Affine* at : affines_) at->strides.push_back(0);
  }

  // Recomputes the axes that each instruction varies over.
  void finish() {
    uint32_t reduced = kernel_.reduced_axes();
    for (Instruction& in : kernel_.code) {
      in.axes = 0;
      if (!has_position(in.op)) in.at = {};
      for (int i = 0; i < in.at.strides.size(); ++i)
        if (in.at.strides[i] != 0) in.axes |= 1u << i;
      for (int arg : in.args)
        if (arg >= 0) in.axes |= kernel_.code[static_cast<size_t>(arg)].axes;
      if (in.op == Op::reduce) in.axes &= ~reduced;
    }
  }

  Kernel& kernel_;
  std::vector<Affine*> affines_;
};
}  // namespace

void merge_axes(Kernel& kernel) { Merger(kernel).run(); }

}  // namespace weft::loop
