#include "weft/cli/verbs/launch_ranks.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <optional>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "weft/base/error.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/logging.h"
#include "weft/cli/verbs/launch_process.h"
#include "weft/comm/hub.h"
#include "weft/comm/meeting.h"

namespace weft::cli {
namespace {
// Ranks end by themselves after one is lost, within 4 seconds; a program that is not weft's may
// not.
constexpr double seconds_to_end = 5, seconds_to_terminate = 1;
constexpr int saved_code = 75;

// A Listener is the socket on which rank 0 will hear the others. Bound before they start, its port
// is free for certain.
struct Listener {
  Listener() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    socklen_t bytes = sizeof address;
    if (socket < 0 || bind(socket, at, bytes) != 0 || listen(socket, SOMAXCONN) != 0 ||
        getsockname(socket, at, &bytes) != 0)
      cannot_launch("no socket for the ranks");
    port = ntohs(address.sin_port);
  }
  ~Listener() { close(socket); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int socket;
  uint16_t port = 0;
};

// Writes whole lines with a prefix.
struct Stream {
  int from = -1, to = -1;
  std::string line = {};

  void take(const std::string& prefix, std::string_view text) {
    line += text;
    constexpr size_t longest = 1 << 16;
    for (size_t end = 0; (end = line.find('\n')) != line.npos || line.size() > longest;) {
      end = std::min({end, line.size() - 1, longest});
      write_all(to, prefix + line.substr(0, end + 1));
      line.erase(0, end + 1);
    }
  }
  void end(const std::string& prefix) {
    if (!line.empty()) write_all(to, prefix + std::exchange(line, "") + "\n");
    if (from >= 0) close(std::exchange(from, -1));
  }
};

struct Child {
  pid_t pid = 0;  // 0: it ended
  std::array<Stream, 2> streams = {};
  int code = 0;  // 128 + signal
  bool is_ended_by_us = false;
  std::string prefix = {};
};

class Launch {
 public:
  Launch(std::vector<std::string> command, int ranks)
      : command_(std::move(command)), children_(static_cast<size_t>(ranks)) {}
  ~Launch() {
    for (const Child& child : children_)
      if (child.pid > 0) kill(child.pid, SIGKILL), waitpid(child.pid, nullptr, 0);
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  int run() {
    for (size_t rank = 0; rank < children_.size(); ++rank) start(static_cast<int>(rank));
    while (std::ranges::any_of(children_, [](const Child& child) { return child.pid > 0; })) {
      wait();
      reap();
      hasten();
    }
    for (Child& child : children_) drain(child);
    return code();
  }

 private:
  void start(int rank);
  [[noreturn]] void become(int rank, std::array<int, 2> outputs);
  void wait();
  void hear_signals();
  void read(Child& child, Stream& stream);
  void drain(Child& child);
  void reap();
  void hasten();
  static void end(Child& child, int signal);
  void signal_all(int signal);
  int code() const;

  std::vector<std::string> command_;
  std::vector<Child> children_;
  Listener listener_;
  std::string token_ = comm::make_token();
  const LaunchSignals signals_;
  int passed_on_ = 0;     // the signal that was sent to all ranks
  double failed_at_ = 0;  // when the first rank ended badly
  bool is_terminating_ = false;
};

void Launch::start(int rank) {
  Child& child = children_[static_cast<size_t>(rank)];
  std::array<int, 2> outputs = {STDOUT_FILENO, STDERR_FILENO};
  if (rank > 0) {  // the lines of rank 0 are the run's
    child.prefix = fmt::format("[rank {}] ", rank);
    for (size_t i = 0; i < 2; ++i) {
      std::array<int, 2> ends{};
      if (pipe2(ends.data(), O_CLOEXEC) != 0) cannot_launch("no pipe");
      child.streams[i] = {.from = ends[0], .to = outputs[i]};
      fcntl(ends[0], F_SETFL, O_NONBLOCK);
      outputs[i] = ends[1];
    }
  }
  child.pid = fork();
  if (child.pid < 0) cannot_launch("no process");
  if (child.pid == 0) become(rank, outputs);
  if (rank > 0)
    for (const int output : outputs) close(output);
}

// Runs in the new process.
void Launch::become(int rank, std::array<int, 2> outputs) {
  become_child(outputs[0], outputs[1]);
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
  };
  const std::string number = std::to_string(rank), count = std::to_string(children_.size());
  set("WEFT_RANK", number), set("WEFT_LOCAL_RANK", number);
  set("WEFT_RANKS", count), set("WEFT_LOCAL_RANKS", count);
  set("WEFT_ADDRESS", fmt::format("127.0.0.1:{}", listener_.port));
  set("WEFT_TOKEN", token_);
  unsetenv("WEFT_LISTENER");
  if (rank == 0) {
    set("WEFT_LISTENER", std::to_string(listener_.socket));
    fcntl(listener_.socket, F_SETFD, 0);
  }
  share_cores(static_cast<int>(children_.size()));
  execute(command_, signals_);
  if (rank == 0)
    logging::write("error", fmt::format("cannot start {}: {}.", command_[0], std::strerror(errno)));
  _exit(static_cast<int>(ErrorKind::usage));
}

void Launch::wait() {
  std::vector<pollfd> polled = {{.fd = signals_.file(), .events = POLLIN, .revents = 0}};
  for (const Child& child : children_)
    for (const Stream& stream : child.streams)
      if (stream.from >= 0) polled.push_back({.fd = stream.from, .events = POLLIN, .revents = 0});
  poll(polled.data(), polled.size(), 200);
  hear_signals();
  for (Child& child : children_)
    for (Stream& stream : child.streams) read(child, stream);
}

void Launch::hear_signals() {
  while (const std::optional<int> heard = signals_.next()) {
    const int signal = *heard;
    if (signal == SIGUSR1) {  // saves, which rank 0 does
      if (children_[0].pid > 0) kill(children_[0].pid, SIGUSR1);
    } else if (signal != SIGCHLD) {
      passed_on_ = signal;
      signal_all(signal);
    }
  }
}

void Launch::read(Child& child, Stream& stream) {
  std::array<char, 1 << 14> bytes;
  while (stream.from >= 0) {
    const ssize_t count = ::read(stream.from, bytes.data(), bytes.size());
    if (count > 0) stream.take(child.prefix, {bytes.data(), static_cast<size_t>(count)});
    if (count == 0) stream.end(child.prefix);
    if (count < 0 && errno != EINTR) return;
  }
}

// A program that the rank has left behind may hold the pipe open: only what is there is read.
void Launch::drain(Child& child) {
  for (Stream& stream : child.streams) {
    read(child, stream);
    stream.end(child.prefix);
  }
}

void Launch::reap() {
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    Child& child = children_[rank];
    int status = 0;
    if (child.pid <= 0 || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    drain(child);
    child.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (WIFSIGNALED(status) && !child.is_ended_by_us && WTERMSIG(status) != passed_on_)
      logging::note("rank {} (pid {}) was ended by signal {} ({}).", rank, child.pid,
                    WTERMSIG(status), strsignal(WTERMSIG(status)));
    child.pid = 0;
    if (child.code != 0 && child.code != saved_code && failed_at_ == 0) failed_at_ = now();
  }
}

// Ends ranks that go on without one that failed. One that is stopped could not end by itself.
void Launch::hasten() {
  if (failed_at_ == 0) return;
  const double since = now() - failed_at_;
  for (Child& child : children_)
    if (since > 0.5 && child.pid > 0 && comm::is_process_stopped(child.pid)) end(child, SIGKILL);
  const bool is_late = since > seconds_to_end + seconds_to_terminate;
  if (!is_late && (since < seconds_to_end || std::exchange(is_terminating_, true))) return;
  for (Child& child : children_) end(child, is_late ? SIGKILL : SIGTERM);
}

void Launch::end(Child& child, int signal) {
  if (child.pid <= 0) return;
  child.is_ended_by_us = true;
  kill(child.pid, signal);
}

void Launch::signal_all(int signal) {
  for (const Child& child : children_)
    if (child.pid > 0) kill(child.pid, signal);
}

int Launch::code() const {
  constexpr auto lost = static_cast<int>(ErrorKind::rank_lost);
  int worst = 0;
  bool is_saved = false;
  for (const Child& child : children_) {
    if (child.is_ended_by_us) continue;
    const bool is_killed = child.code > 128 && child.code != 128 + passed_on_;
    if (is_killed || child.code == lost) return lost;
    if (child.code == saved_code)
      is_saved = true;
    else
      worst = std::max(worst, child.code);
  }
  return worst == 0 && is_saved ? saved_code : worst;
}
}  // namespace

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

int launch_ranks(std::vector<std::string> command, int ranks) {
  return Launch(std::move(command), ranks).run();
}

}  // namespace weft::cli
