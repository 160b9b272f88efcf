// Tests the warnings of compile() about tensors that a step captures.
#include <source_location>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/captured.h"
#include "weft/tensor/compile.h"

using namespace weft;

namespace {
// Returns the warnings of compiling a function.
template <class F>
std::string warnings(const F& function) {
  const test::Captured errors(2);
  auto step = compile(function);
  (void)step(tensor({1.0, 2.0}, {2}));
  (void)step(tensor({1.0, 2.0, 3.0}, {3}));
  return errors.text();
}
size_t count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}
}  // namespace

TEST_CASE("a warning names a captured tensor that the step keeps as a constant once") {
  Tensor factor = tensor({0.5}, {1});
  const std::string of_data = warnings([&](Tensor x) { return x * factor; });
  CHECK(count(of_data, "\n") == 1);
  CHECK(of_data.find("[compile] the step reads f32[1] of constants_test.cpp:") !=
        std::string::npos);
  const std::string line = std::to_string(std::source_location::current().line() - 5);
  CHECK(of_data.find("constants_test.cpp:" + line +
                     ", which was computed outside of it, as a "
                     "constant") != std::string::npos);
  CHECK(count(warnings([&](Tensor x) { return x + factor * 2 + factor; }), "\n") == 1);

  const Variable w("w", {DType::f32, {1}});
  Tensor read = w.value() * 2;
  (void)read.item();
  CHECK(count(warnings([&](Tensor x) { return x * read; }), "\n") == 1);
  CHECK(count(warnings([=](Tensor) { return factor; }), "\n") == 1);
  const Tensor mixed = w.value() * factor;
  CHECK(count(warnings([&](Tensor x) { return x * mixed; }), "\n") == 1);
}

TEST_CASE("parameters, values derived from them and tensors of the step are not constants") {
  const Variable w("w", {DType::f32, {1}});
  const Tensor pending = w.value() * 2;
  CHECK(warnings([&](Tensor x) { return x * w.value() + pending; }) == "");
  CHECK(warnings([](Tensor x) { return x * tensor({0.5}, {1}) + 2; }) == "");
}
