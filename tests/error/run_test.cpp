// Tests runs that cannot begin, go on or be read, and those larger than the machine.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/error/tiny_run.h"
#include "tests/support/images.h"
#include "weft/base/host/isa.h"

using namespace weft::test;
namespace fs = std::filesystem;

TEST_CASE("an unwritable or full offload folder ends the run with one line") {
  TinyRun place;
  const std::vector<std::string> train{"train", "tiny.yaml",      "--name",
                                       "moved", "--model.config", "{hidden_size: 256}"};
  auto with = [&](const std::vector<std::string>& more,
                  const std::string& offload = "[parameters, optimizer]") {
    std::vector<std::string> arguments = train;
    arguments.insert(arguments.end(), {"--train.offload", offload});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return place.weft(arguments);
  };
  CHECK(fails_with(with({"--train.offload_folder", "/nowhere"}), failed,
                   "[offload] /nowhere cannot be written for ") == "");
  CHECK(fails_with(with({}, "[weights]"), usage,
                   "must be one of parameters, optimizer, gradients, activations. Got "
                   "'weights'.") == "");
  rlimit saved{};
  getrlimit(RLIMIT_FSIZE, &saved);
  rlimit limit = saved;
  limit.rlim_cur = size_t{2} << 20;
  setrlimit(RLIMIT_FSIZE, &limit);  // also limits the program's files
  const Outcome full = with({"--train.offload_folder", place.folder()});
  setrlimit(RLIMIT_FSIZE, &saved);
  CHECK(fails_with(full, failed, "[offload] " + place.folder() + " has no room for ") == "");
  CHECK(!fs::exists(place.path("runs/moved")));
  CHECK(with({"--json"}).code == 0);
}

TEST_CASE("output printed while standard output is closed lands in no file of the run") {
  TinyRun place;
  const std::string command = "cd '" + place.path(".") + "' && '" + std::getenv("WEFT") +
                              "' train tiny.yaml --name closed <&- >&- 2>&-";
  CHECK(WEXITSTATUS(std::system(command.c_str())) == failed);  // its output is lost
  CHECK(fs::exists(place.path("runs/closed/checkpoints/latest")));
  std::istringstream lines(place.read("runs/closed/log.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) CHECK(line.starts_with("{"));
  CHECK(count > 2);
}

TEST_CASE("a run whose output pipe is closed continues to its end") {
  TinyRun place;
  for (const char* reader : {"| head -n 1 >/dev/null", "| true", ">/dev/full"}) {
    fs::remove_all(place.path("runs/unread"));
    std::string command = "cd '" + place.folder() +
                          "' && (\"$WEFT\" train tiny.yaml --name unread --steps 40 --log.every 1 "
                          "--checkpoint.every 20 2>errors; echo $? >code) " +
                          reader;
    CHECK(WEXITSTATUS(std::system(command.c_str())) == 0);
    CAPTURE(reader);
    CHECK(place.read("code") == "1\n");
    CHECK(place.read("errors").find("cannot write the output") != std::string::npos);
    CHECK(fs::exists(place.path("runs/unread/checkpoints/step-00000040/MANIFEST.json")));
    CHECK(place.read("runs/unread/log.jsonl").find("\"measured_step_seconds\"") !=
          std::string::npos);
  }
}

TEST_CASE("a run that does not exist is not resumed") {
  TinyRun place;
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--resume", "--name", "tyni"}), usage,
                   "no run runs/tyni to resume. Did you mean --name tiny?") == "");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--resume", "--name", "elsewhere"}), usage,
                   "no run runs/elsewhere to resume. Hint: leave out --resume to start it.") == "");
  CHECK(!fs::exists(place.path("runs/tyni")));
  fs::remove_all(place.path("runs/tiny/checkpoints"));
  Outcome outcome = place.weft({"train", "tiny.yaml", "--resume"});
  CHECK(outcome.code == 0);
  CHECK(outcome.out.find("no checkpoint yet: the run starts at step 0") != std::string::npos);
  // The log does not continue after lost steps, either.
  std::istringstream log(place.read("runs/tiny/log.jsonl"));
  int lines_of_step_2 = 0;
  for (std::string line; std::getline(log, line);) {
    const auto entry = nlohmann::json::parse(line);
    lines_of_step_2 += entry.contains("loss") && entry.value("step", 0) == 2;
  }
  CHECK(lines_of_step_2 == 1);
}

TEST_CASE("invalid folder names are refused") {
  TinyRun place;
  const std::string rule =
      "name must be a folder name: at most 200 bytes, no '/', no '.' first, no control characters.";
  for (const std::string& name :
       {std::string("\x1b[31mred"), std::string("two\nlines"), std::string("next\u0085line"),
        std::string("a/b"), std::string(300, 'a'), std::string(".x")})
    for (const char* flag : {"--dry-run", "--resume", "--json"}) {
      Outcome outcome = place.weft({"train", "tiny.yaml", "--name", name, flag});
      CHECK(fails_with(outcome, usage, rule) == "");
      CHECK(outcome.err.find('\x1b') == std::string::npos);
    }
}

TEST_CASE("control characters in a folder's name do not reach the terminal") {
  TinyRun place;
  place.write("wrong.yaml", "name: \"\\u009b31mred\"\n" + place.read("tiny.yaml").substr(11));
  CHECK(fails_with(place.weft({"train", "wrong.yaml"}), usage,
                   "no control characters. Got '\\xc2\\x9b31mred'.") == "");
  for (const auto& [control, shown] :
       {std::pair("\x1b[31m", "\\x1b[31m"), std::pair("\u009b31m", "\\xc2\\x9b31m")}) {
    const std::string name = std::string(control) + "red", before = place.path("runs/tiny");
    fs::rename(before, place.path("runs/" + name));
    place.write("runs/" + name + "bad/log.jsonl", "{\"step\": 1}");
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"runs", "ls"},
                                                      {"runs", "show", name},
                                                      {"runs", "show", std::string(control) + "re"},
                                                      {"runs", "compare", name, name},
                                                      {"ckpt", "ls", name},
                                                      {"ckpt", "inspect", name},
                                                      {"ckpt", "verify", name},
                                                      {"ckpt", "verify", std::string(control)}}) {
      const Outcome outcome = place.weft(arguments);
      CAPTURE(outcome.command);
      CHECK((outcome.out + outcome.err).find(control) == std::string::npos);
      CHECK((outcome.out + outcome.err).find(shown) != std::string::npos);
    }
    fs::rename(place.path("runs/" + name), before);
  }
}

TEST_CASE("a foreign log or plan in a run's folder is refused by the file and the key") {
  TinyRun place;
  const std::string log = "runs/other/log.jsonl", plan = "runs/other/plan.json";
  auto shown = [&](const std::string& line, const std::string& planned) {
    place.write(log, line);
    place.write(plan, planned);
    return place.weft({"runs", "show", "other"});
  };
  const std::string rest = R"("loss": 1, "accuracy": 0.5})";
  CHECK(fails_with(shown(R"({"step": 1})", ""), data_code, log + ": loss is missing.") == "");
  CHECK(fails_with(shown(R"({"step": "x", )" + rest, ""), data_code,
                   log + ": step must be a whole number. Got \"x\".") == "");
  CHECK(fails_with(shown(R"({"eval_step": 1e300, )" + rest, ""), data_code,
                   log + ": eval_step must be a whole number. Got 1e+300.") == "");
  CHECK(fails_with(shown(R"({"process_peak": 1})", ""), data_code, log + ": seconds is missing.") ==
        "");
  CHECK(fails_with(shown("", R"({"model": 3})"), data_code,
                   plan + ": model must be text. Got 3.") == "");
  for (const char* cut : {"", "{\"mod", "[1]", "\xff"}) CHECK(shown(cut, cut).code == 0);
}

TEST_CASE("an unreadable run does not hide the others") {
  TinyRun place;
  fs::create_directories(place.path("runs/zz"));
  fs::create_symlink("log.jsonl", place.path("runs/zz/log.jsonl"));
  place.write("runs/other/log.jsonl", "{\"step\": 1}");
  const Outcome outcome = place.weft({"runs", "ls"});
  CHECK(outcome.code == 0);
  CHECK(outcome.out.find("tiny") != std::string::npos);
  CHECK(outcome.err.find("weft: warning: cannot open runs/zz/log.jsonl: Too many levels of "
                         "symbolic links. This run is skipped.\n") != std::string::npos);
  CHECK(outcome.err.find(
            "weft: warning: runs/other/log.jsonl: loss is missing. This run is skipped.\n") !=
        std::string::npos);
  CHECK(std::ranges::count(outcome.err, '\n') == 2);
}

TEST_CASE("a path that cannot be opened is named with the system's reason") {
  TinyRun place;
  fs::create_symlink("loop", place.path("loop"));
  place.write(
      "data.yaml",
      "name: data\nmodel: {name: mlp}\ndata: {format: idx, path: loop}\ntrain: {steps: 1}\n");
  place.write("set.yaml", "model: {name: mlp}\ndata: {dataset: mnist}\ntrain: {steps: 1}\n");
  fs::create_directories(place.path("set/mnist"));
  fs::create_symlink("train-images-idx3-ubyte", place.path("set/mnist/train-images-idx3-ubyte"));
  struct Refusal {
    std::vector<std::string> arguments;
    int code;
    Workplace::Environment environment = {};
  };
  const std::string circle = ": Too many levels of symbolic links.";
  const std::vector<Refusal> refusals = {
      {{"plan", "loop"}, usage},
      {{"train", "--resume", "loop"}, usage},
      {{"train", "tiny.yaml", "--runs", "loop"}, failed},
      {{"init", "image", "-o", "loop", "--overwrite"}, usage},
      {{"profile", "loop"}, usage},
      {{"runs", "show", "loop"}, usage},
      {{"runs", "ls", "--runs", "loop"}, usage},
      {{"ckpt", "ls", "loop"}, usage},
      {{"ckpt", "inspect", "loop"}, checkpoint},
      {{"ckpt", "verify", "loop"}, checkpoint},
      {{"eval", "loop"}, checkpoint},
      {{"generate", "loop", "--prompt", "1"}, checkpoint},
      {{"plan", "data.yaml"}, data_code},
      {{"plan", "set.yaml"}, data_code, {{"WEFT_DATA_DIR", "loop"}}},
      {{"plan", "set.yaml"}, data_code, {{"WEFT_DATA_DIR", "set"}}}};
  for (const auto& [arguments, code, environment] : refusals)
    CHECK(fails_with(place.weft(arguments, environment), code, circle) == "");
  const std::string long_name(300, 'n');
  for (const auto& [arguments, code, environment] :
       std::vector<Refusal>{{{"plan", long_name}, usage},
                            {{"ckpt", "ls", long_name}, usage},
                            {{"eval", long_name}, checkpoint},
                            {{"runs", "show", long_name}, usage},
                            {{"plan", "data.yaml", "--data.path", long_name}, data_code}})
    CHECK(fails_with(place.weft(arguments, environment), code, ": File name too long.") == "");
}

TEST_CASE("a run resumes with a damaged plan and log") {
  TinyRun place;
  const std::vector<std::string> go_on{"train",  "tiny.yaml",     "--resume",
                                       "--json", "--train.steps", "4"};
  for (const char* text : {"", "\xff", "[]", R"({"kernels": 3})", R"({"kernels": [1, "a"]})",
                           R"({"kernels": {"matmul": null, "a": "b"}, "step": "x"})"}) {
    CAPTURE(text);
    place.write("runs/tiny/plan.json", text);
    place.write("runs/tiny/log.jsonl", text);
    CHECK(json_of(place.weft(go_on))["step"] == 4);
  }
}

TEST_CASE("an unwritable folder of runs is named") {
  TinyRun place;
  place.write("file", "not a folder");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--runs", "file"}), failed, "file") == "");
}

TEST_CASE("a change to the recipe of a finished run is refused and changes nothing") {
  TinyRun place;
  const std::string recipe = place.read("runs/tiny/recipe.yaml");
  const std::string is_over = "runs/tiny is finished, at step 2: ";
  const std::string no_change = " would have no effect. Hint: a larger --train.steps continues it.";
  CHECK(fails_with(place.weft({"train", "--resume", "tiny", "--lr", "5"}), usage,
                   is_over + "optimizer.lr (--lr)" + no_change) == "");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--resume", "--steps", "1"},
                              {{"WEFT__LOG__EVERY", "7"}}),
                   usage,
                   is_over + "train.steps (--steps), log.every (WEFT__LOG__EVERY)" + no_change) ==
        "");
  CHECK(place.read("runs/tiny/recipe.yaml") == recipe);
  CHECK(place.weft({"train", "tiny.yaml", "--resume"}).code == 0);
  CHECK(place.weft({"train", "--resume", "tiny", "--lr", "0.005", "--steps", "3"}).code == 0);
  CHECK(place.read("runs/tiny/recipe.yaml") != recipe);
}

TEST_CASE("a run that resumes with another instruction set says so once") {
  const TinyRun place;
  const nlohmann::json plan = nlohmann::json::parse(place.read("runs/tiny/plan.json"));
  const std::string here = plan["isa"], other = here == "avx2" ? "avx512" : "avx2";
  CHECK(here == name(weft::isa()));
  const std::string warning = "weft: warning: run runs/tiny was trained with the instruction set " +
                              other + " and continues with " + here +
                              ": losses may differ in their last digits. Hint: WEFT_ISA=" + other +
                              " where the CPU has it.\n";
  int steps = 2;
  auto resumed = [&](const nlohmann::json& set) {
    nlohmann::json before = plan;
    before["isa"] = set;
    place.write("runs/tiny/plan.json", before.dump());
    const Outcome outcome =
        place.weft({"train", "tiny.yaml", "--resume", "--steps", std::to_string(++steps)});
    CHECK(outcome.code == 0);
    return outcome;
  };
  const Outcome changed = resumed(other);
  CHECK(goes_on_with(changed, " continues with ") == "");
  CHECK(changed.err == warning);
  CHECK(nlohmann::json::parse(place.read("runs/tiny/plan.json"))["isa"] == here);
  CHECK(resumed(here).err == "");
  for (const auto& unknown : {nlohmann::json(), nlohmann::json(7)})
    CHECK(resumed(unknown).err == "");
  const Outcome anew = place.weft({"train", "tiny.yaml", "--overwrite", "--json"});
  CHECK(anew.err == "");
}

TEST_CASE("a run larger than the machine is refused before it allocates memory") {
  Workplace place;
  const std::string sums = "data: {dataset: addition, digits: 3}\noptimizer: {name: sgd}\n";
  place.write("wide.yaml", sums +
                               "train: {steps: 1}\nmodel: {name: gpt, config: {hidden_size: 128Ki, "
                               "num_hidden_layers: 1, num_attention_heads: 16}}\n");
  CHECK(fails_with(place.weft({"train", "wide.yaml"}), does_not_fit,
                   "the run does not fit: its weights and optimizer state take") == "");
  place.write("long.yaml", sums +
                               "train: {steps: 1, global_batch_size: 100K, precision: fp64}\n"
                               "model: {name: gpt, config: {hidden_size: 512, num_hidden_layers: "
                               "4, num_attention_heads: 8}}\n");
  CHECK(fails_with(place.weft({"train", "long.yaml"}), does_not_fit,
                   "the plan does not fit: its arena of ") == "");
}

TEST_CASE("a workload larger than the machine is refused before it allocates memory") {
  Workplace place;
  auto bench = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    return place.weft(arguments);
  };
  CHECK(fails_with(bench({"mlp", "--batch", "4000000000"}), does_not_fit,
                   "the workload does not fit: the elements of its batch take") == "");
  CHECK(fails_with(bench({"gpt-char", "--length", "4000000000", "--batch", "1"}), does_not_fit,
                   "the workload does not fit: ") == "");
  CHECK(fails_with(bench({"softmax", "--batch", "4000000", "--length", "1000000"}), does_not_fit,
                   "the workload does not fit: the elements of its rows take") == "");
  CHECK(fails_with(bench({"cross-entropy", "--batch", "4000000000"}), does_not_fit,
                   "the workload does not fit: its labels take") == "");
  CHECK(fails_with(bench({"gelu", "--batch", "4000000000", "--length", "4000000000"}), usage,
                   "more elements than can be counted") == "");
}

TEST_CASE("layers larger than all memory are refused with their size and the limit") {
  Workplace place;
  place.write("wide.yaml",
              "model: {name: mlp, config: {hidden_sizes: [1000000000000]}}\n"
              "data: {format: idx, path: images}\ntrain: {steps: 1}\n");
  write_images(place, "images", 64, 28, 10);
  Outcome outcome = place.weft({"train", "wide.yaml"});
  CHECK(fails_with(outcome, does_not_fit, "GiB of memory. This process can use ") == "");
}

TEST_CASE("a loss that is not finite leads to the user's line in a program or recipe") {
  // Pixels of 1e13 leave the first step finite, and the logits of the second beyond float32 by
  // many decades, whatever the initial weights and the order of sums.
  const Workplace place;
  write_images(place, "images", 64, 28, 10);
  const std::string rest =
      "data: {format: idx, path: images, mean: [0], std: [1.0e-13]}\n"
      "optimizer: {name: sgd, lr: 100}\ntrain: {steps: 50, global_batch_size: 8}\n";
  place.write("wide.yaml", "name: wide\nmodel: {name: wide, config: {width: 8}}\n" + rest);
  place.write("mlp.yaml", "name: mlp\nmodel: {name: mlp, config: {hidden_sizes: [8]}}\n" + rest);
  place.write("layers.yaml",
              "name: layers\nmodel:\n  layers:\n    - flatten\n    - linear: {out_features: 8}\n"
              "    - relu\n    - linear: {out_features: 10}\n" +
                  rest);
  std::ifstream source(std::string(std::getenv("SRC")) + "/examples/04_own_program.cpp");
  int line = 1;
  for (std::string text; std::getline(source, text) && text.find("head_(relu(") == text.npos;)
    ++line;
  constexpr int non_finite = 6;
  CHECK(fails_with(place.run(std::string(std::getenv("BUILD")) + "/examples/04_own_program",
                             {"train", "wide.yaml", "--json"}),
                   non_finite, fmt::format(" in head (04_own_program.cpp:{}). ", line)) == "");
  CHECK(fails_with(place.weft({"train", "layers.yaml", "--json"}), non_finite,
                   "comes from matmul in 3 (layers.yaml:7). ") == "");
  // A built-in model has no line of the user's: the module identifies the layer.
  CHECK(fails_with(place.weft({"train", "mlp.yaml", "--json"}), non_finite, " in fc2 (mlp.cpp:") ==
        "");
}
