// Files that are mapped, and lose what is read from them.
#pragma once

namespace weft::cli {

// From now on a read beyond the end of a mapped file that shrank, or of a disk that went away, ends
// the process with one line that names the file, and the exit code for data.
void name_lost_files();

}  // namespace weft::cli
