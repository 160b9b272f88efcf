// weft::main parses the command line, runs the verb, and reports any failure as one line.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <malloc.h>

#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/logging.h"
#include "weft/base/memory/memory.h"
#include "weft/base/text/utf8.h"
#include "weft/base/version.h"
#include "weft/cli/help.h"
#include "weft/cli/lost_file.h"
#include "weft/cli/outputs.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/comm/join.h"
#include "weft/comm/launcher.h"
#include "weft/device/world.h"
#include "weft/weft.h"

namespace weft {
namespace cli {
namespace {

// Rewrites "weft help train" to "weft train --help" and "weft version" to "weft --version".
void take_words_for_flags(std::vector<std::string>& arguments) {
  if (arguments.empty()) return;
  if (arguments.front() == "version") arguments.front() = "--version";
  if (arguments.front() != "help") return;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
}

std::string version_text() {
  return fmt::format("weft {} ({}, {}, {})", version::number, version::commit, version::build_kind,
                     version::compiler);
}

// Returns the place that a launcher gave this process; nullopt also where its variables contradict
// each other, as RANK may be somebody's own.
std::optional<comm::Place> likely_place() {
  try {
    return comm::find_place();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Joins the ranks of a run where a launcher started this process as one, before anything can fail:
// ranks that fail alike say so once. Only rank 0 has an output.
void join_ranks(const Verb& verb) {
  if (!verb.on_ranks) {
    if (const auto place = verb.run ? likely_place() : std::nullopt)
      throw Error(
          ErrorKind::usage,
          "{} does not run on several ranks, and {} started {}. Hint: run it alone, or without {} "
          "where these are left over.",
          verb.path(), place->launcher, place->size, place->variables);
    return;
  }
  comm::join();
  if (world().rank() == 0) return;
  logging::show_only_errors();
  if (const int nowhere = open("/dev/null", O_WRONLY); nowhere >= 0) {
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
  }
}

int run(std::vector<std::string> arguments) {
  bool wants_version = false;
  std::vector<std::string> launched = take_launched(arguments);
  // `flags` is not among the initializers below: if one throws, GCC 12 destroys the earlier ones
  // twice.
  RecipeFlags flags = take_recipe_flags(arguments);
  Program program{.root = {.name = "weft",
                           .doc = "weft plans, trains and runs neural networks.",
                           .options = {{.flag = "--version",
                                        .doc = "print the version, commit and kind of build",
                                        .target = &wants_version}}},
                  .flags = std::move(flags),
                  .launched = std::move(launched)};
  add_plan_verb(program);
  add_training_verbs(program);
  add_launch_verb(program);
  add_eval_verb(program);
  add_run_verb(program);
  add_compile_verb(program);
  add_text_verbs(program);
  add_record_verbs(program);
  add_weight_verbs(program);
  add_recipe_verbs(program);
  add_bench_verb(program);
  add_profile_verb(program);
  add_machine_verbs(program);
  add_completion_verb(program);

  take_words_for_flags(arguments);
  auto [verb, words] = find_verb(program.root, arguments);
  join_ranks(*verb);
  const bool wants_help = read_options(*verb, words);
  if (wants_version) {
    line(version_text());
    return 0;
  }
  if (wants_help || !verb->run) {
    show(help_text(*verb));
    return wants_help ? 0 : static_cast<int>(ErrorKind::usage);  // the verb is missing
  }
  if (!program.flags.empty() && !verb->recipe_keys)
    throw Error(ErrorKind::usage, "{} has no flag {}. Hint: {} --help.", verb->path(),
                program.flags.front().flag, verb->path());
  check_environment();
  find_outputs(program, *verb);
  return verb->run();
}

// Returns whether this process prints why it fails: of the ranks of a run, one does. Variables
// without a job may be left over in a shell, where nobody else would speak.
bool speaks(int code) {
  if (world().size() > 1) return world().fails(code);
  const auto place = likely_place();
  return !place || place->rank == 0 || place->job.empty();
}

int report(std::string what, int code) {
  const bool is_silent = !speaks(code);
  if (const auto verdict = world().verdict()) code = static_cast<int>(*verdict);
  if (is_silent) {
    // mpirun and srun end all ranks when the first one fails, and rank 0 may not have spoken yet.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return code;
  }
  std::ranges::replace(what, '\n', ' ');  // the report is one line
  std::fflush(stdout);
  std::string prefix = paint(Colour::red, "weft: error:", stderr);
  // Unlike fmt::print, fputs does not throw where standard error is full, too.
  std::fputs(fmt::format("{} {}\n", prefix, escaped(what)).c_str(), stderr);
  return code;
}

}  // namespace

}  // namespace cli

int report_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return cli::report(error.what(), static_cast<int>(error.kind()));
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().empty() ? "the current folder" : error.path1().string();
    return cli::report(fmt::format("cannot open {}: {}.", path, error.code().message()),
                       static_cast<int>(ErrorKind::failed));
  } catch (const std::bad_alloc&) {
    return cli::report("out of memory.", static_cast<int>(ErrorKind::does_not_fit));
  } catch (const std::exception& error) {
    return cli::report(error.what(), static_cast<int>(ErrorKind::failed));
  }
}

int main(int argc, char** argv) {
  // Opens closed standard streams: otherwise the next opened file would get such a number and
  // receive the output. They are opened read-only, so that a verb whose output is lost still fails.
  for (int standard = 0; standard <= 2; ++standard)
    if (fcntl(standard, F_GETFD) < 0 && errno == EBADF) open("/dev/null", O_RDONLY);
  // The arena of each thread would reserve 64 MiB of address space, most of it untouched.
  if (addresses_are_limited()) mallopt(M_ARENA_MAX, 1);
  register_backends();
  cli::name_lost_files();
  try {
    int code = cli::run({argv + 1, argv + argc});
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw Error(ErrorKind::failed, "cannot write the output: {}.", std::strerror(errno));
    world().leave();
    return code;
  } catch (const std::exception&) {
    return report_failure();
  }
}

}  // namespace weft
