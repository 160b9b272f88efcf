// Files that a command line asks to be written, which may be none that it reads.
#pragma once

#include <string>
#include <string_view>

#include "weft/cli/verbs.h"

namespace weft::cli {

// Collects the output files that the verb's options name into program.outputs. Throws Error(usage)
// if two options name the same output file, or if an output would overwrite an input: a file that
// another option or recipe flag names, or an existing file inside an input folder.
void find_outputs(Program& program, const Verb& verb);

// The same for what is read besides: `what` names it in the message.
void check_not_written(const Program& program, std::string_view what, const std::string& path);

}  // namespace weft::cli
