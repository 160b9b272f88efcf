#include "weft/cli/command_line.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/suggest.h"

namespace weft::cli {
namespace {

[[noreturn]] void refuse(const Verb& verb, std::string_view reason) {
  throw Error(ErrorKind::usage, "{}: {}. Hint: {} --help.", verb.path(), reason, verb.path());
}

[[noreturn]] void refuse_flag(const Verb& verb, const std::string& flag) {
  std::vector<std::string> flags = {"--help"};
  for (const Option& option : verb.options)
    for (const std::string& known : option.flags()) flags.push_back(known);
  std::vector<std::string_view> names(flags.begin(), flags.end());
  for (std::string_view& name : names) name.remove_prefix(2);  // dashes are no letters in common
  std::string_view similar =
      nearest(std::string_view(flag).substr(std::min<size_t>(2, flag.size())), names);
  throw Error(ErrorKind::usage, "{} has no flag {}. {}", verb.path(), flag,
              similar.empty() ? fmt::format("Hint: {} --help.", verb.path())
                              : fmt::format("Did you mean --{}?", similar));
}

const std::string& shown(const Option& option) {
  return option.flag.empty() ? option.type : option.flag;
}

// What the words give one option, before it is checked.
struct Given {
  std::vector<std::string> values;
  bool negated = false;  // the last of them was "--no-..."
};

// Sorts words by the options that they belong to.
class Reader {
 public:
  explicit Reader(const Verb& verb) : verb_(verb) {
    for (const Option& option : verb.options)
      if (option.flag.empty()) arguments_.push_back(&option);
  }

  void read(std::span<const std::string> words) {
    bool flags_ended = false;
    for (size_t at = 0; at < words.size(); ++at) {
      const std::string& word = words[at];
      if (flags_ended || word.size() < 2 || word[0] != '-')
        take_argument(word);
      else if (word == "--")
        flags_ended = true;
      else if (word[1] == '-')
        at += take_flag(word, at + 1 < words.size() ? &words[at + 1] : nullptr);
      else
        at += take_letter(word, at + 1 < words.size() ? &words[at + 1] : nullptr);
    }
  }

  bool wants_help() const { return wants_help_; }

  // Throws for the first word that belongs to no option, and where the line ended before a value.
  void check() const {
    if (unknown_.starts_with("-")) refuse_flag(verb_, unknown_);
    if (!unknown_.empty())
      throw Error(ErrorKind::usage, "{} does not take '{}'. Hint: {} --help.", verb_.path(),
                  unknown_, verb_.path());
    if (!lacks_value_.empty()) refuse(verb_, lacks_value_ + " needs a value");
  }

  const Given* given(const Option& option) const {
    auto found = given_.find(&option);
    return found == given_.end() ? nullptr : &found->second;
  }

 private:
  void take_argument(const std::string& word) {
    for (const Option* argument : arguments_) {
      const bool list = std::holds_alternative<std::vector<std::string>*>(argument->target);
      if (!list && given_.contains(argument)) continue;
      given_[argument].values.push_back(word);
      return;
    }
    remember_unknown(word);
  }

  // "--steps 3" or "--steps=3"; returns how many words past the flag it took.
  size_t take_flag(const std::string& word, const std::string* next) {
    const size_t equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    if (flag == "--help") wants_help_ = true;
    const Option* option = verb_.find_option(flag);
    if (option == nullptr) {
      if (flag != "--help") remember_unknown(flag);
      return 0;
    }
    Given& given = given_[option];
    given.negated = flag != option->flag;
    if (equals != std::string::npos) {
      given.values.push_back(word.substr(equals + 1));
      return 0;
    }
    return take_value(*option, given, next);
  }

  // "-o FILE" or "-oFILE".
  size_t take_letter(const std::string& word, const std::string* next) {
    if (word == "-h") {
      wants_help_ = true;
      return 0;
    }
    auto option = std::ranges::find(verb_.options, word[1], &Option::letter);
    if (option == verb_.options.end()) {
      remember_unknown(word);
      return 0;
    }
    Given& given = given_[&*option];
    if (word.size() == 2) return take_value(*option, given, next);
    given.values.push_back(word.substr(2));
    return 0;
  }

  size_t take_value(const Option& option, Given& given, const std::string* next) {
    if (option.is_switch()) {
      given.values.emplace_back("true");
      return 0;
    }
    if (next == nullptr) {
      lacks_value_ = shown(option);
      return 0;
    }
    given.values.push_back(*next);
    return 1;
  }

  void remember_unknown(const std::string& word) {
    if (unknown_.empty()) unknown_ = word;
  }

  const Verb& verb_;
  std::vector<const Option*> arguments_;
  std::map<const Option*, Given> given_;
  bool wants_help_ = false;
  std::string unknown_, lacks_value_;
};

template <class T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> truth_of(std::string_view text) {
  for (std::string_view yes : {"true", "yes", "on", "1"})
    if (text == yes) return true;
  for (std::string_view no : {"false", "no", "off", "0"})
    if (text == no) return false;
  return std::nullopt;
}

// Puts a value into an option's target; false for text that is no such value.
class Assign {
 public:
  Assign(const Option& option, const Given& given) : option_(option), given_(given) {}

  bool operator()(bool* target) const {
    std::optional<bool> value = truth_of(given_.values.back());
    if (value) *target = *value != given_.negated;
    return value.has_value();
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  bool operator()(T* target) const {
    std::optional<T> value = number_of<T>(given_.values.back());
    if (!value) return false;
    if (option_.range) {
      auto number = static_cast<double>(*value);
      if (!(number >= option_.range->first && number <= option_.range->second)) return false;
    }
    *target = *value;
    return true;
  }
  bool operator()(std::string* target) const {
    *target = given_.values.back();
    return true;
  }
  bool operator()(std::vector<std::string>* target) const {
    *target = given_.values;
    return true;
  }
  bool operator()(const std::function<void(const std::string&)>& target) const {
    target(given_.values.back());
    return true;
  }

 private:
  const Option& option_;
  const Given& given_;
};

void check_count(const Verb& verb, const Option& option, size_t count) {
  if (std::holds_alternative<std::vector<std::string>*>(option.target)) {
    if (count < option.least)
      refuse(verb, fmt::format("{}: {} at least. Got {}", shown(option), option.least, count));
    if (count > option.most)
      refuse(verb, fmt::format("{}: {} at most. Got {}", shown(option), option.most, count));
  } else if (count > 1 && !option.is_switch()) {
    refuse(verb, fmt::format("{} is given {} times", shown(option), count));
  }
}

void set(const Verb& verb, const Option& option, const Given& given) {
  check_count(verb, option, given.values.size());
  const std::string& value = given.values.back();
  if (!option.choices.empty() && std::ranges::find(option.choices, value) == option.choices.end()) {
    std::string choices;
    for (const std::string& choice : option.choices)
      choices += (choices.empty() ? "" : ", ") + choice;
    refuse(verb,
           fmt::format("{} does not take '{}', but one of {}", shown(option), value, choices));
  }
  if (std::visit(Assign(option, given), option.target)) return;
  if (!option.range) refuse(verb, fmt::format("{} does not take '{}'", shown(option), value));
  refuse(verb, fmt::format("{}: Value {} not in range {} to {}", shown(option), value,
                           option.range->first, option.range->second));
}

}  // namespace

std::vector<std::string> Option::flags() const {
  std::vector<std::string> all;
  if (!flag.empty()) all.push_back(flag);
  if (negatable) all.push_back("--no-" + flag.substr(2));
  return all;
}

Verb& Verb::add(Verb verb) {
  verb.parent = this;
  return verbs.emplace_back(std::move(verb));
}

const Verb* Verb::find(const std::string& word) const {
  for (const Verb& verb : verbs)
    if (verb.name == word || std::ranges::find(verb.aliases, word) != verb.aliases.end())
      return &verb;
  return nullptr;
}

const Option* Verb::find_option(const std::string& flag) const {
  for (const Option& option : options) {
    const std::vector<std::string> names = option.flags();
    if (std::ranges::find(names, flag) != names.end()) return &option;
  }
  return nullptr;
}

std::string Verb::path() const { return parent == nullptr ? name : parent->path() + " " + name; }

std::pair<const Verb*, std::span<const std::string>> find_verb(const Verb& root,
                                                               std::span<const std::string> words) {
  const Verb* verb = &root;
  while (!words.empty() && !words.front().starts_with("-") && !verb->verbs.empty()) {
    const Verb* next = verb->find(words.front());
    if (next == nullptr) {
      std::vector<std::string_view> names;
      for (const Verb& known : verb->verbs) {
        names.push_back(known.name);
        names.insert(names.end(), known.aliases.begin(), known.aliases.end());
      }
      std::string_view similar = nearest(words.front(), names);
      throw Error(ErrorKind::usage, "no {} '{}'. {}",
                  verb == &root ? "verb" : fmt::format("verb of {}", verb->name), words.front(),
                  similar.empty() ? fmt::format("Hint: {} --help lists them.", verb->path())
                                  : fmt::format("Did you mean {}?", similar));
    }
    verb = next;
    words = words.subspan(1);
  }
  return {verb, words};
}

bool read_options(const Verb& verb, std::span<const std::string> words) {
  Reader reader(verb);
  reader.read(words);
  if (reader.wants_help()) return true;
  reader.check();
  for (const Option& option : verb.options) {
    const Given* given = reader.given(option);
    if (given == nullptr) {
      if (option.required) refuse(verb, shown(option) + " is required");
      continue;
    }
    if (const Option* other = verb.find_option(option.excludes);
        other != nullptr && reader.given(*other) != nullptr)
      refuse(verb, fmt::format("{} excludes {}", option.flag, option.excludes));
    set(verb, option, *given);
  }
  return false;
}

}  // namespace weft::cli
