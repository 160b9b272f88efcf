#include "weft/train/run/ranks.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/base/numbers/hash.h"
#include "weft/device/registry.h"
#include "weft/device/world.h"
#include "weft/runtime/executable.h"

namespace weft::train {
namespace {
uint64_t hash_of(const std::vector<Variable>& variables) {
  uint64_t hash = 0;
  for (const Variable& variable : variables) {
    const auto& buffer = variable.state()->storage->buffer();  // null: zeros
    if (buffer != nullptr)
      hash = hash_combine(hash, hash_bytes(buffer->data, variable.state()->storage->bytes()));
  }
  return hash;
}

uint64_t hash_of_plans(Steps& steps) {
  uint64_t hash = 0;
  for (const auto& [name, executable] : steps.executables())
    hash = hash_text(to_text(executable->plan()), hash);
  return hash;
}
}  // namespace

void check_ranks(const Recipe& recipe) {
  if (world().size() == 1) return;
  const KernelLibrary& device = library(recipe->train.device);
  if (!device.memory().is_host())
    throw Error(ErrorKind::usage,
                "train.device {} does not run on several ranks yet. Hint: --device cpu, or one "
                "rank.",
                device.name());
}

void must_be_alike(const Experiment& experiment, Steps& steps) {
  if (world().size() == 1) return;
  World::Facts facts;
  constexpr size_t longest = 256;  // a value that a message can name, as a list of layers is not
  for (const RecipeKey& key : recipe_keys()) {
    const std::string value = experiment.recipe.to_yaml(key.path);
    facts.emplace_back(key.path, value.size() > longest ? to_hex(hash_text(value)) : value);
  }
  facts.emplace_back("data", experiment.data_fingerprint());
  facts.emplace_back("plan", to_hex(hash_of_plans(steps)));
  facts.emplace_back("state", to_hex(hash_combine(hash_of(experiment.model->variables()),
                                                  hash_of(experiment.update_state()))));
  world().must_equal(facts);
}

void keep_step() { world().all_gather("a line of the log", ""); }

size_t memory_of_a_rank(size_t available) {
  const size_t mine = available / static_cast<size_t>(world().local_size());
  size_t least = mine;
  for (const std::string& other : world().all_gather("memory", std::to_string(mine)))
    least = std::min<size_t>(least, std::stoull(other));
  return least;
}

}  // namespace weft::train
