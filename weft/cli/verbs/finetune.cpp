#include "weft/cli/verbs/finetune.h"

#include <algorithm>
#include <filesystem>

#include "weft/base/error.h"
#include "weft/cli/models/model_source.h"
#include "weft/io/files.h"
#include "weft/models/pretrained.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace weft::cli {
namespace {
namespace fs = std::filesystem;

// Returns the folder or file of the weights that `name` is; "" where it is a recipe.
std::string weights_named(const std::string& name) {
  if (name.empty() || name == "-") return "";
  if (models::is_model(name)) return name;
  const auto has_its_name = [&](const fs::path& recipe) { return recipe.stem() == name; };
  if (io::exists(name, ErrorKind::usage) ? !io::is_folder(name, ErrorKind::usage)
                                         : std::ranges::any_of(known_recipes(), has_its_name))
    return "";
  const std::string run = train::locate_run(name);
  if (!io::exists(run, ErrorKind::usage))
    throw Error(ErrorKind::usage, "{}: no such model, run or recipe. Hint: weft list recipes.",
                io::printable(name));
  if (!is_checkpoint_or_run(run))
    throw Error(ErrorKind::usage,
                "{} is no folder of a model, which has a config.json, and no run of weft's.",
                io::printable(name));
  std::string checkpoint = train::verified_checkpoint(run);
  const train::Recipe recipe = train::checkpoint_recipe(checkpoint);
  if (recipe->adapter.type)
    throw Error(ErrorKind::usage,
                "{0} has an adapter, without the weights that it adapts. Hint: weft merge {0} OUT, "
                "then weft finetune OUT.",
                io::printable(name));
  if (!recipe->model.pretrained)
    throw Error(ErrorKind::usage,
                "{0} is a run of weft's own, and published models are tuned. Hint: weft convert "
                "{0} OUT --to hf, then weft finetune OUT, for a gpt or llama.",
                io::printable(name));
  return checkpoint;
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
