#include "weft/train/run/ranks.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/isa.h"
#include "weft/base/host/parallel.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/base/numbers/hash.h"
#include "weft/device/registry.h"
#include "weft/device/world.h"
#include "weft/io/files.h"
#include "weft/ir/variable.h"
#include "weft/runtime/executable.h"

namespace weft::train {
namespace {
// Returns the variables of which each rank has the whole, and which must be equal on all ranks.
std::vector<Variable> replicas_of(const Experiment& experiment) {
  std::vector<Variable> all = experiment.model->variables();
  for (const Variable& variable : experiment.update_state()) all.push_back(variable);
  all.push_back(random_step());
  std::erase_if(all, [](const Variable& variable) { return !variable.state()->ranges.empty(); });
  return all;
}

uint64_t hash_of(const Variable& variable) {
  const Storage& storage = *variable.state()->storage;
  const auto& buffer = storage.buffer();  // null: zeros
  return buffer == nullptr ? 0 : hash_bytes(buffer->data, storage.bytes());
}

uint64_t hash_of(std::span<const Variable> variables) {
  uint64_t hash = 0;
  for (const Variable& variable : variables) hash = hash_combine(hash, hash_of(variable));
  return hash;
}

// `rank` has another hash than `other`, whose hash is the most frequent one.
struct Difference {
  int rank = 0, other = 0;
};
// Returns the first difference; nullopt where all hashes are equal. Of two ranks, the second is the
// one that differs.
std::optional<Difference> difference(const std::vector<std::string>& hashes) {
  const auto usual = std::ranges::max_element(
      hashes, {}, [&](const std::string& hash) { return std::ranges::count(hashes, hash); });
  const auto differs =
      std::ranges::find_if(hashes, [&](const std::string& hash) { return hash != *usual; });
  if (differs == hashes.end()) return std::nullopt;
  return Difference{.rank = static_cast<int>(differs - hashes.begin()),
                    .other = static_cast<int>(usual - hashes.begin())};
}

uint64_t hash_of_plans(Steps& steps) {
  uint64_t hash = 0;
  for (const auto& [name, executable] : steps.executables())
    hash = hash_text(to_text(executable->plan()), hash);
  return hash;
}

// Recipes are compared before all else, as everything that ranks exchange depends on them.
void must_have_one_recipe(const Recipe& recipe) {
  World::Facts facts;
  constexpr size_t longest = 256;  // a value that a message can name, as a list of layers is not
  for (const RecipeKey& key : recipe_keys()) {
    const std::string value = recipe.to_yaml(key.path);
    facts.emplace_back(key.path, value.size() > longest ? to_hex(hash_text(value)) : value);
  }
  world().must_equal(facts);
}
}  // namespace

void refuse_described(const Recipe& recipe) {
  const std::pair<std::string_view, std::optional<int64_t>> described[] = {
      {keys::parallel::tensor, recipe->parallel.tensor},
      {keys::parallel::pipeline, recipe->parallel.pipeline},
      {keys::parallel::interleave, recipe->parallel.interleave},
      {keys::parallel::context, recipe->parallel.context},
      {keys::parallel::expert, recipe->parallel.expert}};
  for (const auto& [key, parts] : described)
    if (parts.value_or(1) > 1)
      recipe.refuse(key, fmt::format("{} {} does not run yet. Hint: weft plan --as weft estimates "
                                     "it.",
                                     key, *parts));
}

void refuse_on_ranks(const Recipe& recipe) {
  const auto refuse_if = [&](bool is_set, std::string_view key) {
    if (is_set) recipe.refuse(key, fmt::format("{} does not run on several ranks yet.", key));
  };
  refuse_if(recipe->pruning.pattern.has_value(), keys::pruning::pattern);
  refuse_if(recipe->distillation.teacher.has_value(), keys::distillation::teacher);
  refuse_if(recipe->quantization.activations.has_value(), keys::quantization::activations);
  refuse_if(recipe->ema.decay.has_value(), keys::ema::decay);
}

void must_suit_world(const Recipe& recipe) {
  refuse_described(recipe);
  const int64_t ranks = world().size(), asked = recipe->parallel.dp.value_or(ranks);
  if (asked != ranks)
    recipe.refuse(
        keys::parallel::dp,
        fmt::format("parallel.dp is {}, and the run has {}. Hint: weft launch -n {} "
                    "train ...",
                    asked, ranks == 1 ? "one rank" : fmt::format("{} ranks", ranks), asked));
  if (ranks == 1) return;
  refuse_on_ranks(recipe);
  if (has_own_memory(recipe->train.device))
    recipe.refuse(keys::train::device,
                  fmt::format("train.device {} does not run on several ranks yet. Hint: --device "
                              "cpu, or one rank.",
                              recipe->train.device));
}

std::shared_ptr<const Mesh> mesh_of_ranks(const Recipe& recipe) {
  if (world().size() > 1) must_have_one_recipe(recipe);
  must_suit_world(recipe);
  return world_mesh();
}

void on_first_rank(const std::function<void()>& act) {
  if (world().size() == 1) return act();
  std::string problem;  // "CODE MESSAGE"
  if (world().rank() == 0) try {
      act();
    } catch (const Error& error) {
      problem = fmt::format("{} {}", static_cast<int>(error.kind()), error.what());
    }
  problem = world().broadcast("what rank 0 does alone", problem);
  if (problem.empty()) return;
  throw Error(static_cast<ErrorKind>(std::stoi(problem)), "{}",
              problem.substr(problem.find(' ') + 1));
}

bool agreed(bool mine) {
  return world().broadcast("what rank 0 decides", mine ? "yes" : "no") == "yes";
}

void must_have_one_data_set(const Experiment& experiment) {
  if (world().size() == 1) return;
  const Recipe& recipe = experiment.recipe;
  world().must_equal(
      fmt::format("data {} of hash", recipe->data.path.value_or(recipe->data.dataset.value_or(""))),
      experiment.data_fingerprint());
}

void must_be_alike(const Experiment& experiment, Steps& steps) {
  if (world().size() == 1) return;
  const std::string plan = to_hex(hash_of_plans(steps));
  const std::vector<std::string> plans = world().all_gather("the plans of ranks", plan);
  // Plans of one recipe differ by what they are made for, which then is the better name.
  if (std::ranges::count(plans, plan) != world().size())
    world().must_equal({{"the instruction set (WEFT_ISA)", std::string(name(isa()))},
                        {"threads (WEFT_THREADS)", std::to_string(thread_count())}});
  world().must_equal({{"plan", plan}, {"state", to_hex(hash_of(replicas_of(experiment)))}});
}

void must_hold_alike(const Experiment& experiment, int64_t step, int64_t equal_at) {
  const World::Pause comparing(world());  // large state takes a while to read
  const std::vector<Variable> variables = replicas_of(experiment);
  const auto differ = [](std::span<const Variable> some) {
    return difference(world().all_gather("the state of ranks", to_hex(hash_of(some))));
  };
  if (!differ(variables)) return;
  // All ranks halve the same list, as all of them see the same hashes.
  std::span<const Variable> some = variables;  // at least one of these differs
  while (some.size() > 1) {
    const std::span<const Variable> first = some.first(some.size() / 2);
    some = differ(first) ? first : some.subspan(first.size());
  }
  const Difference found = differ(some).value();
  throw Error(ErrorKind::replicas_differ,
              "{} has another {} than {} after step {}. They were equal after step {}: checkpoints "
              "up to there are good.",
              world().name(found.rank), some.front().name(), world().name(found.other), step,
              equal_at);
}

// Folders of several hosts, containers and working folders may have one path. The token is drawn
// anew, so that a folder of an earlier run, which another rank still has, is told apart.
void must_share(const std::string& checkpoints) {
  if (world().size() == 1) return;
  const std::string path = checkpoints + "/ranks.txt";
  std::string token, why = "it is not the file that rank 0 wrote.";
  try {
    if (world().rank() == 0) {
      token = to_hex(hash_text(fmt::format("{} {}", world().pid(0), now())));
      io::write_file_atomically(path, token);
    }
  } catch (const std::exception& error) {
    why = error.what();
  }
  token = world().broadcast("the token", token);
  std::string found;
  try {
    found = io::read_file(path, token.size(), ErrorKind::checkpoint);
  } catch (const Error& error) {
    why = error.what();
  }
  const std::vector<std::string> all =
      world().all_gather("the folder of checkpoints", found == token ? "" : why);
  std::error_code none;
  if (world().rank() == 0) std::filesystem::remove(path, none);
  for (int rank = 0; rank < world().size(); ++rank)
    if (const std::string& their = all[static_cast<size_t>(rank)]; !their.empty())
      throw Error(ErrorKind::checkpoint,
                  "{} does not see what rank 0 writes to {}: {} Hint: ranks train in one working "
                  "folder, which all of them share.",
                  world().name(rank), checkpoints, their);
}

size_t memory_of_a_rank(size_t available) {
  const size_t mine = available / static_cast<size_t>(world().local_size());
  size_t least = mine;
  for (const std::string& other : world().all_gather("memory", std::to_string(mine)))
    least = std::min<size_t>(least, std::stoull(other));
  return least;
}

}  // namespace weft::train
