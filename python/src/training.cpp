// Runs of recipes, as `weft train` trains them.
#include "weft/cli/measure/peaks.h"
#include "weft/cli/recipes/recipe_flags.h"
#include "weft/cli/verbs/plan.h"
#include "weft/cli/verbs/plan_on.h"
#include "weft/train/run/signals.h"
#include "weft/train/run/trainer.h"

#include "python/src/step.h"

namespace weft::python {
namespace {
using train::Recipe;
using train::TrainResult;

// Reads a recipe of the program by its name, or the text of one.
Recipe recipe_of(const std::string& text, bool is_name,
                 const std::vector<std::pair<std::string, std::string>>& values) {
  cli::RecipeFlags flags;
  for (const auto& [path, value] : values) flags.push_back({path, path, value});
  if (is_name) return cli::load_recipe(text, flags);
  Recipe recipe = Recipe::parse(text, "the recipe");
  recipe.apply_environment();
  cli::apply_flags(recipe, flags);
  return recipe;
}

TrainResult run(const Recipe& recipe, const std::string& runs, bool resume, bool overwrite,
                bool quiet, const nb::object& on_step) {
  check_process();
  train::TrainOptions options{
      .runs = runs, .resume = resume, .overwrite = overwrite, .quiet = quiet};
  if (!on_step.is_none())
    options.after_step = [&on_step](int64_t step) {
      const nb::gil_scoped_acquire gil;
      on_step(step);
    };
  const nb::gil_scoped_release released;
  recipe.check();
  const train::Signals signals;  // before the machine is measured, which takes seconds
  if (!quiet) cli::remark_on_precision(recipe);
  options.machine = cli::machine_spec(recipe->train.device);
  return cli::with_table(quiet, [&] { return train::train(recipe, options); });
}

// Returns the plan of a run as JSON and as a table. `on` names a machine, as --on does; "": this
// one.
std::pair<std::string, std::string> plan(Recipe recipe, const std::string& on) {
  check_process();
  const nb::gil_scoped_release released;
  recipe.check();
  if (!on.empty()) {
    const std::vector<std::string> devices = cli::devices_on(on);
    recipe.set(train::keys::train::device, devices.front(), "on");
  }
  const auto planned = train::plan_run(recipe, cli::machine_spec(recipe->train.device));
  return {train::to_json(planned->report), train::to_table(planned->report)};
}

nb::object evaluation_of(const TrainResult& result) {
  const train::Evaluation& evaluation = result.evaluation;
  if (evaluation.count == 0) return nb::none();
  nb::dict all;
  all["loss"] = evaluation.loss;
  all[evaluation.score_name.c_str()] = evaluation.score;
  all["count"] = evaluation.count;
  for (const auto& [name, value] : evaluation.others) all[name.c_str()] = value;
  return all;
}
}  // namespace

void bind_training(nb::module_& package) {
  nb::module_ m = package.def_submodule("_train", "Runs of recipes.");
  nb::class_<Recipe>(m, "Recipe")
      .def_static("read", &recipe_of, "text"_a, "is_name"_a, "values"_a)
      .def("to_json", [](const Recipe& self) { return self.to_json(); })
      .def("to_yaml", [](const Recipe& self) { return self.to_yaml(); });
  nb::class_<TrainResult>(m, "TrainResult")
      .def_ro("exit_code", &TrainResult::exit_code)
      .def_ro("step", &TrainResult::step)
      .def_ro("train_loss", &TrainResult::train_loss)
      .def_ro("run_folder", &TrainResult::run_folder)
      .def_ro("checkpoint", &TrainResult::checkpoint)
      .def_prop_ro("evaluation", &evaluation_of);
  m.def("plan", &plan, "recipe"_a, "on"_a);
  m.def("run", &run, "recipe"_a, "runs"_a, "resume"_a, "overwrite"_a, "quiet"_a,
        "on_step"_a = nb::none());
}

}  // namespace weft::python
