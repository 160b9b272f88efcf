// The help of the program and of each verb: what it does, its flags, an example.
#pragma once

#include <memory>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): as its authors name it
class App;
class FormatterBase;
}  // namespace CLI

namespace weft::cli {

// `recipe_keys`: of a verb to which any key of the recipe may be given as a flag.
std::shared_ptr<CLI::FormatterBase> make_help_formatter(bool recipe_keys = false);

// "weft ckpt ls"
std::string verb_path(const CLI::App& verb);

}  // namespace weft::cli
