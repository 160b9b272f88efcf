// Tests how fused kernels use memory: results that alias operands, scratch, arbitrary partitions
// and vector widths.
#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>

#include <doctest/doctest.h>

#include "tests/codegen/fused_launch.h"
#include "tests/codegen/inputs.h"
#include "tests/support/threads.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/memory/buffer.h"
#include "weft/ops/ops.h"

using namespace weft;
using test::check;
using test::f32;
using test::over;

namespace {
// Runs the launch on 1, 2, 3 and 8 threads with results[result] aliasing operand `leaf`, and
// compares with a run without aliasing.
void check_in_place(const std::vector<Value>& outputs, int result, const Value& leaf) {
  test::FusedLaunch apart(outputs), joined(outputs);
  test::Run expected = test::run(apart);
  int operand = -1;
  for (size_t i = 0; i < joined.operand_leaf.size(); ++i)
    if (joined.operand_leaf[i].node() == leaf.node()) operand = static_cast<int>(i);
  REQUIRE(operand >= 0);
  joined.launch.in_place.emplace_back(result, operand);
  CompiledKernel kernel = compile_cpu(joined.launch);
  kernel.work = test::worth_a_team;
  auto workspace = Buffer::allocate(workspace_bytes(joined.launch, 8) + 64);
  for (int threads : testing::thread_counts) {
    CAPTURE(threads);
    const testing::Threads team(threads);
    std::vector<std::vector<std::byte>> memory;
    std::vector<void*> operands, results;
    for (const Value& value : joined.operand_leaf) {
      auto& bytes = memory.emplace_back(value.type().bytes());
      for (int64_t k = 0; k < value.elements(); ++k)
        store(bytes.data(), value.dtype(), k, test::spread(value, k));
      operands.push_back(bytes.data());
    }
    std::vector<std::vector<std::byte>> outputs_memory;
    outputs_memory.reserve(joined.launch.results.size());
    for (const Access& access : joined.launch.results)
      outputs_memory.emplace_back(access.value.type().bytes());
    for (auto& bytes : outputs_memory) results.push_back(bytes.data());
    results[static_cast<size_t>(result)] = operands[static_cast<size_t>(operand)];
    run_kernel(kernel, operands.data(), results.data(), workspace->data);
    for (size_t r = 0; r < results.size(); ++r) {
      size_t bytes = joined.launch.results[r].value.type().bytes();
      CHECK(std::memcmp(results[r], expected.bytes[r].data(), bytes) == 0);
    }
  }
}

// Returns all bytes of the results when each stage is cut into `parts`.
std::vector<std::byte> run_in_parts(const test::FusedLaunch& fused, int64_t parts) {
  CompiledKernel kernel = compile_cpu(fused.launch);
  std::vector<std::vector<std::byte>> memory;
  std::vector<void*> operands, results;
  for (const Value& value : fused.operand_leaf) {
    auto& bytes = memory.emplace_back(value.type().bytes());
    for (int64_t k = 0; k < value.elements(); ++k)
      store(bytes.data(), value.dtype(), k, test::spread(value, k));
    operands.push_back(bytes.data());
  }
  std::vector<std::byte> all;
  for (const Access& access : fused.launch.results)
    all.resize(all.size() + access.value.type().bytes());
  size_t at = 0;
  for (const Access& access : fused.launch.results) {
    results.push_back(all.data() + at);
    at += access.value.type().bytes();
  }
  std::vector<std::byte> shared(kernel.shared_scratch + 64),
      scratch(kernel.scratch_per_thread + 64);
  for (const KernelStage& stage : kernel.stages)
    for (int64_t part = parts; part-- > 0;)  // backwards: order must not matter either
      stage.fn(operands.data(), results.data(), scratch.data(), shared.data(),
               stage.extent * part / parts, stage.extent * (part + 1) / parts);
  return all;
}
}  // namespace

TEST_SUITE("codegen memory") {
  TEST_CASE("results may alias the memory of an operand") {
    Value x = f32({20, 70}), y = f32({20, 70}, 1);
    check_in_place({x + y}, 0, x);
    check_in_place({x + y, x * y}, 1, y);
    check_in_place({softmax(x)}, 0, x);
    check_in_place({softmax(x, 0)}, 0, x);
    Value sum_of = x + y;  // stored, and normalized in the same kernel
    check_in_place({sum_of, sum_of - mean(sum_of, over({1}))}, 0, x);
    check_in_place({sum_of, sum_of - mean(sum_of, over({0}))}, 0, y);
    check_in_place({tanh(x), sum(tanh(x), over({0}))}, 0, x);
    for (int axis : {0, 1}) {  // the second loop reads x after the first could have overwritten it
      Value centred = x - mean(x, over({axis}));
      check_in_place({x + y, mean(centred * centred, over({axis}))}, 0, x);
    }
    Value long_rows = f32({3, 100000});
    check_in_place({long_rows - max(long_rows, over({1}))}, 0, long_rows);
    Value r = f32({1, 70}, 2);
    check_in_place({r * 0.9 + mean(x, over({0})) * 0.1, x - mean(x, over({0}))}, 0, r);
  }
  TEST_CASE("large results use non-temporal stores unless they alias an operand") {
    Value x = f32({48, 64}), h = input({DType::bf16, {48, 64}}, 1);
    auto streams = [](const test::FusedLaunch& fused, size_t from = 48 * 64 * 2) {
      const CpuTarget wide{.vector_bytes = 64, .stream_bytes = from};
      return kernel_text(fused.launch, wide).find("stream 0") != std::string::npos;
    };
    for (const Value& large : {x * 2.0, h * 2.0, transpose(x) + 1.0, softmax(x)})
      CHECK(streams(test::FusedLaunch({large})));
    test::FusedLaunch scaled({x * 2.0});
    CHECK_FALSE(streams(scaled, 48 * 64 * 4 + 1));
    scaled.launch.in_place.emplace_back(0, 0);
    CHECK_FALSE(streams(scaled));
    CHECK_FALSE(streams(test::FusedLaunch({softmax(f32({48, 65}))})));  // rows are not aligned
    CHECK_FALSE(streams(test::FusedLaunch({sum(x, over({0}))})));
    CHECK_FALSE(streams(test::FusedLaunch({concat({f32({99, 3}), f32({99, 3})}, 1)})));
  }
  TEST_CASE("results are bit-identical however ranges are partitioned") {
    std::vector<std::vector<Value>> graphs{{gelu(f32({300, 301}))},
                                           {softmax(f32({300, 301}))},
                                           {sum(f32({300, 301}), over({0}))},
                                           {sum(f32({90000}), over({0}))},
                                           {transpose(f32({300, 301})) * 2.0}};
    Value x = f32({1500, 40});
    graphs.push_back({x - mean(x, over({0})), max(x, over({0}))});
    Value dy = f32({300, 301}, 1), xhat = layer_norm(f32({300, 301}));
    graphs.push_back({xhat, sum(dy * xhat, over({0})), sum(dy, over({0}))});
    for (auto& graph : graphs) {
      test::FusedLaunch fused(graph);
      std::vector<std::byte> whole = run_in_parts(fused, 1);
      for (int64_t parts : {2, 3, 7, 64}) CHECK(run_in_parts(fused, parts) == whole);
    }
  }
  TEST_CASE("every position of a stage is computed once with separate scratch for each part") {
    const size_t each = buffer_alignment, shared = 3 * buffer_alignment;
    // The results are the times that each position was computed, and its scratch.
    auto record = [](void* const*, void* const* results, void* scratch, void*, int64_t begin,
                     int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ++static_cast<int*>(results[0])[i];
        static_cast<void**>(results[1])[i] = scratch;
      }
    };
    std::vector<std::byte> workspace(shared + 8 * each);
    for (double work : {0.0, test::worth_a_team})
      for (int threads : testing::thread_counts)
        for (int64_t extent : {0, 1, 2, 3, 7, 8, 9, 100}) {
          CAPTURE(threads);
          CAPTURE(extent);
          const testing::Threads team(threads);
          std::vector<int> times(static_cast<size_t>(extent));
          std::vector<void*> scratch(static_cast<size_t>(extent));
          void* const results[] = {times.data(), static_cast<void*>(scratch.data())};
          run_kernel({.stages = {{record, extent}},
                      .shared_scratch = shared,
                      .scratch_per_thread = each,
                      .work = work},
                     nullptr, results, workspace.data());
          CHECK(std::ranges::count(times, 1) == extent);
          std::set<void*> wanted;
          for (int64_t part = 0; part < std::min<int64_t>(work == 0 ? 1 : threads, extent); ++part)
            wanted.insert(workspace.data() + shared + static_cast<size_t>(part) * each);
          CHECK(std::set<void*>(scratch.begin(), scratch.end()) == wanted);
          CHECK(std::ranges::is_sorted(scratch));
        }
  }
  TEST_CASE("kernels with narrower vectors compute the same results") {
    test::set_other_targets(true);
    Value x = f32({33, 45}), y = f32({33, 45}, 1), h = input({DType::bf16, {33, 45}}, 2);
    check({x * y + 1.0, transpose(transpose(x))});
    check({exp(x), erf(y), tanh(x), log(abs(x)), sin(x * 10.0), cos(y * 1e6)}, 1e-6);
    check({softmax(x)}, 1e-6);
    check({softmax(y, 0)}, 1e-6);
    check({cast(h, DType::f32) * 3.0, h + h});
    check({argmax(x, 1, true), sum(y, over({1}))}, 1e-5);
    check({argmin(x, 0, true), prod(y, over({0}))}, 1e-5);
    check({pad(x, {1, 2}, {3, 4}), pad(y, {2, 3}, {2, 3})});
    check({input({DType::f64, {100}}, 3) * 2.0, sqrt(abs(input({DType::f64, {100}}, 3)))});
    test::set_other_targets(false);
  }
  TEST_CASE("a step that cannot be one kernel is refused with a reason") {
    Value x = f32({20, 70});
    std::string why;
    Value row = sum(x, over({1})), all = sum(x, over({0, 1})), column = sum(x, over({0}));
    CHECK_FALSE(can_fuse(test::FusedLaunch({row, all}).launch, &why));
    CHECK(why.find("different axes") != std::string::npos);
    CHECK_FALSE(can_fuse(test::FusedLaunch({row, x - column}).launch, &why));
    CHECK(why.find("across rows") != std::string::npos);
    CHECK_FALSE(
        can_fuse(test::FusedLaunch({gather(exp(x), input({DType::i64, {3}}, 1), 0)}).launch, &why));
    CHECK(why.find("not in memory") != std::string::npos);
  }
}
