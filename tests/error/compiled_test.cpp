// Tests what `weft compile` refuses, and what its files are refused for.
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/error/pets_run.h"
#include "tests/support/edited_artifact.h"
#include "tests/support/exit_codes.h"
#include "tests/support/onnx_net.h"
#include "tests/support/published_model.h"
#include "weft/base/host/isa.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;

TEST_CASE_FIXTURE(Pets, "what cannot be compiled is refused in one line") {
  write_published(path("model"));
  CHECK(fails_with(weft({"compile", "model", "-o", "m.onnx"}), usage,
                   "--output m.onnx: the name of a compiled model ends in .weft.") == "");
  std::filesystem::create_directory(path("sub"));
  CHECK(fails_with(weft({"compile", "model", "-o", "m.weft", "--weights", "sub/m.safetensors"}),
                   usage,
                   "--weights sub/m.safetensors: the weights are in the folder of the compiled "
                   "model, ") == "");
  CHECK(fails_with(weft({"compile", "model", "-o", "none/m.weft"}), usage,
                   "--output none/m.weft: there is no such folder.") == "");
  CHECK(fails_with(weft({"compile", "model", "--context", "4096", "-o", "m.weft"}), usage,
                   "the context is at most 64 tokens, as the model says. Got 4096.") == "");
  CHECK(fails_with(
            weft({"compile", "pets", "--context", "16", "-o", "p.weft"}), usage,
            "--context, --dtype and --activations are for language models. pets is a run.") == "");
  CHECK(fails_with(weft({"compile", "nowhere", "-o", "p.weft"}), checkpoint,
                   "no checkpoint under nowhere: neither MANIFEST.json nor checkpoints/latest.") ==
        "");
}

TEST_CASE_FIXTURE(Pets, "a compiled model that cannot run here is refused in one line") {
  write_published(path("model"));
  REQUIRE(weft({"compile", "model", "--context", "32", "-o", "m.weft"}).code == 0);
  REQUIRE(weft({"compile", "pets", "-o", "pets.weft"}).code == 0);
  const auto generate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"generate", "m.weft", "--prompt", "a"});
    return weft(more);
  };
  CHECK(fails_with(generate({"--prompt", "b"}), usage,
                   "m.weft was compiled for 1 sequences at once. Got 2. Hint: weft compile --batch "
                   "2.") == "");
  CHECK(fails_with(generate({"--activations", "int8"}), usage,
                   "--activations is for weft compile. m.weft is compiled.") == "");
  CHECK(fails_with(generate({"--device", "cpu"}), usage,
                   "--device is for weft compile. m.weft is compiled.") == "");
  CHECK(fails_with(weft({"generate", "pets.weft", "--prompt", "a"}), usage,
                   "pets.weft is a compiled net, which generates no text. Hint: weft run.") == "");
  CHECK(fails_with(weft({"run", "pets.weft", "--input", "rows.npy"}), usage,
                   "pets.weft: input 'images' has the shape [1, 3, 6, 6]. Got [40, 3, 6, 6].") ==
        "");
  CHECK(fails_with(weft({"run", "pets", "--input", "rows.npy", "--trust"}), usage,
                   "--trust is for compiled models. pets is a run.") == "");
  std::string bytes = read("m.weft");
  write("cut.weft", bytes.substr(0, 7));
  CHECK(fails_with(weft({"generate", "cut.weft", "--prompt", "a"}), checkpoint,
                   "[safetensors] cut.weft: ") == "");
  bytes[bytes.size() / 2] ^= 1;
  write("changed.weft", bytes);
  CHECK(fails_with(weft({"generate", "changed.weft", "--prompt", "a"}), checkpoint,
                   "[safetensors] changed.weft: the file is damaged: its checksum is another.") ==
        "");
  CHECK(fails_with(weft({"generate", "none.weft", "--prompt", "a"}), checkpoint,
                   "cannot open none.weft: No such file or directory.") == "");
  REQUIRE(weft({"compile", "pets", "-o", "three.weft"}, {{"WEFT_THREADS", "3"}}).code == 0);
  CHECK(fails_with(weft({"run", "three.weft", "--input", "photos"}, {{"WEFT_THREADS", "2"}}),
                   device_code,
                   "three.weft: it was compiled for 3 threads, and here are 2. Hint: "
                   "WEFT_THREADS=3.") == "");
  for (const auto& [verb, done] : std::vector<std::pair<std::string, std::string>>{
           {"plan", "planned again"}, {"profile", "planned again"}, {"eval", "evaluated"}})
    CHECK(fails_with(weft({verb, "m.weft"}), usage,
                     "m.weft is a compiled model, which is not " + done +
                         ". Hint: the model that it was compiled from.") == "");
  CHECK(fails_with(weft({"quantize", "m.weft", "out", "--to", "q8_0"}), usage,
                   "m.weft is a compiled model, which is not quantized. Hint: the model that it "
                   "was compiled from.") == "");
  CHECK(fails_with(weft({"convert", "m.weft", "out", "--to", "hf"}), usage,
                   "m.weft is a compiled model, which is not converted. Hint: the model that it "
                   "was compiled from.") == "");
}

TEST_CASE_FIXTURE(Pets,
                  "a compiled model of another weft, machine or model is refused in one line") {
  REQUIRE(weft({"compile", "pets", "-o", "pets.weft"}).code == 0);
  const auto edited = [&](const std::string& name, const std::function<void(json&)>& change,
                          const Environment& environment = {}) {
    std::filesystem::copy_file(path("pets.weft"), path(name));
    edit_artifact(path(name), artifact_model, change);
    return weft({"run", name, "--input", "rows.npy"}, environment);
  };
  CHECK(fails_with(edited("old.weft", [](json& all) { all["version"] = "0.0.1"; }), checkpoint,
                   "old.weft: weft 0.0.1 compiled it, and this is ") == "");
  CHECK(fails_with(edited("new.weft", [](json& all) { all["format"] = 99; }), checkpoint,
                   "new.weft: it has format 99; this version of weft reads ") == "");
  CHECK(fails_with(edited("z80.weft", [](json& all) { all["target"]["machine"] = "a Z80"; }),
                   device_code, "z80.weft: it was compiled for a Z80. This machine is ") == "");
  CHECK(fails_with(edited("gpu.weft", [](json& all) { all["target"]["device"] = "opencl"; },
                          {{"OCL_ICD_VENDORS", path("none")}}),
                   device_code,
                   "gpu.weft: it was compiled for the device opencl. [opencl] ") == "");
  if (isa() > Isa::baseline) {
    const auto here = weft({"run", "pets.weft", "--input", "rows.npy"}, {{"WEFT_ISA", "baseline"}});
    CHECK(fails_with(here, device_code, "pets.weft: it was compiled for ") == "");
    CHECK(here.err.find(fmt::format(", up to {}, ", name(isa()))) < here.err.find("This machine"));
    CHECK(here.err.find(", up to baseline, ") > here.err.find("This machine"));
  }
  for (const char* verb : {"train", "finetune"})
    CHECK(fails_with(weft({verb, "pets.weft"}), usage,
                     "pets.weft is a model, not a recipe. Hint: train the model that pets.weft was "
                     "compiled from.") == "");
  write_published(path("model"));
  CHECK(fails_with(weft({"run", "pets.weft", "--input", "rows.npy", "--weights",
                         "model/model.safetensors"}),
                   checkpoint, "model/model.safetensors does not fit: ") == "");
}

TEST_CASE_FIXTURE(Pets,
                  "a compiled model that says too little of its model is refused in one line") {
  write_published(path("model"));
  REQUIRE(weft({"compile", "model", "--context", "1", "-o", "m.weft"}).code == 0);
  REQUIRE(weft({"compile", "pets", "-o", "pets.weft"}).code == 0);
  const auto edited = [&](const std::string& name, const std::function<void(json&)>& change) {
    const std::string whole = read(name);
    edit_artifact(path(name), artifact_model, [&](json& all) { change(all["about"]); });
    Outcome outcome = name == "m.weft" ? weft({"generate", name, "--prompt", "a"})
                                       : weft({"run", name, "--input", "rows.npy"});
    write(name, whole);
    return outcome;
  };
  for (const auto& [name, keys] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"m.weft", {"vocabulary", "slides", "is_published"}},
           {"pets.weft", {"inputs", "vocabulary", "gives_logits", "class_names"}}})
    for (const std::string& key : keys)
      CHECK(fails_with(edited(name, [&](json& about) { about.erase(key); }), checkpoint,
                       fmt::format("{}: {} is missing.", name, key)) == "");
  CHECK(fails_with(edited("m.weft", [](json& about) { about["vocabulary"] = 7; }), checkpoint,
                   "m.weft: plan 1 is of another model.") == "");
  CHECK(fails_with(edited("pets.weft", [](json& about) { about["vocabulary"] = 7; }), checkpoint,
                   "pets.weft: it has a vocabulary of 7, and its input has no ids.") == "");
  CHECK(fails_with(edited("pets.weft", [](json& about) { about["pictures"] = "model: 7"; }),
                   checkpoint, "pets.weft: pictures:1: model must be a map. Got '7'.\n") == "");
  CHECK(fails_with(
            edited("pets.weft", [](json& about) { about["inputs"][0]["type"] = {"f32", 1, 108}; }),
            checkpoint, "pets.weft: its input has no pictures.") == "");
}
