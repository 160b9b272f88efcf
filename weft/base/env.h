// The one registry of environment variables; `weft doctor --env` prints it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace weft {

struct EnvVariable {
  std::string_view name;
  std::string_view help;
  std::string_view words = "";  // of a variable that lists some of these, "a,b,c"
};
std::span<const EnvVariable> env_registry();

// The value, or nullopt when unset or empty. Asserts that `name` is in the registry.
std::optional<std::string> env(std::string_view name);
// The same of a folder, by its absolute path: a relative one, which would mean another folder
// wherever weft runs, is passed over, as check_environment() says.
std::optional<std::string> env_folder(std::string_view name);
constexpr int most_threads = 1024;
// Of the team: WEFT_THREADS, else OMP_NUM_THREADS, else `cores`. Of what is no number from 1 to
// most_threads, throws Error(usage) in WEFT_THREADS, and warns in OMP_NUM_THREADS.
int env_threads(int cores);

// Whether the list that is the variable's value has the word, which the registry must name. Throws
// Error(usage) for a list with a word that the registry does not name.
bool env_lists(std::string_view name, std::string_view word);

// WEFT_NO_FLOAT64, WEFT_TUNE or WEFT_CUDA_SYNC: 0 (the default) or 1. Throws Error(usage) for
// anything else.
bool env_flag(std::string_view name);

int env_patience();  // WEFT_PATIENCE, 0 to 3600

// Throws Error(usage) for a value of WEFT_* that cannot be; warns of those that mean nothing.
void check_environment();

int debug_level();              // WEFT_DEBUG, 0 to 6
std::string cache_directory();  // WEFT_CACHE_DIR, else $XDG_CACHE_HOME/weft, else ~/.cache/weft
std::string data_directory();   // WEFT_DATA_DIR, else $XDG_DATA_HOME/weft, else ~/.local/share/weft

}  // namespace weft
