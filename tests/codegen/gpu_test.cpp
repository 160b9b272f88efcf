// Tests the source of GPU emitters: OpenCL C runs against the reference, and CUDA C compiles. Each
// form and type has one case; products and what schedules choose are in gpu_products_test.cpp.
// codegen.gpu.slow runs all cases of the other files this way.
#include <cmath>
#include <limits>
#include <regex>
#include <string>

#include <doctest/doctest.h>

#include "tests/codegen/fused_launch.h"
#include "tests/codegen/gpu_cases.h"
#include "tests/support/near.h"
#include "weft/codegen/gpu_emit.h"
#include "weft/device/catalogue.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

using namespace weft;
using test::Case;
using test::check_on_gpu;
using test::f32;
using test::numbers;
using test::over;
using test::schedule_of;

namespace {
// Returns the loss of each row of logits, and its gradient.
std::vector<Value> cross_entropy_of(const Type& logits) {
  const int64_t rows = logits.shape[0];
  const Value x = input(logits, 0), label = input({DType::i32, {rows, 1}}, 1);
  const Value y = make_node(op("cross_entropy_rows"), {x, label}, {{"label_smoothing", 0.0}});
  return {y, gradients(y, std::vector<Value>{x}, input(y.type(), 2)).front()};
}
// Fills labels with classes, and logits of `columns` columns with some hard rows: masked logits,
// all or all but one of them, infinity, nan, very small and very different numbers.
test::Fill hard_rows(int64_t columns) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return [columns](const Value& leaf, int64_t i) {
    if (leaf.dtype() == DType::i32) return static_cast<double>(i * 7 % columns);
    const int64_t row = i / columns, column = i % columns;
    const double usual = test::spread(leaf, i);
    if (leaf.dim(-1) != columns) return usual;
    switch (row) {
      case 1:
        return column % 3 == 0 ? -infinity : usual;
      case 2:
        return -infinity;
      case 3:
        return column == columns - 1 ? infinity : usual;
      case 4:
        return column == columns / 2 ? std::numeric_limits<double>::quiet_NaN() : usual;
      case 5:
        return usual - 200;
      case 6:
        return 40 * usual + static_cast<double>(column) * 90.0 / static_cast<double>(columns);
      case 7:
        return column == columns - 1 ? -150.0 : -infinity;
      default:
        return usual;
    }
  };
}
// Counts the vector loads of rows in the kernel's source.
int reads_of(std::vector<Value> outputs, loop::GpuLanguage language) {
  const loop::Kernel kernel = test::FusedLaunch(std::move(outputs)).loops(language);
  const std::string text =
      emit_gpu(kernel, loop::schedule_gpu(kernel, language), language, "rows").source;
  static const std::regex pack(R"(x\d\*\)\(in\d \+ )");
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), pack), {}));
}
// Rows that take one iteration, several, large groups and a tail on CUDA, or several chunks.
const std::vector<Shape> softmax_rows = {{8, 100}, {300, 3000}, {260, 9'001}, {9, 70'000}};
// Adds functions of softmax's kind, by number.
void add_softmax_cases(const Shape& shape, const std::vector<int>& which, std::vector<Case>& to) {
  const Value x = f32(shape);
  for (const int function : which)
    to.push_back({function == 0   ? std::vector{softmax(x)}
                  : function == 1 ? std::vector{log_softmax(x)}
                  : function == 2 ? std::vector{logsumexp(x, over({1}))}
                                  : cross_entropy_of(x.type()),
                  1e-5, hard_rows(shape[1])});
}
}  // namespace

TEST_SUITE("slow codegen gpu") {
  TEST_CASE("every function of softmax's kind is right in one loop over every form of rows") {
    std::vector<Case> cases;
    for (const Shape& shape : softmax_rows) add_softmax_cases(shape, {0, 1, 2, 3}, cases);
    cases.push_back({cross_entropy_of({DType::bf16, {260, 10'000}}), 1e-2, hard_rows(10'000)});
    cases.push_back({{softmax(f32({600, 3000}), 0)}, 1e-5});
    check_on_gpu(cases);
  }
}

TEST_SUITE("codegen gpu") {
  TEST_CASE("elementwise kernels support every length, broadcasts, transposes and flips") {
    std::vector<Case> cases;
    for (int64_t n : {0, 1, 17, 1000, 20011}) cases.push_back({{f32({n}) + f32({n}, 1)}});
    Value x = input({DType::f32, {2, 3, 1, 4, 2, 5}}, 0),
          y = input({DType::f32, {2, 1, 3, 4, 1, 5}}, 1);
    cases.push_back({{x - y, maximum(x, 0.0)}});
    for (DType type : {DType::f32, DType::bf16, DType::boolean})
      cases.push_back({{cast(transpose(input({type, {100, 33}}, 0)), DType::f32) * 2.0}});
    Value image = f32({6, 20, 35});
    cases.push_back({{permute(image, {0, 2, 1}) + f32({6, 35, 20}, 1)}});
    cases.push_back({{flip(permute(image, {2, 1, 0}), {0, 2}) + f32({35, 20, 6}, 1)}});
    check_on_gpu(cases);
  }
  TEST_CASE("kernels may have more elements than threads in a launch") {
    check_on_gpu({{{f32({1100001}) * 2.0}}, {{sum(f32({8300, 300}), over({1}))}, 1e-5}});
    CHECK(schedule_of(sum(f32({8300, 300}), over({1}))).groups > loop::most_groups);
  }
  TEST_CASE("arithmetic and casts support every type") {
    std::vector<Case> cases;
    for (DType type : numbers) {
      Value a = input({type, {3, 68}}, 0), b = input({type, {3, 68}}, 1);
      Value c = abs(b) + 1;
      cases.push_back({{a + b, a - b, a * b, maximum(a, b), neg(a), abs(a), sign(a), a < b, a == b,
                        select(a >= b, a, b), remainder(a, c), floor_divide(a, c)}});
      std::vector<Value> casts;
      for (DType to : numbers)
        if (to != type) casts.push_back(cast(a, to));
      casts.push_back(cast(a, DType::boolean));
      cases.push_back({casts});
    }
    auto odd = [](const Value&, int64_t i) {
      constexpr double values[] = {0.5,
                                   -1.9999,
                                   65519.99,
                                   65520,
                                   1e30,
                                   1e-40,
                                   5.9e-8,
                                   2.98e-8,
                                   2.981e-8,
                                   1 + 0x1p-8,
                                   1 + 0x3p-9,
                                   NAN,
                                   INFINITY,
                                   -0.0,
                                   127.5,
                                   255.9,
                                   -2147483649.0,
                                   256,
                                   1 + 0x1p-8 + 0x1p-40};
      return values[i % std::size(values)];
    };
    for (DType from : {DType::f32, DType::f64}) {
      Value x = input({from, {40}}, 0);
      cases.push_back({{cast(x, DType::f16), cast(x, DType::bf16), cast(x, DType::f32)}, 0, odd});
    }
    check_on_gpu(cases);
  }
  TEST_CASE("mathematical functions are within their error bounds") {
    std::vector<Case> cases;
    for (DType type : {DType::f32, DType::f64}) {
      Value x = input({type, {150}}, 0), y = input({type, {150}}, 1);
      std::vector<Value> results = test::functions_of(x * 0.5);
      for (const Value& each :
           {sqrt(x), rsqrt(x), pow(abs(x), y), atan2(x, y), x / y, reciprocal(y)})
        results.push_back(each);
      cases.push_back({results, type == DType::f64 ? 1e-14 : 1e-6});
    }
    check_on_gpu(cases);
  }
  TEST_CASE("reductions of rows and columns are right: short, long and empty") {
    std::vector<Case> cases;
    for (int64_t n : {3, 100, 5000}) cases.push_back({{sum(f32({5, n}), over({1}))}, 1e-5});
    for (int64_t n : {3, 1000}) cases.push_back({{sum(f32({37, n}), over({0}))}, 1e-5});
    cases.push_back({{sum(f32({4, 7, 5, 19}), over({1, 3}))}, 1e-5});
    cases.push_back({{sum(f32({300000}), over({0}))}, 1e-4});
    cases.push_back({{sum(f32({20011, 10}), over({0})), max(f32({20011, 10}), over({0}))}, 1e-4});
    cases.push_back({{sum(f32({3, 0}), over({1})), prod(f32({3, 0}), over({1}))}});
    cases.push_back({{sum(f32({0, 3}), over({0}))}});
    for (Shape shape : {Shape{9, 33}, Shape{3, 70000}}) {
      Value x = f32(shape);
      cases.push_back(
          {{max(x, over({1})), min(x, over({1})), argmax(x, 1, true), argmin(x, 1, true)}});
    }
    auto with_nan = [](const Value&, int64_t i) {
      return i % 60 == 41 ? NAN : static_cast<double>(i % 9);
    };
    cases.push_back({{max(f32({4, 60}), over({1})), argmax(f32({4, 60}), 1, true)}, 0, with_nan});
    for (DType type : {DType::boolean, DType::i8, DType::i64, DType::bf16, DType::f64}) {
      Value x = input({type, {20, 45}}, 0);
      cases.push_back({{max(x, over({0})), min(x, over({0}))}});
    }
    // These reductions run along columns, also split into chunks, beside elementwise results.
    cases.push_back(
        {{argmax(f32({3000, 16}), 0, true), max(input({DType::bf16, {3000, 16}}, 1), over({0}))}});
    for (const Shape& shape : {Shape{900, 96}, Shape{33, 30}}) {
      Value x = f32(shape), dy = f32(shape, 1), rows = f32({shape[0], 1}, 3);
      Value dx = dy * tanh(x + reshape(f32({1, shape[1]}, 2), {shape[1]}));
      cases.push_back(
          {{dx, sum(dx, over({0})), sum(x * rows, over({0})), min(dy, over({0}))}, 1e-4});
    }
    cases.push_back({{f32({90, 24}) - mean(f32({90, 24}), over({0}))}, 1e-5});
    check_on_gpu(cases);
  }
  TEST_CASE("several loops over the same rows and reductions across them share a kernel") {
    std::vector<Case> cases;
    cases.push_back({{softmax(f32({6, 1000}))}, 2e-6});
    cases.push_back({{softmax(f32({5, 20, 7}), 1)}, 2e-6});
    cases.push_back({{softmax(f32({2, 60000}))}, 2e-6});
    cases.push_back({{layer_norm(f32({9, 100}), reshape(f32({1, 100}, 1), {100}),
                                 reshape(f32({1, 100}, 2), {100}))},
                     2e-5});
    // The rows take one iteration of a group, several, a partial last one, or exceed the registers.
    for (const Shape& shape :
         {Shape{300, 67}, Shape{40, 4096}, Shape{33, 2900}, Shape{12, 20000}}) {
      Value x = f32(shape), dy = f32(shape, 1);
      Value xhat = layer_norm(x);
      cases.push_back({{sum(dy * xhat, over({0})), sum(dy, over({0})), xhat * dy}, 1e-3});
    }
    Value none = f32({0, 3});
    cases.push_back({{sum(none, over({0})), sum(none, over({1}))}});
    check_on_gpu(cases);
  }
  TEST_CASE("the sum of exponentials is fused with the maximum into one loop (online softmax)") {
    for (const Shape& shape : softmax_rows) {
      const loop::Kernel rows =
          test::FusedLaunch({softmax(f32(shape))}).loops(loop::GpuLanguage::cuda);
      CHECK((to_text(rows).find("of exp less") != std::string::npos) == (shape[1] > 100));
    }
    std::vector<Case> cases;  // each function, and each form of rows; the slow test has all pairs
    add_softmax_cases(softmax_rows[0], {0, 1, 2, 3}, cases);
    add_softmax_cases(softmax_rows[1], {0}, cases);
    add_softmax_cases(softmax_rows[2], {1}, cases);
    add_softmax_cases(softmax_rows[3], {2, 3}, cases);
    cases.push_back({cross_entropy_of({DType::bf16, {40, 10'000}}), 1e-2, hard_rows(10'000)});
    cases.push_back({{softmax(f32({600, 300}), 0)}, 1e-5});    // columns
    cases.push_back({{softmax(f32({20'000, 12}), 0)}, 1e-5});  // columns in chunks
    cases.push_back({{softmax(f32({7, 900, 33}), 1)}, 1e-5});
    check_on_gpu(cases);
  }
  TEST_CASE("rows beyond registers are read once for their sum and once for the stored result") {
    for (loop::GpuLanguage language : {loop::GpuLanguage::cuda, loop::GpuLanguage::opencl}) {
      const Value x = f32({4096, 32'768});
      CHECK(reads_of({logsumexp(x, over({1}))}, language) == 1);
      CHECK(reads_of({softmax(x)}, language) == 2);
      CHECK(reads_of({log_softmax(x)}, language) == 2);
      CHECK(reads_of(cross_entropy_of({DType::bf16, {4096, 32'768}}), language) == 2);
      // Rows in registers are read once; their maximum is known before any exponential.
      CHECK(reads_of({softmax(f32({4096, 512}))}, language) == 1);
    }
  }
  TEST_CASE("the second pass over a row runs backwards so that caches still hold its end") {
    const loop::Kernel kernel = test::FusedLaunch(cross_entropy_of({DType::bf16, {4096, 32'768}}))
                                    .loops(loop::GpuLanguage::cuda);
    const std::string text = emit_gpu(kernel, loop::schedule_gpu(kernel, loop::GpuLanguage::cuda),
                                      loop::GpuLanguage::cuda, "rows")
                                 .source;
    const size_t forwards = text.find("i += 1024)"), backwards = text.find("left > 0; --left)");
    CHECK(forwards < backwards);
    CHECK(text.find("i += 1024)", forwards + 1) == std::string::npos);
    CHECK(text.find("left > 0; --left)", backwards + 1) == std::string::npos);
    CHECK(backwards != std::string::npos);
  }
  TEST_CASE("repeated reads are counted except for rows held in registers or caches") {
    auto reread = [](std::vector<Value> outputs) {
      constexpr loop::GpuLanguage cuda = loop::GpuLanguage::cuda;
      const loop::Kernel kernel = test::FusedLaunch(std::move(outputs)).loops(cuda);
      return loop::reread(kernel, loop::schedule_gpu(kernel, cuda));
    };
    const Type logits{DType::bf16, {4096, 65'536}};
    const Value x = f32(logits.shape);
    CHECK(reread({sum(x, over({1}))}).bytes == 0);
    CHECK(reread({logsumexp(x, over({1}))}).bytes == 0);
    CHECK(reread({softmax(x)}).bytes == static_cast<double>(x.type().bytes()));
    CHECK(reread(cross_entropy_of(logits)).bytes == static_cast<double>(logits.bytes()));
    CHECK(reread({x - mean(x, over({1}))}).bytes == static_cast<double>(x.type().bytes()));
    CHECK(reread({softmax(f32({4096, 512}))}).bytes == 0);
    CHECK(reread({softmax(f32({4096, 1600}))}).bytes == 0);
    // Two groups of 1,024 threads share a multiprocessor; each reads one row and writes another.
    CHECK(reread(cross_entropy_of(logits)).in_flight == 2 * 2 * 65'536 * 2.0);
    const Reread chunked = reread({softmax(f32({2, 200'000}))});
    CHECK(chunked.bytes == 2 * 200'000 * 4.0);
    CHECK(std::isinf(chunked.in_flight));  // every row is read once before any reread
  }
  TEST_CASE("the likely traffic of cross entropy counts the misses of an H100's L2 cache") {
    constexpr int64_t rows = 65'536, classes = 50'304;
    const MachineSpec h100 = spec_of(*find_gpu("h100"));
    // Returns the traffic relative to the least: logits read once, gradients written once.
    auto traffic = [](MachineSpec gpu) {
      const Type logits{DType::bf16, {rows, classes}};
      const test::FusedLaunch fused(cross_entropy_of(logits));
      const loop::Kernel kernel = fused.loops(loop::GpuLanguage::cuda);
      const double least = 2.0 * static_cast<double>(logits.bytes());
      gpu.sustained->rows = gpu.sustained->streams = 1;
      gpu.sustained->launch = 0;
      const Launch launch{
          .body = cross_entropy_of(logits),
          .bytes = least,
          .reread = loop::reread(kernel, loop::schedule_gpu(kernel, loop::GpuLanguage::cuda))};
      return likely_seconds(launch, gpu) * gpu.bytes_per_s / least;
    };
    // 264 rows and their gradients are 53 MB; half of the cache holds 26.
    CHECK(traffic(h100) == testing::near(1 + 0.5 * (1 - 26.2144 / 53.121), 1e-4));
    MachineSpec other = h100;
    other.second_level_cache *= 3;
    CHECK(traffic(other) == testing::near(1));
    other.second_level_cache = 0;  // unknown
    CHECK(traffic(other) == testing::near(1.5));
  }
  TEST_CASE("pads, gathers, concatenations and iota are right") {
    std::vector<Case> cases;
    Value x = f32({5, 6, 30});
    cases.push_back({{pad(x, {1, 0, 1}, {0, 3, 2}, 1)}});
    cases.push_back({{iota({4, 37}, 0) + iota({4, 37}, 1)}});
    std::vector<Value> columns{f32({4, 21}, 0), f32({4, 1}, 1), f32({4, 64}, 2)};
    cases.push_back({{relu(concat(columns, 1))}});
    auto fill = [](const Value& leaf, int64_t i) {
      return is_integer(leaf.dtype()) ? static_cast<double>(i * 5 % 11 - 2) : test::spread(leaf, i);
    };
    Value table = f32({7, 40}), ids = input({DType::i64, {3, 5}}, 1);
    cases.push_back({{gather(table, ids, 0)}, 0, fill});
    cases.push_back({{gather(table, ids, 1) * 2.0}, 0, fill});
    check_on_gpu(cases);
  }
  TEST_CASE("random numbers of GPU kernels are bit-identical to the reference") {
    RandomKey key{.step = input({DType::i64, {}}, 0), .seed = 0x123456789abcdef, .stream = 77};
    auto steps = [](const Value& leaf, int64_t i) {
      return is_integer(leaf.dtype()) ? 12345.0 : test::spread(leaf, i);
    };
    check_on_gpu({{{uniform({7, 2, 3}, key)}, 0, steps},
                  {{uniform({5, 128}, key)}, 0, steps},
                  {{dropout(f32({40, 33}, 1), 0.3, key)}, 0, steps},
                  {{normal({300}, key)}, 1e-5, steps}});
  }
}
