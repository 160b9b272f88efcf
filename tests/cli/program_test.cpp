// The program as a user meets it: help, version, lists, recipes, runs.
#include "tests/support/program.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "weft/base/env.h"
#include "weft/base/isa.h"
#include "weft/train/recipe.h"

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

const std::string tiny =
    "name: tiny\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
    "num_attention_heads: 2}}\n"
    "data: {dataset: addition, digits: 1}\ntrain: {steps: 4, global_batch_size: 4}\n"
    "eval: {batch_size: 4}\nlog: {every: 1}\n";
}  // namespace

TEST_CASE("the version is one line") {
  Workplace place;
  const Outcome outcome = place.weft({"--version"});
  CHECK(outcome.code == 0);
  CHECK(outcome.out.starts_with("weft 0."));
  CHECK(outcome.out.find('\n') + 1 == outcome.out.size());
}

TEST_CASE("every verb has help with an example, in plain text where there is no terminal") {
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
    CHECK(outcome.out.find('{') == std::string::npos);  // a parser's own notes
  }
}

TEST_CASE("help without a verb names every verb") {
  Workplace place;
  std::string help = place.weft({"--help"}).out;
  CHECK(help == place.weft({"help"}).out);
  for (const std::vector<std::string>& none : {std::vector<std::string>{}, {"runs"}}) {
    Outcome outcome = place.weft(none);  // says what is missing
    CHECK(outcome.code == 2);
    CHECK(outcome.out.find("Usage\n") != std::string::npos);
  }
  CHECK(help == place.weft({}).out);
  CHECK(place.weft({"help", "runs", "ls"}).out == place.weft({"runs", "ls", "--help"}).out);
  CHECK(place.weft({"version"}).out == place.weft({"--version"}).out);
  for (const auto& verb : verbs) CHECK(help.find("  " + verb[0] + " ") != std::string::npos);
}

TEST_CASE("lists hold what recipes may name") {
  Workplace place;
  json all = json_of(place.weft({"list", "--json"}));
  auto has = [&](const char* topic, const char* name) {
    return std::find(all[topic].begin(), all[topic].end(), name) != all[topic].end();
  };
  CHECK(has("models", "resnet20"));
  CHECK(has("layers", "conv2d"));
  CHECK(has("layers", "relu"));
  CHECK(has("data", "mnist"));
  CHECK(has("optimizers", "adamw"));
  CHECK(has("schedules", "cosine"));
  std::string layers = place.weft({"list", "layers"}).out;
  CHECK(layers.find("out_channels, kernel_size") != std::string::npos);
  CHECK(layers.find("activations: relu") != std::string::npos);
}

TEST_CASE("recipes are found by name in ./recipes") {
  Workplace place;
  place.write("recipes/little.yaml", "# What it does\n" + tiny);
  CHECK(place.weft({"list", "recipes"}).out.find("What it does") != std::string::npos);
  CHECK(place.weft({"config", "print", "little"}).out.find("name: tiny\n") != std::string::npos);
}

TEST_CASE("flags win over the environment, and that over the recipe") {
  Workplace place;
  place.write("tiny.yaml", tiny);
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

TEST_CASE("a starter recipe of each kind is a whole recipe") {
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
}

TEST_CASE("docs/recipe.md is what config reference prints") {
  Workplace place;
  const char* source = std::getenv("SRC");
  std::ifstream page((source != nullptr ? std::string(source) : ".") + "/docs/recipe.md");
  std::string written((std::istreambuf_iterator<char>(page)), {});
  CHECK(place.weft({"config", "reference"}).out ==
        written);  // else: weft config reference > docs/recipe.md
  json schema = json_of(place.weft({"config", "schema"}));
  CHECK(schema["properties"]["optimizer"]["properties"]["lr"]["type"] == "number");
}

TEST_CASE("what was planned is what is used, and nothing is written by a plan") {
  Workplace place;
  place.write("tiny.yaml", tiny);
  json plan = json_of(place.weft({"plan", "tiny.yaml", "--json"}));
  CHECK(plan["parameters"] > 0);
  CHECK(plan["arena_bytes"] > 0);
  CHECK_FALSE(std::filesystem::exists(place.path("runs")));
  CHECK(json_of(place.weft({"train", "tiny.yaml", "--dry-run", "--json"})) == plan);
  Outcome table = place.weft({"plan", "tiny.yaml"});
  CHECK(table.out.find("by module:") != std::string::npos);
}

TEST_CASE("a run is trained, listed, shown, compared, evaluated and asked") {
  Workplace place;
  place.write("tiny.yaml", tiny);
  json trained = json_of(place.weft({"train", "tiny.yaml", "--json"}));
  CHECK(trained["step"] == 4);
  CHECK(trained["run"] == "runs/tiny");
  CHECK(trained["exit_code"] == 0);
  json other = json_of(
      place.weft({"fit", "tiny.yaml", "--name", "other", "--lr", "1e-2", "--seed", "7", "--json"}));
  CHECK(other["loss"] != trained["loss"]);

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
  CHECK(evaluated["loss"] == trained["loss"]);
  CHECK(evaluated["count"] == trained["count"]);

  json asked = json_of(place.weft({"generate", "tiny", "--prompt", "1+2=", "--max-new-tokens", "3",
                                   "--temperature", "0", "--json"}));
  CHECK(asked["text"].get<std::string>().size() == 3);
  std::string written = place
                            .weft({"generate", "tiny", "--prompt", "1+2=", "--max-new-tokens", "3",
                                   "--temperature", "0"})
                            .out;
  CHECK(written == "1+2=" + asked["text"].get<std::string>() + "\n");

  json checkpoints = json_of(place.weft({"ckpt", "ls", "tiny", "--json"}));
  REQUIRE(checkpoints.size() == 1);
  CHECK(checkpoints[0]["latest"] == true);
  json tensors = json_of(place.weft({"ckpt", "inspect", "tiny", "--json"}));
  CHECK(tensors["tensors"].size() > 5);
  CHECK(place.weft({"ckpt", "verify", "tiny"}).code == 0);
}

TEST_CASE("a bench prints the line that comparisons read") {
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

TEST_CASE("what is known of the machine prints as text and as JSON") {
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

TEST_CASE("the instruction set that WEFT_ISA allows is what is used, planned with and kept apart") {
  Workplace place;
  place.write("sums.yaml",
              "model: {name: gpt, config: {hidden_size: 16, num_attention_heads: 2}}\n"
              "data: {dataset: addition}\ntrain: {steps: 1}\n");
  const std::string kernels = place.path("cache/kernels");
  auto weft = [&](const std::vector<std::string>& arguments, const std::string& isa) {
    const Workplace::Environment held{{"WEFT_ISA", isa}, {"WEFT_CACHE_DIR", place.path("cache")}};
    const auto result = place.weft(arguments, held);
    REQUIRE(result.code == 0);
    return result.out;
  };
  std::set<std::string> used;
  size_t objects = 0;
  for (const std::string isa : {"baseline", "avx2", "avx512", "avx512_bf16", "amx"}) {
    if (weft::isa_named(isa) > weft::host_isa()) continue;
    CAPTURE(isa);
    CHECK(json::parse(weft({"devices", "--json"}, isa))["isa"] == isa);
    CHECK(weft({"doctor"}, isa).find(", " + isa) != std::string::npos);
    const json plan = json::parse(weft({"plan", "sums.yaml", "--json"}, isa));
    CHECK(plan["isa"] == isa);
    used.insert(plan["machine"].get<std::string>());
    weft({"bench", "mlp", "--steps", "1"}, isa);
    const auto found = std::ranges::distance(std::filesystem::directory_iterator(kernels));
    CHECK(static_cast<size_t>(found) > objects);
    objects = static_cast<size_t>(found);
  }
  CHECK(used.size() == static_cast<size_t>(weft::host_isa()) + 1);
  auto written = [&] {
    std::map<std::string, std::filesystem::file_time_type> times;
    for (const auto& file : std::filesystem::directory_iterator(kernels))
      times[file.path()] = file.last_write_time();
    return times;
  };
  const auto before = written();
  weft({"bench", "mlp", "--steps", "1"}, "baseline");
  CHECK(written() == before);  // all kernels come from the cache
}
