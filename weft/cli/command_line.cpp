#include "weft/cli/command_line.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/text/lower.h"
#include "weft/base/text/suggest.h"

namespace weft::cli {
namespace {

[[noreturn]] void refuse(const Verb& verb, std::string_view reason) {
  throw Error(ErrorKind::usage, "{}: {}. Hint: {} --help.", verb.path(), reason, verb.path());
}

[[noreturn]] void refuse_extra(const Verb& verb, const std::string& word) {
  if (!word.starts_with("-"))
    throw Error(ErrorKind::usage, "{} does not take '{}'. Hint: {} --help.", verb.path(), word,
                verb.path());
  std::vector<std::string> flags = {"--help"};
  for (const Option& option : verb.options)
    for (const std::string& known : option.flags()) flags.push_back(known);
  std::vector<std::string_view> names(flags.begin(), flags.end());
  for (std::string_view& name : names) name.remove_prefix(2);  // dashes are not compared
  const std::string flag = word.substr(0, word.find('='));
  std::string_view similar =
      nearest(std::string_view(flag).substr(std::min<size_t>(2, flag.size())), names);
  throw Error(ErrorKind::usage, "{} has no flag {}. {}", verb.path(), flag,
              similar.empty() ? fmt::format("Hint: {} --help.", verb.path())
                              : fmt::format("Did you mean --{}?", similar));
}

// Returns the spelling of CLI11: "-o,--output", "--resume,!--no-resume", "RECIPE".
std::string spelling(const Option& option) {
  if (option.flag.empty()) return option.type.substr(0, option.type.find('|'));
  std::string text = option.letter == 0 ? "" : fmt::format("-{},", option.letter);
  text += option.flag;
  if (option.negatable) text += ",!--no-" + option.flag.substr(2);
  return text;
}

// Adds an option of the type of its target.
struct Add {
  CLI::App& app;
  const Option& option;

  CLI::Option* operator()(bool* target) const {
    return app.add_flag(spelling(option), *target)
        ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  }
  template <class T>
  CLI::Option* operator()(T* target) const {
    return app.add_option(spelling(option), *target);
  }
  CLI::Option* operator()(std::vector<std::string>* target) const {
    return app.add_option(spelling(option), *target)
        ->expected(static_cast<int>(option.least), static_cast<int>(option.most))
        ->allow_extra_args(option.flag.empty() || option.several);
  }
  CLI::Option* operator()(const std::function<void(const std::string&)>& target) const {
    return app.add_option_function<std::string>(spelling(option), target);
  }
};

bool is_truth(std::string_view text) {
  constexpr std::string_view words[] = {"true", "false", "yes", "no", "on", "off", "1", "0"};
  return std::ranges::find(words, text) != std::end(words);
}

// Returns the choice that equals `text` but for upper and lower case; `text` if no choice does.
std::string as_in(const std::vector<std::string>& choices, const std::string& text) {
  const auto found = std::ranges::find(choices, lower(text), lower);
  return found != choices.end() && std::ranges::find(choices, text) == choices.end() ? *found
                                                                                     : text;
}

// Returns the words of a message that refuses a value of the option; "" for a valid value.
std::string what_is_wrong(const Option& option, const std::string& text) {
  if (option.is_switch())
    return is_truth(lower(text)) ? "" : fmt::format("does not take '{}'", text);
  if (text.empty() && !option.may_be_empty) return "must not be empty";
  if (!option.choices.empty() && std::ranges::find(option.choices, text) == option.choices.end())
    return fmt::format("is one of {}. Got '{}'", fmt::join(option.choices, ", "), text);
  if (!option.range) return "";
  const auto [low, high] = *option.range;
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // CLI11 would read 0x63 as 99, whatever the range.
  if (end != text.data() + text.size() || error == std::errc::invalid_argument)
    return fmt::format("does not take '{}'", text);
  return error == std::errc() && number >= low && number <= high
             ? ""
             : fmt::format("is {} to {}. Got {}", low, high, text);
}

void add_options(CLI::App& app, const Verb& verb) {
  std::map<std::string, CLI::Option*> added;
  for (const Option& option : verb.options) {
    CLI::Option* made = std::visit(Add{app, option}, option.target);
    added[option.flag] = made;
    made->required(option.required);
    if (!option.choices.empty())
      made->transform([&option](const std::string& text) { return as_in(option.choices, text); });
    made->check([&option](const std::string& text) { return what_is_wrong(option, text); });
  }
  for (const Option& option : verb.options)
    if (!option.excludes.empty()) added.at(option.flag)->excludes(added.at(option.excludes));
}

// Rephrases messages of CLI11 that name its own types.
std::string reason(const CLI::ParseError& error) {
  constexpr std::string_view conversion = "Could not convert: ";  // "--resume = maybe"
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  if (size_t equals = text.find(" = "); text.starts_with(conversion) && equals != text.npos)
    return fmt::format("{} does not take '{}'",
                       text.substr(conversion.size(), equals - conversion.size()),
                       text.substr(equals + 3));
  constexpr std::string_view excludes = " excludes ";  // "--resume excludes --overwrite"
  if (const size_t at = text.find(excludes); at != text.npos)
    return fmt::format("{} and {} contradict each other", text.substr(0, at),
                       text.substr(at + excludes.size()));
  const size_t colon = text.find(": ");
  if (colon != text.npos && dynamic_cast<const CLI::ValidationError*>(&error) != nullptr)
    return text.erase(colon, 1);  // "--depth: is 1 to 16"
  if (const size_t least = text.find("At least "); least != text.npos) {
    // CLI11 writes "RUN: At least 2 required but received 1".
    const std::string count = text.substr(least + 9, text.find(' ', least + 9) - least - 9);
    return fmt::format("{} must be given at least {} times", text.substr(0, colon), count);
  }
  if (const size_t most = text.find("At Most "); most != text.npos) {
    // CLI11 writes "--prompt: At Most 64 required but received 65".
    const std::string count = text.substr(most + 8, text.find(' ', most + 8) - most - 8);
    return fmt::format("{} is given more than {}", text.substr(0, colon),
                       count == "1" ? "once" : count + " times");
  }
  if (text.find(" but received ") != text.npos)  // "--depth: 1 required N but received 2"
    return text.substr(0, colon) + " is given more than once";
  if (text.ends_with(" missing"))  // "--steps: 1 required VALUE missing"
    return text.substr(0, text.find(':')) + " needs a value";
  return text;
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
  CLI::App app;
  app.set_help_flag("-h,--help");
  app.allow_extras();
  add_options(app, verb);
  std::vector<std::string> last_first(words.rbegin(), words.rend());  // the order that CLI11 takes
  try {
    app.parse(std::move(last_first));
  } catch (const CLI::CallForHelp&) {
    return true;
  } catch (const CLI::ParseError& error) {
    refuse(verb, reason(error));
  }
  std::vector<std::string> extras = app.remaining();
  std::erase(extras, "--");  // CLI11 keeps it although it parses the next words
  if (!extras.empty()) refuse_extra(verb, extras.front());
  return false;
}

}  // namespace weft::cli
