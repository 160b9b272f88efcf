#include "weft/artifact/artifact.h"

#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/captured.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/buffer.h"
#include "weft/device/compiler.h"
#include "weft/device/registry.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/safetensors.h"
#include "weft/nn/layers.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

namespace weft::testing {
namespace {
using artifact::Artifact;
using test::TemporaryFolder;

// A net whose weights a plan packs, and from which it derives values: a convolution with a batch
// norm, and a product.
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
    return (*head)(flatten(relu((*norm)((*conv)(x))), 1, -1));
  }
  std::optional<nn::Conv2d> conv;
  std::optional<nn::BatchNorm> norm;
  std::optional<nn::Linear> head;
};

CompiledStep step_of(const Net& net) {
  return {[&net](std::span<const Tensor> in) -> std::vector<Tensor> { return {net(in[0])}; },
          {.mode = Mode::eval}};
}
Tensor pictures() {
  manual_seed(7);
  return randn({4, 3, 8, 8}).eval();
}
std::vector<double> results_of(CompiledStep& step, const Tensor& x) {
  return step.run(std::array{x})[0].to_doubles();
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
Artifact compiled(CompiledStep& step, const Tensor& x, const Net& net) {
  return compiled(step, x, net.variables());
}
// Runs the first program of an artifact.
std::vector<double> results_of(const Artifact& read, const Tensor& x) {
  Executable executable(read.programs[0].bound, library("cpu"), std::make_shared<Workspace>());
  return executable.run(std::array{x})[0].to_doubles();
}

std::string refusal_of(const std::string& path, ErrorKind kind,
                       const artifact::ReadOptions& options = {}) {
  try {
    artifact::read_artifact(path, options);
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "";
}

// Changes the plans of an artifact and seals it again.
void edit(const std::string& path, const std::function<void(nlohmann::json&)>& change) {
  const io::Safetensors file = io::Safetensors::open(path);
  std::vector<io::NamedBytes> tensors;
  std::string plans;
  for (const io::TensorFile::Entry& entry : file.entries()) {
    std::span<const std::byte> bytes = file.bytes(entry);
    Type type = entry.type;
    if (entry.name == io::seal_name) continue;
    if (entry.name == "weft/plans.json") {
      nlohmann::json all =
          io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      change(all);
      plans = all.dump();
      bytes = std::as_bytes(std::span(plans));
      type.shape = {std::ssize(plans)};
    }
    tensors.push_back({.name = entry.name, .type = type, .bytes = bytes});
  }
  io::write_sealed_safetensors(path, std::move(tensors));
}
}  // namespace

TEST_CASE("an artifact computes what the step computed, bit for bit") {
  const TemporaryFolder folder;
  const Net net(1);
  CompiledStep step = step_of(net);
  const Tensor x = pictures();
  const std::vector<double> want = results_of(step, x);
  const std::string path = folder.file("net.weft");
  for (const std::string& weights : {std::string(), folder.file("net.safetensors")}) {
    artifact::write_artifact(path, compiled(step, x, net), weights);
    const Artifact read = artifact::read_artifact(path);
    CHECK(results_of(read, x) == want);
    CHECK(read.kind == "net");
    CHECK(read.about == "{\"outputs\":[\"logits\"]}");
    REQUIRE(read.files.size() == 1);
    CHECK(read.files[0].contents == "{}");
  }
}

TEST_CASE("one plan serves two sets of weights") {
  const TemporaryFolder folder;
  const Net first(1), second(2);
  CompiledStep of_first = step_of(first), of_second = step_of(second);
  const Tensor x = pictures();
  const std::string path = folder.file("net.weft"), other = folder.file("other.weft");
  const std::string weights = folder.file("1.safetensors"), others = folder.file("2.safetensors");
  artifact::write_artifact(path, compiled(of_first, x, first), weights);
  artifact::write_artifact(other, compiled(of_second, x, second), others);
  CHECK(results_of(artifact::read_artifact(path, {.weights = others}), x) ==
        results_of(of_second, x));
  // The weights of both are in memory at once.
  const Artifact a = artifact::read_artifact(path),
                 b = artifact::read_artifact(path, {.weights = others});
  CHECK(results_of(a, x) == results_of(of_first, x));
  CHECK(results_of(b, x) == results_of(of_second, x));
}

TEST_CASE("weights inside are replaced by those of another file, and derived values with them") {
  const TemporaryFolder folder;
  const Net first(1), second(2);
  CompiledStep of_first = step_of(first), of_second = step_of(second);
  const Tensor x = pictures();
  const std::string path = folder.file("net.weft"), weights = folder.file("2.safetensors");
  artifact::write_artifact(path, compiled(of_first, x, first));
  io::save_safetensors(weights, io::state_of(second));
  CHECK(results_of(artifact::read_artifact(path, {.weights = weights}), x) ==
        results_of(of_second, x));
}

TEST_CASE("a sealed artifact whose parts do not fit each other is refused with one line") {
  const TemporaryFolder folder;
  const Net net(1);
  CompiledStep step = step_of(net);
  const Tensor x = pictures();
  const std::string path = folder.file("net.weft");
  const auto refused = [&](const std::function<void(nlohmann::json&)>& change) {
    artifact::write_artifact(path, compiled(step, x, net));
    edit(path, change);
    return refusal_of(path, ErrorKind::checkpoint);
  };
  const auto plan_of = [](nlohmann::json& all) -> nlohmann::json& {
    return all["programs"][0]["plan"];
  };
  const auto slot_of = [&](nlohmann::json& all, const std::string& space) -> nlohmann::json& {
    for (nlohmann::json& slot : plan_of(all)["slots"])
      if (slot["space"] == space) return slot;
    FAIL("no slot is in ", space);
    return all;
  };
  CHECK(refused([&](auto& all) { slot_of(all, "state")["bytes"] = 1 << 30; }) != "");
  CHECK(refused([&](auto& all) { slot_of(all, "state").erase("value"); }) != "");
  CHECK(refused([&](auto& all) { slot_of(all, "arena")["offset"] = int64_t{1} << 40; }) != "");
  CHECK(refused([&](auto& all) { slot_of(all, "arena")["offset"] = 4; }) != "");
  CHECK(refused([&](auto& all) { plan_of(all)["arena_bytes"] = 0; }) != "");
  CHECK(refused([&](auto& all) { plan_of(all)["inputs"][0]["strides"] = {0, 0, 0, 0}; }) != "");
  CHECK(refused([&](auto& all) { plan_of(all)["outputs"][0]["strides"] = {0, 0}; }) != "");
  CHECK(refused([](auto& all) { all["variables"][0]["type"] = {"f32", int64_t{1} << 62}; }) != "");
  CHECK(refused([](auto& all) {
          for (auto& variable : all["variables"])
            if (variable.contains("expression")) variable["expression"]["sources"] = {{99, 0}};
        }) != "");
  CHECK(refused([](auto& all) {
          for (auto& variable : all["variables"])
            if (variable.contains("expression")) variable["expression"]["sources"].clear();
        }) != "");
  CHECK(refused([](auto& all) { all["weights"] = "/etc/passwd"; }) != "");
  CHECK(refused([](auto&) {}) == "");
}

TEST_CASE("an artifact that was cut or changed at any byte is refused") {
  const Variable factor("factor", {DType::f32, {2}});
  CompiledStep step(
      [&](std::span<const Tensor> in) -> std::vector<Tensor> { return {in[0] * factor}; },
      {.mode = Mode::eval});
  const Tensor x = full({2}, 3.0).eval();
  const TemporaryFolder folder;
  const std::string path = folder.file("small.weft");
  artifact::write_artifact(path, compiled(step, x));
  const std::shared_ptr<Buffer> whole = io::map_file(path);
  const std::vector<std::byte> bytes(whole->data, whole->data + whole->bytes);
  const auto is_refused = [](std::span<const std::byte> changed) {
    try {
      artifact::plans_in(changed, "small.weft");
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::checkpoint &&
             std::string_view(error.what()).find('\n') == std::string_view::npos;
    }
  };
  CHECK(artifact::plans_in(bytes, "small.weft").size() == 1);
  int accepted = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> changed = bytes;
    changed[i] ^= std::byte{1};
    accepted += is_refused(changed) ? 0 : 1;
    accepted += is_refused(std::span(bytes).first(i)) ? 0 : 1;
  }
  CHECK(accepted == 0);
}

TEST_CASE("an artifact of another version, machine or model is refused with one line") {
  const TemporaryFolder folder;
  const Net net(1);
  CompiledStep step = step_of(net);
  const Tensor x = pictures();
  const std::string path = folder.file("net.weft"), weights = folder.file("net.safetensors");
  const auto refused = [&](ErrorKind kind, const std::function<void(nlohmann::json&)>& change) {
    artifact::write_artifact(path, compiled(step, x, net), weights);
    edit(path, change);
    std::string message = refusal_of(path, kind);
    REQUIRE(message.starts_with(path + ": "));
    return message.substr(path.size() + 2);
  };
  CHECK(refused(ErrorKind::checkpoint, [](auto& all) {
          all["version"] = "0.0.1";
        }).starts_with("weft 0.0.1 compiled it, and this is "));
  CHECK(refused(ErrorKind::checkpoint, [](auto& all) { all["format"] = 99; }) ==
        "it has format 99; this version of weft reads 1.");
  CHECK(refused(ErrorKind::device, [](auto& all) {
          all["target"]["machine"] = "a Z80";
        }).starts_with("it was compiled for a Z80. This machine is "));
  CHECK(refused(ErrorKind::device, [](auto& all) { all["target"]["threads"] = 99; }) ==
        fmt::format("it was compiled for 99 threads, and here are {}. Hint: WEFT_THREADS=99.",
                    thread_count()));
  CHECK(refused(ErrorKind::device, [](auto& all) {
          all["target"]["device"] = "abacus";
        }).starts_with("it was compiled for the device abacus"));
  CHECK(refused(ErrorKind::checkpoint, [](auto& all) { all.erase("programs"); }) ==
        "programs is missing.");
}

TEST_CASE("machine code runs where this user signed it, or trusts it") {
  const TemporaryFolder folder;
  library("cpu").compiler().collect_code();
  const Variable factor("factor", {DType::f32, {1003}});
  factor.assign(full({1003}, 2.0));
  CompiledStep step(
      [&](std::span<const Tensor> in) -> std::vector<Tensor> { return {exp(in[0] * factor)}; },
      {.mode = Mode::eval});
  const Tensor x = full({1003}, 0.5).eval();
  const std::vector<double> want = results_of(step, x);
  const std::string path = folder.file("small.weft");
  artifact::write_artifact(path, compiled(step, x));
  const auto notes_of = [&](const artifact::ReadOptions& options) {
    const test::Captured errors(2);
    CHECK(results_of(artifact::read_artifact(path, options), x) == want);
    return errors.text();
  };
  CHECK(notes_of({}) == "");
  edit(path, [](auto& all) { all["signature"] = std::string(64, '0'); });
  CHECK(notes_of({}) ==
        fmt::format("weft: note: {}: this user did not sign its machine code, so its kernels are "
                    "compiled again. Hint: --trust runs it.\n",
                    path));
  CHECK(notes_of({.trust = true}) == "");
}

TEST_CASE("weights of another model are refused") {
  const TemporaryFolder folder;
  const Net net(1);
  CompiledStep step = step_of(net);
  const Tensor x = pictures();
  const std::string path = folder.file("net.weft");
  artifact::write_artifact(path, compiled(step, x, net), folder.file("net.safetensors"));
  const std::string other = folder.file("other.safetensors");
  const Variable alone("conv.weight", {DType::f32, {8, 3, 3, 3}});
  io::save_safetensors(other, std::array{alone});
  const std::string refusal = refusal_of(path, ErrorKind::checkpoint, {.weights = other});
  CHECK_MESSAGE(refusal.find("does not fit: 7 missing ('conv.bias', ") != std::string::npos,
                refusal);
  std::filesystem::remove(folder.file("net.safetensors"));
  CHECK(refusal_of(path, ErrorKind::checkpoint).find("net.safetensors") != std::string::npos);
}
}  // namespace weft::testing
