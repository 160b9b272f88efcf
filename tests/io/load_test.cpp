// Loads weights that match a model partly, or under other names, types and layouts.
#include "weft/io/load.h"

#include <numeric>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/io/safetensors_file.h"
#include "weft/base/text/pattern.h"

using namespace weft;
using namespace weft::test;

namespace {
using Names = std::vector<std::string>;
using Doubles = std::vector<double>;

const Type matrix{DType::f32, {2, 3}}, list{DType::f32, {3}};

// Writes weight files, and owns a model of two variables in which every element is -1.
struct Files {
  TemporaryFolder folder;
  std::vector<Variable> model{Variable("fc.weight", matrix), Variable("fc.bias", list)};
  Files() { reset(); }
  void reset() {
    for (const Variable& each : model) each.assign(full(each.shape(), -1));
  }
  std::string file(const std::string& name, const std::vector<Variable>& variables) {
    io::save_safetensors(folder.file(name), variables);
    return folder.file(name);
  }
  io::Loaded load(const std::string& path, const io::LoadOptions& options = {}) {
    return io::load_into(path, model, options);
  }
  std::string error(const std::string& path, const io::LoadOptions& options = {}) {
    const std::string message = error_of([&] { load(path, options); });
    for (const Variable& each : model) CHECK(each.value().to_doubles()[1] == -1);
    const std::string begin = "checkpoint: [load] " + path + " does not fit: ";
    CHECK(message.starts_with(begin));
    return message.substr(std::min(begin.size(), message.size()));
  }
  Doubles weight() { return model[0].value().to_doubles(); }
  Doubles bias() { return model[1].value().to_doubles(); }
};
}  // namespace

TEST_CASE("patterns match whole names and stars are substituted") {
  CHECK(matches("a.weight", "a.weight"));
  CHECK_FALSE(matches("a.weights", "a.weight"));
  CHECK(matches("h.0.attn.bias", "*.attn.bias"));
  CHECK(matches("", "*"));
  CHECK(matches("abab", "a*b"));
  CHECK_FALSE(matches("aba", "a*b"));
  CHECK(matches("a.*.b", "a.*.b"));
  CHECK(substitute("h.0.mlp.c_fc.weight", "*.mlp.*", "*.*") == "h.0.c_fc.weight");
  CHECK(substitute("layer.7.norm", "layer.*.*", "blocks.*.ln_*") == "blocks.7.ln_norm");
  CHECK(substitute("model.a", "model.*", "*") == "a");
  CHECK(substitute("a", "model.*", "*") == std::nullopt);
}

TEST_CASE("a prefix is removed before names are replaced") {
  Files files;
  const std::string path = files.file(
      "m", {variable("net.linear.weight", matrix, 1), variable("net.linear.bias", list, 7)});
  const io::Loaded found = files.load(path, {.prefix = "net.", .rename = {{"linear.*", "fc.*"}}});
  CHECK(found.loaded == Names{"fc.weight", "fc.bias"});
  CHECK(found.missing.empty());
  CHECK(found.unexpected.empty());
  CHECK(files.weight() == Doubles{1, 2, 3, 4, 5, 6});
  CHECK(files.bias() == Doubles{7, 8, 9});
  files.reset();
  CHECK(files.error(path, {.rename = {{"linear.*", "fc.*"}}}) ==
        "2 missing ('fc.weight', 'fc.bias'); 2 unexpected ('net.linear.bias', "
        "'net.linear.weight'); 1 patterns that match nothing ('linear.*').");
}

TEST_CASE("aliases map names where they match, before the pairs of rename, and may match nothing") {
  Files files;
  const std::string path =
      files.file("m", {variable("linear.gamma", matrix, 1), variable("fc.bias", list, 7)});
  const io::LoadOptions options{.rename = {{"linear.*", "fc.*"}},
                                .aliases = {{"*.gamma", "*.weight"}, {"*.beta", "*.bias"}}};
  CHECK(files.load(path, options).loaded == Names{"fc.weight", "fc.bias"});
  CHECK(files.weight() == Doubles{1, 2, 3, 4, 5, 6});
  files.reset();
  const std::string twice =
      files.file("twice", {variable("fc.weight", matrix, 1), variable("fc.gamma", matrix, 1),
                           variable("fc.bias", list, 7)});
  CHECK(files.error(twice, {.aliases = {{"*.gamma", "*.weight"}}}) ==
        "1 there twice ('fc.weight').");
}

TEST_CASE("extra tensors may be left over, but a variable of such a name is still required") {
  Files files;
  const std::string path = files.file(
      "m", {variable("fc.bias", list, 7), variable("head.a", list, 1), variable("b", list, 1)});
  CHECK(files.error(path, {.extra = {"head.*", "fc.*"}}) ==
        "1 missing ('fc.weight'); 1 unexpected ('b').");
  const io::Loaded found = files.load(path, {.extra = {"head.*", "fc.*"}, .strict = false});
  CHECK(found.loaded == Names{"fc.bias"});
  CHECK(found.unexpected == Names{"b"});
  CHECK(files.bias() == Doubles{7, 8, 9});
}

TEST_CASE("matching names are loaded, missing and unexpected names are listed") {
  Files files;
  const std::string path = files.file(
      "m", {variable("fc.bias", list, 7), variable("old.a", list, 1), variable("old.b", list, 1)});
  CHECK(files.error(path) == "1 missing ('fc.weight'); 2 unexpected ('old.a', 'old.b').");
  const io::Loaded found = files.load(path, {.strict = false});
  CHECK(found.loaded == Names{"fc.bias"});
  CHECK(found.missing == Names{"fc.weight"});
  CHECK(found.unexpected == Names{"old.a", "old.b"});
  CHECK(files.weight() == Doubles(6, -1));
  CHECK(files.bias() == Doubles{7, 8, 9});
  files.reset();
  const std::string other = files.file("other", {variable("a", list, 1)});
  CHECK(files.error(other, {.strict = false}) ==
        "none of 1 tensors has the name of a variable ('a', wanted 'fc.weight').");
}

TEST_CASE("ignored names are neither required nor read, by the file's or the model's name") {
  Files files;
  const std::string path =
      files.file("m", {variable("fc.bias", list, 7), variable("fc.weight", {DType::f32, {9, 3}}, 1),
                       variable("h.mask", list, 1)});
  const io::Loaded found = files.load(path, {.ignore = {"fc.w*", "*.mask"}});
  CHECK(found.loaded == Names{"fc.bias"});
  CHECK(found.missing.empty());
  CHECK(found.unexpected.empty());
  CHECK(files.weight() == Doubles(6, -1));
  files.reset();
  CHECK(files.error(path, {.ignore = {"*.mask"}}) ==
        "1 of another shape ('fc.weight' is f32[9, 3], wanted f32[2, 3]).");
  CHECK(files.error(path, {.ignore = {"*.mask"}, .strict = false}) ==
        "1 of another shape ('fc.weight' is f32[9, 3], wanted f32[2, 3]).");
}

TEST_CASE("matrices of any type are transposed where a pattern matches") {
  Files files;
  const std::string path = files.file(
      "m", {variable("fc.bias", list, 7), variable("fc.weight", {DType::f32, {3, 2}}, 1)});
  files.load(path, {.transpose = {"*.weight"}});
  CHECK(files.weight() == Doubles{1, 3, 5, 2, 4, 6});
  files.reset();
  CHECK(files.error(path) == "1 of another shape ('fc.weight' is f32[3, 2], wanted f32[2, 3]).");
  CHECK(files.error(path, {.transpose = {"*"}}) ==
        "1 of another shape ('fc.bias' is f32[3] transposed, wanted f32[3]).");
  CHECK(files.error(path, {.ignore = {"fc.weight"}, .transpose = {"*.weigth"}}) ==
        "1 patterns that match nothing ('*.weigth').");
  const int64_t large = (int64_t{1} << 60) + 1;  // not representable as a double
  const Variable from("a", {DType::i64, {2, 1}}), to("a", {DType::i64, {1, 2}});
  store_int(from.bytes().data(), DType::i64, 1, large);
  const std::vector all{to};
  io::load_into(files.file("i", {from}), all, {.transpose = {"a"}});
  CHECK(load_int(to.bytes().data(), DType::i64, 1) == large);
}

TEST_CASE("tensors of the files are stacked into one variable") {
  TemporaryFolder folder;
  const Type part{DType::f32, {2, 2}};
  const std::vector model{Variable("layers.0.experts.w1", {DType::f32, {3, 2, 2}}),
                          Variable("layers.0.norm", {DType::f32, {2}})};
  auto tensor_of = [&](const std::string& name, double first) {
    return variable(name, part, first);
  };
  const Variable norm = variable("layers.0.norm", {DType::f32, {2}}, 40);
  auto file = [&](const std::vector<Variable>& variables) {
    io::save_safetensors(folder.file("m"), variables);
    return folder.file("m");
  };
  auto error = [&](const std::vector<Variable>& variables, const io::LoadOptions& options) {
    for (const Variable& each : model) each.assign(full(each.shape(), -1));
    const std::string message = error_of([&] { io::load_into(file(variables), model, options); });
    for (const Variable& each : model)
      CHECK(each.value().to_doubles() == Doubles(static_cast<size_t>(each.type().elements()), -1));
    const size_t at = message.find("fit: ");
    return at == std::string::npos ? message : message.substr(at + 5);
  };
  const io::LoadOptions options{.stack = {{"*.experts.{}.w1.weight", "*.experts.w1"}}};
  const Variable first = tensor_of("layers.0.experts.0.w1.weight", 1);
  const Variable second = tensor_of("layers.0.experts.1.w1.weight", 11);
  const Variable third = tensor_of("layers.0.experts.2.w1.weight", 21);

  const io::Loaded found = io::load_into(file({third, norm, first, second}), model, options);
  CHECK(found.loaded == Names{"layers.0.experts.w1", "layers.0.norm"});
  const Doubles all{1, 2, 3, 4, 11, 12, 13, 14, 21, 22, 23, 24};
  CHECK(model[0].value().to_doubles() == all);
  CHECK(model[1].value().to_doubles() == Doubles{40, 41});
  // What weft saved has the stack itself.
  io::save_safetensors(folder.file("own"), model);
  model[0].assign(full({3, 2, 2}, -1));
  io::load_into(folder.file("own"), model);
  CHECK(model[0].value().to_doubles() == all);

  const Names parts{folder.file("1"), folder.file("2")};
  io::save_safetensors(parts[0], std::vector{second});
  io::save_safetensors(parts[1], std::vector{first, norm, third});
  model[0].assign(full({3, 2, 2}, -1));
  io::LoadOptions transposed = options;
  transposed.transpose = {"*.w1"};
  io::load_into(parts, io::by_name(model), transposed);
  CHECK(model[0].value().to_doubles() == Doubles{1, 3, 2, 4, 11, 13, 12, 14, 21, 23, 22, 24});

  CHECK(error({first, third, norm}, options) ==
        "1 in part ('layers.0.experts.w1' has 2 of 3 tensors, number 1 is missing).");
  io::LoadOptions part_of_it = options;
  part_of_it.strict = false;
  CHECK(error({first, norm}, part_of_it) ==
        "1 in part ('layers.0.experts.w1' has 1 of 3 tensors, number 1 is missing).");
  CHECK(error({first, second, third, norm, tensor_of("layers.0.experts.3.w1.weight", 1)},
              options) == "1 unexpected ('layers.0.experts.3.w1.weight').");
  CHECK(error({first, second, third, norm,
               tensor_of("layers.0.experts.18446744073709551616.w1.weight", 1)},
              options) == "1 unexpected ('layers.0.experts.18446744073709551616.w1.weight').");
  CHECK(error({first, second, third, norm, tensor_of("layers.0.experts.01.w1.weight", 1)}, options)
            .starts_with("1 there twice ('layers.0.experts.1.w1.weight')"));
  CHECK(error({first, second, norm, variable("layers.0.experts.2.w1.weight", {DType::f32, {4}}, 1)},
              options) ==
        "1 of another shape ('layers.0.experts.w1' is f32[4], wanted f32[2, 2]).");
  CHECK(error({norm}, options) ==
        "1 missing ('layers.0.experts.w1'); 1 patterns that match nothing "
        "('*.experts.{}.w1.weight').");
  CHECK(error({norm}, {.stack = {{"*.experts.*", "*"}}})
            .starts_with("usage: [load] the pattern of a stack needs \"{}\" in place of the index. "
                         "Got \"*.experts.*\"."));
  // An ignored variable takes no slices.
  io::LoadOptions ignoring = options;
  ignoring.ignore = {"*.experts.w1"};
  CHECK(io::load_into(file({first, norm}), model, ignoring).loaded == Names{"layers.0.norm"});
}

TEST_CASE("stacked tensors of other floating-point types are rounded on request") {
  TemporaryFolder folder;
  const std::vector model{Variable("w", {DType::f32, {2, 3}})};
  io::save_safetensors(folder.file("m"), std::vector{variable("w.1", {DType::bf16, {3}}, 4),
                                                     variable("w.0", {DType::f32, {3}}, 1)});
  io::load_into(folder.file("m"), model, {.stack = {{"w.{}", "w"}}, .cast = true});
  CHECK(model[0].value().to_doubles() == Doubles{1, 2, 3, 4, 5, 6});
}

TEST_CASE("other floating-point types are rounded on request") {
  Files files;
  Variable weight("fc.weight", {DType::f64, {2, 3}});
  weight.assign(tensor(Doubles{1.0 / 3, 1e-9, 3, 4, 5, -6}, {2, 3}));
  const std::string path = files.file("m", {weight, variable("fc.bias", {DType::bf16, {3}}, 7)});
  CHECK(files.error(path) ==
        "2 of another type ('fc.weight' is f64[2, 3], wanted f32[2, 3], 'fc.bias' is bf16[3], "
        "wanted f32[3]).");
  files.load(path, {.cast = true});
  CHECK(files.weight() == Doubles{1.0F / 3, 1e-9F, 3, 4, 5, -6});
  CHECK(files.bias() == Doubles{7, 8, 9});
  files.reset();
  const std::string integers = files.file(
      "i", {variable("fc.weight", matrix, 1), variable("fc.bias", {DType::i64, {3}}, 7)});
  CHECK(files.error(integers, {.cast = true}) ==
        "1 of another type ('fc.bias' is i64[3], wanted f32[3]).");
}

TEST_CASE("several files load as one and duplicate variables are refused") {
  Files files;
  const Names parts{files.file("1", {variable("fc.bias", list, 7)}),
                    files.file("2", {variable("fc.weight", matrix, 1)})};
  const io::NamedVariables model = io::by_name(files.model);
  CHECK(io::load_into(parts, model).loaded == Names{"fc.weight", "fc.bias"});
  CHECK(files.weight() == Doubles{1, 2, 3, 4, 5, 6});
  CHECK(files.bias() == Doubles{7, 8, 9});
  CHECK(error_of([&] { io::load_into(Names{parts[0], parts[1], parts[0]}, model); }) ==
        "checkpoint: [load] " + parts[0] +
            " (and 2 more) does not fit: 1 there twice ('fc.bias').");
  CHECK(error_of([&] {
          io::load_into(Names(), model);
        }).starts_with("usage: [load] no file is given."));
}

TEST_CASE("a mask whose bytes are neither 0 nor 1 is refused by file and tensor") {
  TemporaryFolder folder;
  const std::vector mask{variable("mask", {DType::boolean, {4}}, 0)};
  for (const bool map : {false, true}) {
    std::vector from{variable("mask", {DType::boolean, {4}}, 0)};
    from[0].bytes()[2] = std::byte{7};
    io::save_safetensors(folder.file("m"), from);
    CHECK(error_of([&] { io::load_into(folder.file("m"), mask, {.map = map}); }) ==
          "checkpoint: [load] " + folder.file("m") +
              ": element 2 of 'mask' is 7, but a bool is 0 or 1.");
    from[0].bytes()[2] = std::byte{1};
    io::save_safetensors(folder.file("m"), from);
    CHECK(io::load_into(folder.file("m"), mask, {.map = map}).loaded == Names{"mask"});
  }
}

TEST_CASE("a file in memory keeps its elements while they are loaded") {
  Files files;
  const std::shared_ptr<Buffer> memory = Buffer::allocate(9 * sizeof(float));
  std::iota(reinterpret_cast<float*>(memory->data), reinterpret_cast<float*>(memory->data) + 9, 1);
  const io::TensorFile file("memory", memory, {{"fc.bias", list, 0}, {"fc.weight", matrix, 12}});
  for (int time = 0; time < 2; ++time) {
    files.reset();
    io::load_into(file, io::by_name(files.model));
    CHECK(files.bias() == Doubles{1, 2, 3});
    CHECK(files.weight() == Doubles{4, 5, 6, 7, 8, 9});
  }
}

TEST_CASE("a misaligned tensor is converted") {
  // The one-byte tensor `b` comes first, so the elements of `a` start at an odd offset of the data.
  TemporaryFolder folder;
  std::string header =
      R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[1,9]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  bytes += header + "x" + std::string("\0\0\x80\x3f\0\0\0\xc0", 8);
  std::ofstream(folder.file("m"), std::ios::binary) << bytes;
  const std::vector to{Variable("a", {DType::f32, {1, 2}})};
  io::load_into(folder.file("m"), to, {.ignore = {"b"}, .transpose = {"a"}});
  CHECK(to[0].value().to_doubles() == Doubles{1, -2});
}
