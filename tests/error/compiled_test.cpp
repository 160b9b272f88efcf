// Tests what `weft compile` refuses, and what its files are refused for.
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/error/pets_run.h"
#include "tests/support/exit_codes.h"
#include "tests/support/onnx_net.h"
#include "tests/support/published_model.h"

using namespace weft;
using namespace weft::test;

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
