// Tests files and folders of weights that inspect and convert refuse.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "tests/error/tiny_run.h"
#include "tests/support/temporary_folder.h"
#include "weft/io/safetensors.h"

using namespace weft::test;
using namespace std::string_literals;
namespace fs = std::filesystem;

namespace {
constexpr const char* index_file = "m/model.safetensors.index.json";
constexpr const char* first = "model-00001-of-00002.safetensors";
constexpr const char* second = "model-00002-of-00002.safetensors";

// Shards has a folder "m" of two shards with one tensor each, "a" and "b".
struct Shards : Workplace {
  Shards() {
    write("m/config.json", "{}");
    save({"a"}, first);
    save({"b"}, second);
    write_index(first, second);
  }
  void save(const std::vector<std::string>& tensors, const std::string& shard) const {
    std::vector<weft::Variable> variables;
    for (const std::string& tensor : tensors) {
      variables.emplace_back(tensor, weft::Type{weft::DType::f32, {2}});
      variables.back().floats()[0] = 1e5F;
    }
    weft::io::save_safetensors(path("m/" + shard), variables);
  }
  void write_index(const std::string& of_a, const std::string& of_b) const {
    write(index_file, R"({"weight_map": {"a": ")" + of_a + R"(", "b": ")" + of_b + "\"}}");
  }
  std::string refuses(int code, const std::string& message) const {
    const std::string inspected = fails_with(weft({"inspect", "m"}), code, message);
    if (!inspected.empty()) return inspected;
    const std::string converted =
        fails_with(weft({"convert", "m", "out", "--to", "hf"}), code, message);
    return fs::exists(path("out")) ? "out was written" : converted;
  }
};
}  // namespace

TEST_CASE("an index of shards that is malformed or misleads is refused") {
  const Shards place;
  REQUIRE(place.weft({"inspect", "m"}).code == 0);
  const std::string name = index_file;
  const std::vector<std::pair<std::string, std::string>> indices = {
      {"", name + ": not JSON: it ends too early, at line 1, column 1."},
      {"{\n  \"weight_map\": {\"a\" 1}}",
       name + ": not JSON: there is a mistake at line 2, column"},
      {"{}", name + ": weight_map is missing."},
      {R"({"weight_map": {"a": 3}})", name + ": weight_map has 3 for 'a', which is no file name."},
      {R"({"weight_map": {"a": "../other.safetensors"}})",
       name + ": weight_map places 'a' in '../other.safetensors', which is no name of a "
              "safetensors file."},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "in '/etc/passwd', which is no name"}};
  for (const auto& [text, message] : indices) {
    place.write(index_file, text);
    CHECK(place.refuses(data_code, message) == "");
  }
  place.write_index(second, second);
  CHECK(place.refuses(data_code,
                      "weight_map places 'a' in model-00002-of-00002.safetensors, which "
                      "does not hold it.") == "");
}

TEST_CASE("shards that are missing, truncated, overlapping or elsewhere are refused by name") {
  const Shards place;
  const std::string path = std::string("m/") + second, whole = place.read(path);
  place.write(path, whole.substr(0, whole.size() - 3));
  CHECK(place.refuses(data_code, path + ": tensor 'b' ends at byte 8 of 5; the file is truncated "
                                        "or damaged.") == "");
  const std::string overlap = R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                              R"("c":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(overlap.size());
  place.write(path, bytes + overlap + "xy");
  CHECK(place.refuses(data_code, path + ": tensors 'b' and 'c' overlap at byte 1.") == "");
  place.save({"a"}, second);
  CHECK(place.refuses(data_code, "m: tensor 'a' is in two shards, ") == "");
  fs::remove(place.path(path));
  CHECK(place.refuses(data_code, path + " is missing. m/model.safetensors.index.json places 'b' in "
                                        "it.") == "");
  place.write("elsewhere", whole);
  fs::create_symlink(place.path("elsewhere"), place.path(path));
  CHECK(place.refuses(data_code, path + " is a link that leaves its folder, to ") == "");
}

TEST_CASE("tensors that the index does not name are read with a warning") {
  const Shards place;
  place.save({"a", "c", "d"}, first);
  CHECK(goes_on_with(place.weft({"inspect", "m"}),
                     "m/model.safetensors.index.json does not name 2 of the tensors in its shards: "
                     "'c', ...") == "");
}

TEST_CASE("what is no model is refused, and pickles are named as such") {
  const Workplace place;
  fs::create_directory(place.path("m"));
  for (const char* model : {"m", "nothing"})
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"inspect", model}, {"convert", model, "out", "--to", "hf"}})
      CHECK(fails_with(place.weft(command), usage,
                       model == std::string("m")
                           ? "m is no folder of a model: it has neither model.safetensors nor "
                             "model.safetensors.index.json."
                           : "nothing: there is no such file or folder.") == "");
  place.write("m/pytorch_model.bin", "PK\x03\x04");
  for (const char* model : {"m", "m/pytorch_model.bin"})
    CHECK(fails_with(place.weft({"inspect", model}), usage,
                     "m/pytorch_model.bin is a pickle of PyTorch, a program that would run when it "
                     "is read") == "");
  place.write("text", "no safetensors");
  CHECK(fails_with(place.weft({"inspect", "text"}), data_code, "not a safetensors file") == "");
}

TEST_CASE("GGUF files that are cut, or of types that are not read, are refused by name") {
  const Workplace place;
  const std::string whole = contents_of("tests/reference/gguf/every_type.gguf");
  place.write("m.gguf", whole.substr(0, 471));
  CHECK(fails_with(
            place.weft({"inspect", "m.gguf"}), data_code,
            "[gguf] m.gguf: metadata 'a.fractions': 2 elements of at least 4 bytes, but 2 bytes "
            "follow; the file is truncated or damaged.") == "");
  for (const size_t bytes : {0, 3, 7})
    for (const char* verb : {"inspect", "generate"}) {
      place.write("m.gguf", whole.substr(0, bytes));
      std::vector<std::string> command = {verb, "m.gguf"};
      if (verb == std::string("generate")) command.insert(command.end(), {"--prompt", "A"});
      CHECK(fails_with(place.weft(command), data_code,
                       fmt::format("beyond the file's {}; the file is truncated or damaged.",
                                   bytes)) == "");
    }
  CHECK(fails_with(place.weft({"generate", "none.gguf", "--prompt", "A"}), data_code,
                   "cannot open none.gguf: ") == "");
  place.write("text.gguf", "no GGUF");
  CHECK(fails_with(place.weft({"inspect", "text.gguf"}), data_code,
                   "[gguf] text.gguf: it does not begin with 'GGUF': not a GGUF file.") == "");
  // The type of the first tensor follows its name, its rank and two extents.
  std::string other = whole;
  const std::string name = "plain.F32";
  other[other.find(name) + name.size() + 4 + 16] = 10;
  place.write("m.gguf", other);
  CHECK(fails_with(place.weft({"inspect", "m.gguf"}), data_code,
                   "[gguf] m.gguf: tensor 'plain.F32': weft does not read type 10 (Q2_K).") == "");
}

TEST_CASE("a GGUF file that is no model of weft's, or is changed, is refused") {
  const Workplace place;
  const std::string whole = contents_of("tests/reference/gguf/models/llama_q8_0.gguf");
  // Replaces text by text of the same length, which keeps all offsets.
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = whole;
    for (size_t at = 0; (at = changed.find(from, at)) != std::string::npos; at += to.size())
      changed.replace(at, from.size(), to);
    REQUIRE(changed != whole);
    place.write("m.gguf", changed);
    return place.weft({"generate", "m.gguf", "--prompt", "A"});
  };
  CHECK(fails_with(with("architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00llama"s,
                        "architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00mamba"s),
                   usage,
                   "[gguf] m.gguf: weft has no architecture 'mamba'. Known: gemma2, gemma3, gpt2, "
                   "gptneox, llama, olmo2, phi3, qwen2, qwen3, smollm3.") == "");
  CHECK(
      fails_with(with("gpt-2", "gpt-9"), usage,
                 "[gguf] m.gguf: weft does not split text as tokenizer.ggml.pre 'gpt-9' does. "
                 "Known: gpt-2, gpt2, olmo, smollm, llama-bpe, llama3, llama-v3, dbrx, smaug-bpe, "
                 "qwen2, deepseek-r1-qwen.") == "");
  CHECK(fails_with(with("llama.block_count", "llama.block_kount"), data_code,
                   "[gguf] m.gguf: llama.block_count is missing, or no whole number.") == "");
  CHECK(fails_with(with("layer_norm_rms_epsilon", "layer_norm_rms_epsilom"), data_code,
                   "[gguf] m.gguf: llama.attention.layer_norm_rms_epsilon is missing.") == "");
  CHECK(fails_with(with("tokenizer.ggml.merges", "tokenizer.ggml.merked"), data_code,
                   "[gguf] m.gguf: tokenizer.ggml.merges is missing, or no list of texts.") == "");
  CHECK(fails_with(with("blk.1.attn_q", "blk.1.attn_x"), usage,
                   "[gguf] m.gguf: weft's llama has no tensor 'blk.1.attn_x.weight'.") == "");
  // A key, its type u32, and a number.
  const std::string wide = "feed_forward_length\x04\x00\x00\x00"s,
                    deep = "block_count\x04\x00\x00\x00"s;
  const auto with_number = [&](const std::string& key, const std::string& bytes) {
    return with(whole.substr(whole.find(key), key.size() + 4), key + bytes);
  };
  CHECK(fails_with(with_number(wide, "\x60\x00\x00\x00"s), data_code,
                   "'blk.0.ffn_gate.weight' is Q8_0[") == "");
  CHECK(fails_with(with_number(deep, "\x00\xca\x9a\x3b"s), usage,
                   "m.gguf: [llama] llama.block_count must be ") == "");
  CHECK(fails_with(with("blk.1.attn_q.weight", "blk.7.attn_q.weight"), data_code,
                   "[load] m.gguf does not fit: 1 missing ('blk.1.attn_q.weight'); 1 unexpected "
                   "('blk.7.attn_q.weight').") == "");
  place.write("m.gguf", whole);
  CHECK(fails_with(place.weft({"train", "m.gguf"}), usage,
                   "m.gguf is a model, not a recipe. Hint: weft finetune m.gguf --data.path FILE, "
                   "or --model.pretrained m.gguf.") == "");
}

TEST_CASE("convert overwrites nothing and refuses what it cannot write") {
  const Shards place;
  place.write("there", "mine");
  for (const char* format : {"hf", "safetensors"}) {
    CHECK(fails_with(place.weft({"convert", "m", "there", "--to", format}), usage,
                     "there exists. Nothing was changed.") == "");
    CHECK(fails_with(place.weft({"convert", "m", "m", "--to", format}), usage,
                     "m exists. Nothing was changed.") == "");
  }
  CHECK(place.read("there") == "mine");
  CHECK(fails_with(place.weft({"convert", "m", "out", "--to", "hf", "--dtype", "f16"}), data_code,
                   "'a' has an element 100000, beyond the range of f16. Hint: --dtype bf16.") ==
        "");
  CHECK(fails_with(place.weft({"convert", "m", "out", "--to", "hf", "--max-shard-size", "big"}),
                   usage, "--max-shard-size is a number of bytes, such as 5GB. Got 'big'.") == "");
  CHECK(fails_with(place.weft({"convert", "m", "out"}), usage, "--to") == "");
  place.write("m/config.json", "{");
  CHECK(fails_with(place.weft({"convert", "m", "out", "--to", "hf", "--dtype", "f32"}), data_code,
                   "m/config.json: not JSON") == "");
  CHECK_FALSE(fs::exists(place.path("out")));
}

TEST_CASE("convert to ONNX overwrites nothing and refuses what the model does not take") {
  const TinyRun place;
  const auto refuses = [&](std::vector<std::string> words, const std::string& message) {
    words.insert(words.begin(), "convert");
    return fails_with(place.weft(words), usage, message);
  };
  place.write("there.onnx", "mine");
  place.write("big.onnx.data", "mine");
  CHECK(refuses({"tiny", "there.onnx", "--to", "onnx"},
                "there.onnx exists. Nothing was changed.") == "");
  CHECK(refuses({"tiny", "big.onnx", "--to", "onnx"},
                "big.onnx.data exists. Nothing was changed.") == "");
  CHECK(refuses({"tiny", "tiny.pb", "--to", "onnx"},
                "--to onnx writes a file whose name ends in .onnx. Got tiny.pb.") == "");
  CHECK(refuses({"tiny", "out.onnx", "--to", "onnx", "--dtype", "f16"},
                "--dtype with --to onnx is for published models. Got tiny.") == "");
  CHECK(refuses({"tiny", "out.onnx", "--to", "onnx", "--dim", "batch=2"},
                "--dim is for ONNX files. Got tiny.") == "");
  CHECK(refuses({"tiny", "out", "--to", "hf", "--batch", "2"},
                "--batch, --context and --dim are for --to onnx.") == "");
  CHECK_FALSE(fs::exists(place.path("out.onnx")));
  CHECK_FALSE(fs::exists(place.path("big.onnx")));
}

TEST_CASE("convert checks a checkpoint against its manifest") {
  TinyRun place;
  const std::string file = "runs/tiny/checkpoints/step-00000002/model.safetensors";
  std::string bytes = place.read(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  place.write(file, bytes);
  CHECK(fails_with(place.weft({"convert", "tiny", "out", "--to", "hf"}), checkpoint,
                   "model.safetensors is damaged") == "");
  CHECK_FALSE(fs::exists(place.path("out")));
}
