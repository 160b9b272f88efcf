// Tests shell completion, in the shells themselves where they are installed.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/program.h"
#include "tests/support/skip.h"

using namespace weft::test;

namespace {
using Words = std::vector<std::string>;

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
bool holds(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Returns the completions that the program offers for the last word.
Words after(const Workplace& place, const Words& line) {
  Words arguments = {"completion", "words", "--", "weft"};
  arguments.insert(arguments.end(), line.begin(), line.end());
  Outcome outcome = place.weft(arguments);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return lines_of(outcome.out);
}

// Returns whether the shell is installed; reports a skipped test if not.
bool has_shell(const std::string& shell) {
  const bool there = std::system(fmt::format("command -v {} >/dev/null", shell).c_str()) == 0;
  if (!there) weft::testing::skipped("there is no " + shell);
  return there;
}

// Runs `script` in a shell whose PATH begins with a folder that holds "weft".
Words run_shell(const Workplace& place, const std::string& shell, const std::string& script) {
  std::filesystem::create_symlink(std::getenv("WEFT"), place.path("weft"));
  place.write("script", script);
  std::string command =
      fmt::format("cd {0} && PATH={0}:$PATH {1} script > answer 2>&1", place.folder(), shell);
  int status = std::system(command.c_str());
  std::string answer = place.read("answer");
  REQUIRE_MESSAGE(status == 0, answer);
  return lines_of(answer);
}
}  // namespace

TEST_CASE("completion offers verbs, flags, keys, their values and names") {
  Workplace place;
  CHECK(after(place, {"tr"}) == Words{"train"});
  CHECK(after(place, {"ckpt", "v"}) == Words{"verify"});
  CHECK(holds(after(place, {""}), "plan"));
  CHECK(after(place, {"train", "--resu"}) == Words{"--resume"});
  CHECK(after(place, {"fit", "--optimizer.l"}) == Words{"--optimizer.lr"});
  CHECK(after(place, {"bench", "--optimizer.l"}).empty());
  CHECK(after(place, {"train", "--train.precision", "fp3"}) == Words{"fp32"});
  CHECK(after(place, {"train", "--precision", ""}) ==
        Words{"bf16", "bf16-mixed", "fp16-mixed", "fp32", "fp64", "tf32"});
  CHECK(after(place, {"train", "--precision", "=", "fp6"}) == Words{"fp64"});
  CHECK(after(place, {"bench", "--precision", ""}) ==
        Words{"bf16-mixed", "fp16-mixed", "fp32", "tf32"});
  CHECK(after(place, {"bench", "--steps", ""}).empty());  // a number: nothing to offer
  CHECK(after(place, {"bench", "mnist"}) == Words{"mnist-conv"});
  CHECK(after(place, {"completion", ""}) == Words{"bash", "fish", "zsh"});
  place.write("runs/wide/log.jsonl", "");
  CHECK(after(place, {"runs", "show", "w"}) == Words{"wide"});
  place.write("recipes/poems.yaml", "");
  CHECK(after(place, {"train", "poe"}) == Words{"poems"});
}

TEST_CASE("bash completes a verb and an option after sourcing the script") {
  Workplace place;
  Words answer = run_shell(place, "bash", R"(source <(weft completion bash)
complete -p weft
COMP_WORDS=(weft tr) COMP_CWORD=1; _weft; echo "${COMPREPLY[*]}"
COMP_WORDS=(weft train mnist --resu) COMP_CWORD=3; _weft; echo "${COMPREPLY[*]}"
COMP_WORDS=(weft plan --precision fp3) COMP_CWORD=3; _weft; echo "${COMPREPLY[@]}"
)");
  CHECK(answer == Words{"complete -o default -F _weft weft", "train", "--resume", "fp32"});
}

TEST_CASE("zsh completes a verb and an option after sourcing the script") {
  if (!has_shell("zsh")) return;
  Workplace place;
  Words answer = run_shell(place, "zsh -f", R"(autoload -U compinit && compinit -u -D
source <(weft completion zsh)
compadd() { shift; print -- "$@" }
words=(weft tr) CURRENT=2; _weft
words=(weft train mnist --resu) CURRENT=4; _weft
words=(weft plan --precision fp3) CURRENT=4; _weft
)");
  CHECK(answer == Words{"train", "--resume", "fp32"});
}

TEST_CASE("fish completes a verb and an option after sourcing the script") {
  if (!has_shell("fish")) return;
  Workplace place;
  Words answer = run_shell(place, "fish --no-config", R"(weft completion fish | source
complete -C "weft tr"
complete -C "weft train mnist --resu"
complete -C "weft plan --precision fp3"
)");
  CHECK(answer == Words{"train", "--resume", "fp32"});
}

TEST_CASE("completion for an unsupported shell is a usage error") {
  Workplace place;
  CHECK(fails_with(place.weft({"completion", "tcsh"}), 2, "SHELL") == "");
  CHECK(fails_with(place.weft({"completion"}), 2, "SHELL") == "");
  CHECK(fails_with(place.weft({"completion", "zsh", "more"}), 2, "Got more.") == "");
}
