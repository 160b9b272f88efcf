#include "weft/cli/help.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "weft/cli/terminal.h"

namespace weft::cli {
namespace {
std::string heading(std::string_view text) { return paint(Colour::bold, text) + "\n"; }

// "--resume, --no-resume", "--steps N"
std::string flag_text(const CLI::Option& option) {
  std::string text;
  for (const std::string& name : option.get_snames()) text += fmt::format("-{}, ", name);
  for (const std::string& name : option.get_lnames()) text += fmt::format("--{}, ", name);
  text.erase(text.size() - 2);
  std::string type = option.get_type_name();
  type = type.substr(0, type.find(':'));  // what follows are its limits
  return type.empty() ? text : text + " " + type;
}

std::string options_text(const CLI::App& verb, bool recipe_keys) {
  Table table({}, "  ");
  for (const CLI::Option* option : verb.get_options())
    if (!option->get_positional()) table.row({flag_text(*option), option->get_description()});
  if (recipe_keys)
    table.row({"--section.key VALUE", "any key of the recipe (weft config reference)"});
  return heading("Flags") + table.text();
}

std::string positionals_text(const CLI::App& verb) {
  Table table({}, "  ");
  for (const CLI::Option* option : verb.get_options())
    if (option->get_positional()) table.row({option->get_name(true), option->get_description()});
  return table.empty() ? "" : table.text() + "\n";
}

std::string verbs_text(const CLI::App& app) {
  std::string text;
  std::vector<std::string> groups;
  auto verbs = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* verb : verbs)
    if (std::find(groups.begin(), groups.end(), verb->get_group()) == groups.end())
      groups.push_back(verb->get_group());
  for (const std::string& group : groups) {
    Table table({}, "  ");
    for (const CLI::App* verb : verbs)
      if (verb->get_group() == group)
        table.row({fmt::format("{:<9}", verb->get_name()), verb->get_description()});
    text += heading(app.get_parent() == nullptr ? group : "Verbs") + table.text() + "\n";
  }
  return text;
}

std::string usage_text(const CLI::App& verb) {
  std::string text = verb_path(verb);
  for (const CLI::Option* option : verb.get_options())
    if (option->get_positional())
      text += option->get_required() ? " " + option->get_name(true)
                                     : fmt::format(" [{}]", option->get_name(true));
  if (!verb.get_subcommands([](const CLI::App*) { return true; }).empty()) text += " VERB";
  text += " [flags]";
  return text;
}

class HelpFormatter : public CLI::FormatterBase {
 public:
  explicit HelpFormatter(bool recipe_keys) : recipe_keys_(recipe_keys) {}

  std::string make_help(const CLI::App* verb, std::string, CLI::AppFormatMode) const override {
    std::string text = verb->get_description() + "\n\n" + heading("Usage") + "  " +
                       usage_text(*verb) + (recipe_keys_ ? " [--section.key VALUE ...]" : "") +
                       "\n\n" + positionals_text(*verb) + verbs_text(*verb) +
                       options_text(*verb, recipe_keys_);
    std::string examples = verb->get_footer();
    for (size_t end = examples.find('\n'); end != std::string::npos;
         end = examples.find('\n', end + 1))
      examples.insert(end + 1, "  ");
    if (!examples.empty()) text += "\n" + heading("Examples") + "  " + examples + "\n";
    return text;
  }

 private:
  bool recipe_keys_;
};
}  // namespace

std::shared_ptr<CLI::FormatterBase> make_help_formatter(bool recipe_keys) {
  return std::make_shared<HelpFormatter>(recipe_keys);
}

std::string verb_path(const CLI::App& verb) {
  const CLI::App* parent = verb.get_parent();
  return parent == nullptr ? "weft" : verb_path(*parent) + " " + verb.get_name();
}

}  // namespace weft::cli
