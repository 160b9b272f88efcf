#include "weft/cli/verbs/launch_hosts.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/logging.h"
#include "weft/cli/verbs/launch_process.h"
#include "weft/comm/meeting.h"

namespace weft::cli {
namespace {
constexpr double after_verdict = 5, after_terminate = 2;  // seconds until mpirun is ended
constexpr int not_started = 127, saved_on_hosts = 75;

// Returns a port below those that systems give to programs which ask for any.
int random_port() {
  constexpr unsigned long first = 20'000, count = 12'000;
  return static_cast<int>(first + std::stoul(comm::make_token().substr(0, 8), nullptr, 16) % count);
}

// Variables of this process that ranks need: mpirun passes none on unless it is told.
std::vector<std::string> passed_variables() {
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    constexpr std::array of_ranks = {"WEFT_RANK", "WEFT_RANKS", "WEFT_LOCAL_RANK",
                                     "WEFT_LOCAL_RANKS", "WEFT_LISTENER"};
    const bool is_of_a_rank = std::ranges::find(of_ranks, name) != of_ranks.end();
    if ((name.starts_with("WEFT_") && !is_of_a_rank) || name == "OMP_NUM_THREADS")
      names.emplace_back(name);
  }
  return names;
}

void show_held(std::optional<std::string>& lines) {
  if (lines) write_all(STDERR_FILENO, *lines);
  lines.reset();
}

// Returns the first sentences of mpirun, which end with an empty line or a ruler.
std::string first_paragraph(const std::string& text) {
  std::istringstream lines(text);
  std::string paragraph;
  for (std::string line; std::getline(lines, line);) {
    const bool is_empty = line.find_first_not_of("- \r") == line.npos;
    if (is_empty && !paragraph.empty()) break;
    if (is_empty) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) paragraph += (paragraph.empty() ? "" : " ") + word;
  }
  if (paragraph.ends_with(":")) paragraph.back() = '.';
  return paragraph;
}

// A RankOutput makes the lines of mpirun --tag-output, "[1,3]<stderr>:text", those of weft launch.
class RankOutput {
 public:
  RankOutput(int from, int to) : from_(from), to_(to) {}

  int from() const { return from_; }
  // Shows what has come, but for the lines that begin with the mark, which it gives `hear`: what
  // is after the mark, and the rank. `before` has the lines of mpirun itself until a rank says
  // something, and is null from then on.
  using Hear = std::function<void(std::string_view what, int rank)>;
  void read(const std::string& mark, std::optional<std::string>& before, const Hear& hear) {
    std::array<char, 1 << 14> bytes;
    while (from_ >= 0) {
      const ssize_t count = ::read(from_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) break;
      if (count == 0) ::close(std::exchange(from_, -1));
      text_.append(bytes.data(), static_cast<size_t>(count));
      if (count == 0 && !text_.empty()) text_ += "\n";
      for (size_t end = 0; (end = text_.find('\n')) != text_.npos; text_.erase(0, end + 1))
        take_line(text_.substr(0, end + 1), mark, before, hear);
    }
  }

 private:
  void take_line(std::string line, const std::string& mark, std::optional<std::string>& before,
                 const Hear& hear) const {
    const size_t comma = line.find(','), tag = line.find("]<std"), colon = line.find(">:", tag);
    if (line.starts_with("[") && comma < tag && colon != line.npos) {
      const std::string rank = line.substr(comma + 1, tag - comma - 1);
      line.erase(0, colon + 2);
      show_held(before);
      if (line.starts_with(mark)) {
        line.pop_back();
        return hear(std::string_view(line).substr(mark.size()), std::atoi(rank.c_str()));
      }
      if (rank != "0") line.insert(0, fmt::format("[rank {}] ", rank));
    } else if (to_ == STDOUT_FILENO) {
      return;  // mpirun counts there what it has said elsewhere
    } else if (before) {
      *before += line;
      return;
    }
    write_all(to_, line);
  }

  int from_, to_;
  std::string text_;
};

// Ends what mpirun has left behind on this host: its agents, which are in process groups of their
// own. As mpirun is gone, they are children of this process, and so are their children in turn.
void end_children() {
  for (int tries = 0; tries < 100; ++tries) {
    std::ifstream children(fmt::format("/proc/self/task/{}/children", getpid()));
    int count = 0;
    for (pid_t child = 0; children >> child; ++count) kill(child, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (count == 0) return;
    usleep(10'000);
  }
}

class HostsLaunch {
 public:
  HostsLaunch(const std::vector<std::string>& command, int ranks, const Hosts& hosts)
      : command_(command), ranks_(ranks), hosts_(hosts) {}
  ~HostsLaunch() {
    if (mpirun_ <= 0) return;
    kill(-mpirun_, SIGKILL);
    waitpid(mpirun_, nullptr, 0);
    end_children();
  }
  HostsLaunch(const HostsLaunch&) = delete;
  HostsLaunch& operator=(const HostsLaunch&) = delete;

  int run() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    start();
    while (mpirun_ > 0) {
      wait();
      hasten();
    }
    read_outputs();
    if (code_ == not_started)
      throw Error(ErrorKind::device,
                  "weft launch --hosts needs mpirun, which does not start here. Hint: install "
                  "Open MPI (tools/setup.sh --cluster), or start ranks by srun.");
    refuse_where_none_started();
    show_held(before_);
    return code();
  }

 private:
  std::vector<std::string> words() const;
  void start();
  [[noreturn]] void become(const std::array<int, 2>& outputs);
  void wait();
  void hear_signals();
  void hasten();
  void read_outputs();
  void refuse_where_none_started() const;
  int code() const;

  std::vector<std::string> command_;
  int ranks_;
  Hosts hosts_;
  std::string mark_ = "weft-launch:" + comm::make_token() + ":";
  std::vector<RankOutput> outputs_;
  std::optional<std::string> before_ = "";  // what mpirun says before a rank does
  const LaunchSignals signals_;
  pid_t mpirun_ = 0;  // leads a process group; 0: it ended
  int code_ = 0;
  std::map<int, int> codes_;  // by rank, of those that have said theirs
  bool is_lost_ = false, has_stopped_ = false;
  double ends_at_ = 0;  // 0: nothing is wrong
  int tries_ = 0;       // to end mpirun
};

std::vector<std::string> HostsLaunch::words() const {
  std::string hosts;
  for (const std::string& name : hosts_.names)
    hosts += fmt::format("{}{}:{}", hosts.empty() ? "" : ",", name, hosts_.slots);
  std::vector<std::string> words = {"mpirun",
                                    "-n",
                                    std::to_string(ranks_),
                                    "--host",
                                    hosts,
                                    "--map-by",
                                    "slot",
                                    "--bind-to",
                                    "none",
                                    "--tag-output",
                                    "--leave-session-attached"};
  const auto set = [&](const char* name, const char* value) {
    words.insert(words.end(), {"--mca", name, value});
  };
  set("orte_abort_on_non_zero_status", "0");  // ranks end each other
  // The daemons of other hosts end themselves where they hear nothing for half a minute.
  set("oob_tcp_keepalive_time", "10");
  set("oob_tcp_keepalive_intvl", "5");
  set("oob_tcp_keepalive_probes", "4");
  for (const std::string& name : passed_variables()) {
    words.emplace_back("-x");
    words.push_back(name);
  }
  words.insert(words.end(), command_.begin(), command_.end());
  return words;
}

void HostsLaunch::start() {
  std::array<int, 2> outputs{};
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) cannot_launch("no pipe");
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    outputs_.emplace_back(ends[0], STDOUT_FILENO + static_cast<int>(i));
    outputs[i] = ends[1];
  }
  mpirun_ = fork();
  if (mpirun_ < 0) cannot_launch("no process");
  if (mpirun_ == 0) become(outputs);
  setpgid(mpirun_, mpirun_);
  for (const int output : outputs) close(output);
}

// Runs in the new process.
void HostsLaunch::become(const std::array<int, 2>& outputs) {
  become_child(outputs[0], outputs[1]);
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
  };
  if (!env("WEFT_ADDRESS"))
    set("WEFT_ADDRESS", fmt::format("{}:{}", hosts_.names.front(), random_port()));
  set("WEFT_TOKEN", comm::make_token());
  set("WEFT_MARK", mark_);
  share_cores(hosts_.slots);
  execute(words(), signals_);
  _exit(not_started);
}

void HostsLaunch::wait() {
  std::vector<pollfd> polled = {{.fd = signals_.file(), .events = POLLIN, .revents = 0}};
  for (const RankOutput& output : outputs_)
    if (output.from() >= 0) polled.push_back({.fd = output.from(), .events = POLLIN, .revents = 0});
  poll(polled.data(), polled.size(), 200);
  hear_signals();
  read_outputs();
  int status = 0;
  if (waitpid(mpirun_, &status, WNOHANG) != mpirun_) return;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  mpirun_ = 0;
  end_children();
}

void HostsLaunch::read_outputs() {
  for (RankOutput& output : outputs_)
    output.read(mark_, before_, [this](std::string_view what, int rank) {
      const bool is_lost = what == "lost";
      if (!is_lost) codes_[rank] = std::atoi(std::string(what.substr(what.find(' ') + 1)).c_str());
      if (is_lost) is_lost_ = true;
      const bool is_well = !is_lost && (codes_[rank] == 0 || codes_[rank] == saved_on_hosts);
      if (!is_well && ends_at_ == 0) ends_at_ = now() + after_verdict;
    });
}

// Where mpirun starts no rank, it ends with 1 or 255 because of a host, and because of the program
// with a code that also stands for a signal: its words tell these apart.
void HostsLaunch::refuse_where_none_started() const {
  const std::string why = before_ ? first_paragraph(*before_) : "";
  if (why.empty()) return;
  if (code_ == 1 || code_ == 255)
    throw Error(ErrorKind::device, "mpirun has started no rank: {}", why);
  for (const std::string_view sign : {"mpirun was unable to ", "Open MPI tried to fork "})
    if (code_ > 128 && why.starts_with(sign))
      throw Error(ErrorKind::usage, "cannot start {} on each host: {}", command_.front(), why);
}

// mpirun itself returns an exit code of one rank or 0, and 128 + signal where a rank was killed.
int HostsLaunch::code() const {
  constexpr auto lost = static_cast<int>(ErrorKind::rank_lost);
  if (is_lost_ || (code_ > 128 && ends_at_ == 0)) return lost;
  if (codes_.empty()) return code_;
  const auto first = codes_.find(0);  // whose failure the others share, or suffer from
  if (first != codes_.end() && first->second != 0) return first->second;
  int worst = code_;
  for (const auto& [rank, code] : codes_) worst = std::max(worst, code);
  return worst;
}

// mpirun passes SIGUSR2 on to all ranks, but ends them where it gets SIGTERM itself.
void HostsLaunch::hear_signals() {
  while (const std::optional<int> heard = signals_.next()) {
    const int signal = *heard;
    if (signal == SIGCHLD) continue;
    if (signal == SIGUSR1)
      kill(mpirun_, SIGUSR1);
    else
      kill(mpirun_, std::exchange(has_stopped_, true) && signal == SIGINT ? SIGTERM : SIGUSR2);
  }
}

void HostsLaunch::hasten() {
  if (mpirun_ <= 0 || ends_at_ == 0 || now() < ends_at_) return;
  kill(-mpirun_, tries_++ == 0 ? SIGTERM : SIGKILL);
  ends_at_ = now() + after_terminate;
}
}  // namespace

Hosts parse_hosts(const std::string& text, int ranks) {
  Hosts hosts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    hosts.names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  for (const std::string& name : hosts.names)
    if (name.empty() || name.starts_with("-") || name.find_first_of(": \t/") != name.npos)
      throw Error(ErrorKind::usage,
                  "--hosts {} is no list of hosts. Hint: names or numbers, as in --hosts a,b.",
                  text);
  const int count = static_cast<int>(hosts.names.size());
  if (ranks < count)
    throw Error(ErrorKind::usage, "--hosts has {} hosts, and -n is {}. Hint: -n {}.", count, ranks,
                count);
  if (ranks % count != 0)
    throw Error(ErrorKind::usage,
                "{} ranks cannot be shared out to {} hosts evenly. Hint: -n {} or -n {}.", ranks,
                count, ranks / count * count, (ranks / count + 1) * count);
  hosts.slots = ranks / count;
  return hosts;
}

int launch_on_hosts(const std::vector<std::string>& command, int ranks, const Hosts& hosts) {
  return HostsLaunch(command, ranks, hosts).run();
}

}  // namespace weft::cli
