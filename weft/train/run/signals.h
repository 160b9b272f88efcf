// Handles the signals of a run. SIGTERM, SIGHUP, SIGUSR2 (which mpirun passes on) and the first
// SIGINT save at the next step and stop; the second SIGINT ends the process at once; SIGUSR1 saves
// and goes on. SIGHUP stays ignored where it was (nohup).
#pragma once

namespace weft::train {

// Handles the signals during its lifetime and restores the previous handlers. Nested objects share
// their requests, so a signal before the run's own object exists counts for the run.
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
