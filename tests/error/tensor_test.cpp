// Tests invalid tensors in C++: one line that names the operation and the user's line.
#include <cmath>
#include <cstdlib>
#include <functional>

#include <doctest/doctest.h>

#include "tests/support/near.h"
#include "weft/ir/op_def.h"
#include "weft/weft.h"

using namespace weft;
using weft::testing::near;

namespace {
std::string message_of(const std::function<void()>& mistake) {
  try {
    mistake();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::usage ? error.what() : "of another kind";
  } catch (const std::exception& error) {
    return std::string("no error of the user's: ") + error.what();
  }
  return "none";
}
bool check_contains(const std::string& message, const std::string& part) {
  INFO(message);
  bool found = message.find(part) != std::string::npos;
  CHECK(found);
  return found;
}
}  // namespace

TEST_CASE("an operation refuses an empty tensor by name") {
  Tensor none, some = ones({2});
  const std::string empty = "this tensor is empty: it was never assigned. (tensor_test.cpp:";
  struct Use {
    std::string op;
    std::function<void()> use;
  };
  const std::vector<Use> uses = {
      {"relu", [&] { relu(none); }},
      {"exp", [&] { exp(none); }},
      {"silu", [&] { silu(none); }},
      {"layer_norm", [&] { layer_norm(none); }},
      {"add", [&] { return none + some; }},
      {"add", [&] { return some + none; }},
      {"sub", [&] { return 1.0 - none; }},
      {"less", [&] { return some < none; }},
      {"sum", [&] { sum(none); }},
      {"reshape", [&] { reshape(none, {1}); }},
      {"softmax", [&] { softmax(none); }},
      {"matmul", [&] { matmul(some, none); }},
      {"linear", [&] { linear(some, none); }},
      {"gather", [&] { gather(some, none); }},
      {"concat", [&] { concat(std::vector{none, some}, 0); }},
      {"stack", [&] { stack(std::vector{some, none}, 0); }},
      {"item", [&] { none.item(); }},
      {"grad", [&] { grad(none, std::vector{some}); }},
      {"assign", [&] { Variable("v", {DType::f32, {2}}).assign(none); }},
  };
  for (const Use& use : uses) check_contains(message_of(use.use), "[" + use.op + "] " + empty);
  check_contains(message_of([&] { none.eval(); }), "this tensor is empty");
}

TEST_CASE("a compiled step neither returns nor takes empty tensors") {
  auto returns = compile([](const Tensor&) { return Tensor(); });
  CHECK(message_of([&] { returns(ones({2})); }) ==
        "[compile] result 0 of the step is an empty tensor.");
  auto takes = compile([](const Tensor& x) { return x; });
  check_contains(message_of([&] { takes(Tensor()); }), "this tensor is empty");
}

TEST_CASE("a compiled step refuses to skip unknown passes") {
  auto step = compile([](const Tensor& x) { return x + 1; }, {.skip = {"nosuchpass"}});
  CHECK(message_of([&] { step(ones({2})); }) ==
        "[compile] no pass 'nosuchpass' to skip. Known: integers, precision, simplify, copies, "
        "hoist, fixed, row_tiling, compression, fuse, alias, offload, recompute, schedule, join, "
        "reuse.");
}

TEST_CASE("a value that depends on a step's input cannot be read outside the step") {
  Tensor kept;
  auto step = compile([&](const Tensor& x) {
    kept = x + 1;
    return x;
  });
  step(ones({2}));
  check_contains(
      message_of([&] { kept.to_doubles(); }),
      "[eval] this tensor depends on an input of a compiled step, which has no elements outside");
}

TEST_CASE("activations are stored in float32 or bfloat16 only") {
  auto step = compile([](const Tensor& x) { return x + 1; }, {.activations = DType::f16});
  CHECK(message_of([&] { step(ones({2})); }) ==
        "[compile] activations are stored in f32 or bf16. Got f16.");
}

TEST_CASE("arithmetic without meaning for bool refuses bool") {
  Tensor flags = ones({4, 4}, DType::boolean), image = ones({1, 1, 4, 4}, DType::boolean);
  Tensor row = ones({1, 1, 4}, DType::boolean), indices = arange(4);
  check_contains(message_of([&] { matmul(flags, flags); }), "[matmul] needs numbers. Got bool.");
  check_contains(message_of([&] { linear(flags, flags); }), "[matmul] needs numbers. Got bool.");
  check_contains(message_of([&] { conv(image, image); }), "[conv] needs numbers. Got bool.");
  check_contains(message_of([&] { -flags; }), "[neg] needs numbers. Got bool.");
  check_contains(message_of([&] { argmax(flags, 0); }), "[argmax] needs numbers. Got bool.");
  check_contains(message_of([&] { conv(row, row); }), "[conv] needs numbers. Got bool.");
  check_contains(message_of([&] { scatter_add(flags, indices, flags); }),
                 "[scatter_add] needs numbers. Got bool.");
}

TEST_CASE("impossible extents are refused wherever a tensor is created") {
  const int64_t much = int64_t{1} << 40;
  check_contains(message_of([] { zeros({-1, 3}); }), "extents must not be negative. Got [-1, 3].");
  check_contains(message_of([] { one_hot(arange(3), -1); }),
                 "extents must not be negative. Got [3, -1].");
  check_contains(message_of([] { broadcast_to(ones({3, 1}), {3, -1}); }),
                 "extents must not be negative. Got [3, -1].");
  check_contains(message_of([] { arange(-2); }), "extents must not be negative. Got [-2].");
  check_contains(message_of([] { reshape(ones({6}), {-2, -3}); }), "extents must not be negative.");
  check_contains(message_of([&] { zeros({much, much}); }),
                 "has more elements than can be counted.");
  check_contains(message_of([&] { zeros({much, 1 << 22}, DType::f64); }),
                 "has more bytes than can be counted.");
  check_contains(message_of([&] { broadcast_to(ones({1, 1}), {much, much}); }), "more elements");
  check_contains(message_of([&] { Variable("v", {DType::f32, {-1}}); }), "must not be negative.");
}

TEST_CASE("integers are reduced in float32 and errors name the function that was called") {
  Tensor counts = tensor(std::vector<int64_t>{1, 2, 3, 4}, {4});
  CHECK(variance(counts).item() == near(5.0 / 3));
  CHECK(logsumexp(counts).item() == near(4.4401897));
  check_contains(message_of([] { stack(std::vector{ones({2}), ones({3})}, 0); }),
                 "[stack] tensors differ. Got f32[2] and f32[3]. (tensor_test.cpp:");
}

TEST_CASE("functions that require a rank or sizes name them") {
  check_contains(
      message_of([] { split(ones({2, 5}), {2, 2}, 1); }),
      "[split] sizes must be at least 0 and sum to 5, the extent of axis 1. Got [2, 2].");
  check_contains(message_of([] { split(ones({5}), {6, -1}, 0); }), "Got [6, -1].");
  check_contains(message_of([] { conv1d(ones({1, 1, 3, 3}), ones({1, 1, 2, 2})); }),
                 "[conv1d] needs x[N, C, L]. Got [1, 1, 3, 3].");
  check_contains(message_of([] { conv2d(ones({1, 1, 3}), ones({1, 1, 2})); }),
                 "[conv2d] needs x[N, C, H, W]. Got [1, 1, 3].");
}

TEST_CASE("random functions refuse invalid ranges, deviations and probabilities") {
  RandomKey key{.step = scalar(0, DType::i64)};
  check_contains(message_of([&] { uniform({4}, key, 3, 1); }),
                 "[uniform] low must not exceed high. Got 3 and 1. (tensor_test.cpp:");
  check_contains(message_of([&] { uniform({4}, key, 0, NAN); }),
                 "[uniform] low must not exceed high.");
  check_contains(message_of([&] { normal({4}, key, 0, -1); }),
                 "[normal] the deviation must not be negative. Got -1. (tensor_test.cpp:");
  check_contains(message_of([&] { bernoulli({4}, key, 1.5); }),
                 "[bernoulli] the probability must be in [0, 1]. Got 1.5. (tensor_test.cpp:");
  check_contains(message_of([&] { permutation(-1, key); }), "(tensor_test.cpp:");
  CHECK(uniform({4}, key, 2, 2).shape() == Shape{4});
}

TEST_CASE("reductions over too few elements are refused by operation and shape") {
  check_contains(
      message_of([] { variance(ones({1})); }),
      "[variance] needs more elements than its correction, 1. Got shape [1]. (tensor_test.cpp:");
  check_contains(message_of([] { max(zeros({0, 2})); }),
                 "[max] axis 0 is empty. Got shape [0, 2].");
}

TEST_CASE("errors and nodes name the line of the user's operator") {
  Tensor a = ones({2}), b = ones({3});
  RandomKey key{.step = scalar(0, DType::i64)};
  Variable weight("w", {DType::f32, {3}});
  struct Mistake {
    unsigned line;
    std::function<void()> make;
  };
  const std::vector<Mistake> mistakes = {
      {__LINE__, [&] { return a + b; }},
      {__LINE__, [&] { return a - b; }},
      {__LINE__, [&] { return a * b; }},
      {__LINE__, [&] { return a / b; }},
      {__LINE__, [&] { return a == b; }},
      {__LINE__, [&] { return a != b; }},
      {__LINE__, [&] { return a < b; }},
      {__LINE__, [&] { return a <= b; }},
      {__LINE__, [&] { return a > b; }},
      {__LINE__, [&] { return a >= b; }},
      {__LINE__, [&] { return a + weight; }},
      {__LINE__, [&] { return add(weight, a); }},
      {__LINE__, [&] { return concat(std::vector{a, ones({1, 1})}, 0); }},
      {__LINE__, [&] { return concat({a, ones({1, 1})}, 0); }},
      {__LINE__, [&] { return stack({a, b}, 0); }},
      {__LINE__, [&] { return split(b, {1, 1}, 0)[0]; }},
      {__LINE__, [&] { return glu(b); }},
      {__LINE__, [&] { return celu(b, 0); }},
      {__LINE__, [&] { return conv2d(ones({1, 1, 3}), ones({1, 1, 2})); }},
      {__LINE__, [&] { return b.item(); }},
      {__LINE__, [&] { return b.to_vector<double>(); }},
      {__LINE__, [&] { return zeros({-1}); }},
      {__LINE__, [&] { return ones({-1}); }},
      {__LINE__, [&] { return full({-1}, 2); }},
      {__LINE__, [&] { return arange(-1); }},
      {__LINE__, [&] { return constant(std::vector<double>{1}, {2}, DType::f32); }},
      {__LINE__, [&] { return tensor(std::vector<float>{1}, {2}); }},
      {__LINE__, [&] { return tensor({1.0}, {2}); }},
      {__LINE__, [&] { return tensor({1}, {2}); }},
      {__LINE__, [&] { return tensor({1.0}, {2}, DType::f64); }},
      {__LINE__, [&] { return uniform({4}, key, 3, 1); }},
      {__LINE__, [&] { return normal({4}, key, 0, -1); }},
      {__LINE__, [&] { return bernoulli({4}, key, 2); }},
      {__LINE__, [&] { return permutation(-1, key); }},
      {__LINE__, [&] { return bernoulli(2, {4}); }},
      {__LINE__, [&] { return randperm(-1); }},
      {__LINE__, [&] { return dropout(b, 2); }},
      {__LINE__, [&] { return grad(b, std::vector{a}); }},
      {__LINE__, [&] { return weight.assign(a); }},
      {__LINE__, [&] { return weight.sum(1); }},
      {__LINE__, [&] { return weight.reshape({2}); }},
      {__LINE__, [&] { return weight.item(); }},
      {__LINE__, [&] { return weight.to_vector<double>(); }},
  };
  for (const Mistake& mistake : mistakes)
    check_contains(message_of(mistake.make),
                   "(tensor_test.cpp:" + std::to_string(mistake.line) + ")");
  unsigned here = __LINE__ + 1;
  Tensor sums[] = {a + 1, 2.0 - a, -a, a == a, relu(weight)};
  for (const Tensor& sum : sums) {
    CHECK(sum->origin.where.line == here);
    CHECK(std::string_view(sum->origin.where.file).ends_with("tensor_test.cpp"));
  }
}

TEST_CASE("a graph has no arithmetic on bool so that all backends agree") {
  Value flags = constant(std::vector<double>{1, 0}, {2}, DType::boolean);
  for (const char* name : {"reciprocal", "exp", "neg", "relu", "floor"})
    check_contains(message_of([&] { make_node(op(name), {flags}); }),
                   fmt::format("[{}] needs numbers. Got bool.", name));
  for (const char* name : {"sum", "prod"})
    check_contains(message_of([&] { make_node(op(name), {flags}, {{"axes", Dims{0}}}); }),
                   fmt::format("[{}] needs numbers. Got bool.", name));
  // The functions promote bool as PyTorch does.
  CHECK(reciprocal(flags).dtype() == DType::f32);
  CHECK(sum(flags).dtype() == DType::i64);
  CHECK(prod(flags).dtype() == DType::i64);
}
