// Describes the command line as data: a tree of verbs with their arguments and flags, which help
// and completion read, too. CLI11 parses the words; only command_line.cpp includes it, as each file
// that does takes five times as long to compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft::cli {

// A Target is the variable that receives the value of an option; a function is called with each
// value. A bool makes the option a switch, which needs no value.
using Target = std::variant<bool*, int*, int64_t*, double*, std::string*, std::vector<std::string>*,
                            std::function<void(const std::string&)>>;

// An Option is a flag or a positional argument.
struct Option {
  std::string flag = {};   // "--output"; empty: an argument
  char letter = 0;         // 'o' for "-o"
  bool negatable = false;  // "--resume" has "--no-resume"
  std::string type = {};   // "FILE": the value in the help; the name of an argument
  std::string doc = {};
  Target target = {};
  bool required = false;
  bool written = false;                                 // an output file of the verb (outputs.h)
  std::optional<std::pair<double, double>> range = {};  // bounds of numbers, inclusive
  std::vector<std::string> choices = {};                // empty: any; capitals do not count
  bool may_be_empty = false;                            // a text may be empty
  std::string excludes = {};                            // the flag that contradicts this one
  bool several = false;        // a flag of a list takes all words up to the next flag
  size_t least = 1, most = 1;  // number of values of a list: of an argument, or of a flag repeated

  bool is_switch() const { return std::holds_alternative<bool*>(target); }
  std::vector<std::string> flags() const;  // "--resume", "--no-resume"
};

struct Verb {
  std::string name = {};
  std::string group = {};  // heading in the help of its parent
  std::vector<std::string> aliases = {};
  std::string doc = {}, examples = {};
  std::function<int()> run = {};     // returns the exit code; empty: has verbs of its own
  bool recipe_keys = false;          // accepts any key of the recipe as a flag
  bool on_ranks = false;             // may run on several ranks (weft launch)
  std::vector<Option> options = {};  // besides --help
  std::list<Verb> verbs = {};
  const Verb* parent = nullptr;

  Verb& add(Verb verb);
  const Verb* find(const std::string& word) const;  // by name or alias; null: not found
  const Option* find_option(const std::string& flag) const;
  std::string path() const;  // "weft ckpt ls"
};

// Returns the deepest verb that the first words name, and the words after it. Throws Error(usage)
// for another word where a verb is expected.
std::pair<const Verb*, std::span<const std::string>> find_verb(const Verb& root,
                                                               std::span<const std::string> words);

// Parses the words after a verb into its options' targets. Returns true where they ask for help,
// which leaves the targets unchanged. Throws Error(usage) for invalid words.
bool read_options(const Verb& verb, std::span<const std::string> words);

}  // namespace weft::cli
