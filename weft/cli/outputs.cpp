#include "weft/cli/outputs.h"

#include <filesystem>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/train/run/run_folder.h"

namespace weft::cli {
namespace {
namespace fs = std::filesystem;

// Returns whether `output` is the existing file `input`, or an existing file within that folder.
bool is_in(const fs::path& output, const fs::path& input) {
  std::error_code none;
  if (!fs::is_regular_file(output, none)) return false;
  if (fs::equivalent(output, input, none)) return true;
  if (!fs::is_directory(input, none)) return false;
  const fs::path file = fs::canonical(output, none), folder = fs::canonical(input, none);
  const auto [left, right] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return left == folder.end();
}

// Resolves links, so that all names of a file, which need not exist, give one path.
fs::path place_of(const std::string& path) {
  std::error_code none;
  return fs::weakly_canonical(fs::absolute(io::behind_links(path), none), none);
}

[[noreturn]] void refuse(const std::string& flag, const std::string& output,
                         std::string_view what) {
  throw Error(ErrorKind::usage, "{} {} would replace {}. Nothing was changed.", flag, output, what);
}
}  // namespace

void check_not_written(const Program& program, std::string_view what, const std::string& path) {
  for (const auto& [flag, output] : program.outputs)
    if (is_in(output, path)) refuse(flag, output, fmt::format("what {} reads", what));
}

void check_output(const std::string& flag, const std::string& output) {
  if (const std::string owner = train::owner_of(output); !owner.empty())
    refuse(flag, output, "a part of " + owner);
  if (io::was_read(output)) refuse(flag, output, "a file that this command reads");
}

void check_outputs_not_read(const Program& program) {
  for (const auto& [flag, output] : program.outputs) check_output(flag, output);
}

void find_outputs(Program& program, const Verb& verb) {
  for (const Option& option : verb.options) {
    if (!option.written) continue;
    const std::string name = option.flag.empty() ? option.type : option.flag;
    const std::string& path = *std::get<std::string*>(option.target);
    if (path.empty()) continue;
    for (const auto& [flag, other] : program.outputs)
      if (place_of(path) == place_of(other))
        throw Error(ErrorKind::usage, "{} and {} name the same file: {}.", flag, name, path);
    if (const std::string owner = train::owner_of(path); !owner.empty())
      refuse(name, path, "a part of " + owner);
    program.outputs.emplace_back(name, path);
  }
  for (const Option& option : verb.options)
    if (auto* const* read = std::get_if<std::string*>(&option.target); read && !option.written)
      check_not_written(program, option.flag.empty() ? option.type : option.flag, **read);
  for (const RecipeFlag& flag : program.flags) check_not_written(program, flag.flag, flag.value);
}

}  // namespace weft::cli
