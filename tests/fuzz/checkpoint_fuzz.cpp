// The JSON files of a checkpoint: one of them is the input, of which the first byte says which, and
// the manifest lists it as it is.
#include <map>

#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/hash.h"
#include "weft/io/files.h"
#include "weft/train/checkpoint.h"

using namespace weft;

namespace {
constexpr std::string_view names[] = {"MANIFEST.json", "data.json", "rng.json", "config.json"};

// A checkpoint of two weights.
struct Saved {
  Saved()
      : experiment(train::make_experiment(train::Recipe::parse(
            "model: {name: mlp, config: {hidden_sizes: [1]}}\n"
            "data: {dataset: random-images, image_size: 1, classes: 2}\ntrain: {steps: 1}\n",
            "recipe"))) {
    std::filesystem::create_directory(folder.path() + "/checkpoints");
    path = train::save_checkpoint(folder.path(), experiment, {}, false);
    for (std::string_view name : names) contents[name] = io::read_file(file(name), 1 << 20);
    manifest = nlohmann::json::parse(contents[names[0]]);
  }
  std::string file(std::string_view name) const { return path + "/" + std::string(name); }
  void write(std::string_view name, std::string_view text) const {
    std::ofstream(file(name), std::ios::binary) << text;
  }

  test::TemporaryFolder folder{fuzz::memory_folder};
  train::Experiment experiment;
  std::string path;
  std::map<std::string_view, std::string> contents;
  nlohmann::json manifest;
};

// The first byte says which file the rest is to be.
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
  saved.write(name, text);
  if (name != names[0]) {
    auto manifest = saved.manifest;
    manifest["files"][name] = {{"bytes", text.size()},
                               {"xxh3", to_hex(io::checksum_file(saved.file(name)))}};
    saved.write(names[0], manifest.dump());
  }
  fuzz::expect_value_or_error(ErrorKind::checkpoint,
                              [&] { train::load_checkpoint(saved.path, saved.experiment); });
  saved.write(name, saved.contents[name]);
  return 0;
}
