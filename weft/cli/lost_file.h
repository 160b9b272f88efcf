// Handles mapped files whose contents become unavailable while they are read.
#pragma once

namespace weft::cli {

// Installs a SIGBUS handler: a read beyond the end of a mapped file that shrank, or from a failed
// disk, ends the process with one line that names the file, and the exit code for data.
void name_lost_files();

}  // namespace weft::cli
