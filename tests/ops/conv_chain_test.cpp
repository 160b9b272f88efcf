// Tests chains of convolutions that are computed in strips of rows, on any number of threads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/threads.h"
#include "tests/support/values.h"
#include "weft/base/host/isa.h"
#include "weft/base/memory/storage.h"
#include "weft/device/registry.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

using namespace weft;
using namespace weft::testing;

namespace {
// An inverted residual block: channels are expanded, convolved one by one, and projected.
struct Block {
  Shape x = {1, 8, 60, 52};
  int64_t channels = 96, kernel = 3;
  ConvOptions options = {.padding = {1, 1}};
  DType dtype = DType::f32;
  bool lacks_number = false;  // the first element of x is NaN
  std::vector<Value> inputs = {};

  Value draw(const Shape& shape) {
    inputs.push_back(input({dtype, shape}, static_cast<int>(inputs.size())));
    return inputs.back();
  }
  Value layer(const Value& from, const Shape& weight, const ConvOptions& how) {
    const Value sums = conv(from, draw(weight), {}, how);
    return sums + draw({1, weight[0], 1, 1});
  }
  static Value clipped(const Value& value) { return minimum(maximum(value, 0.0), 6.0); }
  Value expanded() {
    const Value image = draw(x);
    return clipped(layer(image, {channels, x[1], 1, 1}, {}));
  }
  Value convolved(const Value& wide) {
    ConvOptions how = options;
    how.groups = channels;
    return clipped(layer(wide, {channels, 1, kernel, kernel}, how));
  }
  Value projected(const Value& wide) {
    const Value y = layer(wide, {x[1], channels, 1, 1}, {});
    return y.shape() == x ? y + inputs.front() : y;
  }
  Value whole() { return projected(convolved(expanded())); }
};

// Checks the CPU's values on any team, and returns how many of its kernels are chains.
int64_t chains_of(const Block& block, std::vector<Value> outputs) {
  const Graph graph{.inputs = block.inputs, .outputs = std::move(outputs)};
  Random random(5);
  std::vector<Value> given;
  given.reserve(block.inputs.size());
  for (const Value& leaf : block.inputs)
    given.push_back(random_values(leaf.type(), -1.5, 1.5, random));
  if (block.lacks_number)
    *reinterpret_cast<float*>(given.front()->storage->buffer()->data) =
        std::numeric_limits<float>::quiet_NaN();
  const std::vector<Interpreted> want = interpret_with_errors(graph, given);
  const auto is_nan = [](double number) { return std::isnan(number); };
  CHECK(std::ranges::any_of(elements(want.front().value), is_nan) == block.lacks_number);
  const KernelLibrary& cpu = library("cpu");
  int64_t chains = 0;
  for (const int threads : thread_counts) {
    const Threads with(threads);
    CAPTURE(threads);
    CHECK(disagreement(run_planned(graph, given, cpu), want, cpu) == "");
    const Plan plan = make_plan(graph, {.library = &cpu});
    const auto count = std::ranges::count(plan.launches, "dnnl:conv_chain", &Launch::kernel);
    CHECK((chains == 0 || chains == count));
    chains = count;
  }
  return chains;
}
// Returns whether there is one chain. Without AVX2 oneDNN lacks some depthwise convolutions of
// channels-last images.
bool joined(int64_t chains) { return chains == 1 || (chains == 0 && isa() == Isa::baseline); }
}  // namespace

namespace {
void check_whole(std::vector<Block> blocks) {
  for (Block& block : blocks) {
    const Value y = block.whole();
    CAPTURE(to_string(y.shape()));
    CHECK(joined(chains_of(block, {y})));
  }
}
}  // namespace

// The case of a NaN has a block of stride 1.
TEST_CASE("convolutions around a depthwise one are one kernel, of any geometry, on any team") {
  check_whole({{.x = {3, 8, 37, 31}, .options = {.stride = {2, 2}, .padding = {1, 1}}},
               {.x = {2, 24, 33, 47}, .channels = 100}});
}
TEST_SUITE("slow chains") {
  TEST_CASE("convolutions around a dilated or a strided depthwise one are one kernel") {
    check_whole({{.kernel = 5, .options = {.padding = {4, 4}, .dilation = {2, 2}}},
                 {.options = {.stride = {3, 1}}}});
  }
}

TEST_CASE("a chain's links may be two, or a dense convolution before a depthwise one") {
  Block two;
  const Value convolved = two.convolved(two.expanded());
  CHECK(joined(chains_of(two, {convolved})));

  Block dense{.x = {2, 3, 130, 140}, .channels = 32};
  const Value image = dense.draw(dense.x);
  const Value wide =
      Block::clipped(dense.layer(image, {32, 3, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}));
  const Value y = dense.projected(dense.convolved(wide));
  CHECK(joined(chains_of(dense, {y})));
}

TEST_CASE("a chain begins after what else is read") {
  Block read;
  const Value wide = read.expanded(), y = read.projected(read.convolved(wide));
  CHECK(joined(chains_of(read, {y, wide})));
}

TEST_CASE("what fits in the cache, or has no depthwise neighbour, is stored") {
  Block small{.x = {1, 16, 20, 20}};
  const Value narrow = small.whole();
  CHECK(chains_of(small, {narrow}) == 0);

  for (const int64_t channels : {8, 1}) {
    Block dense{.x = {1, channels, 60, 52}};
    const Value expanded = dense.expanded(), other = dense.projected(expanded);
    CHECK(chains_of(dense, {other}) == 0);
  }
}

TEST_CASE("a NaN passes through a chain that clips") {
  Block block{.lacks_number = true};
  const Value y = block.whole();
  CHECK(joined(chains_of(block, {y})));
}
