#include "weft/cli/help.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/cli/show/terminal.h"

namespace weft::cli {
namespace {
std::string heading(std::string_view text) { return paint(Colour::bold, text) + "\n"; }

// Returns "-o, --output FILE" or "--resume, --no-resume".
std::string flag_text(const Option& option) {
  std::string text = option.letter == 0 ? "" : fmt::format("-{}, ", option.letter);
  for (const std::string& flag : option.flags()) text += fmt::format("{}, ", flag);
  text.erase(text.size() - 2);
  return option.type.empty() ? text : text + " " + option.type;
}

std::string flags_text(const Verb& verb) {
  Table table({}, "  ");
  table.row({"-h, --help", "show this help"});
  for (const Option& option : verb.options)
    if (!option.flag.empty()) table.row({flag_text(option), option.doc});
  if (verb.recipe_keys)
    table.row({"--section.key VALUE", "any key of the recipe (weft config reference)"});
  return heading("Flags") + table.text();
}

std::string arguments_text(const Verb& verb) {
  Table table({}, "  ");
  for (const Option& option : verb.options)
    if (option.flag.empty()) table.row({option.type, option.doc});
  return table.empty() ? "" : table.text() + "\n";
}

std::string verbs_text(const Verb& parent) {
  std::string text;
  std::vector<std::string> groups;
  for (const Verb& verb : parent.verbs)
    if (std::ranges::find(groups, verb.group) == groups.end()) groups.push_back(verb.group);
  for (const std::string& group : groups) {
    Table table({}, "  ");
    for (const Verb& verb : parent.verbs)
      if (verb.group == group) table.row({fmt::format("{:<9}", verb.name), verb.doc});
    text += heading(group.empty() ? "Verbs" : group) + table.text() + "\n";
  }
  return text;
}

std::string usage_text(const Verb& verb) {
  std::string text = verb.path();
  for (const Option& option : verb.options)
    if (option.flag.empty()) text += option.required ? " " + option.type : " [" + option.type + "]";
  if (!verb.verbs.empty()) text += " VERB";
  text += " [flags]";
  return verb.recipe_keys ? text + " [--section.key VALUE ...]" : text;
}
}  // namespace

std::string help_text(const Verb& verb) {
  std::string text = verb.doc + "\n\n" + heading("Usage") + "  " + usage_text(verb) + "\n\n" +
                     arguments_text(verb) + verbs_text(verb) + flags_text(verb);
  std::string examples = verb.examples;
  for (size_t end = examples.find('\n'); end != std::string::npos;
       end = examples.find('\n', end + 1))
    examples.insert(end + 1, "  ");
  if (!examples.empty()) text += "\n" + heading("Examples") + "  " + examples + "\n";
  return text;
}

}  // namespace weft::cli
