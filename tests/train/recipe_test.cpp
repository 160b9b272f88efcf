#include "weft/train/recipe/recipe.h"

#include <cstdlib>
#include <filesystem>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/io/helpers.h"
#include "weft/base/numbers/quantity.h"
#include "weft/optim/pruning.h"
#include "weft/train/experiment.h"

namespace fs = std::filesystem;
using namespace weft;
using namespace weft::test;
using train::Recipe;

namespace {
constexpr const char* smallest =
    "model: {name: mlp}\n"
    "data: {dataset: mnist}\n"
    "train: {epochs: 1}\n";

std::string message_of(const std::string& yaml) {
  return error_of([&] { Recipe::parse(yaml, "r.yaml").check(); });
}
}  // namespace

TEST_CASE("omitted keys have the defaults of the table") {
  Recipe recipe = Recipe::parse(smallest, "r.yaml");
  recipe.check();
  CHECK(recipe.text("model.name") == "mlp");
  CHECK(recipe.number("optimizer.lr") == 1e-3);
  CHECK(recipe.numbers("optimizer.betas") == std::vector<double>{0.9, 0.999});
  CHECK(!recipe.has("train.grad_clip"));
  CHECK(recipe.integer("seed") == 0);
}

TEST_CASE("typed settings are the values of the recipe") {
  // Giving each key its default, as a file would, leaves the settings as the struct begins.
  Recipe given;
  for (const RecipeKey& key : train::table_of_keys())
    given.set(key.path, std::string(key.initial), "test");
  for (const Recipe& recipe : {Recipe(), given}) {
    CHECK(recipe->name == "run");
    CHECK(!recipe->task);
    CHECK(!recipe->model.layers);
    CHECK(recipe->model.config.entries().empty());
    CHECK(recipe->adapter.target_modules == std::vector<std::string>{"all-linear"});
    CHECK(!recipe->data.tokenizer);
    CHECK(recipe->optimizer.betas == std::vector<double>{0.9, 0.999});
    CHECK(recipe->optimizer.decay == train::WeightDecay::all);
    CHECK(recipe->train.keep == DType::f32);
    CHECK(recipe->train.recompute == Recompute::automatic);
    CHECK(!recipe->train.rounding);
    CHECK(!recipe->train.memory);
    CHECK(!recipe->eval.every);
  }
  // Every word of an enumeration, of a list of them, sizes, and words for no value.
  const std::pair<const char*, optim::PruningPattern> patterns[] = {
      {"unstructured", optim::PruningPattern::unstructured},
      {"2:4", optim::PruningPattern::two_of_four},
      {"channels", optim::PruningPattern::channels}};
  for (const auto& [word, pattern] : patterns) {
    given.set("pruning.pattern", word, "test");
    CHECK(given->pruning.pattern == pattern);
  }
  const std::pair<const char*, Recompute> amounts[] = {{"none", Recompute::none},
                                                       {"selective", Recompute::selective},
                                                       {"full", Recompute::full},
                                                       {"AUTO", Recompute::automatic}};
  for (const auto& [word, amount] : amounts) {
    given.set("train.recompute", word, "test");
    CHECK(given->train.recompute == amount);
  }
  given.set("train.offload", "[gradients, optimizer]", "test");
  CHECK(given->train.offload ==
        std::vector<Category>{Category::gradient, Category::optimizer_state});
  given.set("train.memory", "1.5GiB", "test");
  CHECK(given->train.memory == int64_t{3} << 29);
  CHECK(given.to_yaml("train.memory") == "1.5GiB");
  given.set("task", "regression", "test");
  CHECK(given->task == train::Task::regression);
  CHECK(train::name(*given->task) == "regression");
  given.set("eval.every", "2K", "test");
  CHECK(given->eval.every == 2000);
  for (const char* path : {"task", "eval.every", "train.memory", "pruning.pattern"})
    given.set(path, std::string(train::find_key(path)->initial), "test");
  CHECK(!given->task);
  CHECK(!given->eval.every);
  CHECK(!given->train.memory);
  CHECK(!given->pruning.pattern);
  // Another model begins without the config of the one before.
  given.set("model.config", "{dropout: 0.5}", "test");
  given.set("model.name", "mlp", "test");
  CHECK(given->model.config.entries().empty());
}

TEST_CASE("a complete recipe survives a round trip through YAML") {
  Recipe recipe = Recipe::parse(
      "name: \"12\"\n"
      "model: {layers: [{conv2d: {out_channels: 32, kernel_size: [3, 5], bias: false}}, relu, "
      "{dropout: {p: 0.25}}]}\n"
      "data: {format: cifar, path: 'a b: c', transforms: [{random_crop: {padding: 4}}, "
      "random_horizontal_flip]}\n"
      "optimizer: {lr: 3.0e-4, betas: [0.9, 0.95]}\n"
      "train: {steps: 10, grad_clip: 1}\n",
      "r.yaml");
  Recipe again = Recipe::parse(recipe.to_yaml(), "again.yaml");
  CHECK(again.to_yaml() == recipe.to_yaml());
  CHECK(Recipe::parse(recipe.to_json(), "again.json").to_yaml() == recipe.to_yaml());
  CHECK(again.text("name") == "12");
  CHECK(again.text("data.path") == "a b: c");
  REQUIRE(again->model.layers->size() == 3);
  CHECK((*again->model.layers)[0].name == "conv2d");
  CHECK(std::get<std::vector<int64_t>>(*(*again->model.layers)[0].options.find("kernel_size")) ==
        std::vector<int64_t>{3, 5});
  CHECK(std::get<double>(*(*again->model.layers)[2].options.find("p")) == 0.25);
  CHECK(again->data.transforms[1].name == "random_horizontal_flip");
}

TEST_CASE("every control character in a name survives a round trip through YAML") {
  for (int c = 1; c < 0xa0; c = c == 0x1f ? 0x7f : c + 1) {
    Recipe recipe = Recipe::parse(fmt::format("name: \"a\\u{:04x}b\"\n", c), "r.yaml");
    CAPTURE(c);
    CHECK(recipe.text("name").size() == (c < 0x80 ? 3 : 4));
    CHECK(Recipe::parse(recipe.to_yaml(), "again.yaml").text("name") == recipe.text("name"));
  }
  // A plain name of line breaks survives the round trip.
  Recipe recipe = Recipe::parse("name: \r\r\r", "r.yaml");
  CHECK(Recipe::parse(recipe.to_yaml(), "again.yaml").text("name") == recipe.text("name"));
}

TEST_CASE("mistakes are refused with the line, the key and the allowed values") {
  CHECK(message_of("optimizer: {lr: fast}\n") ==
        "usage: r.yaml:1: optimizer.lr must be a number. Got 'fast'.");
  CHECK(message_of("seed: 1\noptimizer:\n  lr: 1000\n")
            .starts_with("usage: r.yaml:3: optimizer.lr must be in 0 .. 100"));
  CHECK(message_of("optimizer: {name: adamx}\n").find("must be one of adamw, adam, sgd") !=
        std::string::npos);
  CHECK(message_of("optimiser: {lr: 1}\n").starts_with("usage: r.yaml:1: "));
  CHECK(message_of("optimizer: {lrr: 1}\n").find("optimizer.lr") != std::string::npos);
  CHECK(message_of("train: [1]\n") == "usage: r.yaml:1: train must be a map. Got a list.");
  CHECK(message_of("seed: null\n") == "usage: r.yaml:1: seed must not be null. Got nothing.");
  CHECK(message_of("seed: 1.5\n").find("whole number") != std::string::npos);
  CHECK(message_of("a: [\n").starts_with("usage: r.yaml:"));
  CHECK(message_of("- 1\n").starts_with("usage: r.yaml: a recipe is a map"));
}

TEST_CASE("integers may be written with count suffixes") {
  Recipe recipe = Recipe::parse(
      "train: {steps: 32K, global_batch_size: 2Ki}\nseed: 1M\nlog: {every: 7}\n"
      "model: {config: {vocab_size: 50K}}\n",
      "r.yaml");
  CHECK(recipe.integer("train.steps") == 32'000);
  CHECK(recipe.integer("train.global_batch_size") == 2'048);
  CHECK(recipe.integer("seed") == 1'000'000);
  CHECK(recipe.integer("log.every") == 7);
  CHECK(recipe.where("seed") == "r.yaml:2");
  CHECK(recipe.where("name") == "r.yaml");
  CHECK(std::get<int64_t>(*recipe->model.config.find("vocab_size")) == 50'000);
  CHECK(Recipe::parse(recipe.to_yaml(), "again").to_yaml() == recipe.to_yaml());
  CHECK(parse_count("2GiB", "B") == int64_t{2} << 30);
  CHECK(parse_count("512B", "B") == 512);
  CHECK(parse_count("3T") == 3'000'000'000'000);
  for (const char* wrong : {"", "K", "1k", "1KiB", "1B", "1.5M", "1 K", "1Ki ", "9223372036855T"})
    CHECK(!parse_count(wrong));
}

TEST_CASE("rules between keys are checked") {
  auto with = [&](const std::string& more) { return message_of(smallest + more); };
  CHECK(message_of(smallest) == "none");
  CHECK(message_of("data: {dataset: mnist}\ntrain: {epochs: 1}\n")
            .find("model.name, model.pretrained and model.layers") != std::string::npos);
  CHECK(
      message_of("model: {name: mlp}\ntrain: {epochs: 1}\n").find("data.dataset and data.format") !=
      std::string::npos);
  CHECK(message_of("model: {name: mlp}\ndata: {dataset: mnist}\n")
            .find("train.epochs and train.steps") != std::string::npos);
  CHECK(with("eval: {every: sometimes}\n").find("eval.every") != std::string::npos);
  CHECK(with("name: a/b\n").find("name must be a folder name") != std::string::npos);
  CHECK(with("optimizer: {betas: [0.9]}\n").find("optimizer.betas has two numbers") !=
        std::string::npos);
}

TEST_CASE("malicious recipes are refused") {
  CHECK(message_of(std::string(2000000, ' ')).find("at most 1048576 bytes") != std::string::npos);
  CHECK(message_of(std::string(100, '[')).find("nests at most 32 deep") != std::string::npos);
  for (const char* documents :
       {"seed: 1\n--- \nseed: 2\n", ", seed: 1\n"})  // yaml-cpp never ends the second
    CHECK(message_of(documents).find("a recipe is one YAML document") != std::string::npos);
  for (const std::string& bytes :
       {std::string("seed: 1\nname: a\0b", 17), std::string("seed: 1\nname: \xff"),
        std::string("seed: 1\nname: \x1b[0m")})
    CHECK(message_of(bytes).starts_with(
        "usage: r.yaml:2: a recipe is UTF-8 text without control characters. Got the byte 0x"));
  // A name is reported in one line, whatever it contains.
  for (const char* layer : {R"("a\nb": 1)", R"("a\nb")", R"(linear: {"a\nb": {}})"})
    CHECK(message_of(fmt::format("model:\n  layers:\n    - {}\n", layer)).find('\n') ==
          std::string::npos);
  CHECK(message_of("a: &x [1]\nb: [*x, *x]\n").find("no anchors and aliases") != std::string::npos);
}

TEST_CASE("a comment may contain characters that are refused elsewhere") {
  const std::string text = "# R & D, 2 * 3\n" + std::string(smallest) + "seed: 3  # a & b\n";
  CHECK(Recipe::parse(text, "r.yaml").to_yaml() ==
        Recipe::parse(std::string(smallest) + "seed: 3\n", "r.yaml").to_yaml());
}

TEST_CASE("flags override the environment, which overrides the recipe") {
  setenv("WEFT__OPTIMIZER__LR", "0.5", 1);
  setenv("WEFT__TRAIN__GLOBAL_BATCH_SIZE", "7", 1);
  Recipe recipe = Recipe::parse(std::string(smallest) + "optimizer: {lr: 0.25}\n", "r.yaml");
  recipe.apply_environment();
  unsetenv("WEFT__OPTIMIZER__LR");
  unsetenv("WEFT__TRAIN__GLOBAL_BATCH_SIZE");
  CHECK(recipe.number("optimizer.lr") == 0.5);
  CHECK(recipe.integer("train.global_batch_size") == 7);
  recipe.set("optimizer.lr", "0.125", "--optimizer.lr");
  CHECK(recipe.number("optimizer.lr") == 0.125);
  CHECK(error_of([&] {
          recipe.set("optimizer.lr", "x", "--optimizer.lr");
        }).starts_with("usage: --optimizer.lr: "));
}

TEST_CASE("an option of a map changes only that option and an empty map clears it") {
  const std::string gpt =
      "model: {name: gpt, config: {hidden_size: 64, dropout: 0.1}}\n"
      "data: {dataset: addition}\ntrain: {steps: 1}\n";
  Recipe recipe = Recipe::parse(gpt, "r.yaml");
  auto config = [&] { return recipe.to_yaml("model.config"); };
  recipe.set("model.config", "{dropout: 0.2, bias: false}", "flag");
  CHECK(config() == "{bias: false, dropout: 0.2, hidden_size: 64}");
  recipe.set("model.config.hidden_size", "32", "flag");
  recipe.set("model.config.hidden_act", "gelu", "flag");
  CHECK(config() == "{bias: false, dropout: 0.2, hidden_act: gelu, hidden_size: 32}");
  recipe.set("model.name", "gpt", "flag");
  CHECK(config() == "{bias: false, dropout: 0.2, hidden_act: gelu, hidden_size: 32}");
  for (const char* empty : {"{}", "null"}) {
    recipe.set("model.config", "{dropout: 0.3}", "flag");
    recipe.set("model.config", empty, "flag");
    CHECK(config() == "{}");
  }
  recipe.set("model.config.depth", "8", "flag");
  recipe.set("model.name", "resnet", "flag");  // has other options
  CHECK(config() == "{}");
}

TEST_CASE("environment options merge with the recipe's unless the model changes") {
  setenv("WEFT__MODEL__CONFIG", "{dropout: 0.5}", 1);
  setenv("WEFT__MODEL__CONFIG__HIDDEN_SIZE", "96", 1);
  const std::string rest = "data: {dataset: addition}\ntrain: {steps: 1}\n";
  Recipe recipe = Recipe::parse("model: {name: gpt, config: {bias: false}}\n" + rest, "r.yaml");
  Recipe renamed = recipe;
  recipe.apply_environment();
  setenv("WEFT__MODEL__NAME", "lstm", 1);
  renamed.apply_environment();
  for (const char* name :
       {"WEFT__MODEL__CONFIG", "WEFT__MODEL__CONFIG__HIDDEN_SIZE", "WEFT__MODEL__NAME"})
    unsetenv(name);
  CHECK(recipe.to_yaml("model.config") == "{bias: false, dropout: 0.5, hidden_size: 96}");
  CHECK(renamed.to_yaml("model.config") == "{dropout: 0.5, hidden_size: 96}");
}

TEST_CASE("schema and reference list every key of the table once") {
  auto schema = nlohmann::json::parse(train::recipe_schema());
  std::string reference = train::recipe_reference();
  std::set<std::string_view> seen;
  for (const RecipeKey& key : train::recipe_keys()) {
    CHECK(seen.insert(key.path).second);
    CHECK(reference.find(fmt::format("| `{}` |", key.path)) != std::string::npos);
    CHECK(!key.help.empty());
    auto path = std::string(key.path);
    size_t dot = path.find('.');
    auto& properties = schema["properties"];
    CHECK((dot == std::string::npos
               ? properties.contains(path)
               : properties[path.substr(0, dot)]["properties"].contains(path.substr(dot + 1))));
  }
  // The schema states the allowed values of each kind of key.
  using nlohmann::json;
  auto entry = [&](const std::string& section, const std::string& key) {
    json found = schema["properties"][section]["properties"][key];
    found.erase("description");
    found.erase("default");
    return found;
  };
  CHECK(entry("train", "offload") == json::parse(R"({"type": ["array", "string"],
        "items": {"enum": ["parameters", "optimizer", "gradients", "activations"]},
        "pattern": "^(parameters|optimizer|gradients|activations)$"})"));
  CHECK(entry("data", "target") == json::parse(R"({"type": ["array", "string"]})"));
  CHECK(entry("optimizer", "name") ==
        json::parse(R"({"type": "string", "enum": ["adamw", "adam", "sgd"]})"));
  CHECK(entry("data", "format") == json::parse(R"({"type": ["string", "null"], "enum":
        ["idx", "cifar", "text", "jsonl", "csv", "image_folder", null]})"));
  CHECK(entry("optimizer", "lr") ==
        json::parse(R"({"type": "number", "minimum": 0.0, "maximum": 100.0})"));
  CHECK(entry("eval", "every") == json::parse(R"({"type": ["integer", "string"],
        "pattern": "^(epoch|[0-9]+([KMGT]i?)?)$", "minimum": 1.0})"));
  CHECK(entry("data", "digits") == json::parse(R"({"type": ["integer", "string"],
        "pattern": "^[0-9]+([KMGT]i?)?$", "minimum": 1.0, "maximum": 4.0})"));
}

TEST_CASE("every shipped recipe is valid and named after its file") {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("recipes")) {
    Recipe recipe = Recipe::load(entry.path().string());
    recipe.check();
    INFO(entry.path().string());
    CHECK(recipe.text("name") == entry.path().stem().string());
    ++count;
  }
  CHECK(count >= 6);
}
