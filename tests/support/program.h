// Runs the program under test, as a user would: tests of the command line.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace weft::test {

struct Outcome {
  int code = -1;  // exit code; 128 + signal where one killed it
  std::string out, err;
  std::string command;  // for messages
};

// A program that goes on while a test looks on; one that nobody waited for is killed.
class Running {
 public:
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void signal(int number) const;
  bool ended() const;
  // False where it ended before `holds` did.
  bool until(const std::function<bool()>& holds) const;
  Outcome wait();

 private:
  friend class Workplace;
  Running(pid_t process, Outcome outcome, std::string folder)
      : process_(process), outcome_(std::move(outcome)), folder_(std::move(folder)) {}

  pid_t process_;  // 0: it was waited for
  Outcome outcome_;
  std::string folder_;
};

// The cache of programs under test: WEFT_CACHE_DIR (cmake/testing.cmake); where nobody set that,
// one that is not the user's.
std::string test_cache();

// A folder of its own, in which the program runs; removed at the end.
class Workplace {
 public:
  Workplace();
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& contents) const;  // makes its folders
  std::string read(const std::string& name) const;

  // It reads its standard input from the file ".in" there, if there is one.
  using Environment = std::map<std::string, std::string>;
  Outcome weft(const std::vector<std::string>& arguments,
               const Environment& environment = {}) const;
  // The same of any program, by its path.
  Outcome run(const std::string& program, const std::vector<std::string>& arguments,
              const Environment& environment = {}) const;
  // Does not wait. Only one at a time, as its output goes to files of the folder.
  Running start(const std::string& program, const std::vector<std::string>& arguments,
                const Environment& environment = {}) const;

 private:
  std::string folder_;
};

// One line on standard error that holds `message`, nothing internal, and this exit code. Returns
// what is wrong, "" for nothing.
std::string fails_with(const Outcome& outcome, int code, const std::string& message);

// The same of a run that goes on: exit code 0, and warnings on standard error.
std::string goes_on_with(const Outcome& outcome, const std::string& message);

// What it printed; requires exit code 0.
nlohmann::json json_of(const Outcome& outcome);

}  // namespace weft::test
