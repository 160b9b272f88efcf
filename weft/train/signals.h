// Signals of a run. SIGTERM, SIGHUP and the first SIGINT: save at the next step and stop; the
// second SIGINT: end at once; SIGUSR1: save and go on. SIGHUP stays ignored where it was (nohup).
#pragma once

namespace weft::train {

// Catches them while it lives, then restores what was there. One within another shares its
// requests: those of the time before a run count for the run.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  bool stop_requested() const;
  bool take_save_request();  // true once per SIGUSR1
};

}  // namespace weft::train
