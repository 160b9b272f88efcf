// weft::main: parses the command line, runs the verb, and turns whatever went wrong into one line.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "weft/base/env.h"
#include "weft/base/error.h"
#include "weft/base/suggest.h"
#include "weft/base/version.h"
#include "weft/cli/help.h"
#include "weft/cli/terminal.h"
#include "weft/cli/verbs.h"
#include "weft/weft.h"

namespace weft {
namespace cli {
namespace {

std::vector<std::string_view> verb_names(const CLI::App& app) {
  std::vector<std::string_view> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
    for (const std::string& alias : verb->get_aliases()) names.push_back(alias);
  }
  return names;
}

// The verb that the arguments name, as deep as it goes; throws for one that does not exist.
CLI::App* find_verb(CLI::App& app, const std::vector<std::string>& arguments) {
  CLI::App* verb = &app;
  for (const std::string& argument : arguments) {
    std::vector<std::string_view> names = verb_names(*verb);
    if (argument.starts_with("-") || names.empty()) break;
    if (std::find(names.begin(), names.end(), argument) == names.end()) {
      std::string_view similar = nearest(argument, names);
      std::string of = verb == &app ? "verb" : fmt::format("verb of {}", verb->get_name());
      throw Error(ErrorKind::usage, "no {} '{}'. {}", of, argument,
                  similar.empty() ? fmt::format("Hint: {} --help lists them.", verb_path(*verb))
                                  : fmt::format("Did you mean {}?", similar));
    }
    verb = verb->get_subcommand(argument);
  }
  return verb;
}

[[noreturn]] void refuse_extras(const CLI::App& verb, const std::string& argument) {
  std::string path = verb_path(verb);
  if (!argument.starts_with("-"))
    throw Error(ErrorKind::usage, "{} does not take '{}'. Hint: {} --help.", path, argument, path);
  std::vector<std::string_view> names;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  std::string flag = argument.substr(0, argument.find('='));
  std::string_view similar = nearest(flag.substr(std::min<size_t>(2, flag.size())), names);
  throw Error(ErrorKind::usage, "{} has no flag {}. {}", path, flag,
              similar.empty() ? fmt::format("Hint: {} --help.", path)
                              : fmt::format("Did you mean --{}?", similar));
}

// In our words where the parser's name its own types.
std::string reason(const CLI::ParseError& error) {
  constexpr std::string_view conversion = "Could not convert: ";  // "--resume = maybe"
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  if (size_t equals = text.find(" = "); text.starts_with(conversion) && equals != text.npos)
    return fmt::format("{} does not take '{}'",
                       text.substr(conversion.size(), equals - conversion.size()),
                       text.substr(equals + 3));
  constexpr std::string_view zeros = ".000000";  // it prints limits with all six digits
  for (size_t at = text.find(zeros); at != text.npos; at = text.find(zeros))
    text.erase(at, zeros.size());
  if (text.ends_with(" missing"))  // "--steps: 1 required VALUE missing"
    return text.substr(0, text.find(':')) + " needs a value";
  return text;
}

void parse(CLI::App& app, const CLI::App& verb, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::usage, "{}: {}. Hint: {} --help.", verb_path(verb), reason(error),
                verb_path(verb));
  }
  auto extras = verb.remaining();
  std::erase(extras, "--");  // CLI11 keeps it, though what follows it was understood
  if (!extras.empty()) refuse_extras(verb, extras.front());
}

// "weft help train" is "weft train --help", "weft version" is "weft --version".
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

// OpenMP's threads spin for 300,000 rounds before they sleep: milliseconds, in which the thread
// they wait for may need the very core they spin on. 5,000 rounds last as long as the wait for a
// sibling does. libgomp reads the limit when it is loaded, hence the program begins once more.
void limit_spinning(char** argv) {
  if (env("GOMP_SPINCOUNT") || env("OMP_WAIT_POLICY")) return;
  setenv("GOMP_SPINCOUNT", "5000", 1);
  execv("/proc/self/exe", argv);  // where it fails, threads spin
}

int run(char** argv, std::vector<std::string> arguments) {
  CLI::App app("weft plans, trains and runs neural networks.");
  Program program{app, take_recipe_flags(arguments)};
  app.set_help_flag("-h,--help", "this text");
  app.allow_extras();
  bool wants_version = false;
  app.add_flag("--version", wants_version, "what this build is");
  app.formatter(make_help_formatter());
  add_run_verbs(program);
  add_record_verbs(program);
  add_recipe_verbs(program);
  add_bench_verb(program);
  add_profile_verb(program);
  add_machine_verbs(program);
  add_completion_verb(program);

  take_words_for_flags(arguments);
  CLI::App* verb = find_verb(app, arguments);
  bool wants_help = false;
  try {
    parse(app, *verb, std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    wants_help = true;
  }
  if (wants_version) {
    line(version_text());
    return 0;
  }
  if (wants_help || !program.chosen) {
    out(verb->help(verb_path(*verb)));
    return wants_help ? 0 : static_cast<int>(ErrorKind::usage);  // a verb is missing
  }
  if (!program.flags.empty() && !program.recipe_keys)
    throw Error(ErrorKind::usage, "{} has no flag {}. Hint: {} --help.", verb_path(*verb),
                program.flags.front().flag, verb_path(*verb));
  limit_spinning(argv);
  check_environment();
  return program.chosen();
}

int report(std::string what, int code) {
  auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  std::ranges::replace_if(what, control, ' ');  // one line, whatever it holds
  std::fflush(stdout);
  std::string prefix = paint(Colour::red, "weft: error:", stderr);
  // Unlike fmt::print this does not throw where standard error is full, too.
  std::fputs(fmt::format("{} {}\n", prefix, what).c_str(), stderr);
  return code;
}

}  // namespace

CLI::App& add_verb(Program& program, CLI::App& parent, const Verb& verb) {
  CLI::App* added = parent.add_subcommand(verb.name, verb.doc);
  added->set_help_flag("-h,--help", "this text");
  added->formatter(make_help_formatter(verb.recipe_keys));
  added->footer(verb.examples);
  added->allow_extras();
  if (verb.recipe_keys) program.key_verbs.insert(added);
  if (verb.run)
    added->callback([&program, run = verb.run, recipe_keys = verb.recipe_keys] {
      program.chosen = run;
      program.recipe_keys = recipe_keys;
    });
  return *added;
}
}  // namespace cli

int main(int argc, char** argv) {
  register_backends();
  try {
    int code = cli::run(argv, {argv + 1, argv + argc});
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw Error(ErrorKind::failed, "cannot write the output: {}.", std::strerror(errno));
    return code;
  } catch (const Error& error) {
    return cli::report(error.what(), static_cast<int>(error.kind()));
  } catch (const std::bad_alloc&) {
    return cli::report("out of memory.", static_cast<int>(ErrorKind::does_not_fit));
  } catch (const std::exception& error) {
    return cli::report(error.what(), static_cast<int>(ErrorKind::failed));
  }
}

}  // namespace weft
