// Tests the verbs on files of weights: inspect and convert.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include "weft/data/tokenizer/tokenizer.h"
#include "weft/io/load.h"
#include "weft/io/npy.h"
#include "weft/io/safetensors.h"
#include "weft/io/text.h"
#include "weft/models/config_json.h"
#include "weft/models/model.h"
#include "weft/models/pretrained.h"
#include "weft/onnx/export/export.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {
using Doubles = std::vector<double>;

Variable variable(std::string name, const Type& type, const Doubles& elements) {
  Variable made(std::move(name), type);
  for (size_t i = 0; i < elements.size(); ++i)
    store(made.bytes().data(), type.dtype, static_cast<int64_t>(i), elements[i]);
  return made;
}

// Weights has a model of three layers, one of them with an extra tensor, in a file.
struct Weights : Workplace {
  Weights() {
    std::vector<Variable> model{Variable("embed.weight", {DType::bf16, {10, 4}}),
                                Variable("layers.2.extra", {DType::f32, {2}})};
    for (int layer = 0; layer < 3; ++layer) {
      const std::string name = "layers." + std::to_string(layer);
      model.emplace_back(name + ".weight", Type{DType::bf16, {4, 4}});
      for (int expert = 0; expert < 2; ++expert)
        model.emplace_back(name + ".experts." + std::to_string(expert), Type{DType::f32, {4}});
    }
    // These names lack pairs of numbers, such as "odd.0.1": their rows are not merged.
    model.emplace_back("odd.0.0", Type{DType::f32, {1}});
    model.emplace_back("odd.1.1", Type{DType::f32, {1}});
    io::save_safetensors(path("m.safetensors"), model);
  }
};

// Returns the first word of each line after the title that begins with "tensor".
std::vector<std::string> tensors_in(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream lines(text.substr(std::min(text.size(), text.find("\ntensor ") + 1)));
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line);)
    names.push_back(line.substr(0, line.find(' ')));
  return names;
}

Doubles elements_of(const std::string& path, const std::string& name) {
  return io::Safetensors::open(path).tensor(name).to_doubles();
}
}  // namespace

TEST_CASE("inspect groups tensors whose names differ by numbers alone") {
  const Weights place;
  const Outcome outcome = place.weft({"inspect", "m.safetensors"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.starts_with("m.safetensors: 13 tensors, 116 parameters, 288 B\n"));
  CHECK(outcome.out.find("format: pt\n") != std::string::npos);
  CHECK(tensors_in(outcome.out) ==
        std::vector<std::string>{"embed.weight", "layers.{0..2}.experts.{0..1}",
                                 "layers.{0..2}.weight", "layers.2.extra", "odd.0.0", "odd.1.1"});
  const std::vector<std::string> each =
      tensors_in(place.weft({"inspect", "m.safetensors", "--all"}).out);
  CHECK(each.size() == 13);
  CHECK(each[1] == "layers.0.experts.0");
}

TEST_CASE("inspect counts the zeros of pruned weights") {
  Workplace place;
  const auto add = [](std::vector<io::NamedBytes>& tensors, const std::string& name,
                      const Tensor& tensor) {
    const auto* bytes = static_cast<const std::byte*>(tensor->data());
    tensors.push_back({name, tensor.type(), {bytes, tensor.type().bytes()}});
  };
  const Tensor half = tensor({0, -0.0, 3, 1e-45}, {2, 2}, DType::f32).eval(),
               whole = tensor({1, 2}, {2}, DType::bf16).eval(),
               numbers = tensor(std::vector<int64_t>{0, 1}, {2}).eval();
  std::vector<io::NamedBytes> tensors;
  add(tensors, "a.0", half);
  add(tensors, "a.1", half);
  add(tensors, "b", whole);
  add(tensors, "c", numbers);
  io::write_safetensors(place.path("m.safetensors"), tensors);
  const json report = json_of(place.weft({"inspect", "m.safetensors", "--zeros", "--json"}));
  CHECK(report["zeros"] == 4);
  std::map<std::string, json> zeros;
  for (const json& entry : report["tensors"]) zeros[entry["name"]] = entry.value("zeros", json());
  CHECK(zeros == std::map<std::string, json>{{"a.0", 2}, {"a.1", 2}, {"b", 0}, {"c", json()}});
  const std::string table = place.weft({"inspect", "m.safetensors", "--zeros"}).out;
  CHECK(table.find("zeros: 33.3 %\n") != std::string::npos);
  CHECK(table.find("50.0 %") != std::string::npos);
  CHECK(!json_of(place.weft({"inspect", "m.safetensors", "--json"})).contains("zeros"));
}

TEST_CASE("inspect reports in JSON, a folder with its shards") {
  const Weights place;
  REQUIRE(
      place.weft({"convert", "m.safetensors", "m", "--to", "hf", "--max-shard-size", "200"}).code ==
      0);
  const json file = json_of(place.weft({"inspect", "m.safetensors", "--json"}));
  const json folder = json_of(place.weft({"inspect", "m", "--json"}));
  for (const json& report : {file, folder}) {
    CHECK(report["elements"] == 116);
    CHECK(report["bytes"] == 288);
    CHECK(report["metadata"] == json{{"format", "pt"}});
    CHECK(report["dtypes"] == json{{"bf16", {{"tensors", 4}, {"elements", 88}, {"bytes", 176}}},
                                   {"f32", {{"tensors", 9}, {"elements", 28}, {"bytes", 112}}}});
    REQUIRE(report["tensors"].size() == 13);
    CHECK(report["tensors"][0]["name"] == "embed.weight");
    CHECK(report["tensors"][0]["dtype"] == "bf16");
    CHECK(report["tensors"][0]["shape"] == json{10, 4});
    CHECK(report["tensors"][0]["bytes"] == 80);
  }
  REQUIRE(folder["files"].size() == 2);
  CHECK(folder["files"][1]["file"] == "m/model-00002-of-00002.safetensors");
  CHECK(folder["files"][0]["bytes"].get<int>() + folder["files"][1]["bytes"].get<int>() == 288);
  CHECK(file["files"].size() == 1);
  CHECK(file["file"] == "m.safetensors");
}

TEST_CASE("inspect lists the tensors and the metadata of a GGUF file") {
  const Workplace place;
  const std::string reference = "tests/reference/gguf/every_type.gguf";  // of the gguf package
  fs::copy_file(reference, place.path("m.gguf"));
  const Outcome outcome = place.weft({"inspect", "m.gguf"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.starts_with("m.gguf: 12 tensors, 3.8k parameters, 2.7 KiB\n"));
  for (const char* line :
       {"a.f32: 0.1\n", "a.flags: [true, false]\n", "a.i64: -4611686018427387904\n",
        "a.text: zwölf\\x0a\n", "a.texts: [a, , ccc]\n", "a.u64: 9223372036854775809\n"})
    CHECK_MESSAGE(outcome.out.find(line) != std::string::npos, line);
  const json report = json_of(place.weft({"inspect", "m.gguf", "--json"}));
  CHECK(report["metadata"]["a.texts"] == json{"a", "", "ccc"});
  CHECK(report["metadata"]["a.u8"] == 200);
  CHECK(report["dtypes"]["Q4_K"] == json{{"tensors", 1}, {"elements", 1024}, {"bytes", 576}});
  CHECK(report["tensors"][4] == json{{"name", "blocks.Q8_0"},
                                     {"dtype", "Q8_0"},
                                     {"bytes", 136},
                                     {"shape", {2, 64}},
                                     {"file", "m.gguf"}});
}

TEST_CASE("a folder of shards converts back to the same file") {
  const Weights place;
  for (const char* size : {"1", "100", "5GB"}) {
    REQUIRE(place.weft({"convert", "m.safetensors", "m", "--to", "hf", "--max-shard-size", size})
                .code == 0);
    const json said =
        json_of(place.weft({"convert", "m", "again.safetensors", "--to", "safetensors", "--json"}));
    CHECK(said == json{{"path", "again.safetensors"}, {"tensors", 13}, {"bytes", 288}});
    CHECK(place.read("again.safetensors") == place.read("m.safetensors"));
    fs::remove_all(place.path("m"));
    fs::remove(place.path("again.safetensors"));
  }
}

TEST_CASE("convert rounds floating-point weights to the nearest value of a type") {
  const Workplace place;
  const double infinity = std::numeric_limits<double>::infinity();
  // IEEE 754: bf16 has 8 and f16 11 bits of precision; ties go to the even one.
  const std::vector model{variable("w", {DType::f32, {5}},
                                   {1 + 1. / 256, 1 + 3. / 256, -1.0009765625, 65504, infinity}),
                          variable("d", {DType::f64, {1}}, {1 + 1. / 256 + 1e-15}),
                          variable("n", {DType::i64, {1}}, {1 << 20})};
  io::save_safetensors(place.path("m.safetensors"), model);
  for (const char* type : {"bf16", "f16", "f32"}) {
    const std::string out = place.path(type);
    const Outcome converted =
        place.weft({"convert", "m.safetensors", out, "--to", "safetensors", "--dtype", type});
    REQUIRE(converted.code == 0);
    CHECK(converted.err == "weft: warning: m.safetensors: \"w\" has 1 infinite of 5 numbers.\n");
    CHECK(elements_of(out, "n") == Doubles{1 << 20});
  }
  CHECK(elements_of(place.path("bf16"), "w") == Doubles{1, 1 + 4. / 256, -1, 65536, infinity});
  CHECK(elements_of(place.path("bf16"), "d") == Doubles{1 + 2. / 256});  // rounded once
  CHECK(elements_of(place.path("f16"), "w") ==
        Doubles{1 + 1. / 256, 1 + 3. / 256, -1.0009765625, 65504, infinity});
  CHECK(elements_of(place.path("f32"), "d") == Doubles{1 + 1. / 256});
}

TEST_CASE("convert writes a folder with the files that other programs need") {
  const Weights place;
  REQUIRE(place.weft({"convert", "m.safetensors", "m", "--to", "hf"}).code == 0);
  place.write("m/config.json", R"({"z": 1, "torch_dtype": "bfloat16", "a": 2})");
  place.write("m/tokenizer.json", "{}");
  place.write("m/notes.txt", "mine");
  REQUIRE(place.weft({"convert", "m", "same", "--to", "hf"}).code == 0);
  CHECK(place.read("same/config.json") == place.read("m/config.json"));
  CHECK(place.read("same/tokenizer.json") == "{}");
  CHECK_FALSE(fs::exists(place.path("same/notes.txt")));
  REQUIRE(place.weft({"convert", "m", "narrow", "--to", "hf", "--dtype", "f16"}).code == 0);
  CHECK(place.read("narrow/config.json") ==
        "{\n  \"z\": 1,\n  \"torch_dtype\": \"float16\",\n  \"a\": 2\n}\n");
}

TEST_CASE("what weft prune writes is a net for every verb, by its folder") {
  const Workplace place;
  place.write("tiny.yaml",
              "name: tiny\nmodel: {name: mlp, config: {hidden_sizes: [8]}}\n"
              "data: {dataset: random-images, image_size: 4, classes: 4}\n"
              "train: {steps: 4, global_batch_size: 4}\neval: {batch_size: 4}\n"
              "pruning: {pattern: channels, begin_step: 2}\n"
              "quantization: {activations: static}\n");
  REQUIRE(place.weft({"train", "tiny.yaml"}).code == 0);
  REQUIRE(place.weft({"prune", "tiny", "small"}).code == 0);
  const json whole = json_of(place.weft({"eval", "tiny", "--json"}));
  const json narrow = json_of(place.weft({"eval", "small", "--json"}));
  CHECK(narrow["loss"].get<double>() == doctest::Approx(whole["loss"].get<double>()).epsilon(1e-4));
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"convert", "small", "converted.onnx", "--to", "onnx"},
        {"quantize", "small", "quantized.onnx", "--to", "int8"},
        {"profile", "small", "--steps", "1"},
        {"profile", "runs/tiny", "--steps", "1"},
        {"plan", "runs/tiny/checkpoints/latest"},
        {"config", "print", "small"},
        {"train", "small", "--name", "tuned"}}) {
    const Outcome outcome = place.weft(verb);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
  }
  const json plan = json_of(place.weft({"plan", "small", "--json"}));
  CHECK(plan["parameters"] < json_of(place.weft({"plan", "runs/tiny", "--json"}))["parameters"]);
}

TEST_CASE("a checkpoint converts by the name of its run") {
  const Workplace place;
  place.write("tiny.yaml",
              "name: tiny\nmodel: {name: mlp, config: {hidden_sizes: [4]}}\n"
              "data: {dataset: random-images, image_size: 2, classes: 2}\n"
              "train: {steps: 1, global_batch_size: 2}\n");
  const Outcome trained = place.weft({"train", "tiny.yaml"});
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  REQUIRE(place.weft({"convert", "tiny", "net.onnx", "--to", "onnx"}).code == 0);
  const Outcome listed = place.weft({"inspect", "net.onnx", "--zeros"});
  REQUIRE_MESSAGE(listed.code == 0, listed.err);
  CHECK(listed.out.starts_with("net.onnx: 5 tensors, 64 parameters, 264 B, zeros: "));
  for (const char* line :
       {"inputs: images f32[batch, 3, 2, 2]\n", "outputs: logits f32[batch, 2]\n",
        "operators: Gemm 2, Relu 1, Reshape 1\n"})
    CHECK_MESSAGE(listed.out.find(line) != std::string::npos, listed.out);
  REQUIRE(place.weft({"convert", "tiny", "out", "--to", "hf"}).code == 0);
  const std::string checkpoint = "runs/tiny/checkpoints/latest/";
  for (const char* name : {"model.safetensors", "config.json"})
    CHECK(place.read(std::string("out/") + name) == place.read(checkpoint + name));
  CHECK(json_of(place.weft({"inspect", "tiny", "--json"}))["tensors"].size() ==
        json_of(place.weft({"inspect", "out", "--json"}))["tensors"].size());
}

TEST_CASE("a run of an ONNX file converts to one with the names of its samples and logits") {
  const Workplace place;
  const std::string data =
      "data: {dataset: random-images, image_size: 2, classes: 2}\n"
      "train: {steps: 1, global_batch_size: 2}\n";
  place.write("tiny.yaml", "name: tiny\nmodel: {name: mlp, config: {hidden_sizes: [4]}}\n" + data);
  REQUIRE(place.weft({"train", "tiny.yaml"}).code == 0);
  REQUIRE(place.weft({"convert", "tiny", "net.onnx", "--to", "onnx"}).code == 0);
  onnx::Model model = onnx::read(place.path("net.onnx"));
  model.graph.inputs[0].name = "photo";
  model.graph.outputs[0].name = "scores";
  for (onnx::Node& node : model.graph.nodes) {
    std::ranges::replace(node.inputs, std::string("images"), std::string("photo"));
    std::ranges::replace(node.outputs, std::string("logits"), std::string("scores"));
  }
  onnx::write(model, place.path("renamed.onnx"));
  place.write("tuned.yaml", "name: tuned\nmodel: {pretrained: renamed.onnx}\n" + data);
  const Outcome trained = place.weft({"train", "tuned.yaml"});
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  REQUIRE(place.weft({"convert", "tuned", "tuned.onnx", "--to", "onnx"}).code == 0);
  io::write_npy(place.path("x.npy"), ones({1, 3, 2, 2}).eval());
  CHECK(place.weft({"run", "tuned", "--input", "photo=x.npy", "-o", "y.npz"}).code == 0);
  CHECK(io::read_npz(place.path("y.npz"))[0].name == "scores");
  const std::string listed = place.weft({"inspect", "tuned.onnx"}).out;
  for (const char* line :
       {"inputs: photo f32[batch, 3, 2, 2]\n", "outputs: scores f32[batch, 2]\n"})
    CHECK_MESSAGE(listed.find(line) != std::string::npos, listed);
}

TEST_CASE("runs of weft's own GPT and Llama convert to what transformers publishes") {
  for (const std::string model :
       {"gpt, config: {hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2}",
        "gpt, config: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, bias: false}",
        "llama, config: {hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, "
        "num_attention_heads: 2}"}) {
    CAPTURE(model);
    const Workplace place;
    place.write("tiny.yaml", "name: tiny\nmodel: {name: " + model +
                                 "}\n"
                                 "data: {dataset: random-tokens, classes: 12, seq_len: 8}\n"
                                 "train: {steps: 3, global_batch_size: 2}\noptimizer: {lr: 0.1}\n");
    const Outcome trained = place.weft({"train", "tiny.yaml"});
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    REQUIRE(place.weft({"convert", "tiny", "out", "--to", "hf"}).code == 0);
    REQUIRE(place.weft({"convert", "tiny", "narrow", "--to", "hf", "--dtype", "bf16"}).code == 0);

    const std::string name = model.substr(0, model.find(','));
    const std::string checkpoint = "runs/tiny/checkpoints/latest/";
    const nn::Options options =
        models::parse_options(place.read(checkpoint + "config.json"), "config.json");
    const auto own = make_model(name, options, {InputKind::tokens, {8}, 12});
    io::load(*own, place.path(checkpoint + "model.safetensors"));
    const models::Pretrained published = models::load_pretrained(place.path("out"));
    const Tensor tokens = tensor({3, 1, 4, 1, 5, 9, 2, 6}, {1, 8});
    const ModeScope eval(Mode::eval);
    const Doubles expected = (*own)(tokens).to_doubles();
    const Doubles found = (*published.model)(tokens).to_doubles();
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      CHECK(std::abs(found[i] - expected[i]) < 1e-5 * (1 + std::abs(expected[i])));

    const json config = json::parse(place.read("out/config.json"));
    CHECK(config["architectures"] ==
          json::array({name == "gpt" ? "GPT2LMHeadModel" : "LlamaForCausalLM"}));
    CHECK(config["torch_dtype"] == "float32");
    CHECK(json::parse(place.read("narrow/config.json"))["torch_dtype"] == "bfloat16");
    CHECK(models::load_pretrained(place.path("narrow")).dtype == DType::bf16);
    if (name != "gpt") continue;
    // The file has tensors as transformers saves GPT-2, biases of a model without any among them.
    const io::Safetensors file = io::Safetensors::open(place.path("out/model.safetensors"));
    CHECK(file.find("transformer.h.0.mlp.c_fc.weight")->type == Type{DType::f32, {16, 64}});
    CHECK(file.find("transformer.h.0.attn.c_attn.bias")->type == Type{DType::f32, {48}});
  }
}

TEST_CASE("a run converts with its vocabulary as a tokenizer of the same ids") {
  for (const std::string kind : {"characters", "bytes"}) {
    CAPTURE(kind);
    const Workplace place;
    std::string text = "Caf\u00e9 \u4e2d\U0001f600\n\t\"\\ ab";
    for (int i = 0; i < 6; ++i) text += text;
    place.write("text.txt", text);
    place.write("tiny.yaml",
                "name: tiny\nmodel: {name: gpt, config: {hidden_size: 8, num_hidden_layers: 1, "
                "num_attention_heads: 2}}\ndata: {format: text, path: text.txt, tokenizer: " +
                    kind + ", seq_len: 8}\ntrain: {steps: 1, global_batch_size: 2}\n");
    const Outcome trained = place.weft({"train", "tiny.yaml"});
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    REQUIRE(place.weft({"convert", "tiny", "out", "--to", "hf"}).code == 0);
    const auto own =
        io::Vocabulary::load(place.path("runs/tiny/checkpoints/latest/vocabulary.json"));
    const data::Tokenizer tokenizer = data::Tokenizer::load(place.path("out"));
    const std::vector<int32_t> ids = own.encode(text);
    CHECK(own.kind() == kind);
    CHECK(tokenizer.size() == own.size());
    CHECK(tokenizer.encode(text) == ids);
    CHECK(tokenizer.decode(ids) == text);
    const Outcome generated =
        place.weft({"generate", "out", "--prompt", "Caf", "--max-new-tokens", "4"});
    CHECK_MESSAGE(generated.code == 0, generated.err);
  }
}

TEST_CASE("convert writes a GGUF file as a folder whose weights are numbers, with its logits") {
  const Workplace place;
  fs::copy_file("tests/reference/gguf/models/llama_q8_0.gguf", place.path("m.gguf"));
  const auto logits = [&](const std::string& model, std::optional<DType> dtype = {}) {
    const models::Pretrained read = models::load_pretrained(place.path(model), {.dtype = dtype});
    auto forward = compile([&](Tensor x) { return (*read.model)(x); }, {.mode = Mode::eval});
    return forward(tensor({{1, 5, 9, 2}})).to_doubles();
  };
  const Doubles want = logits("m.gguf");
  for (const std::string dtype : {"", "bf16"}) {
    std::vector<std::string> words = {"convert", "m.gguf", "folder" + dtype, "--to", "hf"};
    if (!dtype.empty()) words.insert(words.end(), {"--dtype", dtype});
    REQUIRE(place.weft(words).code == 0);
    const json config = json::parse(place.read("folder" + dtype + "/config.json"));
    CHECK(config.at("torch_dtype") == (dtype.empty() ? "float32" : "bfloat16"));
    CHECK(config.at("architectures") == json{"LlamaForCausalLM"});
    CHECK(!config.contains("quantization_config"));
    const Doubles got = logits("folder" + dtype);
    REQUIRE(got.size() == want.size());
    if (!dtype.empty())
      CHECK(got == logits("folder", DType::bf16));
    else
      for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - want[i]) <= 1e-4);
  }
}
