// Writes the help of the program and of each verb: purpose, flags, an example.
#pragma once

#include <string>

#include "weft/cli/command_line.h"

namespace weft::cli {

std::string help_text(const Verb& verb);

}  // namespace weft::cli
