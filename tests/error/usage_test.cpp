// Tests errors on the command line.
#include <cstdlib>
#include <filesystem>
#include <sys/stat.h>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "tests/support/program.h"
#include "weft/base/host/isa.h"

using namespace weft::test;

namespace {
std::vector<std::string> many_prompts(int count) {
  std::vector<std::string> words = {"generate", "x"};
  for (int i = 0; i < count; ++i) words.insert(words.end(), {"--prompt", "a"});
  return words;
}
}  // namespace

TEST_CASE("mistakes on the command line are one line with a hint and exit code 2") {
  struct Mistake {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::vector<Mistake> mistakes = {
      {{"trian"}, "no verb 'trian'. Did you mean train?"},
      {{"quux"}, "no verb 'quux'. Hint: weft --help lists them."},
      {{"runs", "lss"}, "no verb of runs 'lss'. Did you mean ls?"},
      {{"train", "--stesp", "3"}, "weft train has no flag --stesp. Did you mean --steps?"},
      {{"plan", "--frobnicate"}, "weft plan has no flag --frobnicate. Hint: weft plan --help."},
      {{"--colour"}, "weft has no flag --colour."},
      {{"devices", "here"}, "weft devices does not take 'here'."},
      {{"devices", "--optimizer.lr", "1"}, "weft devices has no flag --optimizer.lr."},
      {{"train"}, "weft train needs a recipe."},
      {{"plan"}, "weft plan needs a recipe."},
      {{"eval"}, "CHECKPOINT is required"},
      {{"generate", "x"}, "--prompt is required"},
      {{"generate", "x", "--prompt", "a", "--top-k", "-2"},
       "--top-k is 0 to 1099511627776. Got -2."},
      {{"generate", "x", "--prompt", "a", "--temperature", "1000"},
       "--temperature is 0 to 100. Got 1000. Hint: weft generate --help."},
      {{"generate", "x", "--prompt", "a", "--temperature", "1e999"},
       "--temperature is 0 to 100. Got 1e999."},
      {{"train", "mnist", "--steps", "1", "--steps", "2"}, "--steps is given more than once."},
      {many_prompts(65), "weft generate: --prompt is given more than 64 times."},
      {{"train", "mnist", "--lr", "1", "--optimizer.lr", "2"},
       "--lr and --optimizer.lr both set optimizer.lr."},
      {{"config", "foo"}, "no verb of config 'foo'. Hint: weft config --help lists them."},
      {{"runs", "compare", "one"}, "weft runs compare: RUN"},
      {{"bench", "mpl"}, "no workload 'mpl'. Did you mean mlp?"},
      {{"bench", "zzzzzzz"}, "no workload 'zzzzzzz'. Known: mlp"},
      {{"bench", "mlp", "--steps", "none"}, "--steps"},
      {{"bench", "mlp", "--steps", "0"}, "--steps"},
      {{"bench", "mlp", "--precision", "f7"}, "--precision"},
      {{"bench", "mlp", "--length", "9"}, "the workload mlp has no length."},
      {{"profile"}, "weft profile needs a recipe."},
      {{"profile", "mpl"}, "mpl: neither recipe, workload nor model. Did you mean mlp?"},
      {{"profile", "mlp", "--steps", "0"}, "--steps"},
      {{"profile", "mlp", "--batch", "none"}, "--batch is a count of at least 1. Got 'none'."},
      {{"profile", "mlp", "--lr", "1"},
       "the workload mlp takes --batch, --length and --precision. Got --lr."},
      {{"profile", "mlp", "--data.path", "x"}, "Got --data.path."},
      {{"profile", "mlp", "--precision", "fp64"},
       "--precision of a workload is fp32, bf16-mixed or fp16-mixed. Got 'fp64'."},
      {{"profile", "softmax", "--batch", "2", "--length", "2", "--precision", "bf16-mixed"},
       "has no model: --precision and memory limits do not apply to it."},
      {{"profile", "--length", "9", "--data.digits", "1"}, "--length is for workloads."},
      {{"init", "imgae"}, "no starter recipe 'imgae'. Known: image, text, table, addition."},
      {{"list", "modles"}, "weft list knows models, layers"},
      {{"runs", "show", "nothing"}, "no run runs/nothing."},
      {{"ckpt", "ls", "nothing"}, "no run nothing."},
      {{"plan", "mnits"}, "mnits: no such recipe."},
      {{"plan", "."}, ".: a folder without recipe.yaml, which runs and checkpoints have."},
      {{"train", "x", "--resume=maybe"}, "weft train: --resume does not take 'maybe'."},
      {{"train", "x", "--steps"}, "weft train: --steps needs a value."},
      {{"train", "x", "--resume", "--overwrite"},
       "weft train: --resume and --overwrite contradict each other."},
      {{"train", "x", "--resume", "--no-resume"}, "weft train: --resume is given more than once."},
      {{"plan", "x", "--json", "--json"}, "weft plan: --json is given more than once."},
      {{"plan", "x", "--depth", "deep"}, "weft plan: --depth does not take 'deep'."},
      {{"plan", "x", "--depth", "0x63"}, "weft plan: --depth does not take '0x63'."},
      {{"plan", "x", "--depth", "99"}, "weft plan: --depth is 1 to 16. Got 99."},
      {{"plan", "x", "--depth", "2.5"}, "weft plan: --depth does not take '2.5'."},
      {{"generate", "x", "--prompt", "a", "--top-p", "7"},
       "weft generate: --top-p is 0 to 1. Got 7."},
      {{"help", "trian"}, "no verb 'trian'. Did you mean train?"},
      {{"plan", "mnist", "--dot", ""}, "weft plan: --dot must not be empty."},
      {{"plan", "mnist", "--on", ""}, "weft plan: --on must not be empty."},
      {{"plan", ""}, "weft plan: RECIPE must not be empty."},
      {{"plan", "mnist", "--json=5"}, "weft plan: --json does not take '5'."},
      {{"plan", "--model.name", "gpt", "--data.dataset", "addition", "--tokens", "1B", "--steps",
        "5"},
       "--tokens and --steps both set how long the run is."},
      {{"plan", "--model.name", "gpt", "--data.dataset", "addition", "--tokens", "1B",
        "--train.epochs", "5"},
       "--tokens and --train.epochs both set how long the run is."},
      {{"runs", "compare", "one"}, "weft runs compare: RUN must be given at least 2 times."},
      {{"plan", "--steps", "99999999999999999999"},
       "train.steps must be at most 9000000000000000. Got '99999999999999999999'."},
      {{"plan", "--steps", "9000000000000000000K"}, "train.steps must be at most 9000"},
      {{"plan", "--steps", "9999999999999999"}, "train.steps must be at most 9000"},
      {{"plan", "--seed", "12x"}, "seed must be a whole number."},
  };
  Workplace place;
  for (const Mistake& mistake : mistakes)
    CHECK(fails_with(place.weft(mistake.arguments), 2, mistake.message) == "");
}

TEST_CASE("a starter recipe does not overwrite a file") {
  Workplace place;
  place.write("image.yaml", "mine");
  CHECK(fails_with(place.weft({"init", "image"}), 2, "image.yaml exists. Hint: --output FILE") ==
        "");
  CHECK(place.read("image.yaml") == "mine");
}

TEST_CASE("output files of a profile are complete or absent") {
  Workplace place;
  place.write("bad.yaml", "model: {name: gtp}\ndata: {dataset: addition}\ntrain: {steps: 1}\n");
  for (const char* flag : {"--trace", "--memory-svg", "--roofline-svg"}) {
    CHECK(fails_with(place.weft({"profile", "mlp", flag, "no/such/folder/file"}), 1,
                     "no/such/folder/file") == "");
    CHECK(fails_with(place.weft({"profile", "bad.yaml", flag, "file"}), 2, "gtp") == "");
    CHECK(fails_with(place.weft({"plan", "bad.yaml", "--memory-svg", "file"}), 2, "gtp") == "");
    for (const auto& entry : std::filesystem::directory_iterator(place.folder()))
      if (std::string name = entry.path().filename(); !name.starts_with("."))  // .out and .err
        CHECK(name == "bad.yaml");  // not even a partial file
  }
}

TEST_CASE("two outputs that are one file behind a dangling link are refused") {
  Workplace place;
  place.write("tiny.yaml",
              "model: {name: mlp, config: {hidden_sizes: 4}}\n"
              "data: {dataset: random-images, image_size: 4}\ntrain: {steps: 1}\n");
  std::filesystem::create_symlink("same", place.path("link"));
  const Outcome outcome =
      place.weft({"plan", "tiny.yaml", "--dot", "same", "--memory-svg", "link"});
  CHECK(fails_with(outcome, 2, "--dot and --memory-svg name the same file: link.") == "");
  CHECK(!std::filesystem::exists(place.path("same")));
}

TEST_CASE("outputs that are devices or links keep their type") {
  Workplace place;
  place.write("tiny.yaml",
              "model: {name: mlp, config: {hidden_sizes: 4}}\n"
              "data: {dataset: random-images, image_size: 4}\ntrain: {steps: 1}\n");
  const std::vector<std::vector<std::string>> commands = {
      {"plan", "tiny.yaml", "--dot"},
      {"plan", "tiny.yaml", "--memory-svg"},
      {"profile", "tiny.yaml", "--trace"},
      {"profile", "tiny.yaml", "--roofline-svg"},
      {"bench", "mlp", "--steps", "1", "--write-weights"},
      {"init", "image", "-o"}};
  // A shell opens both ends of the pipe before the program, as either open would wait for the
  // other, and closes them behind it, so that the reader ends however late it begins.
  const std::string through_pipe =
      R"(exec 9<>pipe 8<pipe; cat <&8 9>&- >piped & "$WEFT" "$@" pipe; code=$?; exec 9>&- 8<&-; )"
      R"(wait; exit $code)";
  REQUIRE(mkfifo(place.path("pipe").c_str(), 0600) == 0);
  for (std::vector<std::string> command : commands) {
    std::vector<std::string> shell{"-c", through_pipe, "sh"};
    shell.insert(shell.end(), command.begin(), command.end());
    CHECK(place.run("/bin/sh", shell).code == 0);
    CHECK(std::filesystem::is_fifo(place.path("pipe")));
    const std::string piped = place.read("piped");
    command.emplace_back("/dev/full");
    CHECK(fails_with(place.weft(command), 1, "cannot write /dev/full: No space left on device") ==
          "");
    CHECK(std::filesystem::is_character_file("/dev/full"));
    command.back() = "link";
    std::filesystem::create_symlink("behind", place.path("link"));
    CHECK(place.weft(command).code == 0);
    CHECK(std::filesystem::is_symlink(place.path("link")));
    CHECK(place.read("behind") != "");
    if (command.front() != "profile") CHECK(place.read("behind") == piped);  // it has times
    CHECK(piped.size() * 2 > place.read("behind").size());
    std::filesystem::remove(place.path("link"));
    std::filesystem::remove(place.path("behind"));
  }
}

TEST_CASE("output that cannot be written is an error") {
  Workplace place;
  // Redirects standard output to a full device through a shell, as weft() sets the program's
  // streams.
  for (const char* errors : {"/dev/null", "/dev/full"}) {
    std::string command = std::string("\"$WEFT\" config reference >/dev/full 2>") + errors;
    CHECK(WEXITSTATUS(std::system(command.c_str())) == 1);
  }
}

TEST_CASE("an environment variable that is not a number is named") {
  Workplace place;
  CHECK(fails_with(place.weft({"doctor"}, {{"WEFT_THREADS", "many"}}), 2,
                   "WEFT_THREADS='many' is not a whole number.") == "");
  for (const std::string count : {"0", "-1", "100000"})
    for (const char* verb : {"doctor", "list"})
      CHECK(fails_with(place.weft({verb}, {{"WEFT_THREADS", count}}), 2,
                       "WEFT_THREADS is 1 to 1024. Got " + count + ".") == "");
  // OMP_NUM_THREADS may list a number for each level of nested teams.
  CHECK(place.weft({"doctor"}, {{"OMP_NUM_THREADS", "999,4"}, {"WEFT_THREADS", ""}})
            .out.find("999 threads on ") != std::string::npos);
  const Outcome other = place.weft({"doctor"}, {{"OMP_NUM_THREADS", "abc"}, {"WEFT_THREADS", ""}});
  CHECK(other.code != 2);
  CHECK(other.err.find("OMP_NUM_THREADS='abc' is not a whole number. It is ignored.") !=
        std::string::npos);
  CHECK(fails_with(place.weft({"list"}, {{"WEFT_DEBUG", "xx"}}), 2,
                   "WEFT_DEBUG='xx' is not a whole number.") == "");
  CHECK(fails_with(place.weft({"list"}, {{"WEFT_DEBUG", "7"}}), 2,
                   "WEFT_DEBUG is 0 to 6. Got 7.") == "");
  CHECK(fails_with(place.weft({"list"}, {{"WEFT_ISA", "sse9"}}), 2,
                   "WEFT_ISA is auto, baseline, avx2, avx512, avx512_bf16, amx. Got 'sse9'.") ==
        "");
  for (weft::Isa set : {weft::Isa::avx2, weft::Isa::avx512, weft::Isa::avx512_bf16, weft::Isa::amx})
    if (set > weft::host_isa())
      CHECK(fails_with(place.weft({"list"}, {{"WEFT_ISA", std::string(name(set))}}), 2,
                       fmt::format("WEFT_ISA={}: this CPU has no more than {}.", name(set),
                                   isa_names(weft::host_isa()))) == "");
  CHECK(fails_with(place.weft({"list"}, {{"WEFT_NO_FLOAT64", "yes"}}), 2,
                   "WEFT_NO_FLOAT64='yes' is not a whole number.") == "");
  CHECK(fails_with(place.weft({"list"}, {{"WEFT_TUNE", "2"}}), 2, "WEFT_TUNE is 0 to 1. Got 2.") ==
        "");
}

TEST_CASE("a program with its own main function exits as weft does") {
  const Workplace place;
  const std::string examples = std::string(std::getenv("BUILD")) + "/examples/";
  for (const char* name : {"01_tensors", "02_training", "03_plan", "04_own_program", "05_own_parts",
                           "06_from_pytorch", "07_vit", "08_translation"})
    CHECK(fails_with(place.run(examples + name, {"list"}, {{"WEFT_ISA", "sse9"}}), 2,
                     "WEFT_ISA is auto, baseline, avx2, avx512, avx512_bf16, amx. Got 'sse9'.") ==
          "");
}

TEST_CASE("an output that is also an input is refused and nothing is changed") {
  Workplace place;
  const std::string recipe =
      "model: {name: gpt, config: {hidden_size: 16, num_attention_heads: 2}}\n"
      "data: {format: text, path: texts/all.txt, seq_len: 8}\ntrain: {steps: 1}\n";
  const std::string text(1000, 'x');
  place.write("recipes/letters.yaml", recipe);
  place.write("texts/all.txt", text);
  std::filesystem::create_symlink("recipes/letters.yaml", place.path("link"));
  for (const auto& [arguments, message] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"plan", "recipes/letters.yaml", "--dot", "recipes/letters.yaml"},
            "--dot recipes/letters.yaml would replace what RECIPE reads."},
           {{"plan", "letters", "--memory-svg", "link"},
            "--memory-svg link would replace what the recipe reads."},
           {{"profile", "letters", "--trace", "texts/all.txt"},
            "--trace texts/all.txt would replace what data.path reads."},
           {{"plan", "letters", "--data.path", "texts", "--dot", "./texts/all.txt"},
            "--dot ./texts/all.txt would replace what --data.path reads."},
           {{"bench", "mlp", "--weights", "texts/all.txt", "--write-weights", "texts/all.txt"},
            "--write-weights texts/all.txt would replace what --weights reads."},
           {{"plan", "letters", "--dot", "new", "--memory-svg", "./new"},
            "--dot and --memory-svg name the same file: ./new."}})
    CHECK(fails_with(place.weft(arguments), 2, message) == "");
  CHECK(place.read("recipes/letters.yaml") == recipe);
  CHECK(place.read("texts/all.txt") == text);
  CHECK(!std::filesystem::exists(place.path("new")));
  CHECK(place.weft({"plan", "letters", "--dot", "texts/new"}).code == 0);
  CHECK(place.read("texts/new").starts_with("digraph"));
}

TEST_CASE("an output that a command also reads is refused however the file was found") {
  Workplace place;
  const std::string recipe =
      "model: {name: gpt, config: {hidden_size: 16, num_attention_heads: 2}}\n"
      "data: {format: text, path: text/all.txt, seq_len: 8}\ntrain: {steps: 1}\n";
  const std::string text(1000, 'x');
  place.write(".in", recipe);
  place.write("data/text/all.txt", text);
  const Workplace::Environment data{{"WEFT_DATA_DIR", place.path("data")}};
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"plan", "-", "--dot", "data/text/all.txt"},
        {"plan", "-", "--memory-svg", ".in"},
        {"profile", "-", "--steps", "1", "--trace", "data/text/all.txt"}})
    CHECK(fails_with(place.weft(arguments, data), 2,
                     " would replace a file that this command reads. Nothing was changed.") == "");
  CHECK(place.read(".in") == recipe);
  CHECK(place.read("data/text/all.txt") == text);
  CHECK(place.weft({"plan", "-", "--dot", "data/text/new"}, data).code == 0);
  CHECK(place.weft({"plan", "-", "--dot", "data/text/new"}, data).code == 0);
}

TEST_CASE("a relative home or library folder is ignored with a warning") {
  Workplace place;
  for (const char* name : {"WEFT_CUDA_PATH", "HOME"}) {
    const Outcome outcome = place.weft({"list"}, {{name, "here"}});
    CHECK(outcome.code == 0);
    CHECK(outcome.err ==
          fmt::format("weft: warning: {}=here is ignored: it is not an absolute path.\n", name));
  }
}

TEST_CASE("no library is loaded from the current folder whatever LD_LIBRARY_PATH says") {
  Workplace place;
  const char* build = std::getenv("BUILD");
  REQUIRE_MESSAGE(build != nullptr, "set BUILD to the build folder");
  place.write("sums.yaml",
              "model: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
              "num_attention_heads: 2}}\ndata: {dataset: addition, digits: 1}\n"
              "train: {steps: 1, global_batch_size: 4}\n");
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"})
    std::filesystem::copy_file(std::string(build) + "/tests/fake_cuda/" + name, place.path(name));
  for (const char* list : {".", ":/nowhere", "/nowhere:", ";/nowhere", "/nowhere;.", "$LIB"}) {
    CAPTURE(list);
    const Outcome outcome =
        place.weft({"train", "sums.yaml", "--device", "cuda"},
                   {{"LD_LIBRARY_PATH", list}, {"WEFT_CUDA_PATH", place.folder() + "/none"}});
    CHECK(fails_with(outcome, 7,
                     "libcuda.so.1 does not load: it is in a relative or empty folder of "
                     "LD_LIBRARY_PATH. Hint: ") == "");
  }
}

TEST_CASE("an unknown environment variable is one line of warning") {
  Workplace place;
  Outcome outcome = place.weft({"list"}, {{"WEFT_THREDS", "3"}, {"WEFT__SEED", "1"}});
  CHECK(outcome.code == 0);
  CHECK(outcome.err ==
        "weft: warning: WEFT_THREDS is not a variable of weft. Did you mean WEFT_THREADS?\n");
  CHECK(place.weft({"list"}, {{"WEFT_COLOUR_OF_ALL", "red"}}).err ==
        "weft: warning: WEFT_COLOUR_OF_ALL is not a variable of weft. Hint: weft doctor --env "
        "lists them.\n");
}
