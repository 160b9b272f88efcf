// Fuzzes the JSON files of a checkpoint: the first byte of the input selects a file, the rest
// replaces it, and the manifest is updated to match.
#include <map>

#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/numbers/hash.h"
#include "weft/io/files.h"
#include "weft/train/checkpoint/checkpoint.h"

using namespace weft;

namespace {
constexpr std::string_view names[] = {"MANIFEST.json", "data.json", "rng.json", "config.json"};
constexpr const char* recipe =
    "model: {name: mlp, config: {hidden_sizes: [1]}}\n"
    "data: {dataset: random-images, image_size: 1, classes: 2}\ntrain: {steps: 1}\n";

// Saved is a checkpoint with two weights.
struct Saved {
  Saved() : experiment(train::make_experiment(train::Recipe::parse(recipe, "recipe"))) {
    std::filesystem::create_directory(folder.path() + "/checkpoints");
    path = train::save_checkpoint(folder.path(), experiment, {}, false);
    manifest = nlohmann::json::parse(io::read_file(file(names[0]), 1 << 20));
    list("recipe.yaml", recipe);  // without the defaults, which take most of the time to read
    for (std::string_view name : names) contents[name] = io::read_file(file(name), 1 << 20);
    load();  // throws if the unchanged files are invalid
  }
  std::string file(std::string_view name) const { return path + "/" + std::string(name); }
  void load() {
    train::verify_checkpoint(path);
    train::load_checkpoint(path, experiment);
  }
  void write(std::string_view name, std::string_view text) const {
    std::ofstream(file(name), std::ios::binary) << text;
  }
  // Replaces one file by `text` and restores the others.
  void replace(std::string_view name, std::string_view text) {
    if (!replaced.empty() && replaced != name) put(replaced, contents[replaced]);
    put(name, text);
    replaced = name;
  }
  void put(std::string_view name, std::string_view text) {
    name == names[0] ? write(name, text) : list(name, text);
  }
  // Writes a file and updates its entry in the manifest.
  void list(std::string_view name, std::string_view text) {
    write(name, text);
    manifest["files"][name] = {{"bytes", text.size()},
                               {"xxh3", to_hex(io::checksum_file(file(name)))}};
    write(names[0], manifest.dump());
  }

  test::TemporaryFolder folder{fuzz::memory_folder};
  train::Experiment experiment;
  std::string path;
  std::map<std::string_view, std::string> contents;
  nlohmann::json manifest;
  std::string_view replaced;
};

// The first byte selects the file that the rest replaces.
const std::string valid[] = {
    R"(0{"format":1,"step":0,"files":{"a":{"bytes":1,"xxh3":"00"}}})",
    R"(1{"step":0,"epoch":0,"position":1,"evaluated_step":0,"evaluations_since_best":0,)"
    R"("best_loss":null,"best_score":0.5,"stopped":false})",
    R"(2{"seed":0,"step":1})", R"(3{"hidden_sizes":[1],"dropout":0.0,"hidden_act":"relu"})"};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Saved saved;
  if (size == 0) return 0;
  const std::string_view name = names[data[0] % std::size(names)];
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  saved.replace(name, text);
  fuzz::expect_value_or_error(ErrorKind::checkpoint, [&] {
    try {
      saved.load();
    } catch (const Error& error) {  // a valid config.json may be that of another model
      if (error.kind() != ErrorKind::usage || name != "config.json") throw;
    }
  });
  return 0;
}
