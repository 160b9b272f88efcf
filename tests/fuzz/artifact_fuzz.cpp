// Fuzzes the reader of compiled models. An input is the digit of a compiled step, then the JSON of
// the model and of its program, a line each; the tensors, the machine and the checksum of the file
// are those of the step, so that inputs reach what is behind them. Whatever is accepted must be
// printable and within its memory.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"
#include "weft/artifact/artifact.h"
#include "weft/base/memory/storage.h"
#include "weft/base/numbers/hash.h"
#include "weft/core.h"
#include "weft/io/json.h"
#include "weft/io/safetensors.h"
#include "weft/nn/layers.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"

using namespace weft;

namespace {
using nlohmann::json;
constexpr const char *model_name = "weft/model.json", *program_name = "weft/program/0.json";

// A StepFile is the file of a compiled step, in parts.
struct StepFile {
  json header = json::object();  // of all tensors that inputs do not have
  std::string elements;
  std::string model, program;  // JSON, `model` without `here`
  std::string here;            // the JSON of a model for this machine and version, without its '}'

  explicit StepFile(CompiledStep step, const Type& input, std::vector<Variable> weights = {}) {
    Executable& executable = step.prepare(std::array{input});
    executable.settle_variables();
    const artifact::Artifact made{.kind = "net",
                                  .about = "{}",
                                  .programs = {{.name = "forward", .bound = executable.bound()}},
                                  .weights = std::move(weights),
                                  .files = {{"tokenizer.json", "{}"}}};
    const std::string path = fmt::format("{}/artifact_fuzz.{}", fuzz::memory_folder, getpid());
    artifact::write_artifact(path, made);
    take(io::Safetensors::open(path));
    std::filesystem::remove(path);
  }

  // Returns a sealed file with this JSON.
  std::string with(std::string_view model_json, std::string_view program_json) const {
    std::string bytes = elements;
    json all = header;
    const auto add = [&](const std::string& name, std::string_view text) {
      all[name] = {{"dtype", "U8"},
                   {"shape", {text.size()}},
                   {"data_offsets", {bytes.size(), bytes.size() + text.size()}}};
      bytes += text;
    };
    std::string whole_model = here;
    if (model_json.starts_with('{')) whole_model.append(",").append(model_json.substr(1));
    add(model_name, whole_model);
    add(program_name, program_json);
    add(std::string(io::seal_name), std::string(8, '\0'));
    std::string text = all.dump();
    text.resize((8 + text.size() + 63) / 64 * 64 - 8, ' ');
    std::string file = number(text.size()) + text + bytes;
    file.resize(file.size() - 8);
    return file += number(hash_bytes(file.data(), file.size()));
  }
  std::string input(size_t digit) const { return fmt::format("{}{}\n{}", digit, model, program); }

 private:
  static std::string number(uint64_t value) {
    std::string bytes(8, '\0');
    for (char& byte : bytes) byte = static_cast<char>(value), value >>= 8;
    return bytes;
  }
  void take(const io::Safetensors& file) {
    const auto text_of = [&](const char* name) {
      const std::span<const std::byte> bytes = file.bytes(*file.find(name));
      return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    const std::string whole(reinterpret_cast<const char*>(file.bytes().data()),
                            file.bytes().size());
    uint64_t size = 0;
    std::memcpy(&size, whole.data(), sizeof size);
    const json names = json::parse(whole.substr(8, size));
    auto entries = file.entries();
    std::ranges::sort(entries, {}, &io::TensorFile::Entry::offset);
    for (const auto& entry : entries) {
      if (entry.name == model_name || entry.name == program_name || entry.name == io::seal_name)
        continue;
      json kept = names.at(entry.name);
      kept["data_offsets"] = {elements.size(), elements.size() + entry.type.bytes()};
      header[entry.name] = kept;
      elements += whole.substr(entry.offset, entry.type.bytes());
    }
    json all = json::parse(text_of(model_name)), same = json::object();
    for (const char* key : {"format", "version", "target"}) {
      same[key] = all[key];
      all.erase(key);
    }
    model = all.dump(), program = text_of(program_name);
    here = same.dump();
    here.pop_back();
  }
};

// Returns a product, a reduction, a view and an assignment.
StepFile small_step() {
  const Variable weight("weight", {DType::f32, {4, 3}}), sum("sum", {DType::f32, {}});
  return StepFile({[=](std::span<const Tensor> in) -> std::vector<Tensor> {
                     const Tensor y = relu(matmul(in[0], weight.value()));
                     sum.assign(sum.value() + y.sum());
                     return {transpose(y)};
                   },
                   {.mode = Mode::eval}},
                  {DType::f32, {2, 4}}, {weight});
}
// Returns a convolution whose weights are those of a batch norm, too: an expression derives them.
StepFile folded_step() {
  struct Net : nn::Module {
    nn::Conv2d conv{*this, "conv", 2, 2, 3};
    nn::BatchNorm norm{*this, "norm", 2};
  };
  const auto net = std::make_shared<Net>();
  return StepFile({[net](std::span<const Tensor> in) -> std::vector<Tensor> {
                     return {net->norm(net->conv(in[0]))};
                   },
                   {.mode = Mode::eval}},
                  {DType::f32, {1, 2, 4, 4}}, net->variables());
}
// Returns a product that reads a copy of its weight in bf16, and a constant.
StepFile narrow_step() {
  const Variable weight("weight", {DType::f32, {32, 32}});
  return StepFile({[=](std::span<const Tensor> in) -> std::vector<Tensor> {
                     const Tensor shift = tensor({1.0, 2.0, 3.0, 4.0}, {4, 1});
                     return {matmul(in[0], weight.value()) + shift};
                   },
                   {.mode = Mode::eval, .precision = Precision::bf16_mixed}},
                  {DType::f32, {4, 32}}, {weight});
}

const std::vector<StepFile> files = {small_step(), folded_step(), narrow_step()};
const std::string valid[] = {files[0].input(0), files[1].input(1), files[2].input(2)};

// Replaces one number or one name of a JSON text by another, which leaves it JSON.
size_t replace_token(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto random = [&seed](size_t count) {
    seed = seed * 1664525U + 1013904223U;
    return (seed >> 8) % std::max<size_t>(count, 1);
  };
  const auto is_number = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  // Returns the first token from a random place on, as its begin and its end.
  const auto token = [&](bool numbers) -> std::pair<size_t, size_t> {
    const size_t from = 1 + random(size);
    const size_t begin = text.find_first_of(numbers ? "0123456789" : "\"", from);
    if (begin == std::string::npos) return {0, 0};
    size_t end = begin + 1;
    while (end < size && (numbers ? is_number(text[end]) : text[end] != '"')) ++end;
    return {begin, std::min(size, numbers ? end : end + 1)};
  };
  constexpr std::string_view edges[] = {"0",
                                        "1",
                                        "-1",
                                        "2",
                                        "7",
                                        "64",
                                        "255",
                                        "4294967295",
                                        "2147483648",
                                        "1099511627776",
                                        "9223372036854775807",
                                        "18446744073709551615",
                                        "0.5",
                                        "1e308",
                                        "null",
                                        "[]",
                                        "{}",
                                        "true"};
  const bool numbers = random(3) > 0;
  const auto [begin, end] = token(numbers);
  const auto [from, to] = token(numbers);
  const std::string put = numbers && random(2) == 0 ? std::string(edges[random(std::size(edges))])
                                                    : text.substr(from, to - from);
  const std::string changed = text.substr(0, begin) + put + text.substr(end);
  if (end == 0 || changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::ranges::copy(changed, data);
  return changed.size();
}

void touch(const std::shared_ptr<Storage>& storage) {
  if (storage == nullptr || storage->buffer() == nullptr) return;
  fuzz::touch({storage->buffer()->data, storage->buffer()->bytes});
}
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  if (size >= 4 && seed % 4 != 0) return replace_token(data, size, max_size, seed);
  return fuzz::mutate(valid, data, size, max_size, seed / 4);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n');
  if (line == std::string_view::npos || line == 0) return 0;
  const StepFile& step = files[static_cast<uint8_t>(text[0]) % files.size()];
  const std::string file = step.with(text.substr(1, line - 1), text.substr(line + 1));
  fuzz::expect_value_or_error({ErrorKind::checkpoint, ErrorKind::device}, [&] {
    const artifact::OpenArtifact opened = artifact::open_artifact(
        fuzz::exact_copy(reinterpret_cast<const uint8_t*>(file.data()), file.size()), "input");
    for (const std::string& program : opened.programs) {
      const BoundPlan bound = opened.read(program);
      if (to_text(bound.plan).empty()) std::abort();
      for (const auto& variable : bound.bindings.variables) touch(variable->storage);
      for (const auto& constant : bound.bindings.constants) touch(constant);
    }
  });
  return 0;
}
