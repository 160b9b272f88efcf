// Declares the registry of all environment variables that weft reads; `weft doctor --env` prints
// it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace weft {

struct EnvVariable {
  std::string_view name;
  std::string_view help;
  std::string_view words = "";  // "a,b,c": the words that a list-valued variable accepts
};
std::span<const EnvVariable> env_registry();

// Returns the value, or nullopt when unset or empty. Asserts that `name` is in the registry.
std::optional<std::string> env(std::string_view name);
// Returns the value of a variable that names a folder. Ignores a relative path, whose meaning would
// depend on the current folder; check_environment() warns of it.
std::optional<std::string> env_folder(std::string_view name);
constexpr int most_threads = 1024;
// Returns the thread count: WEFT_THREADS, else OMP_NUM_THREADS, else `cores`. A value that is not a
// number from 1 to most_threads throws Error(usage) for WEFT_THREADS and warns for OMP_NUM_THREADS.
int env_threads(int cores);

// Returns whether the variable's comma-separated list contains the word, which the registry must
// name. Throws Error(usage) for a list with a word that the registry does not name.
bool env_lists(std::string_view name, std::string_view word);

// Returns the value of a boolean variable (WEFT_NO_FLOAT64, WEFT_TUNE or WEFT_CUDA_SYNC): 0 (the
// default) or 1. Throws Error(usage) for anything else.
bool env_flag(std::string_view name);

int env_patience();  // WEFT_PATIENCE, 0 to 3600

// Throws Error(usage) for an invalid value of a WEFT_* variable; warns of unknown WEFT_* variables.
void check_environment();

int debug_level();              // WEFT_DEBUG, 0 to 6
std::string cache_directory();  // WEFT_CACHE_DIR, else $XDG_CACHE_HOME/weft, else ~/.cache/weft
std::string data_directory();   // WEFT_DATA_DIR, else $XDG_DATA_HOME/weft, else ~/.local/share/weft

}  // namespace weft
