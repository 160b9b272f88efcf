#include "weft/train/run/signals.h"

#include <csignal>
#include <initializer_list>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

using namespace weft;

TEST_CASE("SIGHUP requests a stop unless the parent ignores it") {
  auto* const inherited = std::signal(SIGHUP, SIG_DFL);
  {
    train::Signals signals;
    std::raise(SIGHUP);
    CHECK(signals.stop_requested());
  }
  std::signal(SIGHUP, SIG_IGN);
  {
    train::Signals signals;
    std::raise(SIGHUP);
    CHECK(!signals.stop_requested());
  }
  const bool still_ignored = std::signal(SIGHUP, inherited) == SIG_IGN;
  CHECK(still_ignored);
}

TEST_CASE("the first SIGINT and SIGTERM request a stop and SIGUSR1 requests one save") {
  train::Signals signals;
  CHECK(!signals.stop_requested());
  CHECK(!signals.take_save_request());
  std::raise(SIGUSR1);
  CHECK(signals.take_save_request());
  CHECK(!signals.take_save_request());
  std::raise(SIGTERM);
  CHECK(signals.stop_requested());
}

TEST_CASE("a new run starts without pending requests") {
  {
    train::Signals first;
    std::raise(SIGINT);
  }
  train::Signals second;
  CHECK(!second.stop_requested());
}

TEST_CASE("a request before a run starts applies to the run") {
  {
    const train::Signals outer;
    std::raise(SIGUSR1);
    std::raise(SIGTERM);
    {
      train::Signals run;
      CHECK(run.take_save_request());
      CHECK(run.stop_requested());
    }
    std::raise(SIGTERM);  // the outer handlers are still installed
  }
  CHECK(!train::Signals().stop_requested());
}

TEST_CASE("signal handlers are restored after a run") {
  static int heard = 0;
  struct sigaction counted{}, before{};
  counted.sa_handler = [](int) { ++heard; };
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    sigaction(signal, &counted, &before);
    {
      train::Signals run;
    }
    heard = 0;
    std::raise(signal);
    CHECK(heard == 1);
    sigaction(signal, &before, nullptr);
  }
}

TEST_CASE("raises SIGINT twice" * doctest::skip()) {  // runs in its own process, see below
  train::Signals signals;
  std::raise(SIGINT);
  if (!signals.stop_requested()) _exit(1);
  std::raise(SIGINT);
  _exit(2);
}

// The child calls exec because the thread sanitizer delivers no signals in a fork of a threaded
// process.
TEST_CASE("a second SIGINT ends the process at once") {
  pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "train", "--no-skip", "--test-case=raises SIGINT twice", nullptr);
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
}
