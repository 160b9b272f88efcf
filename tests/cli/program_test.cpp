// Tests the program from a user's view: help, version, lists, recipes, runs.
#include "tests/support/program.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny_gpt.h"
#include "tests/support/near.h"
#include "weft/base/host/env.h"
#include "weft/train/recipe/recipe.h"

using namespace weft::test;
using nlohmann::json;

namespace {
const std::vector<std::vector<std::string>> verbs = {{"plan"},
                                                     {"train"},
                                                     {"eval"},
                                                     {"generate"},
                                                     {"runs"},
                                                     {"runs", "ls"},
                                                     {"runs", "show"},
                                                     {"runs", "compare"},
                                                     {"ckpt"},
                                                     {"ckpt", "ls"},
                                                     {"ckpt", "inspect"},
                                                     {"ckpt", "verify"},
                                                     {"inspect"},
                                                     {"convert"},
                                                     {"prune"},
                                                     {"init"},
                                                     {"list"},
                                                     {"config"},
                                                     {"config", "print"},
                                                     {"config", "schema"},
                                                     {"config", "reference"},
                                                     {"bench"},
                                                     {"completion"},
                                                     {"devices"},
                                                     {"doctor"}};

const std::string every_step_logged = tiny_gpt(4, 4) + "log: {every: 1}\n";
}  // namespace

TEST_CASE("the version is one line") {
  Workplace place;
  const Outcome outcome = place.weft({"--version"});
  CHECK(outcome.code == 0);
  CHECK(outcome.out.starts_with("weft 0."));
  CHECK(outcome.out.find('\n') + 1 == outcome.out.size());
}

TEST_CASE("every verb has help with an example, in plain text without a terminal") {
  Workplace place;
  for (std::vector<std::string> verb : verbs) {
    verb.push_back("--help");
    Outcome outcome = place.weft(verb);
    CAPTURE(outcome.command);
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    CHECK(outcome.out.find("Usage\n") != std::string::npos);
    CHECK(outcome.out.find("Examples\n  weft " + verb[0]) != std::string::npos);
    CHECK(outcome.out.find('\033') == std::string::npos);
    CHECK(outcome.out.find('{') == std::string::npos);  // the parser's own annotations
  }
}

TEST_CASE("help without a verb lists every verb") {
  Workplace place;
  std::string help = place.weft({"--help"}).out;
  CHECK(help == place.weft({"help"}).out);
  for (const std::vector<std::string>& none : {std::vector<std::string>{}, {"runs"}}) {
    Outcome outcome = place.weft(none);  // names what is missing
    CHECK(outcome.code == 2);
    CHECK(outcome.out.find("Usage\n") != std::string::npos);
  }
  CHECK(help == place.weft({}).out);
  CHECK(place.weft({"help", "runs", "ls"}).out == place.weft({"runs", "ls", "--help"}).out);
  CHECK(place.weft({"version"}).out == place.weft({"--version"}).out);
  for (const auto& verb : verbs) CHECK(help.find("  " + verb[0] + " ") != std::string::npos);
}

TEST_CASE("tables and help wrap between words at 80 columns or the terminal's width") {
  Workplace place;
  place.write("tiny.yaml", every_step_logged);
  auto longest = [](const std::string& text) {  // ignores step lines, which are not wrapped
    size_t columns = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (!line.starts_with("step "))
        columns = std::max(columns, static_cast<size_t>(std::ranges::count_if(
                                        line, [](char c) { return (c & 0xC0) != 0x80; })));
    return columns;
  };
  const std::vector<std::vector<std::string>> commands{
      {"list"}, {"--help"}, {"train", "--help"}, {"plan", "tiny.yaml", "--explain"}};
  for (const auto& command : commands) {
    const std::string wide = place.weft(command, {{"COLUMNS", "300"}}).out;
    const std::string usual = place.weft(command).out;
    CAPTURE(usual);
    CHECK(longest(usual) <= 80);
    auto words = [](const std::string& text) {
      std::istringstream stream(text);
      return std::vector<std::string>(std::istream_iterator<std::string>(stream), {});
    };
    CHECK(words(usual) == words(wide));
  }
  const std::string name = "a-name-of-a-run";
  const std::vector<std::vector<std::string>> varying{
      {"train", "tiny.yaml", "--name", name}, {"ckpt", "inspect", name}, {"devices"}};
  for (const auto& command : varying) {
    const Outcome outcome = place.weft(command);
    CAPTURE(outcome.out);
    CHECK(outcome.code == 0);
    CHECK(longest(outcome.out) <= 80);
  }
}

TEST_CASE("weft list names everything that recipes may use") {
  Workplace place;
  json all = json_of(place.weft({"list", "--json"}));
  auto has = [&](const char* topic, const char* name) {
    return std::find(all[topic].begin(), all[topic].end(), name) != all[topic].end();
  };
  CHECK(has("models", "resnet20"));
  CHECK(has("layers", "conv2d"));
  CHECK(has("layers", "relu"));
  CHECK(has("data", "mnist"));
  CHECK(has("data", "format: text"));
  // The plural of either kind names its rows of the topic, which has both.
  const json sets = json_of(place.weft({"list", "datasets", "--json"}))["data"];
  const json formats = json_of(place.weft({"list", "formats", "--json"}))["data"];
  CHECK(std::ranges::none_of(sets,
                             [](const std::string& name) { return name.starts_with("format: "); }));
  CHECK(std::ranges::all_of(formats,
                            [](const std::string& name) { return name.starts_with("format: "); }));
  CHECK(std::ranges::find(formats, json("format: text")) != formats.end());
  CHECK(sets.size() + formats.size() == all["data"].size());
  CHECK(has("losses", "cross_entropy"));
  CHECK(has("metrics", "exact_match"));
  CHECK(has("optimizers", "adamw"));
  CHECK(has("schedules", "cosine"));
  std::string layers = place.weft({"list", "layers"}).out;
  CHECK(layers.find("out_channels, kernel_size") != std::string::npos);
  CHECK(layers.find("activations: relu") != std::string::npos);
  // Measured peaks are listed beside those of the data sheet.
  const std::string gpus = place.weft({"list", "gpus"}).out;
  CHECK(gpus.find(" 4800   66.9  494.7      989.4 ") != std::string::npos);
  CHECK(gpus.find("NVIDIA H200, measured at 790 TFLOP/s in 16 bits, 4300 GB/s\n") !=
        std::string::npos);
}

TEST_CASE("recipes are found by name in ./recipes") {
  Workplace place;
  place.write("recipes/little.yaml", "# What it does\n" + every_step_logged);
  CHECK(place.weft({"list", "recipes"}).out.find("What it does") != std::string::npos);
  CHECK(place.weft({"config", "print", "little"}).out.find("name: tiny\n") != std::string::npos);
}

TEST_CASE("a recipe is read from a pipe, or from the standard input as -") {
  Workplace place;
  place.write("tiny.yaml", every_step_logged);
  const std::string printed = place.weft({"config", "print", "tiny.yaml"}).out;
  CHECK(printed.find("name: tiny\n") != std::string::npos);
  place.write(".in", every_step_logged);
  CHECK(place.weft({"config", "print", "-"}).out == printed);
  CHECK(place.weft({"config", "print", "/dev/stdin"}).out == printed);
  REQUIRE(mkfifo(place.path("pipe").c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(place.path("pipe")) << every_step_logged; });
  CHECK(place.weft({"config", "print", "pipe"}).out == printed);
  writer.join();
  CHECK(fails_with(place.weft({"config", "print", "/dev/zero"}), 2,
                   "cannot read /dev/zero: over the limit of 1048576 bytes.") == "");
}

TEST_CASE("a run is resumed by its name or folder with its original recipe") {
  Workplace place;
  place.write("tiny.yaml", every_step_logged);
  place.weft({"train", "tiny.yaml", "--name", "quick", "--optimizer.lr", "0.0125"});
  auto rate = [&] {
    return place.read("runs/quick/recipe.yaml").find("lr: 0.0125") != std::string::npos;
  };
  REQUIRE(rate());
  int64_t steps = 4;
  for (const std::vector<std::string>& named :
       {std::vector<std::string>{"--resume", "quick"},
        {"runs/quick", "--resume"},
        {place.path("runs/quick"), "--resume", "--runs", "elsewhere"}}) {
    std::vector<std::string> arguments{"train", "--json", "--steps", std::to_string(++steps)};
    arguments.insert(arguments.end(), named.begin(), named.end());
    const json result = json_of(place.weft(arguments));
    CHECK(result["step"] == steps);
    CHECK(std::filesystem::equivalent(
        place.path("runs/quick"),
        std::filesystem::path(place.folder()) / result["run"].get<std::string>()));
    CHECK(rate());
  }
  CHECK(fails_with(place.weft({"train", "--resume", "quack"}), 2,
                   "quack: no such run, and no such recipe. Hint: weft runs ls.") == "");
  CHECK(fails_with(place.weft({"train", "--resume", "quick", "--name", "other"}), 2,
                   "a resumed run keeps its name quick. Got --name other.") == "");
  CHECK(fails_with(place.weft({"train", "quick"}), 2, "quick: no such recipe.") == "");
}

TEST_CASE("the warm-up of every shipped recipe is a fraction of its steps") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("recipes")) {
    CAPTURE(entry.path());
    const auto recipe = weft::train::Recipe::load(entry.path());
    CHECK(recipe.integer("scheduler.warmup_steps") == 0);
    auto shorter = recipe;
    shorter.set("train.epochs", "null", "test");
    shorter.set("train.steps", "50", "test");
    CHECK_NOTHROW(shorter.check());
    ++count;
  }
  CHECK(count >= 13);
}

TEST_CASE("flags override the environment, which overrides the recipe") {
  Workplace place;
  place.write("tiny.yaml", every_step_logged);
  auto rate = [&](std::vector<std::string> flags, const Workplace::Environment& environment = {}) {
    flags.insert(flags.begin(), {"config", "print", "tiny.yaml"});
    Outcome outcome = place.weft(flags, environment);
    return weft::train::Recipe::parse(outcome.out, "printed").number("optimizer.lr");
  };
  CHECK(rate({}) == 1e-3);
  CHECK(rate({}, {{"WEFT__OPTIMIZER__LR", "0.5"}}) == 0.5);
  CHECK(rate({"--optimizer.lr", "0.25"}, {{"WEFT__OPTIMIZER__LR", "0.5"}}) == 0.25);
  CHECK(rate({"--optimizer.lr=0.125"}) == 0.125);
}

TEST_CASE("a starter recipe of each kind is complete and valid") {
  Workplace place;
  for (const char* kind : {"image", "text", "addition"}) {
    CHECK(place.weft({"init", kind}).code == 0);
    std::string yaml = place.read(std::string(kind) + ".yaml");
    CHECK_NOTHROW(weft::train::Recipe::parse(yaml, kind).check());
    CHECK(yaml.starts_with("# "));
  }
  CHECK(place.weft({"plan", "addition.yaml", "--steps", "3"}).code == 0);  // less than a warm-up
  CHECK(place.weft({"init", "text", "--output", "mine.yaml"}).code == 0);
  CHECK(place.weft({"init", "text", "--output", "mine.yaml", "--overwrite"}).code == 0);
  CHECK(place.weft({"init", "text", "--output", "-"}).out == place.read("mine.yaml"));
}

TEST_CASE("docs/recipe.md matches the output of config reference") {
  Workplace place;
  const char* source = std::getenv("SRC");
  std::ifstream page((source != nullptr ? std::string(source) : ".") + "/docs/recipe.md");
  std::string written((std::istreambuf_iterator<char>(page)), {});
  CHECK(place.weft({"config", "reference"}).out ==
        written);  // regenerate: weft config reference > docs/recipe.md
  json schema = json_of(place.weft({"config", "schema"}));
  CHECK(schema["properties"]["optimizer"]["properties"]["lr"]["type"] == "number");
}

TEST_CASE("weft plan and weft train --dry-run agree and write nothing") {
  Workplace place;
  place.write("tiny.yaml", every_step_logged);
  json plan = json_of(place.weft({"plan", "tiny.yaml", "--json"}));
  CHECK(plan["parameters"] > 0);
  CHECK(plan["arena_bytes"] > 0);
  CHECK(plan["likely_step_seconds"] > plan["step_seconds"]);
  CHECK_FALSE(std::filesystem::exists(place.path("runs")));
  CHECK(json_of(place.weft({"train", "tiny.yaml", "--dry-run", "--json"})) == plan);
  Outcome table = place.weft({"plan", "tiny.yaml"});
  CHECK(table.out.find("by module:") != std::string::npos);
}

TEST_CASE("a run is trained, listed, shown, compared, evaluated and prompted") {
  Workplace place;
  place.write("tiny.yaml", every_step_logged);
  json trained = json_of(place.weft({"train", "tiny.yaml", "--json"}));
  CHECK(trained["step"] == 4);
  CHECK(trained["run"] == "runs/tiny");
  CHECK(trained["exit_code"] == 0);
  json other = json_of(
      place.weft({"fit", "tiny.yaml", "--name", "other", "--lr", "1e-2", "--seed", "7", "--json"}));
  CHECK(other["eval_loss"] != trained["eval_loss"]);

  json runs = json_of(place.weft({"runs", "ls", "--json"}));
  REQUIRE(runs.size() == 2);
  CHECK(runs[0]["name"] == "other");
  CHECK(runs[1]["name"] == "tiny");
  CHECK(runs[1]["ended"] == true);
  CHECK(place.weft({"runs", "ls"}).out.find("\ntiny   gpt") != std::string::npos);
  CHECK(place.weft({"runs", "show", "tiny"}).out.find("loss curve") != std::string::npos);
  CHECK(place.weft({"runs", "show", "runs/tiny/"}).out.find("runs/tiny") != std::string::npos);
  std::string compared = place.weft({"runs", "compare", "tiny", "other"}).out;
  CHECK(compared.find("optimizer.lr") != std::string::npos);
  CHECK(compared.find("optimizer.eps") == std::string::npos);  // the same in both

  json evaluated = json_of(place.weft({"eval", "tiny", "--json"}));
  CHECK(evaluated["loss"] == trained["eval_loss"]);
  CHECK(evaluated["count"] == trained["eval_count"]);
  CHECK(evaluated["loss"] != trained["train_loss"]);

  json asked = json_of(place.weft({"generate", "tiny", "--prompt", "1+2=", "--max-new-tokens", "3",
                                   "--temperature", "0", "--json"}));
  CHECK(asked["text"].get<std::string>().size() == 3);
  CHECK(asked["tokens"] == 3);
  CHECK(asked["tokens_per_second"] > 0);
  std::string written = place
                            .weft({"generate", "tiny", "--prompt", "1+2=", "--max-new-tokens", "3",
                                   "--temperature", "0"})
                            .out;
  CHECK(written == "1+2=" + asked["text"].get<std::string>() + "\n");
  CHECK(asked["finish"] == "length");
  // Several prompts run at once, and each text is what it is alone.
  const json both = json_of(
      place.weft({"generate", "tiny", "--prompt", "1+2=", "--prompt", "7", "--max-new-tokens", "3",
                  "--temperature", "0", "--json", "--log-probabilities"}));
  REQUIRE(both["results"].size() == 2);
  CHECK(both["results"][0]["text"] == asked["text"]);
  CHECK(both["results"][1]["prompt"] == "7");
  CHECK(both["results"][1]["token_ids"].size() == 3);
  for (const json& each : both["results"][1]["log_probabilities"]) CHECK(each.get<double>() < 0);
  const std::string first = asked["text"].get<std::string>().substr(0, 1);
  const json stopped =
      json_of(place.weft({"generate", "tiny", "--prompt", "1+2=", "--max-new-tokens", "3",
                          "--temperature", "0", "--stop", first, "--json"}));
  CHECK(stopped["text"] == "");
  CHECK(stopped["finish"] == "stop");

  json checkpoints = json_of(place.weft({"ckpt", "ls", "tiny", "--json"}));
  REQUIRE(checkpoints.size() == 1);
  CHECK(checkpoints[0]["latest"] == true);
  json tensors = json_of(place.weft({"ckpt", "inspect", "tiny", "--json"}));
  CHECK(tensors["tensors"].size() > 5);
  CHECK(place.weft({"ckpt", "verify", "tiny"}).code == 0);
}

TEST_CASE("evaluation reports perplexity for language models and not for sums") {
  Workplace place;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the cat sat on the mat. "[i % 24];
  place.write("text.txt", text);
  place.write("letters.yaml",
              "name: letters\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
              "num_attention_heads: 2}}\ndata: {format: text, path: text.txt, seq_len: 8, "
              "val_split: 0.2}\ntrain: {steps: 2, global_batch_size: 4}\n");
  REQUIRE(place.weft({"train", "letters.yaml"}).code == 0);
  const json found = json_of(place.weft({"eval", "letters", "--json"}));
  CHECK(found["perplexity"].get<double>() ==
        weft::testing::near(std::exp(found["loss"].get<double>()), 1e-12));
  const std::string shown = place.weft({"eval", "letters"}).out;
  CHECK(shown.find("  perplexity ") != std::string::npos);
  CHECK(shown.ends_with(" tokens\n"));
  CHECK(place.read("runs/letters/log.jsonl").find("\"perplexity\":") != std::string::npos);
  const Outcome said =
      place.weft({"generate", "letters", "--prompt", "the", "--max-new-tokens", "12"});
  CHECK(said.err.find("12 tokens, ") != std::string::npos);
  CHECK(said.err.find(" tok/s\n") != std::string::npos);
  place.write("tiny.yaml", every_step_logged);
  REQUIRE(place.weft({"train", "tiny.yaml"}).code == 0);
  CHECK_FALSE(json_of(place.weft({"eval", "tiny", "--json"})).contains("perplexity"));
  CHECK(place.weft({"eval", "tiny"}).out.ends_with(" sums\n"));
}

TEST_CASE("a bench prints the JSON line that comparisons read") {
  Workplace place;
  json line = json_of(place.weft({"bench", "mlp", "--steps", "3", "--batch", "8", "--json"}));
  for (const char* key :
       {"median_ms", "best_ms", "items_per_s", "first_step_done_s", "peak_rss_gb", "loss"}) {
    CAPTURE(key);
    CHECK(line[key].get<double>() > 0);
  }
  CHECK(line["batch"] == 8);
  CHECK(line["best_ms"] <= line["median_ms"]);
  CHECK(place.weft({"bench", "mlp", "--steps", "3"}).out.find("all kernels") != std::string::npos);
}

TEST_CASE("devices and doctor describe the machine as text and as JSON") {
  Workplace place;
  json devices = json_of(place.weft({"devices", "--json"}));
  CHECK(devices["cores"] >= 1);
  CHECK(devices["peak_gflops"]["f32"] > 0);
  CHECK(place.weft({"devices"}).out.find("bandwidth") != std::string::npos);
  std::string environment = place.weft({"doctor", "--env"}).out;
  for (const auto& variable : weft::env_registry())
    CHECK(environment.find(variable.name) != std::string::npos);
  CHECK(place.weft({"doctor"}).out.find("oneDNN") != std::string::npos);
}
