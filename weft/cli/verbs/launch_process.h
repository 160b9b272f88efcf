// Declares what both ways of starting ranks have in common: by this process, and by mpirun.
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

[[noreturn]] void cannot_launch(std::string_view what);  // Error(failed), with errno

// LaunchSignals are the signals of a launcher, which it reads from a file while this lives.
class LaunchSignals {
 public:
  LaunchSignals();
  ~LaunchSignals();
  LaunchSignals(const LaunchSignals&) = delete;
  LaunchSignals& operator=(const LaunchSignals&) = delete;

  int file() const { return file_; }  // to poll
  std::optional<int> next() const;    // without waiting
  void let_through() const;           // as before, in a new process

 private:
  sigset_t before_{};
  int file_ = -1;
};

void write_all(int file, std::string_view text);

// For the new process:
// Ends with the launcher, leads a process group, reads nothing and writes to two files.
void become_child(int output, int errors);
// Sets WEFT_THREADS for one of so many ranks of this host, unless the user chose a number.
void share_cores(int ranks);
// Becomes the command. Returns where that fails, with errno.
void execute(std::vector<std::string> command, const LaunchSignals& signals);

}  // namespace weft::cli
