// Tests the source of GPU emitters: OpenCL C runs against the reference, and CUDA C compiles. Each
// form and type has one case; products and what schedules choose are in gpu_products_test.cpp.
// codegen.gpu.slow runs all cases of the other files this way.
#include <cmath>
#include <limits>
#include <regex>
#include <string>

#include <doctest/doctest.h>

<<<<<<< ours
#include "tests/codegen/fused_launch.h"
#include "tests/support/cubin.h"
||||||| base
#include "tests/codegen/fused_launch.h"
#include "tests/support/cubin.h"
=======
#include "tests/codegen/fused_launch.h"
#include "tests/codegen/gpu_cases.h"
>>>>>>> theirs
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
}  // namespace

TEST_SUITE("codegen gpu") {
  TEST_CASE("elementwise kernels of every length, broadcast, transposed, flipped") {
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
  TEST_CASE("more positions than are launched at once") {
    check_on_gpu({{{f32({1100001}) * 2.0}}, {{sum(f32({8300, 300}), over({1}))}, 1e-5}});
    CHECK(schedule_of(sum(f32({8300, 300}), over({1}))).groups > loop::most_groups);
  }
  TEST_CASE("arithmetic and casts in every type") {
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
  TEST_CASE("mathematical functions") {
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
  TEST_CASE("reductions of rows and columns, short, long and empty") {
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
  TEST_CASE("several loops over the same rows, and reductions across them") {
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
  TEST_CASE("sums of exponentials in one loop with the largest, of rows of every kind") {
    std::vector<Case> cases;
    // The rows take one iteration, several, large groups and a tail on CUDA, or several chunks.
    for (const Shape& shape :
         {Shape{8, 100}, Shape{300, 3000}, Shape{260, 9'001}, Shape{9, 70'000}}) {
      const Value x = f32(shape);
      const loop::Kernel rows = test::FusedLaunch({softmax(x)}).loops(loop::GpuLanguage::cuda);
      CHECK((to_text(rows).find("of exp less") != std::string::npos) == (shape[1] > 100));
      cases.push_back({{softmax(x)}, 1e-5, hard_rows(shape[1])});
      cases.push_back({{log_softmax(x)}, 1e-5, hard_rows(shape[1])});
      cases.push_back({{logsumexp(x, over({1}))}, 1e-5, hard_rows(shape[1])});
      cases.push_back({cross_entropy_of(x.type()), 1e-5, hard_rows(shape[1])});
    }
    cases.push_back({cross_entropy_of({DType::bf16, {260, 10'000}}), 1e-2, hard_rows(10'000)});
    cases.push_back({{softmax(f32({600, 3000}), 0)}, 1e-5});   // columns
    cases.push_back({{softmax(f32({20'000, 12}), 0)}, 1e-5});  // columns in chunks
    cases.push_back({{softmax(f32({7, 900, 33}), 1)}, 1e-5});
    check_on_gpu(cases);
  }
  TEST_CASE("rows that no thread keeps are read once for their sum, and once for what is stored") {
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
  TEST_CASE("a row is read again from its end, which the caches still hold") {
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
  TEST_CASE("what loops read again is counted, but for rows that threads or caches keep") {
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
  TEST_CASE("the likely traffic of cross entropy counts what an H100's second-level cache misses") {
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
  TEST_CASE("pads, gathers, concatenations, indices") {
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
  TEST_CASE("random numbers are those of the reference, bit for bit") {
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
<<<<<<< ours

namespace {
// Checks that kernels of large products spill no register on any of these generations.
void check_registers(const std::vector<int>& capabilities) {
  std::unique_ptr<cuda::Nvrtc> compiler;
  try {
    compiler = std::make_unique<cuda::Nvrtc>();
  } catch (const Error& none) {
    testing::skipped(none.what());
    return;
  }
  std::vector<Value> products;
  for (DType type : numbers)
    products.push_back(matmul(input({type, {4096, 1024}}, 0), input({type, {1024, 4096}}, 1)));
  for (const Value& y :
       with_gradients(f32({32, 128, 28, 28}), f32({128, 128, 3, 3}, 1), {.padding = {1, 1}}))
    products.push_back(y);
  products.push_back(matmul(f32({40000, 16}), f32({16, 40000}, 1)));
  CHECK(schedule_of(products.back()).wide);
  CHECK(!schedule_of(products.front()).wide);
  for (const Value& y : products) {
    const loop::Kernel kernel = test::FusedLaunch({y}).loops(loop::GpuLanguage::cuda);
    const loop::GpuSchedule schedule = loop::schedule_gpu(kernel, loop::GpuLanguage::cuda);
    const bool narrow = is_float(y.dtype()) && y.dtype() != DType::f64;  // 4-byte accumulators
    if (y->is("matmul"))
      CHECK(schedule.left.tile * schedule.right.tile == (narrow ? 128 * 128 : 64 * 64));
    const std::string source =
        gpu_prelude(loop::GpuLanguage::cuda) +
        emit_gpu(kernel, schedule, loop::GpuLanguage::cuda, "product").source;
    for (int capability : capabilities)
      for (const testing::KernelResources& one :
           testing::resources_of(compiler->compile(source, capability)))
        CHECK_MESSAGE(one.stack == 0, y->op->name << " " << name(y.dtype()) << " sm_" << capability
                                                  << ": " << one.registers << " registers, "
                                                  << one.stack << " bytes spilled");
  }
}
}  // namespace

TEST_SUITE("slow codegen gpu products") {
  TEST_CASE("large products keep their sums in registers on every generation") {
    check_registers({75, 80, 100});
  }
  TEST_CASE("products of odd extents, large and small, of long and short sums") {
    std::vector<Case> cases;
    struct Extents {
      int64_t m, k, n;
    };
    for (auto [m, k, n] : {Extents{1, 70, 300}, Extents{8, 30, 16}, Extents{100, 70, 33},
                           Extents{65, 4, 129}, Extents{7, 513, 130}, Extents{300, 9, 12},
                           Extents{33, 3000, 40}, Extents{128, 17, 200}, Extents{700, 16, 650}}) {
      CAPTURE(m);
      const Value y = matmul(f32({m, k}), f32({k, n}, 1));
      CHECK(contracts(y) == (m > 1));
      cases.push_back({{y}, 1e-4});
    }
    for (int64_t m : {2, 3, 5, 16})
      cases.push_back({{matmul(f32({m, 200}), f32({200, 64}, 1))}, 1e-4});
    for (auto [m, k, n] : {Extents{0, 5, 40}, Extents{40, 0, 50}, Extents{40, 5, 0}})
      cases.push_back({{matmul(f32({m, k}), f32({k, n}, 1))}});
    check_on_gpu(cases);
  }
  TEST_CASE("products in batches, broadcast, and with either operand transposed") {
    std::vector<Case> cases;
    cases.push_back({{matmul(f32({3, 40, 24}), f32({3, 24, 36}, 1))}, 1e-5});
    cases.push_back({{matmul(f32({2, 3, 20, 24}), f32({1, 3, 24, 50}, 1))}, 1e-5});
    cases.push_back({{matmul(f32({4, 1, 20, 24}), f32({1, 3, 24, 50}, 1))}, 1e-5});
    cases.push_back({{matmul(f32({300, 20, 24}), f32({300, 24, 20}, 1))}, 1e-5});
    auto turned = [](const Value& x) { return transpose(x); };
    const Value a = f32({48, 36}), b = f32({36, 60}, 1), at = f32({36, 48}), bt = f32({60, 36}, 1);
    cases.push_back({{matmul(turned(at), b)}, 1e-5});
    cases.push_back({{matmul(a, turned(bt))}, 1e-5});
    cases.push_back({{matmul(turned(at), turned(bt))}, 1e-5});
    cases.push_back({{matmul(a, turned(a))}, 1e-5});
    // Heads of attention are permuted views of [batch, row, head, column].
    auto heads = [](int leaf) { return permute(f32({2, 40, 3, 16}, leaf), {0, 2, 1, 3}); };
    cases.push_back({{matmul(heads(0), permute(f32({2, 40, 3, 16}, 1), {0, 2, 3, 1}))}, 1e-5});
    cases.push_back({{matmul(f32({2, 3, 40, 40}), heads(1))}, 1e-5});
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    check_on_gpu(cases);
  }
  TEST_CASE("products in every type") {
    std::vector<Case> cases;
    for (DType type : numbers) {
      const Value a = input({type, {70, 40}}, 0), b = input({type, {40, 88}}, 1);
      const double tolerance = type == DType::f16 ? 2e-3 : type == DType::bf16 ? 1e-2 : 1e-5;
      cases.push_back(
          {{matmul(a, b)}, is_float(type) ? type == DType::f64 ? 1e-14 : tolerance : 0});
      cases.push_back({{matmul(transpose(input({type, {44, 70}}, 0)), input({type, {44, 8}}, 1))},
                       cases.back().tolerance});
    }
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    check_on_gpu(cases);
  }
  TEST_CASE("convolutions and their gradients, with strides, dilation, padding and groups") {
    std::vector<Case> cases;
    auto add = [&](const Shape& x, const Shape& weight, const ConvOptions& options,
                   DType type = DType::f32) {
      const double tolerance = type == DType::bf16 ? 2e-2 : type == DType::f64 ? 1e-13 : 1e-4;
      for (const Value& y : with_gradients(input({type, x}, 0), input({type, weight}, 1), options))
        cases.push_back({{y}, tolerance});
    };
    add({2, 8, 15, 13}, {20, 8, 3, 3}, {.padding = {1, 1}});
    add({2, 16, 14, 15}, {24, 16, 3, 2}, {.stride = {2, 3}, .padding = {1, 0}});
    add({2, 9, 14, 12}, {10, 9, 3, 3}, {.padding = {2, 2}, .dilation = {2, 2}});
    add({3, 32, 9, 9}, {48, 16, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2});
    add({4, 16, 7, 7}, {32, 16, 1, 1}, {});
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    add({2, 6, 9, 9}, {6, 1, 3, 3}, {.padding = {1, 1}, .groups = 6});
    add({2, 1, 12, 12}, {6, 1, 5, 5}, {});
    add({1, 8, 12, 12}, {16, 8, 3, 3}, {.padding = {1, 1}}, DType::bf16);
    add({1, 8, 12, 12}, {16, 8, 3, 3}, {.stride = {2, 2}}, DType::f64);
    check_on_gpu(cases);
  }
}

TEST_SUITE("codegen gpu products") {
  TEST_CASE("any sum of products contracts, with what is done to its factors and its result") {
    std::vector<Case> cases;
    const Value a = f32({50, 1, 90}), b = f32({1, 70, 90}, 1), bias = f32({1, 70, 1}, 2);
    cases.push_back({{relu(sum(a * b, over({2})) + bias)}, 1e-5});
    cases.push_back(
        {{sum(cast(input({DType::i8, {50, 1, 90}}, 0), DType::f32) * exp(b), over({2}))}, 1e-4});
    cases.push_back({{sum(pad(f32({50, 1, 80}), {0, 0, 6}, {0, 0, 4}, 0.5) * b, over({2})),
                      sum(pad(f32({50, 1, 80}), {0, 0, 6}, {0, 0, 4}, 0.5) * b, over({2})) * 2.0},
                     1e-5});
    cases.push_back(
        {{sum(f32({3, 50, 1, 90}) * f32({3, 1, 70, 90}, 1), over({3})) * f32({3, 50, 70, 1}, 2)},
         5e-5});
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    cases.push_back({{sum(a * b, over({2})), max(a * b, over({2}))}, 1e-5});
    check_on_gpu(cases);
  }
  TEST_CASE("a convolution whose window is no square, and its gradients") {
    std::vector<Case> cases;
    for (const Value& y : with_gradients(f32({2, 4, 9, 8}), f32({6, 2, 3, 2}, 1),
                                         {.stride = {2, 1}, .padding = {1, 0}, .groups = 2}))
      cases.push_back({{y}, 1e-5});
    check_on_gpu(cases);
  }
  TEST_CASE("long sums of few positions are cut into chunks") {
    const Value few = matmul(f32({40, 20000}), f32({20000, 36}, 1));
    CHECK(schedule_of(few).chunks > 16);
    CHECK(schedule_of(matmul(f32({2048, 4096}), f32({4096, 2048}, 1))).chunks == 1);
    check_on_gpu({{{few}, 1e-3}});
  }
  TEST_CASE("large products keep their sums in registers") { check_registers({90}); }
  TEST_CASE("products of few rows by few columns share nothing, and reduce with all threads") {
    const Value y = matmul(f32({8, 3000}), f32({3000, 8}, 1));
    CHECK(!contracts(y));
    CHECK(schedule_of(y).threads == 256);
    check_on_gpu({{{y}, 1e-3}});
  }
  TEST_CASE("products with more tiles than are launched at once") {
    const Value y = matmul(f32({4100, 40, 2}), f32({4100, 2, 36}, 1));
    CHECK(schedule_of(y).groups > loop::most_groups);
    check_on_gpu({{{y}, 1e-5}});
  }

  TEST_CASE("neighbours are one access of 16 bytes where all of them are aligned") {
    CHECK(schedule_of(f32({8, 64}) + 1.0).vector == 4);
    CHECK(schedule_of(input({DType::bf16, {8, 64}}, 0) + 1.0).vector == 8);
    CHECK(schedule_of(f32({8, 62}) * f32({1, 62}, 1)).vector == 2);
    CHECK(schedule_of(f32({8, 63}) * f32({1, 63}, 1)).vector == 1);
  }
  TEST_CASE("rows of any length are read in such accesses, and what is left of them by itself") {
    std::vector<Case> cases;
    for (DType type : {DType::f32, DType::bf16, DType::f64}) {
      const Value rows = slice(input({type, {5, 5008}}, 0), 1, 0, 5003);
      cases.push_back({{max(rows, over({1})), argmax(rows, 1, true)}});
      cases.push_back({{sum(cast(rows, DType::f32), over({1}))}, 1e-5});
      const Value row = input({type, {20011}}, 0);
      cases.push_back({{softmax(row, 0)}, type == DType::bf16 ? 1e-2 : 1e-5});
    }
    const Value long_row = f32({300003});
    cases.push_back({{sum(long_row, over({0})), max(long_row, over({0}))}, 1e-4});
    cases.push_back({{long_row - sum(long_row, over({0})) * 1e-3}, 1e-3});
    for (const Shape& shape : {Shape{3, 20'000}, Shape{1, 20'003}}) {  // large groups on CUDA
      const Value row = f32(shape);
      cases.push_back({{softmax(row), max(row, over({1}))}, 1e-5});
    }
    check_on_gpu(cases);
    CHECK(schedule_of(sum(slice(f32({5, 5008}), 1, 0, 5003), over({1}))).tail == 3);
    CHECK(schedule_of(sum(long_row, over({0}))).chunks > 1);
    CHECK(schedule_of(sum(long_row, over({0}))).tail == 3);
    CHECK(schedule_of(sum(f32({5, 5003}), over({1}))).tail == 0);
  }
  TEST_CASE("long reductions are cut into as many chunks, whatever device there is") {
    CHECK(schedule_of(sum(f32({1 << 20}), over({0}))).chunks > 16);
    CHECK(schedule_of(sum(f32({4096, 1024}), over({1}))).chunks == 1);
  }
  TEST_CASE("rows that are long and read several times are taken by large groups, on CUDA") {
    auto threads_of = [](int64_t row, loop::GpuLanguage language, DType dtype = DType::f32) {
      return schedule_of(softmax(input({dtype, {4096, row}}, 0)), language).threads;
    };
    CHECK(threads_of(50257, loop::GpuLanguage::cuda) == 1024);
    CHECK(threads_of(50257, loop::GpuLanguage::cuda, DType::f64) == 512);
    CHECK(threads_of(50257, loop::GpuLanguage::opencl) == 256);
    CHECK(threads_of(4096, loop::GpuLanguage::cuda) == 256);
    CHECK(schedule_of(sum(f32({4096, 50257}), over({1}))).threads == 256);  // read once
  }
  TEST_CASE("what compilers refuse is shown with its line") {
    const test::FusedLaunch fused({f32({5}) + 1.0});
    const loop::Kernel kernel = loop::lower(fused.launch);
    auto broken = [&](loop::GpuLanguage language) {
      const std::string text =
          emit_gpu(kernel, loop::schedule_gpu(kernel, language), language, "broken").source;
      return without(text, "const f32 v0 = ");
    };
    try {
      const std::string said =
          complaint([&] { opencl::open_device()->compile(broken(loop::GpuLanguage::opencl)); });
      CHECK(said.find("line ") != std::string::npos);
      CHECK(said.find("v0") != std::string::npos);
    } catch (const Error& none) {
      testing::skipped(none.what());
    }
    try {
      const std::string said = complaint([&] {
        cuda::Nvrtc().compile(
            gpu_prelude(loop::GpuLanguage::cuda) + broken(loop::GpuLanguage::cuda), 90);
      });
      CHECK(said.find("line ") != std::string::npos);
      CHECK(said.find("v0") != std::string::npos);
    } catch (const Error& none) {
      testing::skipped(none.what());
    }
  }
}
||||||| base

namespace {
// Checks that kernels of large products spill no register on any of these generations.
void check_registers(const std::vector<int>& capabilities) {
  std::unique_ptr<cuda::Nvrtc> compiler;
  try {
    compiler = std::make_unique<cuda::Nvrtc>();
  } catch (const Error& none) {
    testing::skipped(none.what());
    return;
  }
  std::vector<Value> products;
  for (DType type : numbers)
    products.push_back(matmul(input({type, {4096, 1024}}, 0), input({type, {1024, 4096}}, 1)));
  for (const Value& y :
       with_gradients(f32({32, 128, 28, 28}), f32({128, 128, 3, 3}, 1), {.padding = {1, 1}}))
    products.push_back(y);
  products.push_back(matmul(f32({40000, 16}), f32({16, 40000}, 1)));
  CHECK(schedule_of(products.back()).wide);
  CHECK(!schedule_of(products.front()).wide);
  for (const Value& y : products) {
    const loop::Kernel kernel = test::FusedLaunch({y}).loops(loop::GpuLanguage::cuda);
    const loop::GpuSchedule schedule = loop::schedule_gpu(kernel, loop::GpuLanguage::cuda);
    const bool narrow = is_float(y.dtype()) && y.dtype() != DType::f64;  // 4-byte accumulators
    if (y->is("matmul"))
      CHECK(schedule.left.tile * schedule.right.tile == (narrow ? 128 * 128 : 64 * 64));
    const std::string source =
        gpu_prelude(loop::GpuLanguage::cuda) +
        emit_gpu(kernel, schedule, loop::GpuLanguage::cuda, "product").source;
    for (int capability : capabilities)
      for (const testing::KernelResources& one :
           testing::resources_of(compiler->compile(source, capability)))
        CHECK_MESSAGE(one.stack == 0, y->op->name << " " << name(y.dtype()) << " sm_" << capability
                                                  << ": " << one.registers << " registers, "
                                                  << one.stack << " bytes spilled");
  }
}
}  // namespace

TEST_SUITE("slow codegen gpu products") {
  TEST_CASE("large products keep their sums in registers on every generation") {
    check_registers({75, 80, 100});
  }
  TEST_CASE("products of odd extents, large and small, of long and short sums") {
    std::vector<Case> cases;
    struct Extents {
      int64_t m, k, n;
    };
    for (auto [m, k, n] : {Extents{1, 70, 300}, Extents{8, 30, 16}, Extents{100, 70, 33},
                           Extents{65, 4, 129}, Extents{7, 513, 130}, Extents{300, 9, 12},
                           Extents{33, 3000, 40}, Extents{128, 17, 200}, Extents{700, 16, 650}}) {
      CAPTURE(m);
      const Value y = matmul(f32({m, k}), f32({k, n}, 1));
      CHECK(contracts(y) == (m > 1));
      cases.push_back({{y}, 1e-4});
    }
    for (int64_t m : {2, 3, 5, 16})
      cases.push_back({{matmul(f32({m, 200}), f32({200, 64}, 1))}, 1e-4});
    for (auto [m, k, n] : {Extents{0, 5, 40}, Extents{40, 0, 50}, Extents{40, 5, 0}})
      cases.push_back({{matmul(f32({m, k}), f32({k, n}, 1))}});
    check_on_gpu(cases);
  }
  TEST_CASE("products in batches, broadcast, and with either operand transposed") {
    std::vector<Case> cases;
    cases.push_back({{matmul(f32({3, 40, 24}), f32({3, 24, 36}, 1))}, 1e-5});
    cases.push_back({{matmul(f32({2, 3, 20, 24}), f32({1, 3, 24, 50}, 1))}, 1e-5});
    cases.push_back({{matmul(f32({4, 1, 20, 24}), f32({1, 3, 24, 50}, 1))}, 1e-5});
    cases.push_back({{matmul(f32({300, 20, 24}), f32({300, 24, 20}, 1))}, 1e-5});
    auto turned = [](const Value& x) { return transpose(x); };
    const Value a = f32({48, 36}), b = f32({36, 60}, 1), at = f32({36, 48}), bt = f32({60, 36}, 1);
    cases.push_back({{matmul(turned(at), b)}, 1e-5});
    cases.push_back({{matmul(a, turned(bt))}, 1e-5});
    cases.push_back({{matmul(turned(at), turned(bt))}, 1e-5});
    cases.push_back({{matmul(a, turned(a))}, 1e-5});
    // Heads of attention are permuted views of [batch, row, head, column].
    auto heads = [](int leaf) { return permute(f32({2, 40, 3, 16}, leaf), {0, 2, 1, 3}); };
    cases.push_back({{matmul(heads(0), permute(f32({2, 40, 3, 16}, 1), {0, 2, 3, 1}))}, 1e-5});
    cases.push_back({{matmul(f32({2, 3, 40, 40}), heads(1))}, 1e-5});
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    check_on_gpu(cases);
  }
  TEST_CASE("products in every type") {
    std::vector<Case> cases;
    for (DType type : numbers) {
      const Value a = input({type, {70, 40}}, 0), b = input({type, {40, 88}}, 1);
      const double tolerance = type == DType::f16 ? 2e-3 : type == DType::bf16 ? 1e-2 : 1e-5;
      cases.push_back(
          {{matmul(a, b)}, is_float(type) ? type == DType::f64 ? 1e-14 : tolerance : 0});
      cases.push_back({{matmul(transpose(input({type, {44, 70}}, 0)), input({type, {44, 8}}, 1))},
                       cases.back().tolerance});
    }
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    check_on_gpu(cases);
  }
  TEST_CASE("convolutions and their gradients, with strides, dilation, padding and groups") {
    std::vector<Case> cases;
    auto add = [&](const Shape& x, const Shape& weight, const ConvOptions& options,
                   DType type = DType::f32) {
      const double tolerance = type == DType::bf16 ? 2e-2 : type == DType::f64 ? 1e-13 : 1e-4;
      for (const Value& y : with_gradients(input({type, x}, 0), input({type, weight}, 1), options))
        cases.push_back({{y}, tolerance});
    };
    add({2, 8, 15, 13}, {20, 8, 3, 3}, {.padding = {1, 1}});
    add({2, 16, 14, 15}, {24, 16, 3, 2}, {.stride = {2, 3}, .padding = {1, 0}});
    add({2, 9, 14, 12}, {10, 9, 3, 3}, {.padding = {2, 2}, .dilation = {2, 2}});
    add({3, 32, 9, 9}, {48, 16, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2});
    add({4, 16, 7, 7}, {32, 16, 1, 1}, {});
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    add({2, 6, 9, 9}, {6, 1, 3, 3}, {.padding = {1, 1}, .groups = 6});
    add({2, 1, 12, 12}, {6, 1, 5, 5}, {});
    add({1, 8, 12, 12}, {16, 8, 3, 3}, {.padding = {1, 1}}, DType::bf16);
    add({1, 8, 12, 12}, {16, 8, 3, 3}, {.stride = {2, 2}}, DType::f64);
    check_on_gpu(cases);
  }
}

TEST_SUITE("codegen gpu products") {
  TEST_CASE("any sum of products contracts, with what is done to its factors and its result") {
    std::vector<Case> cases;
    const Value a = f32({50, 1, 90}), b = f32({1, 70, 90}, 1), bias = f32({1, 70, 1}, 2);
    cases.push_back({{relu(sum(a * b, over({2})) + bias)}, 1e-5});
    cases.push_back(
        {{sum(cast(input({DType::i8, {50, 1, 90}}, 0), DType::f32) * exp(b), over({2}))}, 1e-4});
    cases.push_back({{sum(pad(f32({50, 1, 80}), {0, 0, 6}, {0, 0, 4}, 0.5) * b, over({2})),
                      sum(pad(f32({50, 1, 80}), {0, 0, 6}, {0, 0, 4}, 0.5) * b, over({2})) * 2.0},
                     1e-5});
    cases.push_back(
        {{sum(f32({3, 50, 1, 90}) * f32({3, 1, 70, 90}, 1), over({3})) * f32({3, 50, 70, 1}, 2)},
         5e-5});
    for (const Case& one : cases) CHECK(contracts(one.outputs.front()));
    cases.push_back({{sum(a * b, over({2})), max(a * b, over({2}))}, 1e-5});
    check_on_gpu(cases);
  }
  TEST_CASE("a convolution whose window is no square, and its gradients") {
    std::vector<Case> cases;
    for (const Value& y : with_gradients(f32({2, 4, 9, 8}), f32({6, 2, 3, 2}, 1),
                                         {.stride = {2, 1}, .padding = {1, 0}, .groups = 2}))
      cases.push_back({{y}, 1e-5});
    check_on_gpu(cases);
  }
  TEST_CASE("long sums of few positions are cut into chunks") {
    const Value few = matmul(f32({40, 20000}), f32({20000, 36}, 1));
    CHECK(schedule_of(few).chunks > 16);
    CHECK(schedule_of(matmul(f32({2048, 4096}), f32({4096, 2048}, 1))).chunks == 1);
    check_on_gpu({{{few}, 1e-3}});
  }
  TEST_CASE("large products keep their sums in registers") { check_registers({90}); }
  TEST_CASE("products of few rows by few columns share nothing, and reduce with all threads") {
    const Value y = matmul(f32({8, 3000}), f32({3000, 8}, 1));
    CHECK(!contracts(y));
    CHECK(schedule_of(y).threads == 256);
    check_on_gpu({{{y}, 1e-3}});
  }
  TEST_CASE("products with more tiles than are launched at once") {
    const Value y = matmul(f32({4100, 40, 2}), f32({4100, 2, 36}, 1));
    CHECK(schedule_of(y).groups > loop::most_groups);
    check_on_gpu({{{y}, 1e-5}});
  }

  TEST_CASE("neighbours are one access of 16 bytes where all of them are aligned") {
    CHECK(schedule_of(f32({8, 64}) + 1.0).vector == 4);
    CHECK(schedule_of(input({DType::bf16, {8, 64}}, 0) + 1.0).vector == 8);
    CHECK(schedule_of(f32({8, 62}) * f32({1, 62}, 1)).vector == 2);
    CHECK(schedule_of(f32({8, 63}) * f32({1, 63}, 1)).vector == 1);
  }
  TEST_CASE("rows of any length are read in such accesses, and what is left of them by itself") {
    std::vector<Case> cases;
    for (DType type : {DType::f32, DType::bf16, DType::f64}) {
      const Value rows = slice(input({type, {5, 5008}}, 0), 1, 0, 5003);
      cases.push_back({{max(rows, over({1})), argmax(rows, 1, true)}});
      cases.push_back({{sum(cast(rows, DType::f32), over({1}))}, 1e-5});
      const Value row = input({type, {20011}}, 0);
      cases.push_back({{softmax(row, 0)}, type == DType::bf16 ? 1e-2 : 1e-5});
    }
    const Value long_row = f32({300003});
    cases.push_back({{sum(long_row, over({0})), max(long_row, over({0}))}, 1e-4});
    cases.push_back({{long_row - sum(long_row, over({0})) * 1e-3}, 1e-3});
    for (const Shape& shape : {Shape{3, 20'000}, Shape{1, 20'003}}) {  // large groups on CUDA
      const Value row = f32(shape);
      cases.push_back({{softmax(row), max(row, over({1}))}, 1e-5});
    }
    check_on_gpu(cases);
    CHECK(schedule_of(sum(slice(f32({5, 5008}), 1, 0, 5003), over({1}))).tail == 3);
    CHECK(schedule_of(sum(long_row, over({0}))).chunks > 1);
    CHECK(schedule_of(sum(long_row, over({0}))).tail == 3);
    CHECK(schedule_of(sum(f32({5, 5003}), over({1}))).tail == 0);
  }
  TEST_CASE("long reductions are cut into as many chunks, whatever device there is") {
    CHECK(schedule_of(sum(f32({1 << 20}), over({0}))).chunks > 16);
    CHECK(schedule_of(sum(f32({4096, 1024}), over({1}))).chunks == 1);
  }
  TEST_CASE("rows that are long and read several times are taken by large groups, on CUDA") {
    auto threads_of = [](int64_t row, loop::GpuLanguage language, DType dtype = DType::f32) {
      return schedule_of(softmax(input({dtype, {4096, row}}, 0)), language).threads;
    };
    CHECK(threads_of(50257, loop::GpuLanguage::cuda) == 1024);
    CHECK(threads_of(50257, loop::GpuLanguage::cuda, DType::f64) == 512);
    CHECK(threads_of(50257, loop::GpuLanguage::opencl) == 256);
    CHECK(threads_of(4096, loop::GpuLanguage::cuda) == 256);
    CHECK(schedule_of(sum(f32({4096, 50257}), over({1}))).threads == 256);  // read once
  }
  TEST_CASE("what compilers refuse is shown with its line") {
    const test::FusedLaunch fused({f32({5}) + 1.0});
    const loop::Kernel kernel = loop::lower(fused.step);
    auto broken = [&](loop::GpuLanguage language) {
      const std::string text =
          emit_gpu(kernel, loop::schedule_gpu(kernel, language), language, "broken").source;
      return without(text, "const f32 v0 = ");
    };
    try {
      const std::string said =
          complaint([&] { opencl::open_device()->compile(broken(loop::GpuLanguage::opencl)); });
      CHECK(said.find("line ") != std::string::npos);
      CHECK(said.find("v0") != std::string::npos);
    } catch (const Error& none) {
      testing::skipped(none.what());
    }
    try {
      const std::string said = complaint([&] {
        cuda::Nvrtc().compile(
            gpu_prelude(loop::GpuLanguage::cuda) + broken(loop::GpuLanguage::cuda), 90);
      });
      CHECK(said.find("line ") != std::string::npos);
      CHECK(said.find("v0") != std::string::npos);
    } catch (const Error& none) {
      testing::skipped(none.what());
    }
  }
}
=======
>>>>>>> theirs
