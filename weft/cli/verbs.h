// Declares the verbs of the program, one file per group. Each group adds its verbs to the program's
// tree; the verb that the command line names runs after all words are parsed.
#pragma once

#include "weft/cli/command_line.h"
#include "weft/cli/recipe_flags.h"

namespace weft::cli {

struct Program {
  Verb root;
  RecipeFlags flags;  // "--section.key value" of the command line
  std::vector<std::pair<std::string, std::string>> outputs = {};  // flags and the files they write
};

void add_run_verbs(Program& program);        // plan, train, finetune         (verbs_run.cpp)
void add_model_verbs(Program& program);      // eval                        (verbs_model.cpp)
void add_infer_verb(Program& program);       // run                           (verbs_infer.cpp)
void add_text_verbs(Program& program);       // generate, chat               (verbs_text.cpp)
void add_record_verbs(Program& program);     // runs, ckpt                    (verbs_record.cpp)
void add_weight_verbs(Program& program);     // inspect to merge           (verbs_weights.cpp)
void add_convert_verb(Program& program);     // convert                    (verbs_convert.cpp)
void add_bench_verb(Program& program);       // bench                         (verbs_bench.cpp)
void add_profile_verb(Program& program);     // profile                     (verbs_profile.cpp)
void add_machine_verbs(Program& program);    // devices, doctor               (verbs_machine.cpp)
void add_completion_verb(Program& program);  // completion                  (verbs_completion.cpp)
void add_recipe_verbs(Program& program);     // init, list, config            (verbs_recipe.cpp)

}  // namespace weft::cli
