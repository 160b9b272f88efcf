// Compares every op on the CPU with live PyTorch, in each type but float64, on random shapes, views
// and broadcasts, special values and large shapes. tests/pytorch/differential.py reads the files
// written here. Runs if PEERS_PYTHON names a Python with PyTorch, as in make test-all.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/interpreter.h"
#include "tests/support/op_cases.h"
#include "tests/support/peers.h"
#include "tests/support/planned.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/hash.h"
#include "weft/io/safetensors.h"
#include "weft/ops/autodiff.h"
#include "weft/ops/ops.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Replaces a third of the elements beneath a view by zeros, infinities, NaN, subnormal numbers and
// the like; omits the largest numbers if `summed`, since the order of a sum would decide whether it
// overflows.
void strew_special_values(const Value& view, bool summed, Random& random) {
  const Value* data = &view;
  while (!(*data)->inputs.empty()) data = &(*data)->inputs[0];
  const DType dtype = data->dtype();
  if (!is_float(dtype) || !(*data)->is("data")) return;
  const double largest = dtype == DType::f16    ? 65504
                         : dtype == DType::bf16 ? 0x1.FEp127
                         : dtype == DType::f32  ? 0x1.FFFFFEp127
                                                : std::numeric_limits<double>::max();
  const double normal = dtype == DType::f16 ? 0x1p-14 : dtype == DType::f64 ? 0x1p-1022 : 0x1p-126;
  std::vector<double> special = {0,    -0.0,       INFINITY,    -INFINITY, NAN, 1,       -1,
                                 2,    0.5,        3,           normal,    2.5, -normal, -2.5,
                                 -0.5, normal / 4, -normal / 4, 88,        -88, -1000.0, 1000};
  if (!summed) special.insert(special.end(), {largest, -largest});
  for (int64_t i = 0; i < data->elements(); ++i)
    if (random.chance(1.0 / 3)) store((*data)->data(), dtype, i, random.pick(special));
}

struct Cases {
  nlohmann::json list = nlohmann::json::array();
  std::vector<Value> kept;
  std::vector<io::NamedBytes> tensors;

  void add(const Value& y, const std::string& kind, bool simplify) {
    // PyTorch stores these types, and has few operations on them.
    const auto is_only_stored = [](const Value& value) {
      return value.dtype() == DType::u16 || value.dtype() == DType::u32;
    };
    if (is_only_stored(y) || std::ranges::any_of(y->inputs, is_only_stored)) return;
    const KernelLibrary& cpu = *backends().back();
    PlanSettings settings;
    if (!simplify) settings.step.skip = {"simplify"};  // which computes what is constant and small
    const Value result = run_planned({.outputs = {y}}, {}, cpu, settings).front();
    nlohmann::json attributes = nlohmann::json::object();
    for (const auto& [key, attribute] : y->attrs.entries())
      std::visit(
          [&, key = key](const auto& it) {
            if constexpr (std::is_same_v<std::decay_t<decltype(it)>, Dims>)
              attributes[std::string(key)] = std::vector<int64_t>(it.begin(), it.end());
            else
              attributes[std::string(key)] = it;
          },
          attribute);
    const std::string name = std::to_string(list.size());
    keep(name + ".out", result);
    for (size_t i = 0; i < y->inputs.size(); ++i)
      keep(name + "." + std::to_string(i), interpret(y->inputs[i]));
    list.push_back({{"op", y->op->name},
                    {"attributes", attributes},
                    {"inputs", y->inputs.size()},
                    {"kind", kind}});
  }

 private:
  void keep(const std::string& name, const Value& data) {
    kept.push_back(data);
    Type type = data.type();
    if (type.dtype == DType::i4x2) type.dtype = DType::u8;  // files have no type of four bits
    tensors.push_back({.name = name,
                       .type = type,
                       .bytes = std::span<const std::byte>(data->data(), data.type().bytes())});
  }
};

void add_cases_of(const OpDef& def, DType dtype, Cases& cases) {
  const bool of_rows = def.name == "softmax" || def.name == "log_softmax";
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const bool special = seed == 2, large = seed == 3;
    if (special && def.kind != OpKind::elementwise && def.kind != OpKind::movement &&
        def.kind != OpKind::reduce && !of_rows)
      continue;
    const bool resizes = def.kind == OpKind::elementwise || def.kind == OpKind::reduce ||
                         def.kind == OpKind::movement;  // their results are as large as operands
    if (large && (dtype != DType::f32 || !resizes)) continue;
    Random random(hash_combine(hash_text(def.name), 100 * static_cast<uint64_t>(dtype) + seed));
    CaseSource source{.random = random, .operand = [&](const Type& type, double low, double high) {
                        Value view = random_view(type, low, high, random);
                        if (special)
                          strew_special_values(view, def.kind != OpKind::elementwise, random);
                        return view;
                      }};
    if (large) source.extents = {2, 61, 1024}, source.most_elements = 1 << 20;
    cases.add(draw_case(def, dtype, source),
              special ? "special"
              : large ? "large"
                      : "random",
              seed % 2 == 0);
  }
}

// Adds rows that exceed a thread's block, contiguous and strided, and attention over many tiles.
void add_large_rows(DType dtype, Random& random, Cases& cases) {
  auto operand = [&](const Shape& shape) { return random_values({dtype, shape}, -8, 8, random); };
  for (const Shape& shape : {Shape{37, 20'011}, Shape{5, 1031, 67}}) {
    const Value x = operand(shape);
    const auto last = static_cast<int>(shape.size()) - 1;
    for (const int axis : {0, last}) {
      cases.add(softmax(x, axis), "long rows", false);
      cases.add(log_softmax(x, axis), "long rows", false);
      cases.add(sum(x, {.axes = {axis}, .keepdim = true}), "long rows", false);
      cases.add(argmax(x, axis), "long rows", false);
    }
    if (dtype != DType::f32) continue;  // others are cast before and after
    cases.add(layer_norm(x), "long rows", false);
    cases.add(rms_norm(x), "long rows", false);
  }
  struct Heads {
    const char* what;
    Shape q, k;
    AttentionOptions options;
  };
  const Heads heads[] = {
      {"causal", {2, 3, 301, 64}, {2, 3, 301, 64}, {.causal = true}},
      {"grouped heads", {1, 6, 257, 40}, {1, 2, 257, 40}, {.causal = true}},
      {"other queries than keys", {2, 2, 67, 128}, {2, 2, 411, 128}, {}},
  };
  auto unit = [&](const Shape& shape) { return random_values({dtype, shape}, -1, 1, random); };
  for (const Heads& head : heads)
    cases.add(attention(unit(head.q), unit(head.k), unit(head.k), head.options),
              std::string("large, ") + head.what, false);
}

// Adds products and convolutions that are larger than any block or tile of their kernels, with
// extents that none of these divides.
void add_large_products(DType dtype, Random& random, Cases& cases) {
  auto operand = [&](const Shape& shape) { return random_values({dtype, shape}, -1, 1, random); };
  const Value a = operand({513, 1025}), b = operand({1025, 769});
  cases.add(matmul(a, b), "large", false);
  cases.add(matmul(a, transpose(operand({769, 1025}))), "large, transposed", false);
  cases.add(matmul(transpose(operand({1025, 513})), b), "large, transposed", false);
  cases.add(matmul(operand({5, 131, 259}), operand({5, 259, 197})), "batched", false);
  cases.add(matmul(operand({2, 1, 65, 130}), operand({3, 130, 97})), "broadcast", false);
  cases.add(matmul(operand({3, 4099}), operand({4099, 1})), "tall", false);
}

void add_large_convolutions(DType dtype, Random& random, Cases& cases) {
  struct Geometry {
    const char* what;
    Shape x, weight;
    ConvOptions options;
  };
  const std::vector<Geometry> geometries = {
      {"3 x 3", {3, 48, 29, 31}, {80, 48, 3, 3}, {.padding = {1, 1}}},
      {"strides", {2, 33, 57, 45}, {50, 33, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
      {"image", {2, 3, 97, 113}, {64, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3}}},
      {"groups", {2, 64, 28, 30}, {96, 16, 3, 3}, {.padding = {2, 1}, .groups = 4}},
      {"depthwise", {2, 97, 33, 31}, {97, 1, 5, 5}, {.padding = {2, 2}, .groups = 97}},
      {"single elements", {3, 130, 28, 27}, {66, 130, 1, 1}, {}},
      {"strided single elements", {2, 128, 29, 28}, {64, 128, 1, 1}, {.stride = {2, 2}}},
      {"dilation",
       {2, 20, 40, 37},
       {36, 10, 3, 2},
       {.stride = {1, 3}, .padding = {2, 3}, .dilation = {3, 2}, .groups = 2}},
  };
  auto operand = [&](const Type& type) { return random_values(type, -1, 1, random); };
  for (const Geometry& geometry : geometries) {
    const std::string kind = std::string("large, ") + geometry.what;
    const Value x = operand({dtype, geometry.x}), weight = operand({dtype, geometry.weight});
    const Value y = conv(x, weight, {}, geometry.options);
    cases.add(y, kind, false);
    const Value wanted[] = {x, weight};
    for (const Value& gradient : gradients(y, wanted, operand(y.type()))) {
      REQUIRE(gradient->op->name.starts_with("conv"));  // its operands are data
      cases.add(gradient, kind, false);
    }
  }
}
}  // namespace

TEST_SUITE("slow pytorch") {
  TEST_CASE("every op agrees with PyTorch") {
    const std::string python = python_with("torch");
    if (python.empty()) return;
    Cases cases;
    for (const OpDef* def : registered_ops()) {
      if (!has_cases(*def) || def->kind == OpKind::leaf || !is_in_part(def->name)) continue;
      for (DType dtype : dtypes_of(*def))
        if (dtype != DType::f64) add_cases_of(*def, dtype, cases);
    }
    Random random(1);
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      if (is_in_part("softmax")) add_large_rows(dtype, random, cases);
      if (is_in_part("matmul")) add_large_products(dtype, random, cases);
      if (is_in_part("conv")) add_large_convolutions(dtype, random, cases);
    }
    REQUIRE(!cases.list.empty());
    test::TemporaryFolder folder;
    io::write_safetensors(folder.file("cases"), cases.tensors, {{"cases", cases.list.dump()}});
    const std::string command = fmt::format("{} tests/pytorch/differential.py '{}' >'{}' 2>&1",
                                            python, folder.file("cases"), folder.file("said"));
    const int status = std::system(command.c_str());
    CHECK_MESSAGE(status == 0, test::contents_of(folder.file("said")));
    MESSAGE(test::contents_of(folder.file("said")));
  }
}
