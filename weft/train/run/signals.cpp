#include "weft/train/run/signals.h"

#include <array>
#include <csignal>

namespace weft::train {
namespace {
volatile std::sig_atomic_t stop = 0, save = 0;
int active = 0;
constexpr std::array caught = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
std::array<struct sigaction, caught.size()> before;

void on_signal(int number) {
  if (number == SIGUSR1) {
    save = 1;
    return;
  }
  if (number == SIGINT && stop != 0) {  // the second SIGINT gets the default action
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  stop = 1;
}
}  // namespace

Signals::Signals() {
  if (active++ > 0) return;
  stop = 0;
  save = 0;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < caught.size(); ++i) {
    sigaction(caught[i], &action, &before[i]);
    if (caught[i] == SIGHUP && before[i].sa_handler == SIG_IGN)
      sigaction(SIGHUP, &before[i], nullptr);
  }
}

Signals::~Signals() {
  if (--active > 0) return;
  for (size_t i = 0; i < caught.size(); ++i) sigaction(caught[i], &before[i], nullptr);
}

bool Signals::stop_requested() const { return stop != 0; }

bool Signals::take_save_request() {
  bool requested = save != 0;
  save = 0;
  return requested;
}
}  // namespace weft::train
