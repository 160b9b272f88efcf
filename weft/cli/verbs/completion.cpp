// Implements completion: scripts for shells, which query this program for the possible next words.
#include <algorithm>
#include <filesystem>

#include "weft/cli/measure/workloads.h"
#include "weft/cli/recipes/starters.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/train/recipe/recipe.h"

namespace fs = std::filesystem;

namespace weft::cli {
namespace {
using Words = std::vector<std::string>;

// Each script passes all words of the line up to the cursor. Without candidates the shell completes
// files. zsh's script runs as the function itself where it is autoloaded from fpath.
constexpr std::string_view bash_script = R"(_weft() {
  local IFS=$'\n' line=("${COMP_WORDS[@]:0:COMP_CWORD+1}")
  COMPREPLY=($("${line[0]}" completion words -- "${line[@]}" 2>/dev/null))
}
complete -o default -F _weft weft
)";
constexpr std::string_view zsh_script = R"(#compdef weft
_weft() {
  local -a found
  found=("${(@f)$("${words[1]}" completion words -- "${(@)words[1,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then compadd -- "${found[@]}"; else _files; fi
}
if [[ $funcstack[1] == _weft ]]; then _weft; else compdef _weft weft; fi
)";
constexpr std::string_view fish_script = R"(function __weft_complete
  set -l line (commandline -opc) (commandline -ct)
  set -l found ($line[1] completion words -- $line 2>/dev/null)
  if count $found >/dev/null
    string join \n -- $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c weft -f -a '(__weft_complete)'
)";

Words runs_here() {
  Words names;
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator("runs", absent))
    names.push_back(entry.path().filename().string());
  return names;
}

// Returns values of a positional argument, by its name in the help.
Words argument_values(const std::string& name) {
  Words values;
  if (name == "RUN" || name == "CHECKPOINT" || name == "MODEL") values = runs_here();
  if (name.starts_with("RECIPE"))  // or RECIPE|WORKLOAD
    for (const std::string& path : known_recipes()) values.push_back(fs::path(path).stem());
  if (name.ends_with("WORKLOAD"))
    for (const WorkloadKind& kind : workload_kinds()) values.emplace_back(kind.name);
  if (name == "KIND")
    for (const Starter& starter : starters()) values.emplace_back(starter.kind);
  if (name == "SHELL") values = {"bash", "zsh", "fish"};
  return values;
}

Words names_of(const std::list<Verb>& verbs) {
  Words names;
  for (const Verb& verb : verbs) names.push_back(verb.name);
  return names;
}

Words flags_of(const Verb& verb) {
  Words flags = {"--help"};
  for (const Option& option : verb.options)
    for (const std::string& flag : option.flags()) flags.push_back(flag);
  if (verb.recipe_keys)
    for (const RecipeKey& key : train::recipe_keys()) flags.push_back("--" + std::string(key.path));
  return flags;
}

std::string_view key_of(std::string_view flag) {
  for (const RecipeKey& key : short_flags())
    if (key.flag == flag) return key.path;
  return flag.substr(std::min<size_t>(2, flag.size()));
}

struct FlagValues {
  bool expected = false;  // the flag takes a value
  Words known;            // all of them, or empty
};
FlagValues values_after(const Verb& verb, const std::string& flag) {
  if (!flag.starts_with("--")) return {};
  const RecipeKey* key = train::find_key(key_of(flag));
  if (key != nullptr && verb.recipe_keys)
    return {true,
            key->type == KeyType::boolean ? Words{"true", "false"} : train::allowed_values(*key)};
  const Option* option = verb.find_option(flag);
  if (option == nullptr || option->is_switch()) return {};
  return {true, option->choices};
}

Words positional_values(const Verb& verb) {
  for (const Option& option : verb.options)
    if (option.flag.empty()) return argument_values(option.type);
  return {};
}

// Returns the candidates for the last word.
Words candidates(const Program& program, Words line) {
  std::erase(line, "=");  // bash splits --flag=value
  std::string typed = line.size() > 1 ? line.back() : "";
  const Verb* verb = &program.root;
  size_t at = 1;  // skips the program
  for (; at + 1 < line.size(); ++at) {
    const Verb* next = verb->find(line[at]);
    if (next == nullptr) break;
    verb = next;
  }
  FlagValues values =
      at + 1 < line.size() ? values_after(*verb, line[line.size() - 2]) : FlagValues();
  Words found;
  if (values.expected && !typed.starts_with("-"))
    found = values.known;
  else if (typed.starts_with("-"))
    found = flags_of(*verb);
  else if (Words verbs = names_of(verb->verbs); !verbs.empty())
    found = verbs;
  else
    found = positional_values(*verb);
  std::erase_if(found, [&](const std::string& word) { return !word.starts_with(typed); });
  std::sort(found.begin(), found.end());
  return found;
}

int completion(const Program& program, const std::string& shell, const Words& line_so_far) {
  if (shell == "words")
    for (const std::string& word : candidates(program, line_so_far)) line(word);
  else if (!line_so_far.empty())
    throw Error(ErrorKind::usage, "completion: only \"words\" takes a line, not {}. Got {}.", shell,
                line_so_far.front());
  else
    out(shell == "bash" ? bash_script : shell == "zsh" ? zsh_script : fish_script);
  return 0;
}
}  // namespace

void add_completion_verb(Program& program) {
  struct Arguments {
    std::string shell;
    Words line;
  };
  auto arguments = std::make_shared<Arguments>();
  Verb& verb = program.root.add(
      {.name = "completion",
       .group = "This machine",
       .doc = "Prints a shell completion script for verbs, flags, recipe keys and names.",
       .examples = "weft completion bash > ~/.local/share/bash-completion/completions/weft\n"
                   "weft completion zsh > ~/.zfunc/_weft     (a folder of fpath)\n"
                   "weft completion fish > ~/.config/fish/completions/weft.fish",
       .run = [&program, arguments] {
         return completion(program, arguments->shell, arguments->line);
       }});
  verb.options = {{.type = "SHELL",
                   .doc = "bash, zsh or fish; words: list the completions of WORD...",
                   .target = &arguments->shell,
                   .required = true,
                   .choices = {"bash", "zsh", "fish", "words"}},
                  {.type = "WORD",
                   .doc = "the command line so far, starting with the program",
                   .target = &arguments->line,
                   .least = 0,
                   .most = SIZE_MAX}};
}

}  // namespace weft::cli
