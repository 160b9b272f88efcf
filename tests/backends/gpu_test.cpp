// Tests the handwritten GPU kernels: the OpenCL C runs and is compared with the interpreter, the
// CUDA C is compiled. The test backends.opencl.slow runs attention in more forms.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/backends/graphs.h"
#include "tests/backends/opencl_library.h"
#include "tests/support/cubin.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/skip.h"
#include "tests/support/values.h"
#include "weft/backends/cuda/cuda_backend.h"
#include "weft/backends/cuda/nvrtc.h"
#include "weft/backends/gpu/conversion.h"
#include "weft/backends/gpu/handwritten.h"
#include "weft/backends/gpu/library.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/base/error.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/block_format.h"
#include "weft/ir/op_def.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/blocks.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"

namespace weft::testing {
namespace {
std::vector<Launch> written_steps(const Value& value) {
  const auto planner = gpu::make_library("cuda", loop::GpuLanguage::cuda, nullptr);
  std::vector<Launch> launches;
  for (const Launch& launch : make_plan(graph_of(value), {.library = planner.get()}).launches)
    if (launch.kernel.starts_with("weft:")) launches.push_back(launch);
  return launches;
}

const std::vector<int> every_capability{75, 80, 90, 100};  // compute capabilities

// Compiles the program and checks that no kernel spills registers.
void compile_cuda(const std::string& program, const std::vector<int>& capabilities) {
  try {
    const cuda::Nvrtc compiler;
    for (int capability : capabilities) {
      const std::vector<KernelResources> kernels =
          resources_of(compiler.compile(program, capability));
      CHECK(!kernels.empty());
      for (const KernelResources& kernel : kernels)
        CHECK_MESSAGE(kernel.stack == 0, "sm_" << capability << " " << kernel.name);
    }
  } catch (const Error& none) {
    skipped(none.what());
  }
}

// Checks that handwritten kernels compute every value: one kernel, or two for a gradient that
// starts with the forward pass.
void check_handwritten(const std::vector<Value>& values,
                       const std::vector<int>& capabilities = {90}) {
  std::string program = gpu_prelude(loop::GpuLanguage::cuda);
  for (const Value& value : values) {
    const std::vector<Launch> launches = written_steps(value);
    REQUIRE_MESSAGE(launches.size() == (value->is("attention_gradient") ? 2 : 1),
                    to_text(graph_of(value)));
    for (const Launch& launch : launches) {
      const std::string prefix = "k" + std::to_string(program.size());
      program += gpu::print_handwritten(launch, loop::GpuLanguage::cuda, prefix).source;
    }
    if (const KernelLibrary* library = generated_opencl_library()) {
      const std::vector<Value> once = run_planned(graph_of(value), {}, *library),
                               again = run_planned(graph_of(value), {}, *library);
      const std::string wrong =
          disagreement(once, interpret_with_errors(graph_of(value)), *library);
      CHECK_MESSAGE(wrong.empty(), to_text(graph_of(value)) << wrong);
      const size_t bytes = value.type().bytes();
      CHECK(std::memcmp(once[0]->data(), again[0]->data(), bytes) == 0);
    }
  }
  compile_cuda(program, capabilities);
}

constexpr DType integers[] = {DType::i64, DType::i32, DType::u32, DType::i16,
                              DType::u16, DType::i8,  DType::u8};

// Builds a scatter_add whose indices, from `low` to `high`, select rows of `into`.
Value random_scatter(DType dtype, const Shape& into, const Shape& indices, double low, double high,
                     DType index_type = DType::i64) {
  Random random(1);
  Shape updates = indices;
  for (int i = 1; i < into.size(); ++i) updates.push_back(into[i]);
  const double most = is_float(dtype) ? 1 : 3;
  return scatter_add(random_values({dtype, into}, 0, most, random),
                     random_values({index_type, indices}, low, high, random),
                     random_values({dtype, updates}, 0, most, random));
}

struct Form {
  DType dtype;
  int64_t heads, key_heads, queries, depth;
  bool causal;
};
constexpr Form forms[] = {{DType::f32, 1, 1, 150, 64, true},   {DType::bf16, 4, 2, 70, 128, false},
                          {DType::f16, 1, 1, 200, 20, true},   {DType::f32, 1, 1, 1500, 32, true},
                          {DType::f32, 1, 1, 1500, 32, false}, {DType::f32, 1, 1, 70, 128, false}};
// Returns attention, its logsumexp and its gradient.
std::vector<Value> attention_of(const Form& form) {
  Random random(3);
  auto draw = [&](int64_t heads) {
    return random_values({form.dtype, {1, heads, form.queries, form.depth}}, -2, 2, random);
  };
  const std::vector<Value> inputs{draw(form.heads), draw(form.heads), draw(form.heads),
                                  draw(form.heads)};
  const Value y =
      attention(inputs[0], draw(form.key_heads), draw(form.key_heads), {.causal = form.causal});
  return {y, make_node(op("attention_logsumexp"), y->inputs, y->attrs),
          make_node(op("attention_gradient"), inputs,
                    {{"causal", int64_t{form.causal}}, {"scale", 0.2}})};
}
// Returns a product of rows by a matrix, or by those of three groups, in blocks of random bits
// whose scales are small.
Value product_of_blocks(const BlockFormat& format, DType dtype, int64_t rows, int64_t columns,
                        int64_t blocks, bool is_grouped = false) {
  Random random(4);
  const Shape stack = is_grouped ? Shape{3, columns} : Shape{columns};
  Shape shape = stack, matrix = stack;
  shape.push_back(blocks * format.numbers);
  matrix.push_back(blocks), matrix.push_back(format.bytes);
  const Value numbers = random_values({DType::f32, shape}, -1, 1, random);
  std::vector<float> all;
  for (double number : elements(numbers)) all.push_back(static_cast<float>(number));
  auto bytes = Buffer::allocate(static_cast<size_t>(element_count(matrix)));
  encode_blocks(format, all, {bytes->data, static_cast<size_t>(element_count(matrix))});
  const Value w = from_buffer(bytes, {DType::u8, matrix});
  const Value x = random_values({dtype, {rows, blocks * format.numbers}}, -1, 1, random);
  MatmulBlocksOptions options;
  if (is_grouped) options.counts = constant(std::vector<double>{2, 0, 5}, {3}, DType::i64);
  return matmul_blocks(x, w, format.name, options);
}
// Returns attention to a cache with room for `keys`, from two starts.
struct Cached {
  DType dtype;
  int64_t heads, key_heads, queries, keys, depth;
  AttentionOptions options = {};
};
Value attention_of(const Cached& form) {
  Random random(5);
  auto draw = [&](int64_t heads, int64_t length) {
    return random_values({form.dtype, {2, heads, length, form.depth}}, -2, 2, random);
  };
  AttentionOptions options = form.options;
  options.causal = true;
  options.start = constant(std::vector<double>{0, static_cast<double>(form.keys - form.queries)},
                           {2}, DType::i32);
  const Value q = draw(form.heads, form.queries), k = draw(form.key_heads, form.keys);
  return attention(q, k, draw(form.key_heads, form.keys), options);
}
}  // namespace

TEST_SUITE("gpu kernels") {
  TEST_CASE("update_at writes the positions that are in the tensor, at one start or several") {
    Random random(6);
    const auto update = [&](DType dtype, const Shape& shape, const Shape& updates, int64_t axis,
                            const std::vector<double>& starts) {
      return update_at(random_values({dtype, shape}, 0, 9, random), axis,
                       constant(starts, {static_cast<int64_t>(starts.size())}, DType::i64),
                       random_values({dtype, updates}, 0, 9, random));
    };
    check_handwritten({update(DType::bf16, {2, 3, 40, 8}, {2, 3, 2, 8}, 2, {5, 39}),
                       update(DType::f32, {7, 5}, {3, 5}, 0, {-2}),
                       update(DType::u8, {4, 9}, {4, 3}, 1, {7}),
                       update(DType::f16, {3, 4}, {3, 0}, 1, {1}),
                       update(DType::i32, {2, 6}, {2, 2}, 1, {-9e15, 9e15})});
  }
  TEST_CASE("attention to a cache reads the keys that are there, by few queries or by many") {
    check_handwritten(
        {attention_of(Cached{DType::f32, 4, 2, 1, 300, 64}),
         attention_of(Cached{DType::bf16, 8, 1, 2, 70, 128}),
         attention_of(Cached{DType::f16, 2, 2, 1, 9, 256, {.softcap = 3}}),
         attention_of(Cached{DType::f32, 2, 1, 3, 500, 20, {.window = 100}}),
         attention_of(Cached{DType::f32, 4, 2, 70, 200, 64}),
         attention_of(Cached{DType::bf16, 2, 1, 40, 300, 96, {.window = 50, .softcap = 2}})},
        every_capability);
  }
  TEST_CASE("few rows are multiplied by blocks of every format without a decoded copy") {
    std::vector<Value> values;
    int64_t rows = 1;  // and 3 in turn; the slow test has both in every format
    for (const BlockFormat& format : block_formats()) {
      values.push_back(product_of_blocks(format, DType::f32, rows, 11, 3));
      rows = 4 - rows;
    }
    values.push_back(product_of_blocks(block_format("Q4_0"), DType::bf16, 16, 70, 40));
    values.push_back(product_of_blocks(block_format("Q6_K"), DType::f16, 2, 9, 1));
    values.push_back(product_of_blocks(block_format("Q5_K"), DType::f32, 9, 13, 2, true));
    check_handwritten(values, every_capability);
    CHECK(written_steps(product_of_blocks(block_format("Q4_0"), DType::f32, 17, 8, 1)).empty());
  }
  TEST_CASE("scatter_add handles repeated, out-of-range and no indices") {
    check_handwritten({random_scatter(DType::f32, {50, 2, 4}, {3, 30}, -1, 50),
                       random_scatter(DType::f32, {4, 17}, {0}, 0, 3)});
  }
  TEST_CASE("argsort is stable in both directions") {
    Random random(1);
    const Value x = round(random_values({DType::f32, {2, 19}}, -3, 3, random));
    check_handwritten({argsort(interpret(x), 1, true), argsort(interpret(x).transpose(), 0)});
  }
  TEST_CASE("first_position finds the first of repeated indices") {
    Random random(2);
    check_handwritten({first_position(random_values({DType::i32, {4, 30}}, -1, 50, random), 50)});
  }
  TEST_CASE("a conversion kernel rounds float32 to bfloat16") {
    if (generated_opencl_library() == nullptr) return;
    const std::unique_ptr<gpu::Device> device = opencl::open_device();
    constexpr int64_t count = 300;
    std::vector<float> given(count);
    for (int64_t i = 0; i < count; ++i)
      given[static_cast<size_t>(i)] = 0.37F * static_cast<float>(i - 99);
    const auto from = device->allocate(sizeof(float) * count), to = device->allocate(2 * count);
    device->write(from->data, reinterpret_cast<const std::byte*>(given.data()),
                  sizeof(float) * count);
    void *operand = from->data, *result = to->data;
    gpu::make_conversion(*device, {DType::f32}, {DType::bf16}, count)
        ->run(&operand, &result, nullptr);
    std::vector<BFloat16> got(count);
    device->read(reinterpret_cast<std::byte*>(got.data()), to->data, 2 * count);
    for (int64_t i = 0; i < count; ++i)
      CHECK(got[static_cast<size_t>(i)].bits == to_bfloat16(given[static_cast<size_t>(i)]).bits);
  }
  TEST_CASE("attention and its gradient span several tiles") {
    check_handwritten(attention_of(forms[0]));
  }
  TEST_CASE("the backward pass of attention reads the statistics that the forward pass stored") {
    Random random(5);
    const auto planner = gpu::make_library("cuda", loop::GpuLanguage::cuda, nullptr);
    std::vector<Value> heads;
    heads.reserve(4);
    for (int i = 0; i < 4; ++i)
      heads.push_back(random_values({DType::f32, {2, 3, 40, 16}}, -1, 1, random));
    const Value y = attention(heads[0], heads[1], heads[2], {.causal = true});
    Graph graph{.outputs = gradients(y, std::span(heads).first(3), heads[3])};
    graph.outputs.push_back(y);
    for (const bool apart : {false, true}) {
      std::vector<std::string> kernels;
      for (const Launch& launch :
           make_plan(graph, {.library = planner.get(), .apart = apart}).launches)
        if (launch.kernel.starts_with("weft:")) kernels.push_back(launch.kernel);
      CHECK(kernels ==
            std::vector<std::string>{"weft:attention.and_logsumexp", "weft:attention_backward"});
    }
    if (const KernelLibrary* library = generated_opencl_library())
      CHECK(disagreement(run_planned(graph, {}, *library), interpret_with_errors(graph),
                         *library) == "");
  }
  TEST_CASE("rematerialized attention recomputes its result and its statistics in one kernel") {
    Random random(6);
    const auto planner = cuda_library("h200");
    const Value x = random_values({DType::f32, {1, 2, 40, 16}}, -1, 1, random);
    Value y = x;
    for (int layer = 0; layer < 6; ++layer) y = attention(sin(y), y, y, {.causal = true});
    const Graph graph{.outputs = gradients(y, std::span(&x, 1), x)};
    const Plan plan = make_plan(
        graph, {.library = planner.get(), .step = {.recompute = Recompute::full}, .verify = true});
    CHECK(std::ranges::any_of(plan.launches, [](const Launch& launch) {
      return launch.rematerialized && launch.kernel == "weft:attention.and_logsumexp" &&
             launch.results.size() == 2;
    }));
    if (const KernelLibrary* library = generated_opencl_library()) {
      const Value kept = run_planned(graph, {}, *library)[0],
                  again =
                      run_planned(graph, {}, *library, {.step = {.recompute = Recompute::full}})[0];
      CHECK(std::memcmp(kept->data(), again->data(), x.type().bytes()) == 0);
    }
  }
  TEST_CASE("attention without a handwritten kernel is decomposed") {
    Random random(4);
    auto draw = [&](DType dtype, int64_t depth) {
      return random_values({dtype, {1, 1, 5, depth}}, -1, 1, random);
    };
    auto attend = [&](DType dtype, int64_t depth, const AttentionOptions& options = {}) {
      return attention(draw(dtype, depth), draw(dtype, depth), draw(dtype, depth), options);
    };
    CHECK(written_steps(attend(DType::f64, 8)).empty());
    CHECK(written_steps(attend(DType::f32, 129)).empty());
    CHECK(written_steps(attend(DType::f32, 8, {.mask = draw(DType::f32, 5)})).empty());
    CHECK(written_steps(attend(DType::f32, 128)).size() == 1);
  }
}

TEST_SUITE("slow gpu kernels") {
  TEST_CASE("one row or three are multiplied by blocks of every format without a decoded copy") {
    std::vector<Value> values;
    for (const BlockFormat& format : block_formats())
      for (int64_t rows : {1, 3})
        values.push_back(product_of_blocks(format, DType::f32, rows, 11, 3));
    check_handwritten(values, every_capability);
  }
  TEST_CASE("scatter_add accumulates into zeros and in place") {
    Random random(2);
    const Value indices = random_values({DType::i64, {200}}, 0, 299, random);
    const Value updates = random_values({DType::f32, {200, 24}}, -1, 1, random);
    const Value into = random_values({DType::f32, {300, 24}}, -1, 1, random);
    const Value over = scatter_add(exp(into), indices, updates);
    CHECK(!written_steps(over).at(0).in_place.empty());
    check_handwritten({over, scatter_add(zeros({300, 24}, DType::f32), indices, updates)},
                      every_capability);
  }
  TEST_CASE("scatter_add and first_position support every type") {
    std::vector<Value> values;
    Random random(2);
    for (DType dtype : number_types)
      for (auto [into, indices] : {std::pair<Shape, Shape>{{5, 3}, {17}}, {{300, 72}, {8, 4}}})
        values.push_back(random_scatter(dtype, into, indices, -1,
                                        std::min(100.0, static_cast<double>(into[0]))));
    for (DType dtype : integers) {
      values.push_back(random_scatter(DType::f32, {20, 9}, {33}, 0, 20, dtype));
      values.push_back(first_position(random_values({dtype, {33}}, 0, 21, random), 20));
    }
    check_handwritten(values, every_capability);
  }
  TEST_CASE("argsort sorts every type, one element or many, with NaN and ties") {
    std::vector<Value> values;
    Random random(3);
    for (DType dtype :
         {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::u8, DType::boolean})
      for (bool descending : {false, true}) {
        Value x = random_values({dtype, {2, 70}}, is_float(dtype) ? -20 : 0, 20, random);
        if (is_float(dtype)) {
          const Value whole = round(x);
          x = interpret(select(whole == 1, NAN, select(whole > 2, whole, whole * 0)));
        }
        values.push_back(argsort(x, 1, descending));
      }
    for (const Shape& shape :
         {Shape{4, 1}, Shape{5, 2}, Shape{1, 64}, Shape{2, 65}, Shape{0, 3}, Shape{3, 0}})
      values.push_back(argsort(random_values({DType::f32, shape}, -1, 1, random)));
    check_handwritten(values, every_capability);
  }
  TEST_CASE(
      "scatter_add handles one index for all updates, only out-of-range indices, and one update") {
    check_handwritten({random_scatter(DType::bf16, {1, 300}, {40}, -1, 1, DType::i32),
                       random_scatter(DType::f32, {7, 12}, {3000}, 3, 3),
                       random_scatter(DType::f32, {7, 12}, {40}, 7, 9),
                       random_scatter(DType::f32, {7}, {100}, 0, 6),
                       random_scatter(DType::f32, {9, 5}, {}, 2, 2)},
                      every_capability);
  }
  TEST_CASE("sorts span several radix digits and updates several thread groups") {
    Random random(2);
    check_handwritten({random_scatter(DType::f32, {50, 2, 4}, {3, 30}, -1, 50),
                       random_scatter(DType::f32, {4, 17}, {0}, 0, 3),
                       random_scatter(DType::f32, {5000, 4}, {2100}, -1, 5000),
                       random_scatter(DType::f32, {300, 8}, {5000}, -1, 300),
                       first_position(random_values({DType::i32, {3000}}, -1, 5000, random), 4999),
                       first_position(random_values({DType::i64, {0}}, 0, 0, random), 5),
                       first_position(random_values({DType::i64, {7}}, 0, 0, random), 0)},
                      every_capability);
  }
  TEST_CASE("attention supports few and many columns, grouped heads, narrow types and long rows") {
    for (const Form& form : forms) check_handwritten(attention_of(form), every_capability);
  }
}
}  // namespace weft::testing
