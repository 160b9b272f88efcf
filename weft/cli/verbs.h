// The verbs of the program, a file per group. A group adds its verbs to the parser; the verb that
// was given is run when parsing is done.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "weft/cli/recipe_flags.h"

namespace CLI {  // NOLINT(readability-identifier-naming): as its authors name it
class App;
}

namespace weft::cli {

struct Program {
  CLI::App& app;
  RecipeFlags flags;                         // "--section.key value" of the command line
  std::function<int()> chosen = {};          // the verb to run; returns the exit code
  bool recipe_keys = false;                  // whether it takes such flags
  std::set<const CLI::App*> key_verbs = {};  // all that do
};

struct Verb {
  std::string name, doc, examples;
  std::function<int()> run = {};  // called once the command line is understood; none: has verbs
  bool recipe_keys = false;       // takes any key of the recipe as a flag
};
CLI::App& add_verb(Program& program, CLI::App& parent, const Verb& verb);

void add_run_verbs(Program& program);        // plan, train, eval, generate   (verbs_run.cpp)
void add_record_verbs(Program& program);     // runs, ckpt                    (verbs_record.cpp)
void add_bench_verb(Program& program);       // bench                         (verbs_bench.cpp)
void add_profile_verb(Program& program);     // profile                     (verbs_profile.cpp)
void add_machine_verbs(Program& program);    // devices, doctor               (verbs_machine.cpp)
void add_completion_verb(Program& program);  // completion                  (verbs_completion.cpp)
void add_recipe_verbs(Program& program);     // init, list, config            (verbs_recipe.cpp)

}  // namespace weft::cli
