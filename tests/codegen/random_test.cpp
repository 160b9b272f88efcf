// Tests random fused kernels: any rank, views, broadcasts, reductions and their consumers.
#include <random>

#include <doctest/doctest.h>

#include "tests/codegen/fused_launch.h"
#include "weft/ops/ops.h"

using namespace weft;

namespace {
class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed) {}

  std::vector<Value> make() {
    constexpr int64_t extents[] = {1, 2, 3, 5, 16, 17, 33, 70};
    int rank = pick(6);
    int64_t elements = 1;
    for (int i = 0; i < rank; ++i) {
      int64_t extent = extents[pick(8)];
      if (elements * extent > 40000) extent = 2;
      elements *= extent;
      space_.push_back(extent);
    }
    for (int i = 0; i < rank; ++i)
      if (pick(2) == 0) axes_.push_back(i);
    for (int i = 0; i < 3; ++i) values_.push_back(leaf());
    for (int i = pick(6); i >= 0; --i) values_.push_back(elementwise(any(), any()));
    if (!axes_.empty() && pick(3) != 0) {
      for (int i = pick(3); i >= 0; --i) {
        Value total = reduced(any());
        reduced_.push_back(total);
        values_.push_back(broadcast_to(total, space_));
        values_.push_back(elementwise(any(), values_.back()));
      }
    }
    std::vector<Value> outputs{values_.back()};
    if (pick(2) == 0) outputs.push_back(any());
    if (!reduced_.empty() && pick(2) == 0) outputs.push_back(exp(reduced_.back() * 1e-3));
    return outputs;
  }

 private:
  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }
  const Value& any() {
    return values_[static_cast<size_t>(pick(static_cast<int>(values_.size())))];
  }

  // Returns an input of the space's shape, through views and broadcasts.
  Value leaf() {
    Shape shape = space_;
    for (int i = 0; i < shape.size(); ++i)
      if (pick(4) == 0) shape[i] = 1;
    Dims order = Dims::iota(shape.size());
    if (pick(2) == 0)
      for (int i = 1; i < shape.size(); ++i) std::swap(order[i], order[pick(i + 1)]);
    Shape stored = shape;
    for (int i = 0; i < shape.size(); ++i) stored[static_cast<int>(order[i])] = shape[i];
    bool sliced = !shape.empty() && pick(4) == 0;
    if (sliced) stored[0] = stored[0] * 2 + 1;
    DType type = pick(4) == 0 ? DType::bf16 : DType::f32;
    Value x = input({type, stored}, count_++);
    if (sliced) x = slice(x, 0, 1, stored[0], 2);
    x = permute(x, order);
    if (!shape.empty() && pick(5) == 0) x = flip(x, {pick(shape.size())});
    return broadcast_to(cast(x, DType::f32), space_);
  }

  Value elementwise(const Value& a, const Value& b) {
    switch (pick(9)) {
      case 0:
        return a + b;
      case 1:
        return a - b;
      case 2:
        return a * b * 0.5;
      case 3:
        return maximum(a, b);
      case 4:
        return select(a < b, a * 2.0, b);
      case 5:
        return tanh(a) + b;
      case 6:
        return exp(minimum(a, 1.0)) * 0.5;
      case 7:
        return a / (abs(b) + 1.0);
      default:
        return relu(a) - 0.25;
    }
  }

  Value reduced(const Value& x) {
    ReduceOptions over{.axes = axes_, .keepdim = true};
    switch (pick(4)) {
      case 0:
        return max(x, over);
      case 1:
        return min(x, over);
      case 2:
        return mean(x, over);
      default:
        return sum(tanh(x), over) * 0.01;
    }
  }

  std::mt19937 random_;
  Shape space_;
  Dims axes_;
  std::vector<Value> values_, reduced_;
  int count_ = 0;
};

void check_random(unsigned first, unsigned last) {
  for (unsigned seed = first; seed < last; ++seed) {
    INFO("seed " << seed);
    test::check(RandomGraph(seed).make(), 2e-4);  // long sums add up in float32
  }
}
}  // namespace

TEST_SUITE("codegen random") {
  TEST_CASE("random kernels agree with the reference") { check_random(0, 60); }
}
TEST_SUITE("slow codegen random") {
  TEST_CASE("many random kernels agree with the reference at any vector width") {
    test::set_other_targets(true);
    check_random(1000, 3000);
    test::set_other_targets(false);
  }
}
