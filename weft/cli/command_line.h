// The command line as data: a tree of verbs, each with its arguments and flags, which help and
// completion read, too. CLI11 reads the words; command_line.cpp alone includes it, as each file
// that does takes as long to compile as five others.
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

// The variable that takes the value of an option; a function is called with each value. A bool
// makes the option a switch, which needs no value.
using Target = std::variant<bool*, int*, int64_t*, double*, std::string*, std::vector<std::string>*,
                            std::function<void(const std::string&)>>;

// A flag, or an argument: what a line gives by its place.
struct Option {
  std::string flag = {};   // "--output"; empty: an argument
  char letter = 0;         // 'o' for "-o"
  bool negatable = false;  // "--resume" has "--no-resume"
  std::string type = {};   // "FILE": how help names the value; the name of an argument
  std::string doc = {};
  Target target = {};
  bool required = false;
  bool written = false;                                 // a file that the verb writes (outputs.h)
  std::optional<std::pair<double, double>> range = {};  // of numbers, both ends included
  std::vector<std::string> choices = {};                // empty: any
  bool may_be_empty = false;                            // a text that names nothing
  std::string excludes = {};                            // the flag that may not stand beside it
  size_t least = 1, most = 1;                           // values that a list takes

  bool is_switch() const { return std::holds_alternative<bool*>(target); }
  std::vector<std::string> flags() const;  // "--resume", "--no-resume"
};

struct Verb {
  std::string name = {};
  std::string group = {};  // the heading over it in its parent's help
  std::vector<std::string> aliases = {};
  std::string doc = {}, examples = {};
  std::function<int()> run = {};     // returns the exit code; none: has verbs of its own
  bool recipe_keys = false;          // takes any key of the recipe as a flag
  std::vector<Option> options = {};  // besides --help, which every verb has
  std::list<Verb> verbs = {};
  const Verb* parent = nullptr;

  Verb& add(Verb verb);
  const Verb* find(const std::string& word) const;  // by name or alias; null: there is none
  const Option* find_option(const std::string& flag) const;
  std::string path() const;  // "weft ckpt ls"
};

// The verb that the first words name, as deep as it goes, and the words after it. Throws
// Error(usage) where a verb was expected and another word stands.
std::pair<const Verb*, std::span<const std::string>> find_verb(const Verb& root,
                                                               std::span<const std::string> words);

// Reads the words after a verb into its options' targets; true where they ask for help, which
// leaves the targets alone. Throws Error(usage) for what the verb does not take.
bool read_options(const Verb& verb, std::span<const std::string> words);

}  // namespace weft::cli
