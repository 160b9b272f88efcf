#include "weft/cli/help.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "weft/cli/terminal.h"

namespace weft::cli {
namespace {
std::string heading(std::string_view text) { return paint(Colour::bold, text) + "\n"; }

std::string options_text(const CLI::App& verb) {
  Table table({}, "  ");
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_positional() || option->get_group().empty()) continue;
    std::string type = option->get_type_name();
    std::string name = option->get_name(false, true);
    for (size_t comma = name.find(','); comma != std::string::npos; comma = name.find(',', comma + 2))
      name.insert(comma + 1, " ");
    table.row({name + (type.empty() ? "" : " " + type), option->get_description()});
  }
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
    text += heading(group == "Subcommands" ? "Verbs" : group) + table.text() + "\n";
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
                       usage_text(*verb) + (recipe_keys_ ? " [--section.key VALUE ...]" : "") + "\n\n" + positionals_text(*verb) + verbs_text(*verb) +
                       options_text(*verb);
    if (recipe_keys_)
      text += "  --section.key VALUE   any key of the recipe (weft config reference lists them)\n";
    std::string examples = verb->get_footer();
    for (size_t end = examples.find('\n'); end != std::string::npos; end = examples.find('\n', end + 1))
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
