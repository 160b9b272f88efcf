// Caches compiled kernels on disk, in cache_directory()/kernels: one file per kernel, named by the
// hash of everything that determines its machine code, including the version of weft and the
// instruction set. As the files are executed, only regular files in a private folder
// (private_folder.h) that nobody but this user may write are read. A cache that is missing,
// unwritable or damaged costs time, but is never an error.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace weft::loop {

// Returns the cached object of `text`, which is all that the object depends on. Files that are
// incomplete or of another text are ignored; the first is named in a warning.
std::optional<std::string> read_object(std::string_view text);
// Writes an object, which appears under its final name atomically or not at all.
void write_object(std::string_view text, std::string_view object);
// Saves a program that a compiler rejected as cache_directory()/refused/HASH.`extension`. Returns
// its path, or "nowhere" if it cannot be written.
std::string save_refused(std::string_view source, std::string_view extension);
// Removes the oldest files until half of `most` are left, if there are more than `most`.
// write_object calls it before a process's first write.
void trim_objects(size_t most);

}  // namespace weft::loop
