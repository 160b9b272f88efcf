#include "weft/artifact/artifact.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/captured.h"
#include "tests/support/edited_artifact.h"
#include "tests/support/temporary_folder.h"
#include "weft/artifact/node_json.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"
#include "weft/device/compiler.h"
#include "weft/device/registry.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/model_folder.h"
#include "weft/io/safetensors.h"
#include "weft/nn/layers.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

namespace weft::testing {
namespace {
using artifact::Artifact;
using artifact::OpenArtifact;
using nlohmann::json;
using test::artifact_kernel;
using test::artifact_model;
using test::artifact_program;
using test::edit_artifact;
using test::edit_artifact_bytes;
using test::TemporaryFolder;

// A net whose weights a plan packs, and from which it derives values: a convolution with a batch
// norm, and a product. What it adds is a constant of the plan.
struct Net : nn::Module {
  explicit Net(int64_t seed) {
    manual_seed(seed);
    conv.emplace(*this, "conv", 3, 8, 3);
    norm.emplace(*this, "norm", 8);
    head.emplace(*this, "head", 8 * 6 * 6, 10);
    norm->running_mean.assign(full({8}, 0.25 * static_cast<double>(seed)));
    norm->running_var.assign(full({8}, 1.5));
  }
  Tensor operator()(const Tensor& x) const {
    return (*head)(flatten(relu((*norm)((*conv)(x))), 1, -1)) +
           constant(std::span<const float>(offsets), {10});
  }
  std::optional<nn::Conv2d> conv;
  std::optional<nn::BatchNorm> norm;
  std::optional<nn::Linear> head;
  std::vector<float> offsets{0.5, -1, 2.25, 3, 0, 7, -0.125, 4, 9, 1.5};
};

Tensor pictures() {
  manual_seed(7);
  return randn({4, 3, 8, 8}).eval();
}

// Compiles a forward pass to an artifact.
Artifact compiled(CompiledStep& step, const Tensor& x, std::vector<Variable> weights = {}) {
  Executable& executable = step.prepare(std::array{x.type()});
  executable.settle_variables();
  return {.kind = "net",
          .about = "{\"outputs\": [\"logits\"]}",
          .programs = {{.name = "forward", .bound = executable.bound()}},
          .weights = std::move(weights),
          .files = {{"tokenizer.json", "{}"}}};
}

// A CompiledNet is a net, its forward pass, and the file that this is written to.
struct CompiledNet {
  explicit CompiledNet(int64_t seed = 1) : net(seed) {}

  void write(const std::string& to = "") {
    artifact::write_artifact(path, compiled(step, x, net.variables()), to);
  }
  std::vector<double> results() { return step.run(std::array{x})[0].to_doubles(); }

  TemporaryFolder folder;
  std::string path = folder.file("net.weft"), weights = folder.file("net.safetensors");
  Net net;
  CompiledStep step{
      [this](std::span<const Tensor> in) -> std::vector<Tensor> { return {net(in[0])}; },
      {.mode = Mode::eval}};
  Tensor x = pictures();
};
// A CompiledFactor is a pass that one generated kernel runs, in a file.
struct CompiledFactor {
  explicit CompiledFactor(int64_t elements)
      : factor("factor", {DType::f32, {elements}}), x(full({elements}, 0.5).eval()) {
    factor.assign(full({elements}, 2.0));
    artifact::write_artifact(path, compiled(step, x));
  }

  TemporaryFolder folder;
  std::string path = folder.file("small.weft");
  Variable factor;
  CompiledStep step{
      [this](std::span<const Tensor> in) -> std::vector<Tensor> { return {exp(in[0] * factor)}; },
      {.mode = Mode::eval}};
  Tensor x;
};

// Runs the first program of an artifact.
std::vector<double> results_of(const OpenArtifact& opened, const Tensor& x) {
  Executable executable(opened.read(opened.programs[0]), library("cpu"),
                        std::make_shared<Workspace>());
  return executable.run(std::array{x})[0].to_doubles();
}

// Returns what is thrown; "" for nothing.
std::string refusal_of(ErrorKind kind, const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
    return error.what();
  }
  return "";
}
std::string refusal_of(const std::string& path, ErrorKind kind,
                       const artifact::ReadOptions& options = {}) {
  return refusal_of(kind, [&] { artifact::open_artifact(path, options); });
}
}  // namespace

TEST_CASE_FIXTURE(CompiledNet, "an artifact computes what the step computed, bit for bit") {
  for (const std::string& file : {std::string(), weights}) {
    write(file);
    const OpenArtifact opened = artifact::open_artifact(path);
    CHECK(results_of(opened, x) == results());
    CHECK(opened.kind == "net");
    CHECK(opened.about == "{\"outputs\":[\"logits\"]}");
    CHECK(opened.programs == std::vector<std::string>{"forward"});
    CHECK(io::read_of_model(opened.files, "tokenizer.json", 2) == "{}");
    CHECK(!io::read_of_model(opened.files, "config.json", 2));
    CHECK(refusal_of(ErrorKind::data, [&] {
            io::read_of_model(opened.files, "tokenizer.json", 1);
          }) == path + ": its tokenizer.json has 2 bytes, over the limit of 1.");
  }
}

TEST_CASE_FIXTURE(CompiledNet, "an artifact that was opened is not mixed with one of its name") {
  write();
  const OpenArtifact opened = artifact::open_artifact(path);
  CompiledNet other(2);
  other.write();
  std::filesystem::rename(other.path, path);
  CHECK(results_of(opened, x) == results());
  CHECK(results_of(artifact::open_artifact(path), x) == other.results());
}

TEST_CASE("one plan serves two sets of weights") {
  CompiledNet first, second(2);
  first.write(first.weights);
  second.write(second.weights);
  // The weights of both are in memory at once.
  const OpenArtifact a = artifact::open_artifact(first.path),
                     b = artifact::open_artifact(first.path, {.weights = second.weights});
  CHECK(results_of(a, first.x) == first.results());
  CHECK(results_of(b, first.x) == second.results());
}

TEST_CASE("weights inside are replaced by those of another file, and derived values with them") {
  CompiledNet first, second(2);
  first.write();
  io::save_safetensors(second.weights, io::state_of(second.net));
  CHECK(results_of(artifact::open_artifact(first.path, {.weights = second.weights}), first.x) ==
        second.results());
}

TEST_CASE_FIXTURE(CompiledNet, "a sealed artifact whose variables do not fit is not opened") {
  const auto is_refused = [&](const std::function<void(json&)>& change) {
    write();
    edit_artifact(path, artifact_model, change);
    return !refusal_of(path, ErrorKind::checkpoint).empty();
  };
  const auto expression_of = [](json& all) -> json& {
    for (json& variable : all["variables"])
      if (variable.contains("expression")) return variable["expression"];
    FAIL("no variable has an expression");
    return all;
  };
  CHECK(is_refused([](json& all) { all["variables"][0]["type"] = {"f32", int64_t{1} << 62}; }));
  CHECK(is_refused([&](json& all) { expression_of(all)["sources"] = {{99, 0}}; }));
  CHECK(is_refused([&](json& all) { expression_of(all)["sources"].clear(); }));
  CHECK(is_refused([](json& all) {
    for (json& variable : all["variables"])
      if (variable.contains("elements")) variable["elements"] = "conv.weight";
  }));
  CHECK(is_refused([](json& all) { all["weights"] = "/etc/passwd"; }));
  CHECK(is_refused([](json& all) { all["programs"].push_back("backward"); }));
  CHECK(!is_refused([](json&) {}));
}

TEST_CASE_FIXTURE(CompiledNet, "a plan that is broken is refused when it is read") {
  const auto is_refused = [&](const std::function<void(json & plan)>& change) {
    write();
    edit_artifact(path, artifact_program, [&](json& all) { change(all["plan"]); });
    const OpenArtifact opened = artifact::open_artifact(path);
    return refusal_of(ErrorKind::checkpoint, [&] { opened.read("forward"); })
        .starts_with(path + ": ");
  };
  const auto slot_of = [](json& plan, const std::string& space) -> json& {
    for (json& slot : plan["slots"])
      if (slot["space"] == space) return slot;
    FAIL("no slot is in ", space);
    return plan;
  };
  CHECK(is_refused([&](json& plan) { slot_of(plan, "state")["bytes"] = 1 << 30; }));
  CHECK(is_refused([&](json& plan) { slot_of(plan, "state").erase("value"); }));
  CHECK(is_refused([&](json& plan) { slot_of(plan, "arena")["offset"] = int64_t{1} << 40; }));
  CHECK(is_refused([&](json& plan) { slot_of(plan, "arena")["offset"] = 4; }));
  CHECK(is_refused([](json& plan) { plan["arena_bytes"] = 0; }));
  CHECK(is_refused([](json& plan) { plan["inputs"][0]["strides"] = {0, 0, 0, 0}; }));
  CHECK(is_refused([](json& plan) { plan["outputs"][0]["strides"] = {0, 0}; }));
  CHECK(!is_refused([](json&) {}));
}

TEST_CASE("a node whose attributes break the rule of its operation is refused") {
  // Reads a node of one input, f32[2, 3].
  const auto is_refused = [](const std::string& op, const json& attributes, const json& type) {
    const json nodes = {{{"op", "data"}, {"type", {"f32", 2, 3}}, {"inputs", json::array()}},
                        {{"op", op}, {"type", type}, {"inputs", {0}}, {"attributes", attributes}}};
    try {
      artifact::nodes_of(nodes, {1, 2});
      return false;
    } catch (const io::JsonError&) {
      return true;
    }
  };
  const auto dims = [](const char* key, std::vector<int64_t> values) {
    return json{{"key", key}, {"dims", std::move(values)}};
  };
  const auto slice = [](int64_t axis, int64_t start, int64_t stop, int64_t step) {
    json all = json::array();
    for (const auto& [key, value] : std::vector<std::pair<std::string, int64_t>>{
             {"axis", axis}, {"start", start}, {"stop", stop}, {"step", step}})
      all.push_back({{"key", key}, {"integer", value}});
    return all;
  };
  CHECK(!is_refused("permute", json::array({dims("order", {1, 0})}), {"f32", 3, 2}));
  CHECK(is_refused("permute", json::array({dims("order", {1, 1000})}), {"f32", 3, 2}));
  CHECK(is_refused("permute", json::array({dims("order", {0, 0})}), {"f32", 2, 2}));
  CHECK(is_refused("reshape", json::array({dims("shape", {7})}), {"f32", 7}));
  CHECK(is_refused("broadcast", json::array({dims("shape", {2, 4})}), {"f32", 2, 4}));
  CHECK(!is_refused("slice", slice(1, 1, 3, 1), {"f32", 2, 2}));
  CHECK(is_refused("slice", slice(7, 1, 3, 1), {"f32", 2, 2}));
  CHECK(is_refused("slice", slice(1, 100, 102, 1), {"f32", 2, 2}));
  CHECK(is_refused("slice", slice(1, 1, 3, 0), {"f32", 2, 2}));
  CHECK(is_refused("flip", json::array({dims("axes", {2})}), {"f32", 2, 3}));
  CHECK(is_refused("pad", {dims("low", {0, -1}), dims("high", {0, 0})}, {"f32", 2, 2}));
  CHECK(is_refused("pad", {dims("low", {0}), dims("high", {0, 0})}, {"f32", 2, 3}));
  CHECK(is_refused("sum", json::array({dims("axes", {4})}), {"f32", 2, 3}));
  CHECK(is_refused("concat", json::array({{{"key", "axis"}, {"integer", 2}}}), {"f32", 2, 3}));
}

TEST_CASE("an artifact that was cut or changed at any byte is refused") {
  const CompiledFactor small(2);
  const std::shared_ptr<Buffer> whole = io::map_file(small.path);
  const auto is_refused = [&](size_t length, size_t changed) {
    const std::shared_ptr<Buffer> bytes = Buffer::allocate(length);
    std::copy_n(whole->data, length, bytes->data);
    if (changed < length) bytes->data[changed] ^= std::byte{1};
    return !refusal_of(ErrorKind::checkpoint, [&] {
              artifact::open_artifact(bytes, "small.weft").read("forward");
            }).empty();
  };
  CHECK(!is_refused(whole->bytes, whole->bytes));
  int accepted = 0;
  for (size_t i = 0; i < whole->bytes; ++i) {
    accepted += is_refused(whole->bytes, i) ? 0 : 1;
    accepted += is_refused(i, i) ? 0 : 1;
  }
  CHECK(accepted == 0);
}

TEST_CASE_FIXTURE(CompiledNet,
                  "an artifact of another version, machine or model is refused with one line") {
  const auto refused = [&](ErrorKind kind, const std::function<void(json&)>& change) {
    write(weights);
    edit_artifact(path, artifact_model, change);
    std::string message = refusal_of(path, kind);
    REQUIRE(message.starts_with(path + ": "));
    return message.substr(path.size() + 2);
  };
  CHECK(refused(ErrorKind::checkpoint, [](json& all) {
          all["version"] = "0.0.1";
        }).starts_with("weft 0.0.1 compiled it, and this is "));
  CHECK(refused(ErrorKind::checkpoint, [](json& all) { all["format"] = 99; }) ==
        "it has format 99; this version of weft reads 2.");
  CHECK(refused(ErrorKind::device, [](json& all) {
          all["target"]["machine"] = "a Z80";
        }).starts_with("it was compiled for a Z80. This machine is "));
  CHECK(refused(ErrorKind::device, [](json& all) { all["target"]["threads"] = 99; }) ==
        fmt::format("it was compiled for 99 threads, and here are {}. Hint: WEFT_THREADS=99.",
                    thread_count()));
  CHECK(refused(ErrorKind::device, [](json& all) {
          all["target"]["device"] = "abacus";
        }).starts_with("it was compiled for the device abacus"));
  CHECK(refused(ErrorKind::checkpoint, [](json& all) { all.erase("programs"); }) ==
        "programs is missing.");
}

TEST_CASE("machine code runs where this user signed it, or trusts it") {
  library("cpu").compiler().collect_code();
  CompiledFactor small(1003);
  const std::vector<double> want = small.step.run(std::array{small.x})[0].to_doubles();
  const auto notes_of = [&](const artifact::ReadOptions& options) {
    const test::Captured errors(2);
    CHECK(results_of(artifact::open_artifact(small.path, options), small.x) == want);
    return errors.text();
  };
  const std::string unsigned_code = fmt::format(
      "weft: note: {}: this user did not sign its machine code, so its kernels are compiled again. "
      "Hint: --trust runs it.\n",
      small.path);
  CHECK(notes_of({}) == "");
  // Other code under the old signature, in a file that is sealed again.
  const auto flip = [](std::string& code) { code[code.size() / 2] ^= 1; };
  edit_artifact_bytes(small.path, artifact_kernel, flip);
  CHECK(notes_of({}) == unsigned_code);
  edit_artifact_bytes(small.path, artifact_kernel, flip);
  CHECK(notes_of({}) == "");
  edit_artifact(small.path, artifact_model,
                [](json& all) { all["signature"] = std::string(64, '0'); });
  CHECK(notes_of({}) == unsigned_code);
  CHECK(notes_of({.trust = true}) == "");
  edit_artifact(small.path, artifact_model, [](json& all) { all["target"]["compiler"] = "other"; });
  CHECK(notes_of({.trust = true}) ==
        fmt::format("weft: note: {}: its machine code is of another build of weft or for another "
                    "WEFT_ISA, so its kernels are compiled again.\n",
                    small.path));
  edit_artifact(small.path, artifact_model,
                [](json& all) { all["kernels"].at(0)["extents"] = "many"; });
  CHECK(refusal_of(small.path, ErrorKind::checkpoint) ==
        small.path + ": it holds no plans of this format.");
}

TEST_CASE_FIXTURE(CompiledNet, "weights of another model are refused") {
  write(weights);
  const std::string other = folder.file("other.safetensors");
  const Variable alone("conv.weight", {DType::f32, {8, 3, 3, 3}});
  io::save_safetensors(other, std::array{alone});
  const std::string refusal = refusal_of(path, ErrorKind::checkpoint, {.weights = other});
  CHECK_MESSAGE(refusal.find("does not fit: 7 missing ('conv.bias', ") != std::string::npos,
                refusal);
  std::filesystem::remove(weights);
  CHECK(refusal_of(path, ErrorKind::checkpoint).find("net.safetensors") != std::string::npos);
}
}  // namespace weft::testing
