// Unusable runs and checkpoints.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/images.h"
#include "tests/support/program.h"
#include "weft/base/hash.h"
#include "weft/base/isa.h"
#include "weft/io/files.h"

using namespace weft::test;
namespace fs = std::filesystem;

namespace {
constexpr int usage = 2, does_not_fit = 3, checkpoint = 5, failed = 1, data_code = 4;

// A run of two steps with a tiny model, saved as runs/tiny.
struct TinyRun : Workplace {
  TinyRun() {
    write("tiny.yaml",
          "name: tiny\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
          "num_attention_heads: 2}}\n"
          "data: {dataset: addition, digits: 1}\ntrain: {steps: 2, global_batch_size: 4}\n"
          "eval: {batch_size: 4}\ncheckpoint: {every: 1}\n");
    Outcome outcome = weft({"train", "tiny.yaml", "--json"});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  }
};
}  // namespace

TEST_CASE("a run does not overwrite another") {
  TinyRun place;
  std::string log = place.read("runs/tiny/log.jsonl");
  CHECK(fails_with(place.weft({"train", "tiny.yaml"}), usage, "runs/tiny") == "");
  CHECK(place.read("runs/tiny/log.jsonl") == log);
  CHECK(place.weft({"train", "tiny.yaml", "--overwrite", "--json"}).code == 0);
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--overwrite", "--resume"}), usage,
                   "--overwrite") == "");
}

TEST_CASE("a folder for offloaded values that cannot be written, or is full, ends with one line") {
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

TEST_CASE("what is no run is not overwritten") {
  TinyRun place;
  place.write("runs/thesis/chapter.txt", "years of work");
  place.write("runs/letter", "a file");
  place.write("runs/recipes/recipe.yaml", place.read("tiny.yaml"));
  place.write("runs/notes/log.jsonl", "years of work");
  for (const char* name : {"thesis", "letter", "recipes", "notes"})
    CHECK(fails_with(place.weft({"train", "tiny.yaml", "--overwrite", "--name", name}), usage,
                     std::string("runs/") + name +
                         " is not a run: it has neither checkpoints nor recipe.yaml with the plan "
                         "of a run. --overwrite would replace its contents.") == "");
  CHECK(place.read("runs/thesis/chapter.txt") == "years of work");
  CHECK(place.read("runs/letter") == "a file");
  // Folders that resemble a run: a recipe next to other work, and files next to checkpoints.
  place.write("tiny/recipe.yaml", place.read("tiny.yaml"));
  place.write("tiny/plan.json", place.read("runs/tiny/plan.json"));
  place.write("tiny/thesis.txt", "years of work");
  CHECK(fails_with(place.weft({"train", "tiny/recipe.yaml", "--runs", ".", "--overwrite"}), usage,
                   "tiny contains thesis.txt, which is not part of a run: --overwrite would "
                   "replace it. Hint: move it, or --name chooses another.") == "");
  CHECK(place.read("tiny/thesis.txt") == "years of work");
  place.write("runs/tiny/checkpoints/mine.safetensors", "years of work");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--overwrite"}), usage,
                   "tiny contains checkpoints/mine.safetensors, which is not part of a run") == "");
  CHECK(place.read("runs/tiny/checkpoints/mine.safetensors") == "years of work");
  fs::remove(place.path("runs/tiny/checkpoints/mine.safetensors"));
  for (const char* mine : {"step-00000002/thesis.txt", "step-00000009", "best"}) {
    const std::string file = "runs/tiny/checkpoints/" + std::string(mine);
    place.write(file, "years of work");
    CHECK(fails_with(place.weft({"train", "tiny.yaml", "--overwrite"}), usage,
                     "tiny contains checkpoints/" + std::string(mine) + ", which is not part") ==
          "");
    CHECK(place.read(file) == "years of work");
    fs::remove(place.path(file));
  }
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--name", "a.partial-7-0123456789abcdef"}),
                   usage, "name 'a.partial-") == "");
}

TEST_CASE("a folder that is no run does not go on as one") {
  TinyRun place;
  const std::map<std::string, std::string> files{{"recipe.yaml", "my notes, no recipe: [\n"},
                                                 {"plan.json", "my plan"},
                                                 {"log.jsonl", "{\"step\": 5, \"mine\": 1}\n"},
                                                 {"blackbox.json", "mine"}};
  for (const auto& [name, text] : files) place.write("runs/mine/" + name, text);
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--name", "mine", "--resume"}), usage,
                   "runs/mine is not a run: it has neither checkpoints nor recipe.yaml with the "
                   "plan of a run. --resume would replace its contents.") == "");
  for (const auto& [name, text] : files) CHECK(place.read("runs/mine/" + name) == text);
  fs::create_directory_symlink(place.path("runs"), place.path("runs/link"));
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--name", "link", "--resume"}), usage,
                   "runs/link is not a run") == "");
  CHECK(fails_with(place.weft({"train", "runs/tiny"}), usage,
                   "runs/tiny is a run. Hint: runs/tiny --resume continues it.") == "");
}

TEST_CASE("what a killed start left is overwritten") {
  TinyRun place;
  fs::create_directories(place.path("runs/empty"));
  fs::create_directories(place.path("runs/begun/checkpoints"));
  place.write("runs/begun/recipe.yaml.partial-4194305-0123456789abcdef", "name: beg");
  for (const char* name : {"empty", "begun"})
    CHECK(place.weft({"train", "tiny.yaml", "--overwrite", "--name", name, "--json"}).code == 0);
}

TEST_CASE("what --overwrite set aside stays until somebody says what becomes of it") {
  TinyRun place;
  const std::string aside = place.path("runs/tiny.partial-4194305-0123456789abcdef");  // dead pid
  const std::string run = place.path("runs/tiny");
  fs::copy(run, aside, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const std::string name = "runs/tiny.partial-4194305-0123456789abcdef";
  const std::string warning = name + " is the run runs/tiny from before --overwrite. Hint: mv " +
                              name + " runs/tiny-before restores it, rm -r " + name +
                              " removes it.";
  CHECK(goes_on_with(place.weft({"train", "tiny.yaml", "--name", "other"}), warning) == "");
  CHECK(fs::exists(aside + "/checkpoints/step-00000002/MANIFEST.json"));
  // The folder set aside is moved into the run that replaced it.
  const std::string inside = run + "/" + fs::path(aside).filename().string();
  fs::rename(aside, inside);
  CHECK(goes_on_with(place.weft({"train", "tiny.yaml", "--resume", "--steps", "3"}),
                     " is the run runs/tiny from before --overwrite") == "");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--overwrite"}), usage,
                   "which is not part of a run") == "");
  CHECK(fs::exists(inside + "/checkpoints/step-00000002/MANIFEST.json"));
}

TEST_CASE("no output replaces a part of a run or of a checkpoint") {
  TinyRun place;
  fs::copy(place.path("runs/tiny/checkpoints/step-00000002"), place.path("copy"));
  for (const char* part : {"runs/tiny/checkpoints/latest/model.safetensors", "runs/tiny/log.jsonl",
                           "copy/model.safetensors"}) {
    const std::string before = place.read(part);
    REQUIRE(!before.empty());
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"plan", "tiny.yaml", "--dot", part},
          {"profile", "tiny.yaml", "--trace", part},
          {"init", "image", "--overwrite", "--output", part}})
      CHECK(fails_with(place.weft(arguments), usage,
                       std::string(part) + " would replace a part of ") == "");
    CHECK(place.read(part) == before);
  }
  for (int i = 0; i < 2; ++i)  // a user's own files in the run may be overwritten
    CHECK(place.weft({"plan", "tiny.yaml", "--dot", "runs/tiny/graph.dot"}).code == 0);
}

TEST_CASE("what is printed where standard output is closed lands in no file of the run") {
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

TEST_CASE("a recipe of a run or checkpoint that is no regular file is refused, and blocks nobody") {
  TinyRun place;
  fs::copy(place.path("runs/tiny"), place.path("runs/other"),
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  auto refused = [&](const std::vector<std::string>& arguments) {
    CHECK(fails_with(place.weft(arguments), checkpoint, "not a regular file.") == "");
  };
  auto replace = [&](const std::string& recipe) {
    fs::remove(place.path(recipe));
    REQUIRE(mkfifo(place.path(recipe).c_str(), 0600) == 0);
  };
  replace("runs/tiny/recipe.yaml");
  refused({"train", "runs/tiny", "--resume", "--steps", "10"});
  // The recipe is the user's, but recipe.yaml of the run must be written.
  const Outcome resumed = place.weft({"train", "tiny.yaml", "--resume", "--steps", "10"});
  CHECK(fails_with(resumed, failed, "it is a FIFO.") == "");
  // Nothing is written through a link, even one that leads nowhere.
  const std::pair<std::string, bool> cases[] = {
      {"recipe.yaml", true}, {"log.jsonl", true}, {"log.jsonl", false}};
  for (const auto& [file, leads_somewhere] : cases) {
    fs::remove(place.path("victim"));
    if (leads_somewhere) place.write("victim", "precious");
    fs::copy(place.path("runs/other"), place.path("runs/linked"),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    fs::remove(place.path("runs/linked/" + file));
    fs::create_symlink("../../victim", place.path("runs/linked/" + file));
    const Outcome linked =
        place.weft({"train", "tiny.yaml", "--name", "linked", "--resume", "--steps", "10"});
    CHECK(fails_with(linked, failed, "it is a link.") == "");
    CHECK(fs::exists(place.path("victim")) == leads_somewhere);
    if (leads_somewhere) CHECK(place.read("victim") == "precious");
    fs::remove_all(place.path("runs/linked"));
  }
  refused({"runs", "compare", "tiny", "other"});
  replace("runs/tiny/checkpoints/step-00000002/recipe.yaml");
  refused({"eval", "tiny"});
  refused({"generate", "tiny", "--prompt", "1"});
}

TEST_CASE("a cache folder that others may enter is named once, and left as it is") {
  const TinyRun place;
  const std::string cache = place.path("cache");
  place.write("cache/note", "this user's");
  for (const char* mode : {"0755", "0777"}) {
    fs::permissions(cache, static_cast<fs::perms>(std::stoi(mode, nullptr, 8)));
    const Outcome outcome = place.weft({"eval", "tiny"}, {{"WEFT_CACHE_DIR", cache}});
    CHECK(goes_on_with(outcome, "is open to others") == "");
    CHECK(outcome.err ==
          fmt::format("weft: warning: {0} is open to others (mode {1}), and its contents would be "
                      "executed: it is not read. Hint: chmod 700 {0}, or WEFT_CACHE_DIR.\n",
                      cache, mode));
    CHECK(!fs::exists(cache + "/kernels"));
  }
  fs::permissions(cache, fs::perms::owner_all);
  CHECK(place.weft({"eval", "tiny"}, {{"WEFT_CACHE_DIR", cache}}).err.empty());
  CHECK(!fs::is_empty(cache + "/kernels"));
}

TEST_CASE("without a home nothing is kept, and no data set is looked for in the current folder") {
  const TinyRun place;
  auto homeless = [&](const std::vector<std::string>& words, const std::string& cache) {
    std::vector<std::string> arguments{"-u", "HOME", "-u", "XDG_CACHE_HOME", "-u", "XDG_DATA_HOME"};
    arguments.emplace_back(std::getenv("WEFT"));
    arguments.insert(arguments.end(), words.begin(), words.end());
    Outcome outcome =
        place.run("/usr/bin/env", arguments, {{"WEFT_CACHE_DIR", cache}, {"WEFT_DATA_DIR", ""}});
    outcome.command = "env -u HOME weft " + fmt::format("{}", fmt::join(words, " "));
    return outcome;
  };
  const Outcome outcome = homeless({"eval", "tiny"}, "");
  CHECK(goes_on_with(outcome, "there is no cache") == "");
  CHECK(outcome.err ==
        "weft: warning: there is no cache: neither WEFT_CACHE_DIR nor HOME names a folder for it. "
        "Each run compiles its kernels again.\n");
  place.write("mnist/train-images-idx3-ubyte", "of whoever wrote it");
  place.write("images.yaml", "model: {name: mlp}\ndata: {dataset: mnist}\ntrain: {steps: 1}\n");
  CHECK(fails_with(homeless({"train", "images.yaml"}, test_cache()), data_code,
                   "no folder to look for mnist in: neither WEFT_DATA_DIR nor HOME names one. "
                   "Hint: data.path.") == "");
  CHECK(homeless({"list", "data"}, "").out.find("  here\n") == std::string::npos);
}

TEST_CASE("a run is found by its name beside data of the same name") {
  for (const char* kind : {"folder", "file"}) {
    TinyRun place;
    place.write(kind == std::string("folder") ? "tiny/labels.gz" : "tiny", "data");
    CHECK(place.weft({"eval", "tiny"}).code == 0);
    CHECK(place.weft({"generate", "tiny", "--prompt", "1+1="}).code == 0);
    CHECK(place.weft({"ckpt", "verify", "tiny"}).code == 0);
    CHECK(place.weft({"ckpt", "ls", "tiny"}).out.find("latest") != std::string::npos);
  }
}

TEST_CASE("a link that leads in a circle is no checkpoint") {
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

TEST_CASE("a run whose lines nobody reads any more goes on to its end") {
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

TEST_CASE("a run that is not there is not resumed") {
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

TEST_CASE("names that no folder should have are refused") {
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

TEST_CASE("what a folder's name holds of control characters does not reach the terminal") {
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

TEST_CASE("a log or plan of a run that is not weft's names the file and the key") {
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

TEST_CASE("one run that cannot be read hides no others") {
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

TEST_CASE("a path that the system does not follow is named with the system's reason") {
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

TEST_CASE("a manifest that breaks off says where, in words of ours") {
  TinyRun place;
  const std::string manifest = "runs/tiny/checkpoints/step-00000002/MANIFEST.json";
  place.write(manifest, "");
  CHECK(fails_with(place.weft({"ckpt", "verify", "tiny"}), checkpoint,
                   "MANIFEST.json: not JSON: it ends too early, at line 1, column 1.") == "");
  place.write(manifest, "{\n  \"step\": ?}");
  CHECK(fails_with(place.weft({"ckpt", "verify", "tiny"}), checkpoint,
                   "MANIFEST.json: not JSON: there is a mistake at line 2, column 11.") == "");
}

TEST_CASE("a run goes on with a plan and a log that are damaged") {
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

TEST_CASE("peaks of the machine that are kept but damaged are measured anew") {
  TinyRun place;
  const std::string file = "cache/peaks/" + std::string(name(weft::isa())) + "-1-threads";
  auto plan = [&] {
    return place.weft({"plan", "tiny.yaml", "--device", "cpu"},
                      {{"WEFT_CACHE_DIR", place.path("cache")}, {"WEFT_THREADS", "1"}});
  };
  std::string text(10000, '\xff');
  for (const char* made : {"cache", "cache/peaks"}) {
    fs::create_directory(place.path(made));
    fs::permissions(place.path(made), fs::perms::owner_all);
  }
  for (int i = 0; i < 2; ++i) {
    place.write(file, text);
    CHECK(plan().code == 0);
    const std::string whole = place.read(file);
    CHECK(whole.ends_with(" threads\n"));
    CHECK(whole.front() > '0');
    text = "-1" + whole.substr(whole.find(' '));
  }
}

TEST_CASE("a FIFO, folder or link in the user's own cache is not waited for, and stays") {
  TinyRun place;
  const std::string peaks = "cache/peaks/" + std::string(name(weft::isa())) + "-1-threads";
  const std::vector<std::string> plan{"plan", "tiny.yaml", "--device", "cpu"};
  Workplace::Environment here{{"WEFT_CACHE_DIR", place.path("cache")}, {"WEFT_THREADS", "1"}};
  CHECK(place.weft(plan, here).code == 0);
  here["WEFT_TUNE"] = "1";
  const std::vector<std::string> train{"train", "tiny.yaml", "--overwrite", "--device", "cpu"};
  CHECK(place.weft(train, here).code == 0);
  place.write("victim", "precious");
  std::vector<std::string> kept{peaks};
  for (const auto& entry : fs::directory_iterator(place.path("cache/selection")))
    kept.push_back("cache/selection/" + entry.path().filename().string());
  REQUIRE(kept.size() == 2);
  for (const std::string& file : kept)
    for (const mode_t kind : {mode_t{S_IFIFO}, mode_t{S_IFDIR}, mode_t{S_IFLNK}}) {
      const std::string path = place.path(file);
      CAPTURE(path);
      fs::remove(path);
      if (kind == S_IFIFO) REQUIRE(mkfifo(path.c_str(), 0600) == 0);
      if (kind == S_IFDIR) fs::create_directory(path);
      if (kind == S_IFLNK) fs::create_symlink(place.path("victim"), path);
      CHECK(place.weft(file == peaks ? plan : train, here).code == 0);
      struct stat status{};
      REQUIRE(lstat(path.c_str(), &status) == 0);
      CHECK((status.st_mode & S_IFMT) == kind);
    }
  CHECK(place.read("victim") == "precious");
}

TEST_CASE("in a cache that others may write nothing is read and nothing is written") {
  TinyRun place;
  const std::string victim = place.path("victim"), cache = place.path("cache");
  place.write("victim", "precious");
  fs::create_directories(cache + "/peaks");
  fs::create_symlink(victim, cache + "/peaks/" + std::string(name(weft::isa())) + "-1-threads");
  fs::permissions(cache, fs::perms::all);
  const Outcome outcome = place.weft({"plan", "tiny.yaml", "--device", "cpu"},
                                     {{"WEFT_CACHE_DIR", cache}, {"WEFT_THREADS", "1"}});
  CHECK(outcome.code == 0);
  CHECK(outcome.err.find(cache + " is open to others (mode 0777)") != std::string::npos);
  CHECK(place.read("victim") == "precious");
  CHECK(std::distance(fs::directory_iterator(cache), {}) == 1);
}

TEST_CASE(
    "kernels in the cache that are damaged, or another version's, are named once and made anew") {
  Workplace place;
  const Workplace::Environment cache{{"WEFT_CACHE_DIR", place.path("cache")}};
  const std::vector<std::string> bench{"bench", "mlp", "--steps", "1"};
  CHECK(place.weft(bench, cache).err.empty());
  for (const std::string& text : {std::string("weftobj0 of another layout"), std::string()}) {
    for (const auto& kernel : fs::directory_iterator(place.path("cache/kernels")))
      place.write("cache/kernels/" + kernel.path().filename().string(), text);
    const Outcome outcome = place.weft(bench, cache);
    CHECK(std::ranges::count(outcome.err, '\n') == 1);
    CHECK(goes_on_with(
              outcome,
              " is damaged, or from another version of weft; such kernels are compiled again") ==
          "");
    CHECK(place.weft(bench, cache).err.empty());
  }
}

TEST_CASE("a folder for runs that cannot be written is named") {
  TinyRun place;
  place.write("file", "not a folder");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--runs", "file"}), failed, "file") == "");
}

TEST_CASE("checkpoints that are missing or of another model are refused") {
  TinyRun place;
  CHECK(fails_with(place.weft({"eval", "nothing"}), checkpoint, "no checkpoint under nothing") ==
        "");
  CHECK(fails_with(place.weft({"ckpt", "verify", "nothing"}), checkpoint,
                   "no checkpoint under nothing") == "");
  CHECK(fails_with(place.weft({"eval", "tiny", "--model.config",
                               "{hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2}"}),
                   checkpoint, "another model") == "");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--resume", "--steps", "4", "--model.config",
                               "{hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2}"}),
                   checkpoint, "another model") == "");
}

TEST_CASE("a damaged checkpoint is refused, with the file that differs") {
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

TEST_CASE(
    "fields of a checkpoint that are missing or of another kind are named, in words of ours") {
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

TEST_CASE("a file of a checkpoint that the system does not follow is one line") {
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

TEST_CASE("a run whose checkpoints cannot be looked at does not begin anew") {
  TinyRun place;
  fs::remove_all(place.path("runs/tiny/checkpoints"));
  fs::create_symlink("checkpoints", place.path("runs/tiny/checkpoints"));
  const std::string log = place.read("runs/tiny/log.jsonl");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--resume"}), checkpoint,
                   "cannot open runs/tiny/checkpoints/MANIFEST.json: Too many levels of symbolic "
                   "links.") == "");
  CHECK(place.read("runs/tiny/log.jsonl") == log);
}

TEST_CASE(
    "a change of a recipe that comes when its run is over is refused, and nothing is changed") {
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

TEST_CASE("a run that goes on from an older checkpoint says what is wrong with the last") {
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

TEST_CASE("a run that goes on with another instruction set says so once") {
  const TinyRun place;
  const nlohmann::json plan = nlohmann::json::parse(place.read("runs/tiny/plan.json"));
  const std::string here = plan["isa"], other = here == "avx2" ? "avx512" : "avx2";
  CHECK(here == name(weft::isa()));
  const std::string warning = "weft: warning: run runs/tiny was trained with the instruction set " +
                              other + " and continues with " + here +
                              ": losses may differ in their last digits. Hint: WEFT_ISA=" + other +
                              " where the processor has it.\n";
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

TEST_CASE("a checkpoint whose vocabulary is gone or damaged writes no text") {
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

TEST_CASE("a manifest of another step than the checkpoint's is refused") {
  TinyRun place;
  const std::string file = "runs/tiny/checkpoints/step-00000002/MANIFEST.json";
  std::string manifest = place.read(file);
  size_t at = manifest.find("\"step\": 2");
  REQUIRE(at != std::string::npos);
  place.write(file, manifest.replace(at, 9, "\"step\": 3"));
  CHECK(fails_with(place.weft({"ckpt", "verify", "tiny"}), checkpoint,
                   "MANIFEST.json: step 3. data.json says 2.") == "");
}

TEST_CASE(
    "text cannot be had from what is no language model, or begin with what it does not know") {
  TinyRun place;
  CHECK(fails_with(place.weft({"generate", "tiny", "--prompt", "hello"}), data_code, "") == "");
  CHECK(fails_with(place.weft({"generate", "tiny", "--prompt", ""}), usage,
                   "a prompt has at least one character.") == "");
}

TEST_CASE("what generate refuses leaves nothing on standard output") {
  TinyRun place;
  Outcome outcome = place.weft({"generate", "tiny", "--prompt", "hello"});
  CHECK(outcome.out.empty());
  CHECK(fails_with(place.weft({"generate", "tiny", "--prompt", "1+1=", "--stop", "12"}), usage,
                   "--stop must be one character. Got '12'.") == "");
  CHECK(fails_with(place.weft({"generate", "tiny", "--prompt", "1+1=", "--temperature", "nan"}),
                   usage, "--temperature is 0 to 100. Got nan.") == "");
}

TEST_CASE("generate says what the text does not: a prompt that is cut, digits in reverse") {
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

TEST_CASE("a run that is larger than the machine is refused before it takes memory") {
  Workplace place;
  const std::string sums = "data: {dataset: addition, digits: 3}\noptimizer: {name: sgd}\n";
  place.write("wide.yaml", sums +
                               "train: {steps: 1}\nmodel: {name: gpt, config: {hidden_size: 64Ki, "
                               "num_attention_heads: 16}}\n");
  CHECK(fails_with(place.weft({"train", "wide.yaml"}), does_not_fit,
                   "the run does not fit: its weights and optimizer state take") == "");
  place.write("long.yaml", sums +
                               "train: {steps: 1, global_batch_size: 100K, precision: fp64}\n"
                               "model: {name: gpt, config: {hidden_size: 512, num_hidden_layers: "
                               "8, num_attention_heads: 8}}\n");
  CHECK(fails_with(place.weft({"train", "long.yaml"}), does_not_fit,
                   "the plan does not fit: its arena of ") == "");
}

TEST_CASE("a workload that is larger than the machine is refused before it takes memory") {
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

TEST_CASE("layers beyond all memory say what they need and what there is") {
  Workplace place;
  place.write("wide.yaml",
              "model: {name: mlp, config: {hidden_sizes: [1000000000000]}}\n"
              "data: {format: idx, path: images}\ntrain: {steps: 1}\n");
  write_images(place, "images", 64, 28, 10);
  Outcome outcome = place.weft({"train", "wide.yaml"});
  CHECK(fails_with(outcome, does_not_fit, "GiB of memory. This process can use ") == "");
}

TEST_CASE("a loss that is not finite leads to the user's line, of a program or of a recipe") {
  TinyRun place;
  const std::string rest =
      "data: {dataset: random-images, image_size: 4}\noptimizer: {name: sgd, lr: 100}\n"
      "train: {steps: 50, global_batch_size: 8}\nlog: {every: 1}\n";
  place.write("wide.yaml", "name: wide\nmodel: {name: wide, config: {width: 8}}\n" + rest);
  place.write("layers.yaml",
              "name: layers\nmodel:\n  layers:\n    - flatten\n    - linear: {out_features: 8}\n"
              "    - relu\n    - linear: {out_features: 1000}\n" +
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
                   " of matmul in 3 (layers.yaml:7). ") == "");
  // A built-in model has no line of the user's: the module identifies the layer.
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--name", "wild", "--steps", "50",
                               "--optimizer.name", "sgd", "--lr", "100", "--json"}),
                   non_finite, " in h.0.attn (gpt.cpp:") == "");
}
