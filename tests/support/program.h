// Runs the program under test as a user would, for tests of the command line.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace weft::test {

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Outcome {
  int code = -1;  // exit code; 128 + signal if killed
  std::string out, err;
  std::string command;  // for messages
};

// Running is a program that runs while a test observes it; the destructor kills it unless wait()
// was called.
class Running {
 public:
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void signal(int number) const;
  bool ended() const;
  // Waits until `holds` returns true; returns false if the program ends first.
  bool until(const std::function<bool()>& holds) const;
  Outcome wait();

 private:
  friend class Workplace;
  Running(pid_t process, Outcome outcome, std::string folder)
      : process_(process), outcome_(std::move(outcome)), folder_(std::move(folder)) {}

  pid_t process_;  // 0: already waited for
  Outcome outcome_;
  std::string folder_;
};

// Returns the cache of programs under test: WEFT_CACHE_DIR (cmake/testing.cmake), or by default a
// folder other than the user's cache.
std::string test_cache();

// A Workplace is a temporary folder in which the program runs; the destructor removes it.
class Workplace {
 public:
  Workplace();
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& contents) const;  // creates parent folders
  std::string read(const std::string& name) const;

  // Runs weft; standard input is the file ".in" of the folder, if it exists.
  using Environment = std::map<std::string, std::string>;
  Outcome weft(const std::vector<std::string>& arguments,
               const Environment& environment = {}) const;
  // Does the same for any program, given by its path.
  Outcome run(const std::string& program, const std::vector<std::string>& arguments,
              const Environment& environment = {}) const;
  // Starts a program without waiting. Only one may run at a time, as its output goes to fixed
  // files.
  Running start(const std::string& program, const std::vector<std::string>& arguments,
                const Environment& environment = {}) const;

 private:
  std::string folder_;
};

// Checks for this exit code and one line on standard error that contains `message` and nothing
// internal. Returns what is wrong, "" for nothing.
std::string fails_with(const Outcome& outcome, int code, const std::string& message);

// Does the same for a run that succeeds with warnings on standard error.
std::string goes_on_with(const Outcome& outcome, const std::string& message);

// Parses the program's output; requires exit code 0.
nlohmann::json json_of(const Outcome& outcome);

}  // namespace weft::test
