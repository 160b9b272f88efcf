#include "weft/cli/verbs/launch_process.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/cli/verbs/launch_ranks.h"

namespace weft::cli {

void cannot_launch(std::string_view what) {
  throw Error(ErrorKind::failed, "[launch] {}: {}.", what, std::strerror(errno));
}

LaunchSignals::LaunchSignals() {
  sigset_t heard{};
  sigemptyset(&heard);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&heard, signal);
  sigprocmask(SIG_BLOCK, &heard, &before_);
  file_ = signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
  if (file_ < 0) cannot_launch("no signals");
}
LaunchSignals::~LaunchSignals() {
  close(file_);
  let_through();
}
void LaunchSignals::let_through() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> LaunchSignals::next() const {
  signalfd_siginfo heard{};
  if (::read(file_, &heard, sizeof heard) != sizeof heard) return std::nullopt;
  return static_cast<int>(heard.ssi_signo);
}

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
}

void become_child(int output, int errors) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // the launcher may be killed
  setpgid(0, 0);                     // Ctrl-C comes once, by the launcher
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
}

void share_cores(int ranks) {
  const int threads = std::max(1, usable_cores() / ranks);
  if (!env("WEFT_THREADS") && !env("OMP_NUM_THREADS"))
    setenv("WEFT_THREADS", std::to_string(threads).c_str(), 1);
}

void execute(std::vector<std::string> command, const LaunchSignals& signals) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  signals.let_through();
  execvp(argv[0], argv.data());
}

}  // namespace weft::cli
