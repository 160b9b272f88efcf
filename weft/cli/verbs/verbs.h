// Declares the verbs of the program, one file per group. Each group adds its verbs to the program's
// tree; the verb that the command line names runs after all words are parsed.
#pragma once

#include "weft/cli/command_line.h"
#include "weft/cli/recipes/recipe_flags.h"

namespace weft::cli {

struct Program {
  Verb root;
  RecipeFlags flags;  // "--section.key value" of the command line
  std::vector<std::pair<std::string, std::string>> outputs = {};  // flags and the files they write
  std::vector<std::string> launched = {};  // the command that weft launch starts
};

void add_plan_verb(Program& program);        // plan                  (plan.cpp)
void add_training_verbs(Program& program);   // train, finetune       (train.cpp)
void add_launch_verb(Program& program);      // launch                (launch.cpp)
void add_eval_verb(Program& program);        // eval                  (eval.cpp)
void add_run_verb(Program& program);         // run                   (run.cpp)
void add_compile_verb(Program& program);     // compile               (compile.cpp)
void add_text_verbs(Program& program);       // generate, chat        (generate.cpp)
void add_record_verbs(Program& program);     // runs, ckpt            (records.cpp)
void add_weight_verbs(Program& program);     // inspect to merge      (weights.cpp)
void add_convert_verb(Program& program);     // convert               (convert.cpp)
void add_bench_verb(Program& program);       // bench                 (bench.cpp)
void add_profile_verb(Program& program);     // profile               (profile.cpp)
void add_machine_verbs(Program& program);    // devices, doctor       (devices.cpp)
void add_completion_verb(Program& program);  // completion            (completion.cpp)
void add_recipe_verbs(Program& program);     // init, list, config    (recipes.cpp)

// Removes the command that "weft launch -n 4 train ..." starts from the arguments, and returns it.
std::vector<std::string> take_launched(std::vector<std::string>& arguments);

}  // namespace weft::cli
