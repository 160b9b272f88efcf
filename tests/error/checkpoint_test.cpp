// Tests checkpoints that are missing, damaged or of another model, and what generate refuses.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/error/tiny_run.h"
#include "weft/base/numbers/hash.h"
#include "weft/io/files.h"

using namespace weft::test;
namespace fs = std::filesystem;

TEST_CASE("a run is found by name beside data of the same name") {
  for (const char* kind : {"folder", "file"}) {
    TinyRun place;
    place.write(kind == std::string("folder") ? "tiny/labels.gz" : "tiny", "data");
    CHECK(place.weft({"eval", "tiny"}).code == 0);
    CHECK(place.weft({"generate", "tiny", "--prompt", "1+1="}).code == 0);
    CHECK(place.weft({"ckpt", "verify", "tiny"}).code == 0);
    CHECK(place.weft({"ckpt", "ls", "tiny"}).out.find("latest") != std::string::npos);
  }
}

TEST_CASE("a circular link is not a checkpoint") {
  TinyRun place;
  const fs::path checkpoints = place.path("runs/tiny/checkpoints");
  fs::remove_all(checkpoints);
  fs::create_directories(checkpoints);
  fs::create_symlink("latest", checkpoints / "latest");
  for (const char* verb : {"eval", "ckpt"}) {
    std::vector<std::string> arguments = {verb, "tiny"};
    if (verb == std::string("ckpt")) arguments.insert(arguments.begin() + 1, "verify");
    CHECK(fails_with(place.weft(arguments), checkpoint,
                     "checkpoints/latest has no MANIFEST.json.") == "");
  }
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--resume"}), checkpoint,
                   "checkpoints/latest has no MANIFEST.json.") == "");
}

TEST_CASE("a truncated manifest is refused with the place, in weft's own words") {
  TinyRun place;
  const std::string manifest = "runs/tiny/checkpoints/step-00000002/MANIFEST.json";
  place.write(manifest, "");
  CHECK(fails_with(place.weft({"ckpt", "verify", "tiny"}), checkpoint,
                   "MANIFEST.json: not JSON: it ends too early, at line 1, column 1.") == "");
  place.write(manifest, "{\n  \"step\": ?}");
  CHECK(fails_with(place.weft({"ckpt", "verify", "tiny"}), checkpoint,
                   "MANIFEST.json: not JSON: there is a mistake at line 2, column 11.") == "");
  const std::string deep(1 << 20, '[');  // nested so deep that copies of it overflow the stack
  place.write(manifest, R"({"format": 1, "step": )" + deep + "1" + std::string(1 << 20, ']') + "}");
  CHECK(fails_with(place.weft({"ckpt", "verify", "tiny"}), checkpoint,
                   "MANIFEST.json: lists and objects nest deeper than 500 at byte 521.") == "");
}

TEST_CASE("missing checkpoints and checkpoints of another model are refused") {
  TinyRun place;
  CHECK(fails_with(place.weft({"eval", "nothing"}), checkpoint, "no checkpoint under nothing") ==
        "");
  CHECK(fails_with(place.weft({"ckpt", "verify", "nothing"}), checkpoint,
                   "no checkpoint under nothing") == "");
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"eval"}, {"ckpt", "verify"}, {"generate", "--prompt", "a"}}) {
    std::vector<std::string> arguments = verb;
    arguments.emplace_back("tiny.yaml");
    CHECK(fails_with(place.weft(arguments), usage,
                     "tiny.yaml is a file. A run or a checkpoint is a folder.") == "");
  }
  CHECK(fails_with(place.weft({"eval", "tiny", "--model.config",
                               "{hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2}"}),
                   usage, "another model") == "");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--resume", "--steps", "4", "--model.config",
                               "{hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2}"}),
                   usage, "another model") == "");
}

TEST_CASE("a damaged checkpoint is refused by the file that differs") {
  TinyRun place;
  std::string folder = "runs/tiny/checkpoints/step-00000002/",
              model = place.read(folder + "model.safetensors");
  CHECK(place.weft({"ckpt", "verify", "tiny"}).code == 0);
  std::string flipped = model;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
  place.write(folder + "model.safetensors", flipped);
  for (const char* verb : {"eval", "ckpt verify"}) {
    std::vector<std::string> arguments = {"eval", "tiny"};
    if (std::string(verb) == "ckpt verify") arguments = {"ckpt", "verify", "tiny"};
    CHECK(fails_with(place.weft(arguments), checkpoint, "model.safetensors is damaged") == "");
  }
  place.write(folder + "model.safetensors", model.substr(0, model.size() / 2));
  CHECK(fails_with(place.weft({"generate", "tiny", "--prompt", "1+1="}), checkpoint,
                   "model.safetensors has") == "");
  CHECK(fails_with(place.weft({"ckpt", "inspect", "tiny"}), checkpoint, "model.safetensors") == "");
  fs::remove(place.path(folder + "model.safetensors"));
  CHECK(fails_with(place.weft({"eval", "tiny"}), checkpoint, "is missing") == "");
  place.write(folder + "model.safetensors", model);
  std::string recipe = place.read(folder + "recipe.yaml");
  for (const char* text : {"model: {nam: gpt}\n", "model: {name: gp"}) {
    place.write(folder + "recipe.yaml", text);
    CHECK(fails_with(place.weft({"eval", "tiny"}), checkpoint, "recipe.yaml has ") == "");
  }
  fs::remove(place.path(folder + "recipe.yaml"));
  CHECK(fails_with(place.weft({"eval", "tiny"}), checkpoint, "recipe.yaml") == "");
  place.write(folder + "recipe.yaml", recipe);
  place.write(folder + "MANIFEST.json", "{}");
  CHECK(fails_with(place.weft({"eval", "tiny"}), checkpoint, "MANIFEST.json") == "");
  for (const char* text : {"[]", R"({"format": 1, "files": [1]})", "{\"format\": \"x\"}", "{"}) {
    place.write(folder + "MANIFEST.json", text);
    Outcome outcome = place.weft({"eval", "tiny"});
    CHECK(fails_with(outcome, checkpoint, "MANIFEST.json: ") == "");
    CHECK(outcome.err.find("()") == std::string::npos);
  }
}

TEST_CASE("missing and mistyped fields of a checkpoint are named in weft's own words") {
  TinyRun place;
  const std::string folder = "runs/tiny/checkpoints/step-00000002/";
  const std::string manifest = place.read(folder + "MANIFEST.json");
  const std::vector<std::pair<std::string, std::string>> manifests = {
      {"[]", "must be an object. Got []."},
      {"{}", "format is missing."},
      {R"({"format": "1"})", "format must be a whole number. Got \"1\"."},
      {R"({"format": 1})", "step is missing."},
      {R"({"format": 1, "step": 2, "files": [1]})", "files must be an object. Got [1]."},
      {R"({"format": 1, "step": 2, "files": {"a": 3}})", "must be an object. Got 3."},
      {R"({"format": 1, "step": 2, "files": {"a": {"xxh3": 5}}})", "xxh3 must be text. Got 5."},
      {R"({"format": 1, "step": 2, "files": {"a": {"xxh3": ""}}})", "bytes is missing."}};
  for (const auto& [text, message] : manifests) {
    place.write(folder + "MANIFEST.json", text);
    CHECK(fails_with(place.weft({"ckpt", "verify", "tiny"}), checkpoint,
                     "MANIFEST.json: " + message) == "");
  }
  // The manifest matches each of these files, so that only their contents are wrong.
  const auto whole = nlohmann::json::parse(place.read(folder + "data.json"));
  for (const auto& [key, value] : whole.items())
    for (const auto& other :
         {nlohmann::json("x"), nlohmann::json::array(), nlohmann::json(1e300)}) {
      auto changed = whole, listed = nlohmann::json::parse(manifest);
      changed[key] = key == "data_fingerprint" ? nlohmann::json(3) : other;
      if (key.starts_with("best") && other.is_number()) continue;  // any number is valid there
      place.write(folder + "data.json", changed.dump());
      listed["files"]["data.json"] = {
          {"bytes", changed.dump().size()},
          {"xxh3", weft::to_hex(weft::io::checksum_file(place.path(folder + "data.json")))}};
      place.write(folder + "MANIFEST.json", listed.dump());
      CHECK(fails_with(place.weft({"ckpt", "verify", "tiny"}), checkpoint,
                       "data.json: " + key + " must be ") == "");
    }
}

TEST_CASE("a checkpoint file that the system cannot open is reported in one line") {
  TinyRun place;
  const std::string file = "runs/tiny/checkpoints/step-00000002/rng.json";
  fs::remove(place.path(file));
  fs::create_symlink("rng.json", place.path(file));
  CHECK(fails_with(place.weft({"ckpt", "verify", "tiny"}), checkpoint,
                   "cannot open " + file + ": Too many levels of symbolic links.") == "");
  fs::remove(place.path(file));
  fs::create_directory(place.path(file));
  CHECK(fails_with(place.weft({"ckpt", "verify", "tiny"}), checkpoint,
                   file + " is not a regular file.") == "");
}

TEST_CASE("a run with unreadable checkpoints is not restarted") {
  TinyRun place;
  fs::remove_all(place.path("runs/tiny/checkpoints"));
  fs::create_symlink("checkpoints", place.path("runs/tiny/checkpoints"));
  const std::string log = place.read("runs/tiny/log.jsonl");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--resume"}), checkpoint,
                   "cannot open runs/tiny/checkpoints/MANIFEST.json: Too many levels of symbolic "
                   "links.") == "");
  CHECK(place.read("runs/tiny/log.jsonl") == log);
}

TEST_CASE("a run that resumes from an older checkpoint says why the latest was skipped") {
  TinyRun place;
  CHECK(place.weft({"train", "tiny.yaml", "--resume", "--steps", "4"}).code == 0);
  fs::remove(place.path("runs/tiny/checkpoints/step-00000004/rng.json"));
  const Outcome outcome = place.weft({"train", "tiny.yaml", "--resume", "--steps", "6"});
  CHECK(outcome.code == 0);
  CHECK(outcome.err.find("weft: warning: runs/tiny/checkpoints/step-00000004/rng.json is missing. "
                         "The run resumes from runs/tiny/checkpoints/step-00000003.\n") !=
        std::string::npos);
  CHECK(outcome.out.find("resumed from runs/tiny/checkpoints/step-00000003") != std::string::npos);
  fs::resize_file(place.path("runs/tiny/checkpoints/step-00000006/model.safetensors"), 100);
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"eval", "tiny"}, {"generate", "tiny", "--prompt", "1+1="}})
    CHECK(fails_with(place.weft(verb), checkpoint,
                     "step-00000006/model.safetensors has 100 bytes. The manifest says ") == "");
  for (const char* path : {"tiny", "runs/tiny", "runs/tiny/checkpoints",
                           "runs/tiny/checkpoints/latest", "runs/tiny/checkpoints/step-00000006"})
    CHECK(place.weft({"eval", path}).err.ends_with("checkpoints/step-00000005 is intact.\n"));
  CHECK(fails_with(place.weft({"eval", "runs/tiny/checkpoints/step-00000006"}), checkpoint,
                   "step-00000006/model.safetensors has 100 bytes.") == "");
}

TEST_CASE("a checkpoint with a missing or damaged vocabulary generates no text") {
  TinyRun place;
  const std::string file = "runs/tiny/checkpoints/step-00000002/vocabulary.json";
  const std::string vocabulary = place.read(file);
  auto generate = [&] { return place.weft({"generate", "tiny", "--prompt", "1+1="}); };
  REQUIRE(generate().code == 0);
  std::string renamed = vocabulary;
  renamed[renamed.find('0')] = '!';
  for (const std::string& text :
       {std::string(), std::string("[]"), renamed, vocabulary.substr(0, vocabulary.size() / 2),
        std::string(R"({"type": "bytes"})")}) {
    CAPTURE(text);
    place.write(file, text);
    Outcome outcome = generate();
    CHECK(fails_with(outcome, checkpoint, "vocabulary.json") == "");
    CHECK(outcome.out.empty());
  }
  fs::remove(place.path(file));
  CHECK(fails_with(generate(), checkpoint, "vocabulary.json") == "");
  CHECK(fails_with(place.weft({"eval", "tiny"}), checkpoint, "vocabulary.json") == "");
}

TEST_CASE("a manifest with another step than its checkpoint is refused") {
  TinyRun place;
  const std::string file = "runs/tiny/checkpoints/step-00000002/MANIFEST.json";
  std::string manifest = place.read(file);
  size_t at = manifest.find("\"step\": 2");
  REQUIRE(at != std::string::npos);
  place.write(file, manifest.replace(at, 9, "\"step\": 3"));
  CHECK(fails_with(place.weft({"ckpt", "verify", "tiny"}), checkpoint,
                   "MANIFEST.json: step 3. data.json says 2.") == "");
}

TEST_CASE("generate refuses unknown characters and empty prompts") {
  TinyRun place;
  CHECK(fails_with(place.weft({"generate", "tiny", "--prompt", "hello"}), data_code, "") == "");
  CHECK(fails_with(place.weft({"generate", "tiny", "--prompt", ""}), usage,
                   "a prompt has at least one character.") == "");
  CHECK(fails_with(place.weft({"generate", "tiny", "--prompt", "1", "--context", "100"}), usage,
                   "the context is at most 6 tokens, as the model says. Got 100.") == "");
  CHECK(fails_with(place.weft({"generate", "tiny", "--prompt", "1", "--dtype", "bf16"}), usage,
                   "--dtype is for published models. tiny is a run of weft's own.") == "");
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"generate", "tiny", "--prompt", "1"}, {"eval", "tiny"}}) {
    std::vector<std::string> words = verb;
    words.insert(words.end(), {"--activations", "int8"});
    CHECK(fails_with(place.weft(words), usage,
                     "--activations is for models with weights in blocks. tiny has none. Hint: "
                     "weft quantize.") == "");
  }
}

TEST_CASE("generate writes nothing to standard output when it refuses") {
  TinyRun place;
  Outcome outcome = place.weft({"generate", "tiny", "--prompt", "hello"});
  CHECK(outcome.out.empty());
  CHECK(fails_with(place.weft({"generate", "tiny", "--prompt", "1+1=", "--temperature", "nan"}),
                   usage, "--temperature is 0 to 100. Got nan.") == "");
}

TEST_CASE("generate warns of truncated prompts and notes reversed digits") {
  TinyRun place;
  auto said = [&](const std::string& run, const std::string& prompt) {
    return place.weft({"generate", run, "--prompt", prompt, "--max-new-tokens", "2"}).err;
  };
  CHECK(said("tiny", "1+1=") ==
        "weft: note: this model reads and writes sums in this form: 9+8=17.\n");
  CHECK(said("tiny", "1234567+1=") ==
        "weft: warning: the prompt has 10 tokens. The model sees the last 6 of them.\nweft: note: "
        "this model reads and writes sums in this form: 9+8=17.\n");
  REQUIRE(place.weft({"train", "tiny.yaml", "--name", "back", "--data.reversed", "--json"}).code ==
          0);
  CHECK(said("back", "1+1=") ==
        "weft: note: this model reads and writes sums in this form: 9+8=71 (the last digit comes "
        "first).\n");
}
