#include "weft/cli/verbs/finetune.h"

#include <algorithm>
#include <filesystem>

#include "weft/base/error.h"
#include "weft/cli/models/model_kind.h"
#include "weft/io/files.h"
#include "weft/models/pretrained.h"

namespace weft::cli {
namespace {
namespace fs = std::filesystem;

// Returns whether `name` is a recipe, which precedes a run of its name.
bool is_recipe(const std::string& name) {
  const auto has_its_name = [&](const fs::path& recipe) { return recipe.stem() == name; };
  return io::exists(name, ErrorKind::usage) ? !io::is_folder(name, ErrorKind::usage)
                                            : std::ranges::any_of(known_recipes(), has_its_name);
}

// Returns the folder or file of the weights that `name` is; "" where it is a recipe.
std::string weights_named(const std::string& name) {
  if (name.empty() || name == "-") return "";
  const ModelKind& kind = kind_of(name);
  const bool is_weights = kind.tuned != nullptr && !(&kind == &run_kind && is_recipe(name));
  return is_weights ? kind.tuned(name) : "";
}
}  // namespace

void name_model_to_tune(RecipeArguments& arguments, const RecipeFlags& more) {
  const std::string model = weights_named(arguments.recipe);
  if (model.empty()) return;
  const RecipeFlags given = joined(arguments.flags, more);
  const auto found = [&](std::string_view key) {
    return std::ranges::find(given, key, &RecipeFlag::path);
  };
  const auto has = [&](std::string_view key) { return found(key) != given.end(); };
  const auto set = [&](std::string_view key, const std::string& value) {
    arguments.flags.push_back({"weft finetune", std::string(key), value});
  };
  const auto set_if_absent = [&](std::string_view key, const std::string& value) {
    if (!has(key)) set(key, value);
  };
  if (!has(keys::data::path) && !has(keys::data::dataset))
    throw Error(ErrorKind::usage, "tuning {} needs data. Hint: --data.path FILE.",
                io::printable(arguments.recipe));
  arguments.recipe.clear();
  set(keys::model::pretrained, model);
  constexpr int64_t usual_length = 1024;
  const int64_t context = models::load_pretrained(model, {.weights = false}).context;
  set_if_absent(keys::data::seq_len, std::to_string(std::min(context, usual_length)));
  if (!has(keys::data::dataset))
    set_if_absent(keys::data::format,
                  found(keys::data::path)->value.ends_with(".jsonl") ? "jsonl" : "text");
  if (!has(keys::train::steps)) set_if_absent(keys::train::epochs, "1");
  set_if_absent(keys::train::global_batch_size, "8");
  // Rates for weights that are trained already: the default learning rate of transformers' Trainer,
  // and for adapters the rate of QLoRA (Dettmers et al. 2023).
  set_if_absent(keys::optimizer::lr, has(keys::adapter::type) ? "2.0e-4" : "5.0e-5");
}

}  // namespace weft::cli
