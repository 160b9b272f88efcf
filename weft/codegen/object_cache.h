// Compiled kernels on disk, in cache_directory()/kernels: one file per kernel, named by the hash of
// everything that determines its machine code, the version of weft and the instruction set among
// it. They are run: only regular files that nobody but this user may write count, in a private
// folder (private_folder.h). A cache that is missing, unwritable or damaged costs time, never an
// error.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace weft::loop {

// `text` is all that the object depends on. Files that are not whole and of this very text are
// ignored; the first is named in a warning.
std::optional<std::string> read_object(std::string_view text);
// Appears under its final name at once, or not at all.
void write_object(std::string_view text, std::string_view object);
// Keeps a program that a compiler refused: cache_directory()/refused/HASH.`extension`. Says where;
// "nowhere" where it cannot be written.
std::string keep_refused(std::string_view source, std::string_view extension);
// Where there are more than `most` files, the older ones go until half as many are left. Done to a
// process's cache before it first writes there.
void trim_objects(size_t most);

}  // namespace weft::loop
