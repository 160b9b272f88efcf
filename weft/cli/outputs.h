// Finds the output files of a command line, which must not overwrite its inputs.
#pragma once

#include <string>
#include <string_view>

#include "weft/cli/verbs/verbs.h"

namespace weft::cli {

// Collects the output files that the verb's options name into program.outputs. Throws Error(usage)
// if two options name the same output file, or if an output would overwrite an input: a file that
// another option or recipe flag names, an existing file inside an input folder, or a part of a run
// or checkpoint.
void find_outputs(Program& program, const Verb& verb);

// Does the same for an additional input `path`; `what` names it in the message.
void check_not_written(const Program& program, std::string_view what, const std::string& path);

// Throws Error(usage) if `output`, a file that `flag` has written, would replace a part of a run or
// checkpoint, or a file that this process has read.
void check_output(const std::string& flag, const std::string& output);

// Does the same for every file in program.outputs: a file that was read may be part of a data set
// found by name, or standard input.
void check_outputs_not_read(const Program& program);

}  // namespace weft::cli
