// Implements launch, which starts a command as ranks.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/cli/verbs/launch_hosts.h"
#include "weft/cli/verbs/launch_ranks.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/comm/launcher.h"

namespace weft::cli {
namespace {
constexpr int most_ranks = 1024;

struct LaunchArguments {
  int ranks = 0;
  std::string hosts;
  std::vector<std::string> words;  // of the command, for the help
  bool oversubscribe = false;
};

// Returns the command as exec takes it. Throws Error(usage) for one that no rank could run.
std::vector<std::string> command_of(const Program& program) {
  std::vector<std::string> command = program.launched;
  if (command.empty())
    throw Error(ErrorKind::usage,
                "weft launch needs what to start. Hint: weft launch -n 2 train recipe.yaml.");
  if (command.front() == "--") {
    command.erase(command.begin());
    if (command.empty()) throw Error(ErrorKind::usage, "weft launch: no program is after --.");
    return command;
  }
  const std::string& first = command.front();
  if (first.find_first_of("./") != first.npos)
    throw Error(ErrorKind::usage,
                "{0} is no verb. Hint: train {0} where it is a recipe, -- {0} where it is a "
                "program of your own.",
                first);
  const auto [verb, words] = find_verb(program.root, command);
  if (!verb->on_ranks)
    throw Error(ErrorKind::usage,
                "{} does not run on several ranks: train and finetune do. Hint: a program of your "
                "own is after --, as in weft launch -n 2 -- ./program.",
                verb->path());
  std::error_code none;  // /proc is there, as everything needs it
  command.insert(command.begin(), std::filesystem::read_symlink("/proc/self/exe", none).string());
  return command;
}

int run_launch(const Program& program, const LaunchArguments& arguments) {
  comm::find_place();  // refuses here, once, variables that each rank would refuse
  std::vector<std::string> command = command_of(program);
  const std::optional<Hosts> hosts =
      arguments.hosts.empty() ? std::nullopt
                              : std::optional(parse_hosts(arguments.hosts, arguments.ranks));
  const int cores = usable_cores(), ranks = hosts ? hosts->slots : arguments.ranks;
  if (ranks > cores && !arguments.oversubscribe)
    throw Error(ErrorKind::usage,
                "{} ranks are more than the {} cores of this process: they would wait for each "
                "other. Hint: --oversubscribe, to do so anyway.",
                ranks, cores);
  if (hosts) return launch_on_hosts(command, arguments.ranks, *hosts);
  return launch_ranks(std::move(command), arguments.ranks);
}
}  // namespace

std::vector<std::string> take_launched(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "launch") return {};
  size_t first = 1;
  for (; first < arguments.size(); ++first) {
    const std::string& word = arguments[first];
    if (!word.starts_with("-") || word == "--") break;
    if (word == "-n" || word == "--ranks" || word == "--hosts") ++first;  // and its value
  }
  first = std::min(first, arguments.size());
  const auto begin = arguments.begin() + static_cast<std::ptrdiff_t>(first);
  std::vector<std::string> launched(begin, arguments.end());
  arguments.erase(begin, arguments.end());
  return launched;
}

void add_launch_verb(Program& program) {
  auto arguments = std::make_shared<LaunchArguments>();
  Verb& verb = program.root.add(
      {.name = "launch",
       .group = "Runs",
       .doc = "Starts a verb, or after -- a program, as ranks, which train one model. "
              "Lines of ranks other than 0 begin with their number. Exit codes: 8 where a rank is "
              "lost or hung, 75 after a signal and a good save, else the highest of the ranks'.",
       .examples = "weft launch -n 2 train recipes/mnist.yaml\n"
                   "weft launch -n 2 train mnist --steps 100 --resume\n"
                   "weft launch -n 4 --hosts a,b train recipes/mnist.yaml\n"
                   "weft launch -n 2 -- ./my_program its arguments",
       .run = [&program, arguments] { return run_launch(program, *arguments); }});
  verb.options = {
      {.flag = "--ranks",
       .letter = 'n',
       .type = "N",
       .doc = "number of ranks; each has its share of the cores as WEFT_THREADS",
       .target = &arguments->ranks,
       .required = true,
       .range = {{1, most_ranks}}},
      {.type = "COMMAND",  // which take_launched() has removed
       .doc = "train or finetune with its words, or -- and a program with its own; the last words",
       .target = &arguments->words,
       .least = 0,
       .most = SIZE_MAX},
      {.flag = "--hosts",
       .type = "A,B",
       .doc = "hosts that share out the ranks, rank 0 on the first: by mpirun of Open MPI",
       .target = &arguments->hosts},
      {.flag = "--oversubscribe",
       .doc = "allow more ranks than cores",
       .target = &arguments->oversubscribe}};
}

}  // namespace weft::cli
